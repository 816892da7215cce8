//! The data plane's side of the protocol with the controller.
//!
//! Register with `applied: 0`, then list the routes, serve them, and only then
//! write the revision: who reads the registry at or after a write either finds
//! this plane and waits for it, or the plane's list will hold that write. After a
//! lost lease the same order begins anew. Whatever becomes of the store, the last
//! table goes on serving.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;
use super::records::Records;
use super::stream::Listeners;
use super::switch::Switch;
use crate::manifest::NodeName;
use crate::state::{ContainerId, Keys, RecordError, decode, encode};
use crate::store::{Commit, LeaseId, Range, Store, StoreError, Target, Txn, WatchEvent};
use crate::traffic::{DataPlane, FailedListener, LEFT};

/// First pause after a failure of the store; doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause while the store can't be reached.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// How often counts that aren't zero yet are written.
const DRAIN_REPORT: Duration = Duration::from_secs(1);
/// How long the farewell to the store may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// One data plane's link to the store.
#[derive(Debug)]
pub(super) struct Plane {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its keys.
    pub keys: Keys,
    /// This host.
    pub node: NodeName,
    /// Its name on the host.
    pub name: String,
    /// When it began: also how it knows its own record from another's.
    pub since: Timestamp,
    /// Time of the lease.
    pub lease: Duration,
    /// The table.
    pub switch: Arc<Switch>,
    /// The TCP and UDP listeners.
    pub listeners: Arc<Listeners>,
    /// TCP ports that no app can have.
    pub reserved: BTreeSet<u16>,
    /// What is counted.
    pub metrics: Metrics,
    /// Whether there is a table.
    pub ready: watch::Sender<bool>,
}

/// What was learned from the store, over all registrations.
#[derive(Debug, Default)]
struct Graph {
    records: Records,
    /// The newest revision seen.
    revision: i64,
    /// The store's cluster.
    cluster: Option<u64>,
}

/// What this plane says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Report {
    applied: i64,
    draining: BTreeMap<ContainerId, u64>,
    failed: Vec<FailedListener>,
}

/// A registration that lasts.
#[derive(Debug)]
struct Registration {
    key: String,
    lease: LeaseId,
    mod_revision: i64,
}

/// Why a registration doesn't last.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("the lease has expired")]
    Expired,
    #[error("another data plane registered under this name")]
    Taken,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl Plane {
    /// Keeps the plane registered and the table up to date until cancelled.
    pub async fn run(mut self, cancel: CancellationToken) {
        let mut current = None;
        let mut graph = Graph::default();
        let mut pause = FIRST_PAUSE;
        let keep = async {
            loop {
                let lost = self.registered(&mut current, &mut graph, &mut pause).await;
                self.metrics.registered.set(0);
                tracing::warn!(plane = self.name, error = %lost, "registering again; the last table goes on serving");
                if matches!(lost, Lost::Taken) {
                    // It lives and serves, so it must be waited for, under a name
                    // of its own.
                    self.name = format!("{}-{:08x}", self.name, self.since.subsec_nanosecond());
                    tracing::error!(
                        plane = self.name,
                        "two data planes had one name: give each its own"
                    );
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            () = keep => {}
        }
        self.metrics.registered.set(0);
        if let Some(mut registration) = current {
            // Not in time is not at all: then the lease ends by itself, and
            // whoever publishes waits until then.
            let farewell = async {
                let nothing_serves = Report {
                    applied: LEFT,
                    ..Report::default()
                };
                if self.write(&mut registration, &nothing_serves).await.is_ok() {
                    let _ = self.store.revoke(registration.lease).await;
                }
            };
            let _ = tokio::time::timeout(FAREWELL, farewell).await;
        }
    }

    /// One registration, from its lease to its loss.
    async fn registered(
        &self,
        current: &mut Option<Registration>,
        graph: &mut Graph,
        pause: &mut Duration,
    ) -> Lost {
        let registration = match self.register().await {
            Ok(registration) => current.insert(registration),
            Err(lost) => return lost,
        };
        let lease = registration.lease;
        *pause = FIRST_PAUSE;
        self.metrics.registered.set(1);
        let (sender, applied) = watch::channel(0);
        let lost = tokio::select! {
            lost = self.keep_alive(lease) => lost,
            lost = self.report(registration, applied) => lost,
            never = self.follow(graph, &sender) => match never {},
        };
        lost
    }

    async fn register(&self) -> Result<Registration, Lost> {
        let lease = self.store.grant(self.lease).await?;
        let key = self.keys.proxy(&self.node, &self.name);
        let value = encode(&self.record(Report::default()))?;
        // What a predecessor of this name left is taken over: the sockets are
        // bound by now, so on this host it isn't there any more.
        let txn = Txn::default().put_leased(key.clone(), value, lease);
        match self.store.commit(txn).await? {
            Commit::Applied(mod_revision) => Ok(Registration {
                key,
                lease,
                mod_revision,
            }),
            Commit::Refused(_) => Err(Lost::Taken),
        }
    }

    async fn keep_alive(&self, lease: LeaseId) -> Lost {
        loop {
            tokio::time::sleep(self.lease / 4).await;
            match self.store.keep_alive(lease).await {
                Ok(()) => self.metrics.registered.set(1),
                Err(StoreError::LeaseExpired) => return Lost::Expired,
                Err(error) => {
                    self.metrics.registered.set(0);
                    tracing::warn!(%error, "the lease couldn't be renewed");
                }
            }
        }
    }

    /// Writes what is applied, and what drains, whenever that changes.
    async fn report(
        &self,
        registration: &mut Registration,
        mut applied: watch::Receiver<i64>,
    ) -> Lost {
        let mut written = Report::default();
        let mut failed = self.listeners.failed();
        loop {
            // In this order: the counts are those of after the swap, and so are the
            // listeners.
            let wanted = Report {
                applied: *applied.borrow_and_update(),
                draining: self.switch.draining(),
                failed: failed.borrow_and_update().clone(),
            };
            if wanted != written {
                if let Err(lost) = self.write(registration, &wanted).await {
                    return lost;
                }
                written = wanted;
            }
            tokio::select! {
                changed = applied.changed() => if changed.is_err() { return Lost::Expired },
                changed = failed.changed() => if changed.is_err() { return Lost::Expired },
                () = self.switch.emptied() => {}
                () = tokio::time::sleep(DRAIN_REPORT), if !written.draining.is_empty() => {}
            }
        }
    }

    /// Writes the record over the one written last. Whatever becomes of a reply,
    /// the comparison lets at most one try through.
    async fn write(&self, registration: &mut Registration, report: &Report) -> Result<(), Lost> {
        let value = encode(&self.record(report.clone()))?;
        let key = &registration.key;
        let mut pause = FIRST_PAUSE;
        loop {
            let unchanged = Target::ModRevision(registration.mod_revision);
            let txn = Txn::default().when(key, unchanged).put_leased(
                key,
                value.clone(),
                registration.lease,
            );
            let refused = match self.store.commit(txn).await {
                Ok(Commit::Applied(revision)) => {
                    registration.mod_revision = revision;
                    return Ok(());
                }
                Ok(Commit::Refused(_)) => self.store.read(&[Range::Key(key.clone())]).await,
                Err(StoreError::LeaseExpired) => return Err(Lost::Expired),
                Err(error) => Err(error),
            };
            match refused {
                Ok(view) => {
                    let entry = view.ranges.into_iter().flatten().next();
                    let entry = entry.ok_or(Lost::Expired)?;
                    registration.mod_revision = entry.mod_revision;
                    if entry.value == value {
                        return Ok(());
                    }
                    if decode::<DataPlane>(&entry.value)?.since != self.since {
                        return Err(Lost::Taken);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the applied revision couldn't be written");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    fn record(&self, report: Report) -> DataPlane {
        DataPlane {
            node: self.node.clone(),
            name: self.name.clone(),
            since: self.since,
            applied: report.applied,
            draining: report.draining,
            reserved: self.reserved.clone(),
            failed: report.failed,
        }
    }

    /// Serves the graph as it changes; lists again whenever the watch ends.
    async fn follow(
        &self,
        graph: &mut Graph,
        applied: &watch::Sender<i64>,
    ) -> std::convert::Infallible {
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.follow_once(graph, applied, &mut pause).await {
                Ok(()) => "the watch ended".to_owned(),
                Err(error) => error.to_string(),
            };
            tracing::warn!(
                error,
                "listing the routes again; the last table goes on serving"
            );
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn follow_once(
        &self,
        graph: &mut Graph,
        applied: &watch::Sender<i64>,
        pause: &mut Duration,
    ) -> Result<(), StoreError> {
        let prefix = self.keys.routes();
        let (cluster, _) = self.store.identity().await?;
        let view = self.store.read(&[Range::Prefix(prefix.clone())]).await?;
        graph.accept(cluster, view.revision)?;
        let entries: Vec<_> = view.ranges.into_iter().flatten().collect();
        graph.records.replace(&prefix, &entries);
        self.install(graph, applied).await;

        let mut watch = self.store.watch(&prefix, graph.revision + 1).await?;
        while let Some(event) = watch.next().await {
            *pause = FIRST_PAUSE;
            let mut changed = graph.take(&prefix, event?);
            // A burst is one table and one acknowledgement.
            let broken = loop {
                match watch.next().now_or_never() {
                    Some(Some(Ok(event))) => changed |= graph.take(&prefix, event),
                    Some(Some(Err(error))) => break Some(error),
                    Some(None) | None => break None,
                }
            };
            if changed {
                self.install(graph, applied).await;
            }
            if let Some(error) = broken {
                return Err(error);
            }
        }
        Ok(())
    }

    async fn install(&self, graph: &Graph, applied: &watch::Sender<i64>) {
        self.switch.install(&graph.records);
        self.listeners.follow().await;
        self.metrics.revision.set(graph.revision);
        self.ready.send_replace(true);
        applied.send_replace(graph.records.understood(graph.revision));
    }
}

impl Graph {
    /// Refuses a store that isn't the one that was served from: an empty, older or
    /// foreign one must not take any route away. Then nothing is acknowledged, so
    /// that nobody takes this plane for up to date.
    fn accept(&mut self, cluster: u64, revision: i64) -> Result<(), StoreError> {
        let known = *self.cluster.get_or_insert(cluster);
        if cluster == known && revision >= self.revision {
            self.revision = revision;
            return Ok(());
        }
        Err(StoreError::Refused {
            call: "list of routes",
            message: format!(
                "this is cluster {cluster:x} at revision {revision}, but cluster {known:x} at revision {} was served; restart the proxy to accept it",
                self.revision
            ),
        })
    }

    /// Takes over an event; whether a route changed.
    fn take(&mut self, prefix: &str, event: WatchEvent) -> bool {
        match event {
            WatchEvent::Changes { revision, changes } => {
                self.records.change(prefix, &changes);
                self.revision = self.revision.max(revision);
                !changes.is_empty()
            }
            WatchEvent::Progress(revision) => {
                self.revision = self.revision.max(revision);
                false
            }
        }
    }
}
