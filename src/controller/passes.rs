//! The work of the queue: one pass of the reconciler over one app.

use async_trait::async_trait;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::queue::{Next, Work};
use crate::manifest::AppName;
use crate::reconcile::{ReconcileError, Reconciler, Verdict};
use crate::telemetry::ReconcileMetrics;

/// Passes of a reconciler.
#[derive(Debug)]
pub struct Passes {
    reconciler: Reconciler,
    metrics: ReconcileMetrics,
}

impl Passes {
    /// Passes of this reconciler.
    pub fn new(reconciler: Reconciler, metrics: ReconcileMetrics) -> Self {
        Self {
            reconciler,
            metrics,
        }
    }
}

#[async_trait]
impl Work for Passes {
    async fn begin_term(&self) {
        self.reconciler.begin_term().await;
    }

    fn end_term(&self) {
        self.reconciler.end_term();
    }

    async fn noticed(&self) -> AppName {
        self.reconciler.unhealthy().await
    }

    async fn run(&self, app: &AppName, cancel: CancellationToken) -> Next {
        let began = Instant::now();
        let pass = self.reconciler.reconcile(app, &cancel);
        let result = pass.instrument(tracing::info_span!("pass", %app)).await;
        let (outcome, next) = match result {
            Ok(Verdict::Settled) => ("settled", Next::Done),
            Ok(Verdict::Again(delay)) => ("again", Next::After(delay)),
            Err(error) if cancel.is_cancelled() => {
                tracing::debug!(%app, %error, "the pass was interrupted");
                ("interrupted", Next::Failed)
            }
            Err(error) => {
                tracing::warn!(%app, %error, "the pass failed, another one follows");
                (failure(&error), Next::Failed)
            }
        };
        self.metrics.pass(outcome, began.elapsed());
        next
    }
}

/// The error as a label.
fn failure(error: &ReconcileError) -> &'static str {
    match error {
        ReconcileError::Records(_) => "records",
        ReconcileError::Runtime(_) => "podman",
        ReconcileError::Traffic(_) => "traffic",
        ReconcileError::Interrupted => "interrupted",
        ReconcileError::CandidateStays { .. } => "candidate_stays",
    }
}
