//! Keys, transactions and history.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{
    Change, Commit, Compare, Entry, LeaseId, Range, StoreError, Target, Txn, View, Write, limit,
};
use super::lease::Leases;

/// A key as it is stored.
#[derive(Debug, Clone)]
struct Stored {
    value: Vec<u8>,
    created: i64,
    modified: i64,
    lease: Option<LeaseId>,
}

/// All the store knows.
#[derive(Debug, Clone)]
pub(super) struct State {
    revision: i64,
    compacted: i64,
    keys: BTreeMap<String, Stored>,
    history: BTreeMap<i64, Vec<Change>>,
    pub(super) leases: Leases,
}

impl Default for State {
    fn default() -> Self {
        Self {
            // etcd begins with 1, so that 0 can mean "doesn't exist".
            revision: 1,
            compacted: 0,
            keys: BTreeMap::new(),
            history: BTreeMap::new(),
            leases: Leases::default(),
        }
    }
}

impl State {
    pub(super) fn revision(&self) -> i64 {
        self.revision
    }

    /// Differs whenever a watch may have to look again.
    pub(super) fn stir(&self) -> (i64, i64, u64) {
        (self.revision, self.compacted, self.leases.changes())
    }

    pub(super) fn view(&self, ranges: &[Range]) -> Result<View, StoreError> {
        if ranges.contains(&Range::Key(String::new())) {
            return Err(refused("read", "key is not provided"));
        }
        Ok(View {
            revision: self.revision,
            ranges: ranges.iter().map(|range| self.read(range)).collect(),
        })
    }

    pub(super) fn read(&self, range: &Range) -> Vec<Entry> {
        match range {
            Range::Key(key) => self
                .keys
                .get(key)
                .map(|stored| entry(key, stored))
                .into_iter()
                .collect(),
            Range::Prefix(prefix) => self
                .below(prefix)
                .map(|(key, stored)| entry(key, stored))
                .collect(),
        }
    }

    pub(super) fn commit(&mut self, txn: &Txn) -> Result<Commit, StoreError> {
        check_limits(txn)?;
        let failed: BTreeSet<&String> = txn
            .compares
            .iter()
            .filter(|compare| !self.holds(compare))
            .map(|compare| &compare.key)
            .collect();
        if !failed.is_empty() {
            return Ok(Commit::Refused(failed.into_iter().cloned().collect()));
        }
        for write in &txn.writes {
            if let Write::Put {
                lease: Some(lease), ..
            } = write
            {
                self.leases.must_live(*lease)?;
            }
        }
        let revision = self.revision + 1;
        let mut changes = Vec::new();
        for write in &txn.writes {
            match write {
                Write::Put { key, value, lease } => {
                    changes.push(self.put(key, value, *lease, revision));
                }
                Write::Delete(key) => changes.extend(self.delete(key, revision)),
                Write::DeletePrefix(prefix) => {
                    let keys: Vec<String> =
                        self.below(prefix).map(|(key, _)| key.clone()).collect();
                    for key in keys {
                        changes.extend(self.delete(&key, revision));
                    }
                }
            }
        }
        self.record(changes);
        Ok(Commit::Applied(self.revision))
    }

    /// Deletes these keys in one revision: what the end of a lease does.
    pub(super) fn delete_all(&mut self, keys: &BTreeSet<String>) {
        let revision = self.revision + 1;
        let changes = keys
            .iter()
            .filter_map(|key| self.delete(key, revision))
            .collect();
        self.record(changes);
    }

    pub(super) fn compact(&mut self, revision: i64) {
        self.compacted = self.compacted.max(revision.min(self.revision));
        self.history = self.history.split_off(&self.compacted);
    }

    /// Changes below a prefix at or after revision `from`, oldest first.
    pub(super) fn changes(&self, prefix: &str, from: i64) -> Result<Vec<Change>, StoreError> {
        // Of that revision itself etcd keeps what was put, but not always what was deleted.
        if from <= self.compacted {
            return Err(StoreError::Compacted {
                compacted: self.compacted,
            });
        }
        let of = |change: &Change| match change {
            Change::Put(entry) => entry.key.starts_with(prefix),
            Change::Delete { key, .. } => key.starts_with(prefix),
        };
        let later = self.history.range(from..).flat_map(|(_, changes)| changes);
        Ok(later.filter(|change| of(change)).cloned().collect())
    }

    fn below<'s>(&'s self, prefix: &'s str) -> impl Iterator<Item = (&'s String, &'s Stored)> {
        self.keys
            .range(prefix.to_owned()..)
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    fn holds(&self, compare: &Compare) -> bool {
        let stored = self.keys.get(&compare.key);
        // Of a key that doesn't exist both revisions are 0, as in etcd.
        match compare.target {
            Target::Absent => stored.is_none(),
            Target::CreateRevision(revision) => {
                stored.map_or(0, |stored| stored.created) == revision
            }
            Target::ModRevision(revision) => stored.map_or(0, |stored| stored.modified) == revision,
        }
    }

    fn put(&mut self, key: &str, value: &[u8], lease: Option<LeaseId>, revision: i64) -> Change {
        let before = self.keys.get(key);
        let created = before.map_or(revision, |stored| stored.created);
        self.leases
            .detach(key, before.and_then(|stored| stored.lease));
        self.leases.attach(key, lease);
        let stored = Stored {
            value: value.to_vec(),
            created,
            modified: revision,
            lease,
        };
        let change = Change::Put(entry(key, &stored));
        self.keys.insert(key.to_owned(), stored);
        change
    }

    fn delete(&mut self, key: &str, revision: i64) -> Option<Change> {
        let stored = self.keys.remove(key)?;
        self.leases.detach(key, stored.lease);
        Some(Change::Delete {
            key: key.to_owned(),
            mod_revision: revision,
        })
    }

    /// Ends a transaction; one that changed nothing makes no revision.
    fn record(&mut self, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.revision += 1;
            self.history.insert(self.revision, changes);
        }
    }
}

fn entry(key: &str, stored: &Stored) -> Entry {
    Entry {
        key: key.to_owned(),
        value: stored.value.clone(),
        create_revision: stored.created,
        mod_revision: stored.modified,
    }
}

fn refused(call: &'static str, message: &str) -> StoreError {
    StoreError::Refused {
        call,
        message: message.to_owned(),
    }
}

/// What etcd refuses before it looks at the comparisons.
fn check_limits(txn: &Txn) -> Result<(), StoreError> {
    let refused = |message: &str| Err(refused("commit", message));
    let nameless = |write: &Write| match write {
        Write::Put { key, .. } | Write::Delete(key) => key.is_empty(),
        Write::DeletePrefix(_) => false,
    };
    if txn.compares.iter().any(|compare| compare.key.is_empty()) || txn.writes.iter().any(nameless)
    {
        return refused("key is not provided");
    }
    if txn.compares.len().max(txn.writes.len()) > limit::OPERATIONS {
        return refused("too many operations in txn request");
    }
    let mut size = 0;
    let mut put = BTreeSet::new();
    for write in &txn.writes {
        match write {
            Write::Put { key, value, .. } => {
                size += key.len() + value.len();
                if !put.insert(key.as_str()) {
                    return refused("duplicate key given in txn request");
                }
            }
            Write::Delete(key) | Write::DeletePrefix(key) => size += key.len(),
        }
    }
    if size > limit::REQUEST_BYTES {
        return refused("request is too large");
    }
    let deletes_a_put = txn.writes.iter().any(|write| match write {
        Write::Put { .. } => false,
        Write::Delete(key) => put.contains(key.as_str()),
        // Of everything, which etcd writes as from NUL to NUL, it sees no overlap.
        Write::DeletePrefix(prefix) if prefix.is_empty() => false,
        Write::DeletePrefix(prefix) => put.iter().any(|key| key.starts_with(prefix.as_str())),
    });
    if deletes_a_put {
        return refused("duplicate key given in txn request");
    }
    Ok(())
}
