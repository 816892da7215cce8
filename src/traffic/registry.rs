//! The registered data planes, kept up to date by one shared watch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::DataPlane;
use crate::state::{ContainerId, Keys, decode};
use crate::store::{Change, Entry, Range, Store, StoreError, WatchEvent};

/// First pause before the list is read again; doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause while the store can't be reached.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// The data planes that were registered at one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Registry {
    /// The revision at which this was true.
    pub revision: i64,
    /// By `node/name`. One whose record can't be read is there without it: it
    /// lives, but confirms nothing.
    planes: BTreeMap<String, Option<DataPlane>>,
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
        let plane = decode(&entry.value)
            .inspect_err(|error| tracing::warn!(plane = name, %error, "unreadable data plane"))
            .ok();
        self.planes.insert(name, plane);
    }

    fn apply(&mut self, prefix: &str, revision: i64, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Put(entry) => self.put(prefix, entry),
                Change::Delete { key, .. } => {
                    self.planes.remove(short(prefix, key));
                }
            }
        }
        self.revision = self.revision.max(revision);
    }

    /// The live planes that haven't applied this revision of the graph.
    pub fn lagging(&self, revision: i64) -> Vec<&str> {
        self.planes
            .iter()
            .filter(|(_, plane)| plane.as_ref().is_none_or(|plane| plane.applied < revision))
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// Requests of this container that live planes still have in flight.
    pub fn in_flight(&self, container: &ContainerId) -> u64 {
        self.planes
            .values()
            .flatten()
            .filter_map(|plane| plane.draining.get(container))
            .sum()
    }
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
    cancel: CancellationToken,
) {
    let mut pause = FIRST_PAUSE;
    let keep = async {
        loop {
            let error = match follow_once(&*store, &keys, &fresh, &mut pause).await {
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
    pause: &mut Duration,
) -> Result<(), StoreError> {
    let prefix = keys.proxies();
    let mut registry = Arc::new(Registry::read(store, keys).await?);
    let mut watch = store.watch(&prefix, registry.revision + 1).await?;
    fresh.send_replace(Some(Arc::clone(&registry)));
    while let Some(event) = watch.next().await {
        *pause = FIRST_PAUSE;
        match event? {
            WatchEvent::Changes { revision, changes } => {
                Arc::make_mut(&mut registry).apply(&prefix, revision, &changes);
            }
            WatchEvent::Progress(revision) => {
                Arc::make_mut(&mut registry).apply(&prefix, revision, &[]);
            }
        }
        fresh.send_replace(Some(Arc::clone(&registry)));
    }
    Ok(())
}
