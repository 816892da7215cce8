//! Writes the graph and waits until the data planes have applied it.
//!
//! Confirmation rests on one order. A data plane registers *before* it lists the
//! routes, so a plane that isn't in a registry read at or after the write's
//! revision will list that write or a later one. Those that are in it are waited
//! for, until they have applied the revision or are given up: their lease has
//! ended, and they haven't registered again within [`RETURN_WITHIN`]. That time is
//! for a plane that lost its lease and not its life, as when etcd hung: it still
//! serves its last table. One that stops says so, and is waited for no longer.
//!
//! With no data plane at all a write is confirmed at once. A publisher that has
//! just started knows only those that are registered: one that was cut off before
//! that isn't waited for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::claims::{Published, conflict};
use super::registry::{Fresh, Registry, follow};
use super::{AppRoutes, Applied, Drain, GraphRevision, Traffic, TrafficError};
use crate::manifest::AppName;
use crate::state::{ContainerId, Keys, decode, encode};
use crate::store::{
    Authority, Commit, Entry, NotLeading, Range, Store, StoreError, Target, Txn, deadline,
};

/// How long the data planes have to confirm a revision.
pub const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a data plane whose lease ended is expected back. Longer than a plane
/// takes to notice and register; with its lease, shorter than [`CONFIRM_TIMEOUT`].
pub const RETURN_WITHIN: Duration = Duration::from_secs(4);

/// How often a write is tried whose outcome was unknown, or whose key another
/// write had changed.
const WRITE_TRIES: u32 = 4;

/// How long a publisher waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    /// For the data planes to confirm a revision.
    pub confirm: Duration,
    /// For a data plane whose lease ended to come back.
    pub return_within: Duration,
}

/// The graph in the store: the real [`Traffic`].
pub struct Publisher {
    store: Arc<dyn Store>,
    keys: Keys,
    authority: Authority,
    /// The registered data planes, as the shared watch has them.
    planes: watch::Receiver<Fresh>,
    /// One change at a time, so that two apps can't both find a claim free.
    changing: Mutex<()>,
    confirm_within: Duration,
    /// Ends the shared watch with the publisher.
    _follow: DropGuard,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("keys", &self.keys)
            .field("confirm_within", &self.confirm_within)
            .finish_non_exhaustive()
    }
}

impl Publisher {
    /// A publisher with its watch of the data planes, which ends with `cancel` or
    /// with the publisher. Must be called within a tokio runtime.
    pub fn start(
        store: Arc<dyn Store>,
        keys: Keys,
        authority: Authority,
        cancel: &CancellationToken,
    ) -> Self {
        let waits = Waits {
            confirm: CONFIRM_TIMEOUT,
            return_within: RETURN_WITHIN,
        };
        Self::start_with(store, keys, authority, waits, cancel)
    }

    /// The same with other waits than the usual.
    pub fn start_with(
        store: Arc<dyn Store>,
        keys: Keys,
        authority: Authority,
        waits: Waits,
        cancel: &CancellationToken,
    ) -> Self {
        let (sender, planes) = watch::channel(None);
        let ended = cancel.child_token();
        tokio::spawn(follow(
            Arc::clone(&store),
            keys.clone(),
            sender,
            waits.return_within,
            ended.clone(),
        ));
        Self {
            store,
            keys,
            authority,
            planes,
            changing: Mutex::new(()),
            confirm_within: waits.confirm,
            _follow: ended.drop_guard(),
        }
    }

    /// All published records, and the app's own entry as the store has it.
    async fn published(
        &self,
        app: &AppName,
    ) -> Result<(Vec<Published>, Option<Entry>), StoreError> {
        let prefix = self.keys.routes();
        let own_key = self.keys.route(app);
        let view = self.store.read(&[Range::Prefix(prefix.clone())]).await?;
        let mut published = Vec::new();
        let mut own = None;
        for entry in view.ranges.into_iter().flatten() {
            if let Some(record) = read_published(&prefix, &entry) {
                published.push(record);
            }
            if entry.key == own_key {
                own = Some(entry);
            }
        }
        Ok((published, own))
    }

    /// Writes the routes unless they are there; the revision that has them.
    async fn write(&self, app: &AppName, routes: &AppRoutes) -> Result<i64, TrafficError> {
        let value = encode(routes)?;
        let key = self.keys.route(app);
        let _one_at_a_time = self.changing.lock().await;
        let mut last = None;
        for _ in 0..WRITE_TRIES {
            // Also how an unknown outcome is found out: is it there by now?
            let (published, own) = match self.published(app).await {
                Ok(found) => found,
                Err(error) => return Err(last.unwrap_or(error).into()),
            };
            if let Some((claim, holder)) = conflict(app, routes, &published) {
                return Err(TrafficError::Conflict {
                    claim: claim.to_string(),
                    holder,
                });
            }
            let same = |record: &Published| &record.app == app && &record.routes == routes;
            if let Some(entry) = &own
                && published.iter().any(same)
            {
                return Ok(entry.mod_revision);
            }
            let txn = Txn::default().put(key.clone(), value.clone());
            match self.commit(&key, own.as_ref(), txn).await {
                Ok(Some(revision)) => return Ok(revision),
                Ok(None) => last = None,
                Err(TrafficError::Store(error)) if error.is_ambiguous() => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| contended(&key)).into())
    }

    /// Deletes the app's key, if it is there.
    async fn delete(&self, app: &AppName) -> Result<(), TrafficError> {
        let key = self.keys.route(app);
        let _one_at_a_time = self.changing.lock().await;
        let mut last = None;
        for _ in 0..WRITE_TRIES {
            let own = match self.entry(&key).await {
                Ok(own) => own,
                Err(error) => return Err(last.unwrap_or(error).into()),
            };
            if own.is_none() {
                return Ok(());
            }
            let txn = Txn::default().delete(key.clone());
            match self.commit(&key, own.as_ref(), txn).await {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => last = None,
                Err(TrafficError::Store(error)) if error.is_ambiguous() => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| contended(&key)).into())
    }

    /// Commits a change of `key`, provided that this controller leads and the key
    /// is still as it was read: a try whose reply was lost can then be repeated,
    /// because at most one of them is applied. `None` when the key had changed.
    async fn commit(
        &self,
        key: &str,
        seen: Option<&Entry>,
        txn: Txn,
    ) -> Result<Option<i64>, TrafficError> {
        let fence = self.authority.permit(deadline::COMMIT)?;
        let target = seen.map_or(Target::Absent, |entry| {
            Target::ModRevision(entry.mod_revision)
        });
        match self
            .store
            .commit(fence.guard(txn.when(key, target)))
            .await?
        {
            Commit::Applied(revision) => Ok(Some(revision)),
            Commit::Refused(keys) if keys.contains(&fence.key) => Err(NotLeading.into()),
            Commit::Refused(_) => Ok(None),
        }
    }

    async fn entry(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        let view = self.store.read(&[Range::Key(key.to_owned())]).await?;
        Ok(view.ranges.into_iter().flatten().next())
    }

    /// Returns when every live data plane has applied the revision, with how they
    /// stood then.
    async fn confirm(&self, revision: i64) -> Result<Arc<Registry>, TrafficError> {
        let mut planes = self.planes.clone();
        let confirmed = async {
            loop {
                let seen = planes.borrow_and_update().clone();
                if let Some(seen) = &seen
                    && seen.lagging(revision).is_empty()
                {
                    // The watch says nothing while nobody is registered: then
                    // only a read can tell that it stayed so up to the write.
                    if seen.revision >= revision {
                        return Ok(Arc::clone(seen));
                    }
                    let read = self.registry().await?;
                    if read.lagging(revision).is_empty() {
                        return Ok(Arc::new(read));
                    }
                }
                moved(&mut planes, seen).await?;
            }
        };
        let outcome = tokio::time::timeout(self.confirm_within, confirmed).await;
        outcome.unwrap_or_else(|_| {
            let seen = self.planes.borrow().clone();
            let lagging = seen.as_ref().map(|seen| seen.lagging(revision));
            Err(match lagging {
                Some(lagging) if !lagging.is_empty() => TrafficError::Unconfirmed {
                    planes: lagging.join(", "),
                },
                Some(_) | None => unlisted().into(),
            })
        })
    }

    async fn registry(&self) -> Result<Registry, StoreError> {
        Registry::read(&*self.store, &self.keys).await
    }
}

#[async_trait]
impl Traffic for Publisher {
    async fn current(&self, app: &AppName) -> Result<Option<AppRoutes>, TrafficError> {
        let entry = self.entry(&self.keys.route(app)).await?;
        Ok(entry.map(|entry| decode(&entry.value)).transpose()?)
    }

    async fn check(&self, app: &AppName, routes: &AppRoutes) -> Result<(), TrafficError> {
        if let Some((listener, plane)) = self.registry().await?.reserved(routes) {
            return Err(TrafficError::Reserved { listener, plane });
        }
        let (published, _) = self.published(app).await?;
        match conflict(app, routes, &published) {
            None => Ok(()),
            Some((claim, holder)) => Err(TrafficError::Conflict {
                claim: claim.to_string(),
                holder,
            }),
        }
    }

    async fn apply(&self, app: &AppName, routes: &AppRoutes) -> Result<Applied, TrafficError> {
        let revision = self.write(app, routes).await?;
        let planes = self.confirm(revision).await?;
        Ok(Applied {
            revision: GraphRevision(revision),
            unserved: planes.unserved(routes),
        })
    }

    /// Publishes no routes for the app, and deletes the key when that is
    /// confirmed: an absent key thus always means a confirmed removal, also for
    /// a controller that comes after a crash.
    async fn remove(&self, app: &AppName) -> Result<(), TrafficError> {
        let Some(entry) = self.entry(&self.keys.route(app)).await? else {
            return Ok(());
        };
        let nothing = AppRoutes {
            // A damaged record names no incarnation; no reader needs this one.
            incarnation: decode::<AppRoutes>(&entry.value)
                .map_or(crate::state::Incarnation(uuid::Uuid::nil()), |routes| {
                    routes.incarnation
                }),
            http: Vec::new(),
            tcp: Vec::new(),
            udp: Vec::new(),
        };
        self.apply(app, &nothing).await?;
        self.delete(app).await
    }

    async fn drain(
        &self,
        container: &ContainerId,
        within: Duration,
    ) -> Result<Drain, TrafficError> {
        let mut planes = self.planes.clone();
        let mut in_flight = 0;
        let drained = async {
            // The watch may be behind the read that confirmed the withdrawal.
            let now = self.registry().await?;
            let mut registered = now.in_flight(container);
            loop {
                let seen = planes.borrow_and_update().clone();
                let missing = seen
                    .as_ref()
                    .map_or(0, |seen| seen.missing_in_flight(container));
                if let Some(seen) = seen.as_ref().filter(|seen| seen.revision >= now.revision) {
                    registered = seen.in_flight(container);
                }
                in_flight = registered + missing;
                if in_flight == 0 {
                    break;
                }
                moved(&mut planes, seen).await?;
            }
            Ok::<(), TrafficError>(())
        };
        match tokio::time::timeout(within, drained).await {
            Ok(drained) => drained.map(|()| Drain::Empty),
            Err(_) => Ok(Drain::Expired { in_flight }),
        }
    }
}

/// Returns when the list has changed, or a missing plane is given up.
async fn moved(planes: &mut watch::Receiver<Fresh>, seen: Fresh) -> Result<(), StoreError> {
    let given_up = async {
        match &seen {
            Some(seen) => seen.given_up().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        changed = planes.changed() => changed.map_err(|_| stopped()),
        () = given_up => Ok(()),
    }
}

/// A record with its app, if its key and its value can be read. What can't is
/// no reason to hold up every other app; its own next write replaces it.
fn read_published(prefix: &str, entry: &Entry) -> Option<Published> {
    let app = entry.key.strip_prefix(prefix)?.parse().ok()?;
    let routes = decode(&entry.value)
        .inspect_err(|error| tracing::warn!(key = entry.key, %error, "unreadable routes"))
        .ok()?;
    Some(Published {
        app,
        create_revision: entry.create_revision,
        routes,
    })
}

fn unlisted() -> StoreError {
    StoreError::Unavailable {
        call: "list of data planes",
        message: "it couldn't be brought up to date in time".to_owned(),
    }
}

fn stopped() -> StoreError {
    StoreError::Unavailable {
        call: "list of data planes",
        message: "this program is stopping".to_owned(),
    }
}

fn contended(key: &str) -> StoreError {
    StoreError::Refused {
        call: "transaction",
        message: format!("{key} keeps being changed by somebody else"),
    }
}
