//! The watch of requests: what people ask for puts its app into the queue.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tokio_util::sync::CancellationToken;

use super::known::Catalog;
use super::queue::{Queue, Why};
use crate::backoff::Pauses;
use crate::clock::Entropy;
use crate::manifest::AppName;
use crate::state::Asked;
use crate::store::{Change, Entry, Newest, Range, StoreError, WatchEvent};
use crate::telemetry::Pulse;

/// Pauses before everything is listed again.
const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(200),
    longest: Duration::from_secs(15),
};

/// Watches the requests.
#[derive(Debug)]
pub struct RequestWatch {
    catalog: Catalog,
    queue: Queue,
    newest: Newest,
    entropy: Arc<Entropy>,
    /// Listings and watches that failed, in a row.
    failures: u32,
}

impl RequestWatch {
    /// A watch that puts apps into `queue`, and tells `newest` who is to end.
    pub fn new(catalog: Catalog, queue: Queue, newest: Newest, entropy: Arc<Entropy>) -> Self {
        Self {
            catalog,
            queue,
            newest,
            entropy,
            failures: 0,
        }
    }

    /// Lists and watches until `cancel`.
    pub async fn run(mut self, cancel: CancellationToken, pulse: Pulse) {
        let watch = async {
            loop {
                pulse.beat();
                let Err(error) = self.list_and_watch(&pulse).await;
                self.failures = self.failures.saturating_add(1);
                let pause = PAUSES.after(self.failures, &self.entropy);
                tracing::warn!(%error, ?pause, "the watch of the requests ended, lists again");
                tokio::time::sleep(pause).await;
            }
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            () = watch => {}
        }
    }

    async fn list_and_watch(
        &mut self,
        pulse: &Pulse,
    ) -> Result<std::convert::Infallible, StoreError> {
        let prefix = self.catalog.keys().requests();
        let store = Arc::clone(self.catalog.store());
        let view = store.read(&[Range::Prefix(prefix.clone())]).await?;
        for entry in view.ranges.iter().flatten() {
            self.enqueue(entry);
        }
        let mut watch = store.watch(&prefix, view.revision + 1).await?;
        while let Some(event) = watch.next().await {
            let event = event?;
            self.failures = 0;
            pulse.beat();
            if let WatchEvent::Changes { changes, .. } = event {
                for change in changes {
                    if let Change::Put(entry) = change {
                        self.enqueue(&entry);
                    }
                }
            }
        }
        Err(StoreError::Unavailable {
            call: "watch",
            message: "the watch ended without a reason".to_owned(),
        })
    }

    /// A key that names no app belongs to nobody, and is left alone.
    fn enqueue(&self, entry: &Entry) {
        let app = self.catalog.keys().requested_of(&entry.key);
        if let Some(Ok(app)) = app.map(str::parse::<AppName>) {
            if Asked::parse(&entry.value).is_ok_and(|asked| asked.ends()) {
                self.newest.end_asked(&app, entry.mod_revision);
            }
            self.queue.enqueue(&app, Why::Request);
        } else {
            tracing::warn!("a request's key names no app");
        }
    }
}
