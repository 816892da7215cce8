//! The watch of the manifests: each change puts its app into the queue.
//!
//! It lists, then watches from that revision on. When the watch ends, however
//! it ends, it lists again and compares with what it had seen, so that nothing
//! that happened meanwhile is missed, deletions included.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use super::known::{Catalog, Listing};
use super::queue::{Queue, Why};
use super::rejections::Rejections;
use super::rewind::Rewind;
use crate::backoff::Pauses;
use crate::clock::Entropy;
use crate::manifest::AppName;
use crate::state::shorten;
use crate::store::{Change, Newest, StoreError, WatchEvent};
use crate::telemetry::{ControllerMetrics, Pulse};

/// Pauses before everything is listed again.
const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(200),
    longest: Duration::from_secs(15),
};

/// Watches the manifests.
#[derive(Debug)]
pub struct ManifestWatch {
    catalog: Catalog,
    queue: Queue,
    newest: Newest,
    rejections: Arc<dyn Rejections>,
    rewind: Rewind,
    entropy: Arc<Entropy>,
    metrics: ControllerMetrics,
    /// The highest revision that the store was seen at.
    reached: i64,
    /// The manifests as last seen, with the revision of each.
    seen: BTreeMap<AppName, i64>,
    /// Last parts of keys that name no app, with the revision of each.
    misnamed: BTreeMap<String, i64>,
    /// Listings and watches that failed, in a row.
    failures: u32,
}

impl ManifestWatch {
    /// A watch that puts apps into `queue` and their revisions into `newest`.
    pub fn new(
        catalog: Catalog,
        queue: Queue,
        newest: Newest,
        rejections: Arc<dyn Rejections>,
        rewind: Rewind,
        entropy: Arc<Entropy>,
        metrics: ControllerMetrics,
    ) -> Self {
        Self {
            catalog,
            queue,
            newest,
            rejections,
            rewind,
            entropy,
            metrics,
            reached: 0,
            seen: BTreeMap::new(),
            misnamed: BTreeMap::new(),
            failures: 0,
        }
    }

    /// Lists and watches until `cancel`.
    pub async fn run(mut self, cancel: CancellationToken, pulse: Pulse) {
        // The first listing may never succeed: from now on it is late.
        self.metrics.watch.alive();
        let watch = async {
            loop {
                pulse.beat();
                let Err(error) = self.list_and_watch(&pulse).await;
                self.failures = self.failures.saturating_add(1);
                let pause = PAUSES.after(self.failures, &self.entropy);
                tracing::warn!(%error, ?pause, "the watch of the manifests ended, lists again");
                tokio::time::sleep(pause).await;
            }
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            () = watch => {}
        }
        self.metrics.watch.ended();
    }

    async fn list_and_watch(
        &mut self,
        pulse: &Pulse,
    ) -> Result<std::convert::Infallible, StoreError> {
        let listing = self.catalog.listing().await?;
        if self.rewind.noticed(self.reached, listing.revision) {
            // The term is over: what is listed there isn't looked at.
            std::future::pending::<()>().await;
        }
        self.reached = listing.revision;
        let from = listing.revision + 1;
        self.metrics.relist("manifests");
        self.metrics.watch.alive();
        self.take(listing).await;
        if self.failures > 0 {
            // What failed for want of the store needn't wait out its pause.
            self.queue.retry_failed();
        }
        let apps = self.catalog.keys().apps();
        let mut watch = self.catalog.store().watch(&apps, from).await?;
        while let Some(event) = watch.next().await {
            let event = event?;
            self.failures = 0;
            self.metrics.watch.alive();
            pulse.beat();
            match event {
                WatchEvent::Changes { changes, revision } => {
                    self.reached = self.reached.max(revision);
                    for change in changes {
                        self.apply(change).await;
                    }
                }
                WatchEvent::Progress(revision) => self.reached = self.reached.max(revision),
            }
        }
        Err(StoreError::Unavailable {
            call: "watch",
            message: "the watch ended without a reason".to_owned(),
        })
    }

    /// Compares a listing with what was seen, and puts in each app that differs.
    async fn take(&mut self, listing: Listing) {
        let why = if self.seen.is_empty() {
            Why::Boot
        } else {
            Why::Manifest
        };
        let before = std::mem::replace(&mut self.seen, listing.manifests);
        for (app, revision) in &self.seen {
            if before.get(app) != Some(revision) {
                self.newest.saw(app, *revision);
                self.queue.enqueue(app, why);
            }
        }
        for app in before.keys() {
            if !self.seen.contains_key(app) {
                self.newest.saw(app, listing.revision);
                self.queue.enqueue(app, Why::Manifest);
            }
        }
        for app in &listing.recorded {
            // Its manifest was deleted while nobody looked, perhaps long ago.
            if !self.seen.contains_key(app) && !before.contains_key(app) {
                self.queue.enqueue(app, why);
            }
        }
        let before = std::mem::take(&mut self.misnamed);
        for (tail, revision) in &listing.misnamed {
            if before.get(tail) == Some(revision) {
                _ = self.misnamed.insert(tail.clone(), *revision);
            } else {
                self.refuse(tail, *revision).await;
            }
        }
        // A status may speak of one that went while nobody looked.
        for tail in listing.told.iter().chain(before.keys()) {
            if !listing.misnamed.contains_key(tail) {
                self.rejections.withdraw(tail).await;
            }
        }
    }

    async fn apply(&mut self, change: Change) {
        let (key, revision, written) = match &change {
            Change::Put(entry) => (&entry.key, entry.mod_revision, true),
            Change::Delete { key, mod_revision } => (key, *mod_revision, false),
        };
        let Some(tail) = self.catalog.keys().app_of(key).map(str::to_owned) else {
            return;
        };
        match tail.parse::<AppName>() {
            Ok(app) => {
                if written {
                    _ = self.seen.insert(app.clone(), revision);
                } else {
                    _ = self.seen.remove(&app);
                }
                self.newest.saw(&app, revision);
                self.queue.enqueue(&app, Why::Manifest);
            }
            Err(_) if written => self.refuse(&tail, revision).await,
            Err(_) => {
                _ = self.misnamed.remove(&tail);
                self.rejections.withdraw(&tail).await;
            }
        }
    }

    async fn refuse(&mut self, tail: &str, revision: i64) {
        let Err(error) = shorten(tail).parse::<AppName>() else {
            return;
        };
        let message = format!("the last part of the key is no app's name: {error}");
        tracing::warn!(key = %shorten(tail), "{message}");
        _ = self.misnamed.insert(tail.to_owned(), revision);
        self.rejections.reject(tail, revision, &message).await;
    }
}

#[cfg(test)]
mod tests;
