//! The registered data planes, kept up to date by one shared watch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{AppRoutes, DataPlane, Listener, Unserved};
use crate::manifest::{NodeName, Protocol};
use crate::state::{ContainerId, Keys, decode};
use crate::store::{Change, Entry, Range, Store, StoreError, WatchEvent};

/// First pause before the list is read again; doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause while the store can't be reached.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// What a data plane writes as `applied` when it has stopped serving: nothing it
/// does can be older than any revision. It may leave without being missed.
pub(crate) const LEFT: i64 = i64::MAX;

/// A data plane as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    /// Registered, with its record.
    Registered(DataPlane),
    /// Registered with a record that can't be read: it lives, but confirms nothing.
    Unreadable,
    /// Its registration ended without a farewell. It may be dead, or cut off from
    /// the store and still serving: it has until then to come back.
    Missing {
        until: Instant,
        last: Option<DataPlane>,
    },
}

impl Standing {
    fn missing(self, until: Instant) -> Option<Self> {
        match self {
            Self::Registered(plane) if plane.applied == LEFT => None,
            Self::Registered(plane) => Some(Self::Missing {
                until,
                last: Some(plane),
            }),
            Self::Unreadable => Some(Self::Missing { until, last: None }),
            Self::Missing { .. } => Some(self),
        }
    }
}

/// The data planes at one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Registry {
    /// The revision at which this was true.
    pub revision: i64,
    /// By `node/name`.
    planes: BTreeMap<String, Standing>,
}

impl Registry {
    /// Reads the list as it is now.
    pub async fn read(store: &dyn Store, keys: &Keys) -> Result<Self, StoreError> {
        let prefix = keys.proxies();
        let view = store.read(&[Range::Prefix(prefix.clone())]).await?;
        let mut registry = Self {
            revision: view.revision,
            planes: BTreeMap::new(),
        };
        for entry in view.ranges.into_iter().flatten() {
            registry.put(&prefix, &entry);
        }
        Ok(registry)
    }

    fn put(&mut self, prefix: &str, entry: &Entry) {
        let name = short(prefix, &entry.key).to_owned();
        let standing = match decode(&entry.value) {
            Ok(plane) => Standing::Registered(plane),
            Err(error) => {
                tracing::warn!(plane = name, %error, "unreadable data plane");
                Standing::Unreadable
            }
        };
        self.planes.insert(name, standing);
    }

    fn apply(&mut self, prefix: &str, revision: i64, changes: &[Change], missing_until: Instant) {
        for change in changes {
            match change {
                Change::Put(entry) => self.put(prefix, entry),
                Change::Delete { key, .. } => {
                    if let Some((name, standing)) = self.planes.remove_entry(short(prefix, key))
                        && let Some(missing) = standing.missing(missing_until)
                    {
                        self.planes.insert(name, missing);
                    }
                }
            }
        }
        self.revision = self.revision.max(revision);
    }

    /// Remembers those of an earlier list that aren't in this one.
    fn miss(&mut self, earlier: Self, until: Instant) {
        for (name, standing) in earlier.planes {
            if let Some(missing) = standing.missing(until) {
                self.planes.entry(name).or_insert(missing);
            }
        }
    }

    /// The planes that may still serve an older graph than this revision.
    pub fn lagging(&self, revision: i64) -> Vec<&str> {
        let now = Instant::now();
        self.planes
            .iter()
            .filter(|(_, standing)| match standing {
                Standing::Registered(plane) => plane.applied < revision,
                Standing::Unreadable => true,
                Standing::Missing { until, .. } => now < *until,
            })
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// Requests of this container that registered planes still have in flight.
    pub fn in_flight(&self, container: &ContainerId) -> u64 {
        let registered = self.registered();
        registered
            .filter_map(|(_, plane)| plane.draining.get(container))
            .sum()
    }

    /// Requests of this container that missing planes had in flight.
    pub fn missing_in_flight(&self, container: &ContainerId) -> u64 {
        let now = Instant::now();
        let missing = self.planes.values().filter_map(|standing| match standing {
            Standing::Missing { until, last } if now < *until => {
                last.as_ref()?.draining.get(container)
            }
            Standing::Registered(_) | Standing::Unreadable | Standing::Missing { .. } => None,
        });
        missing.sum()
    }

    /// The listeners of these routes, of those with a backend, that some host
    /// doesn't serve. Of a host's data planes one is enough: the port is one.
    pub fn unserved(&self, routes: &AppRoutes) -> Vec<Unserved> {
        let mut hosts: BTreeMap<&NodeName, Vec<(&String, &DataPlane)>> = BTreeMap::new();
        for (name, plane) in self.registered() {
            hosts.entry(&plane.node).or_default().push((name, plane));
        }
        let wanted = routes
            .listeners()
            .filter(|(_, rule)| !rule.backends.is_empty());
        wanted
            .flat_map(|(listener, _)| {
                let hosts = hosts.values();
                hosts.filter_map(move |planes| unserved(planes, listener))
            })
            .collect()
    }

    /// A TCP listener of these routes that a registered plane's host has for Podherd
    /// itself, and that plane.
    pub fn reserved(&self, routes: &AppRoutes) -> Option<(Listener, String)> {
        let listeners: BTreeSet<Listener> = routes
            .listeners()
            .map(|(listener, _)| listener)
            .filter(|listener| listener.protocol == Protocol::Tcp)
            .collect();
        self.registered().find_map(|(name, plane)| {
            let taken = |listener: &&Listener| plane.reserved.contains(&listener.port);
            let listener = listeners.iter().find(taken)?;
            Some((*listener, name.clone()))
        })
    }

    fn registered(&self) -> impl Iterator<Item = (&String, &DataPlane)> {
        self.planes
            .iter()
            .filter_map(|(name, standing)| match standing {
                Standing::Registered(plane) => Some((name, plane)),
                Standing::Unreadable | Standing::Missing { .. } => None,
            })
    }

    /// Returns when the next missing plane's time is over; never without one.
    pub async fn given_up(&self) {
        let now = Instant::now();
        let next = self.planes.values().filter_map(|standing| match standing {
            Standing::Missing { until, .. } if now < *until => Some(*until),
            Standing::Registered(_) | Standing::Unreadable | Standing::Missing { .. } => None,
        });
        match next.min() {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    }
}

/// Why none of one host's planes serves the listener; none if one does.
fn unserved(planes: &[(&String, &DataPlane)], listener: Listener) -> Option<Unserved> {
    let mut first = None;
    for (name, plane) in planes {
        let failed = plane
            .failed
            .iter()
            .find(|failed| failed.listener == listener)?;
        first.get_or_insert_with(|| Unserved {
            plane: (*name).clone(),
            listener,
            why: failed.why.clone(),
        });
    }
    first
}

fn short<'k>(prefix: &str, key: &'k str) -> &'k str {
    key.strip_prefix(prefix).unwrap_or(key)
}

/// The list as the watch last had it; none while it can't be trusted.
pub(super) type Fresh = Option<Arc<Registry>>;

/// Keeps the list fresh until cancelled.
pub(super) async fn follow(
    store: Arc<dyn Store>,
    keys: Keys,
    fresh: watch::Sender<Fresh>,
    return_within: Duration,
    cancel: CancellationToken,
) {
    let mut pause = FIRST_PAUSE;
    let mut known = Arc::new(Registry::default());
    let keep = async {
        loop {
            let error = match follow_once(
                &*store,
                &keys,
                &fresh,
                return_within,
                &mut known,
                &mut pause,
            )
            .await
            {
                Ok(()) => "the watch ended".to_owned(),
                Err(error) => error.to_string(),
            };
            fresh.send_replace(None);
            tracing::warn!(error, "listing the data planes again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    };
    tokio::select! {
        () = cancel.cancelled() => {}
        () = keep => {}
    }
}

/// Lists, then watches from there until the watch ends.
async fn follow_once(
    store: &dyn Store,
    keys: &Keys,
    fresh: &watch::Sender<Fresh>,
    return_within: Duration,
    known: &mut Arc<Registry>,
    pause: &mut Duration,
) -> Result<(), StoreError> {
    let prefix = keys.proxies();
    let mut listed = Registry::read(store, keys).await?;
    listed.miss(Registry::clone(known), Instant::now() + return_within);
    *known = Arc::new(listed);
    let mut watch = store.watch(&prefix, known.revision + 1).await?;
    fresh.send_replace(Some(Arc::clone(known)));
    while let Some(event) = watch.next().await {
        *pause = FIRST_PAUSE;
        let (revision, changes) = match event? {
            WatchEvent::Changes { revision, changes } => (revision, changes),
            WatchEvent::Progress(revision) => (revision, Vec::new()),
        };
        let until = Instant::now() + return_within;
        Arc::make_mut(known).apply(&prefix, revision, &changes, until);
        fresh.send_replace(Some(Arc::clone(known)));
    }
    Ok(())
}
