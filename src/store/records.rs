//! Typed, fenced access to the records of an app.
//!
//! Reads give everything about an app at one store revision. A write is one
//! transaction around one record; it compares the leadership key and the
//! revision of that record. So a write whose reply was lost is safe to send
//! again: it is applied once, or found to be applied.

use std::sync::Arc;
use std::time::Duration;

use crate::manifest::{AppName, NodeName};
use crate::sabotage::{self, Defect};
use crate::state::{
    Active, BindClaim, Event, Incarnation, Inhibition, Intent, Keys, Operation, Ownership, Record,
    RecordError, Retained, Revision, Status, decode, encode,
};

use super::{Authority, Commit, Entry, NotLeading, Range, Store, StoreError, Target, Txn, Write};

/// How long a write may take; leadership must last as long.
const WRITE: Duration = Duration::from_secs(5);
/// How often a write with an unknown result is looked up and sent again.
const TRIES: u32 = 5;
/// Pause before a write with an unknown result is looked up.
const PAUSE: Duration = Duration::from_millis(200);

/// Why records couldn't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record under this key can't be read.
    #[error("{key}: {source}")]
    Damaged {
        /// The key.
        key: String,
        /// What is wrong with it.
        source: RecordError,
    },
    /// Not the leader, or not for long enough.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// Somebody else wrote these keys meanwhile.
    #[error("{} changed meanwhile; the next pass looks again", keys.join(", "))]
    Conflict {
        /// The keys.
        keys: Vec<String>,
    },
}

/// A record with the revision at which it was last written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept<T> {
    /// The record.
    pub record: T,
    /// Its key's `mod_revision`.
    pub mod_revision: i64,
}

/// Everything that is recorded about one app, at one store revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppRecords {
    /// The store revision.
    pub at: i64,
    /// The manifest as somebody wrote it.
    pub manifest: Option<Entry>,
    /// The live incarnation.
    pub ownership: Option<Ownership>,
    /// What serves now.
    pub active: Active,
    /// Running or stopped.
    pub intent: Option<Intent>,
    /// Every inhibition.
    pub inhibitions: Vec<Inhibition>,
    /// The journal, oldest first.
    pub operations: Vec<Kept<Operation>>,
    /// The revisions, oldest first.
    pub revisions: Vec<Revision>,
    /// The status, as last written.
    pub status: Option<Kept<Status>>,
    /// What people ask for, oldest first, as they wrote it.
    pub requests: Vec<Entry>,
}

/// Writes that go together with a record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes(Txn);

impl Changes {
    /// Adds a record.
    ///
    /// # Errors
    /// When the record can't be encoded.
    pub fn put<T: Record>(&mut self, key: String, record: &T) -> Result<(), RecordsError> {
        let value = encode_at(&key, record)?;
        self.push(Write::Put {
            key,
            value,
            lease: None,
        });
        Ok(())
    }

    /// Adds a record that must not exist yet.
    ///
    /// # Errors
    /// When the record can't be encoded.
    pub fn create<T: Record>(&mut self, key: String, record: &T) -> Result<(), RecordsError> {
        self.0 = std::mem::take(&mut self.0).when(key.clone(), Target::Absent);
        self.put(key, record)
    }

    /// Adds a delete.
    pub fn delete(&mut self, key: String) {
        self.push(Write::Delete(key));
    }

    /// Adds a delete of a key that must not have changed since `known`.
    pub fn delete_known(&mut self, key: String, known: i64) {
        self.0 = std::mem::take(&mut self.0).when(key.clone(), Target::ModRevision(known));
        self.delete(key);
    }

    /// Adds a delete of all below a prefix.
    pub fn delete_prefix(&mut self, prefix: String) {
        self.push(Write::DeletePrefix(prefix));
    }

    /// Adds all that `others` hold. etcd refuses a transaction that writes a
    /// key twice, so the later write of a key replaces the earlier one.
    pub fn extend(&mut self, others: Self) {
        self.0.compares.extend(others.0.compares);
        for write in others.0.writes {
            self.push(write);
        }
    }

    fn push(&mut self, write: Write) {
        if let Some(key) = key_of(&write) {
            self.0.writes.retain(|earlier| key_of(earlier) != Some(key));
        }
        self.0.writes.push(write);
    }
}

/// The single key that a write is about.
fn key_of(write: &Write) -> Option<&str> {
    match write {
        Write::Put { key, .. } | Write::Delete(key) => Some(key),
        Write::DeletePrefix(_) => None,
    }
}

fn encode_at<T: Record>(key: &str, record: &T) -> Result<Vec<u8>, RecordsError> {
    encode(record).map_err(|source| RecordsError::Damaged {
        key: key.to_owned(),
        source,
    })
}

fn decode_entry<T: Record>(entry: &Entry) -> Result<Kept<T>, RecordsError> {
    decode(&entry.value)
        .map(|record| Kept {
            record,
            mod_revision: entry.mod_revision,
        })
        .map_err(|source| RecordsError::Damaged {
            key: entry.key.clone(),
            source,
        })
}

/// A status follows from all the rest: one that can't be read is written anew.
fn readable_or_empty(entry: &Entry) -> Kept<Status> {
    decode_entry(entry).unwrap_or_else(|error| {
        tracing::warn!(%error, "written anew");
        Kept {
            record: Status::default(),
            mod_revision: entry.mod_revision,
        }
    })
}

fn decode_first<T: Record>(entries: &[Entry]) -> Result<Option<Kept<T>>, RecordsError> {
    entries.first().map(decode_entry).transpose()
}

fn decode_all<T: Record>(entries: &[Entry]) -> Result<Vec<T>, RecordsError> {
    entries
        .iter()
        .map(|entry| decode_entry(entry).map(|kept| kept.record))
        .collect()
}

/// Typed, fenced access to the records.
#[derive(Debug, Clone)]
pub struct Records {
    store: Arc<dyn Store>,
    keys: Keys,
    authority: Authority,
}

impl Records {
    /// Records under `keys`, written with this authority.
    pub fn new(store: Arc<dyn Store>, keys: Keys, authority: Authority) -> Self {
        Self {
            store,
            keys,
            authority,
        }
    }

    /// The layout of the keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Who may write.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Everything that is recorded about an app.
    ///
    /// # Errors
    /// When the store fails or a record is damaged.
    pub async fn load(&self, app: &AppName) -> Result<AppRecords, RecordsError> {
        let keys = &self.keys;
        let view = self
            .store
            .read(&[
                Range::Key(keys.app(app)),
                Range::Key(keys.ownership(app)),
                Range::Key(keys.active(app)),
                Range::Key(keys.intent(app)),
                Range::Prefix(keys.inhibitions(app)),
                Range::Prefix(keys.operations(app)),
                Range::Prefix(keys.revisions(app)),
                Range::Key(keys.status(app)),
                Range::Prefix(keys.requests_of(app)),
            ])
            .await?;
        let at = |index: usize| view.ranges.get(index).map_or(&[][..], Vec::as_slice);
        // In the order in which they were claimed: a calendar may be set back.
        let mut operations: Vec<&Entry> = at(5).iter().collect();
        operations.sort_by_key(|entry| entry.create_revision);
        let operations = operations.into_iter().map(decode_entry);
        let mut requests = at(8).to_vec();
        requests.sort_by_key(|entry| entry.create_revision);
        Ok(AppRecords {
            at: view.revision,
            manifest: at(0).first().cloned(),
            ownership: decode_first(at(1))?.map(|kept| kept.record),
            active: decode_first(at(2))?
                .map(|kept| kept.record)
                .unwrap_or_default(),
            intent: decode_first(at(3))?.map(|kept| kept.record),
            inhibitions: decode_all(at(4))?,
            operations: operations.collect::<Result<_, _>>()?,
            revisions: decode_all(at(6))?,
            status: at(7).first().map(readable_or_empty),
            requests,
        })
    }

    /// The manifest as it is now; `None` when there is none.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn manifest(&self, app: &AppName) -> Result<Option<Entry>, RecordsError> {
        Ok(self.first(self.keys.app(app)).await?)
    }

    /// The status as it is now; `None` when there is none.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn status(&self, app: &AppName) -> Result<Option<Kept<Status>>, RecordsError> {
        let entry = self.first(self.keys.status(app)).await?;
        Ok(entry.as_ref().map(readable_or_empty))
    }

    /// The host ports that are claimed on a node, by key. A record that can't be read
    /// is left out: it belongs to one app, and mustn't stop all others. Its key still
    /// keeps its port from being claimed.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn bind_claims(
        &self,
        node: &NodeName,
    ) -> Result<Vec<(String, BindClaim)>, RecordsError> {
        let view = self
            .store
            .read(&[Range::Prefix(self.keys.binds(node))])
            .await?;
        let entries = view.ranges.first().map_or(&[][..], Vec::as_slice);
        let claim = |entry: &Entry| match decode_entry(entry) {
            Ok(kept) => Some((entry.key.clone(), kept.record)),
            Err(error) => {
                tracing::warn!(%error, "a port's claim can't be read");
                None
            }
        };
        Ok(entries.iter().filter_map(claim).collect())
    }

    /// The live incarnation of every app. A record that can't be read is left out: it
    /// belongs to one app, and mustn't stop all others.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn ownerships(&self) -> Result<Vec<Ownership>, RecordsError> {
        let prefix = Range::Prefix(self.keys.ownerships());
        let view = self.store.read(&[prefix]).await?;
        let entries = view.ranges.first().map_or(&[][..], Vec::as_slice);
        let ownership = |entry: &Entry| match decode_entry(entry) {
            Ok(kept) => Some(kept.record),
            Err(error) => {
                tracing::warn!(%error, "an app's ownership can't be read");
                None
            }
        };
        Ok(entries.iter().filter_map(ownership).collect())
    }

    /// What an ended incarnation left; `None` when it isn't known here.
    ///
    /// # Errors
    /// When the store fails or the record is damaged.
    pub async fn retained(
        &self,
        incarnation: Incarnation,
    ) -> Result<Option<Retained>, RecordsError> {
        let entry = self.first(self.keys.retained(incarnation)).await?;
        let kept = entry.as_ref().map(decode_entry).transpose()?;
        Ok(kept.map(|kept| kept.record))
    }

    /// Writes a record and the changes that go with it, in one transaction, once.
    /// `known` is the revision at which the record was last written; `None`
    /// when it must not exist yet. Gives the revision of the write.
    ///
    /// # Errors
    /// When this controller doesn't lead, somebody else wrote, or the store
    /// fails; then nothing is applied, or its result couldn't be found out.
    pub async fn commit<T: Record>(
        &self,
        key: String,
        known: Option<i64>,
        record: &T,
        changes: Changes,
    ) -> Result<i64, RecordsError> {
        let value = encode_at(&key, record)?;
        let mut txn = changes.0.when(
            key.clone(),
            known.map_or(Target::Absent, Target::ModRevision),
        );
        txn.writes.push(Write::Put {
            key: key.clone(),
            value: value.clone(),
            lease: None,
        });
        let mut tries = 0;
        loop {
            let fence = self.authority.permit(WRITE)?;
            match self.store.commit(fence.guard(txn.clone())).await {
                Ok(Commit::Applied(revision)) => return Ok(revision),
                Ok(Commit::Refused(keys)) => {
                    // An earlier try of this very transaction may have been the writer.
                    if tries > 0
                        && let Some(revision) = self.written(&key, &value).await?
                    {
                        return Ok(revision);
                    }
                    if keys.contains(&fence.key) {
                        return Err(NotLeading.into());
                    }
                    return Err(RecordsError::Conflict { keys });
                }
                Err(_) if sabotage::has(Defect::LostWriteTrusted) => return Ok(0),
                Err(error) if error.is_ambiguous() && tries < TRIES => {
                    tries += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Deletes a key outside of an operation, fenced.
    ///
    /// # Errors
    /// When this controller doesn't lead or the store fails.
    pub async fn forget(&self, key: String) -> Result<(), RecordsError> {
        self.apply(Txn::default().delete(key)).await
    }

    async fn apply(&self, txn: Txn) -> Result<(), RecordsError> {
        let fence = self.authority.permit(WRITE)?;
        match self.store.commit(fence.guard(txn)).await? {
            Commit::Applied(_) => Ok(()),
            Commit::Refused(_) => Err(NotLeading.into()),
        }
    }

    /// Deletes all that is recorded of an app that never came to own anything.
    ///
    /// # Errors
    /// When this controller doesn't lead or the store fails.
    pub async fn forget_app(&self, app: &AppName) -> Result<(), RecordsError> {
        let nothing = Txn::default()
            .delete(self.keys.status(app))
            .delete_prefix(self.keys.operations(app));
        self.apply(nothing).await
    }

    /// Writes events on a lease; best effort, for people only.
    ///
    /// # Errors
    /// When this controller doesn't lead or the store fails.
    pub async fn report(
        &self,
        app: &AppName,
        events: &[Event],
        keep: Duration,
    ) -> Result<(), RecordsError> {
        if events.is_empty() {
            return Ok(());
        }
        let fence = self.authority.permit(WRITE)?;
        let lease = self.store.grant(keep).await?;
        let mut txn = Txn::default();
        for (serial, event) in (0..).zip(events) {
            let key = self.keys.event(app, event.at, serial);
            let value = encode_at(&key, event)?;
            txn = txn.put_leased(key, value, lease);
        }
        match self.store.commit(fence.guard(txn)).await? {
            Commit::Applied(_) => Ok(()),
            Commit::Refused(_) => Err(NotLeading.into()),
        }
    }

    async fn first(&self, key: String) -> Result<Option<Entry>, StoreError> {
        let view = self.store.read(&[Range::Key(key)]).await?;
        Ok(view.ranges.into_iter().flatten().next())
    }

    async fn written(&self, key: &str, value: &[u8]) -> Result<Option<i64>, StoreError> {
        let entry = self.first(key.to_owned()).await?;
        Ok(entry
            .filter(|entry| entry.value == value)
            .map(|entry| entry.mod_revision))
    }
}
