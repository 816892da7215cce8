//! Which apps there are: by their manifests, by what is recorded, and by the
//! labels of containers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::manifest::AppName;
use crate::runtime::{Labels, Runtime, RuntimeError};
use crate::state::{Keys, labels};
use crate::store::{Range, Store, StoreError};

/// Where to look for apps.
#[derive(Debug, Clone)]
pub struct Catalog {
    store: Arc<dyn Store>,
    runtime: Arc<dyn Runtime>,
    keys: Keys,
}

/// What the store knows, at one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The revision.
    pub revision: i64,
    /// The manifests, with the revision of each.
    pub manifests: BTreeMap<AppName, i64>,
    /// Last parts of keys that name no app, with the revision of each.
    pub misnamed: BTreeMap<String, i64>,
    /// Apps that exist as far as the controller's records go.
    pub recorded: BTreeSet<AppName>,
    /// Last parts of keys that name no app, and of which a status speaks.
    pub told: BTreeSet<String>,
}

impl Catalog {
    /// Looks in this store and this runtime.
    pub fn new(store: Arc<dyn Store>, runtime: Arc<dyn Runtime>, keys: Keys) -> Self {
        Self {
            store,
            runtime,
            keys,
        }
    }

    /// The store that is looked in.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The runtime that is looked in.
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    /// The layout of the keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// What the store knows.
    ///
    /// Journals aren't read: a claimed operation's app has an ownership record,
    /// and a journal may be large.
    pub async fn listing(&self) -> Result<Listing, StoreError> {
        let records = [
            self.keys.actives(),
            self.keys.ownerships(),
            self.keys.statuses(),
        ];
        let mut ranges = vec![Range::Prefix(self.keys.apps())];
        ranges.extend(records.iter().cloned().map(Range::Prefix));
        let view = self.store.read(&ranges).await?;
        let mut listing = Listing {
            revision: view.revision,
            ..Listing::default()
        };
        let mut found = view.ranges.into_iter();
        for entry in found.next().unwrap_or_default() {
            let Some(tail) = self.keys.app_of(&entry.key) else {
                continue;
            };
            match tail.parse() {
                Ok(app) => _ = listing.manifests.insert(app, entry.mod_revision),
                Err(_) => {
                    _ = listing.misnamed.insert(tail.to_owned(), entry.mod_revision);
                }
            }
        }
        for (prefix, entries) in records.iter().zip(found) {
            let tails = entries.iter().filter_map(|it| it.key.strip_prefix(prefix));
            for tail in tails {
                match tail.parse() {
                    Ok(app) => _ = listing.recorded.insert(app),
                    Err(_) => _ = listing.told.insert(tail.to_owned()),
                }
            }
        }
        Ok(listing)
    }

    /// Apps named by the labels of this host's containers. An app that ended
    /// may have left some that nothing else names.
    pub async fn labelled(&self) -> Result<BTreeSet<AppName>, RuntimeError> {
        let containers = self.runtime.list(&Labels::new()).await?;
        Ok(containers
            .iter()
            .filter_map(|container| container.labels.get(labels::APP)?.parse().ok())
            .collect())
    }

    /// Every app there is. What the runtime can't say now is left out.
    pub async fn apps(&self) -> Result<BTreeSet<AppName>, StoreError> {
        let listing = self.listing().await?;
        let mut apps = listing.recorded;
        apps.extend(listing.manifests.into_keys());
        match self.labelled().await {
            Ok(labelled) => apps.extend(labelled),
            Err(error) => tracing::warn!(%error, "containers can't be listed"),
        }
        Ok(apps)
    }
}
