//! What happens to containers puts their apps into the queue.
//!
//! Podman's events are hints: they come late, out of order, or not at all. So
//! whenever the stream was down all apps are looked at again, and now and then
//! they are all looked at whatever the stream says.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::known::Catalog;
use super::queue::{Queue, Why};
use crate::backoff::Pauses;
use crate::clock::Entropy;
use crate::runtime::{RuntimeError, RuntimeEvent, RuntimeEventKind};
use crate::state::labels;
use crate::store::StoreError;
use crate::telemetry::{ControllerMetrics, Pulse};

/// Pauses before the stream is opened again. Short at first: a restarted Podman
/// is back within a second, and until then no death is noticed.
const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(100),
    longest: Duration::from_secs(10),
};
/// How often the loop shows that it is alive while nothing happens.
const BEAT: Duration = Duration::from_secs(10);
/// Part of the period by which a resync comes earlier or later.
const RESYNC_JITTER: f64 = 0.1;

/// Why the stream of events is opened again.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the stream ended")]
    Ended,
}

/// Follows the runtime's events.
#[derive(Debug)]
pub struct EventWatch {
    catalog: Catalog,
    queue: Queue,
    entropy: Arc<Entropy>,
    metrics: ControllerMetrics,
    /// Failures in a row.
    failures: u32,
    /// Told once the stream is open, or can't be opened: what is looked at
    /// from then on misses nothing.
    first: Option<oneshot::Sender<()>>,
}

impl EventWatch {
    /// Follows events, and the receiver that is told after the first try to.
    pub fn new(
        catalog: Catalog,
        queue: Queue,
        entropy: Arc<Entropy>,
        metrics: ControllerMetrics,
    ) -> (Self, oneshot::Receiver<()>) {
        let (first, tried) = oneshot::channel();
        let watch = Self {
            catalog,
            queue,
            entropy,
            metrics,
            failures: 0,
            first: Some(first),
        };
        (watch, tried)
    }

    /// Follows until `cancel`.
    pub async fn run(mut self, cancel: CancellationToken, pulse: Pulse) {
        let follow = async {
            loop {
                pulse.beat();
                let Err(error) = self.follow(&pulse).await;
                self.first_is_tried();
                self.failures = self.failures.saturating_add(1);
                let pause = PAUSES.after(self.failures, &self.entropy);
                tracing::warn!(%error, ?pause, "Podman's events ended, opens them again");
                tokio::time::sleep(pause).await;
            }
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            () = follow => {}
        }
    }

    async fn follow(&mut self, pulse: &Pulse) -> Result<std::convert::Infallible, StreamError> {
        let mut events = self.catalog.runtime().events(labels::APP).await?;
        self.metrics.relist("events");
        if self.first.is_some() {
            // The manifests and records are listed right after this, by their watch.
            for app in self.catalog.labelled().await? {
                self.queue.enqueue(&app, Why::Boot);
            }
            self.first_is_tried();
        } else {
            for app in self.catalog.apps().await? {
                self.queue.enqueue(&app, Why::Reconnected);
            }
        }
        loop {
            match tokio::time::timeout(BEAT, events.next()).await {
                Err(_) => self.failures = 0,
                Ok(None) => return Err(StreamError::Ended),
                Ok(Some(event)) => {
                    self.take(&event?);
                    self.failures = 0;
                }
            }
            pulse.beat();
        }
    }

    fn take(&self, event: &RuntimeEvent) {
        match event.kind {
            RuntimeEventKind::Started
            | RuntimeEventKind::Died
            | RuntimeEventKind::Removed
            | RuntimeEventKind::Paused => {}
            // Execs and health checks: they would keep every app busy for ever.
            RuntimeEventKind::Other => return,
        }
        let app = event.labels.get(labels::APP).map(|name| name.parse());
        if let Some(Ok(app)) = app {
            self.queue.enqueue(&app, Why::Runtime);
        }
    }

    fn first_is_tried(&mut self) {
        if let Some(first) = self.first.take() {
            // Nobody listens when the term has ended meanwhile.
            _ = first.send(());
        }
    }
}

/// Puts in every app each `period`, a little earlier or later, until `cancel`.
pub async fn resync(
    catalog: Catalog,
    queue: Queue,
    period: Duration,
    entropy: Arc<Entropy>,
    cancel: CancellationToken,
) {
    loop {
        let shift = RESYNC_JITTER * (2.0 * entropy.fraction() - 1.0);
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(period.mul_f64(1.0 + shift)) => {}
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            apps = catalog.apps() => match apps {
                Ok(apps) => apps.iter().for_each(|app| queue.enqueue(app, Why::Resync)),
                Err(error) => tracing::warn!(%error, "apps can't be listed for the resync"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
