//! Operations that aren't deployments: recoveries, removals, rollbacks by themselves.

use std::collections::BTreeMap;

use tokio_util::sync::CancellationToken;

use crate::manifest::{AppName, ServiceName};
use crate::plan::{Action, Snapshot};
use crate::state::{OutcomeKind, Ownership, Resources, Verb, labels};

use super::error::{Failure, ReconcileError};
use super::run::Begin;
use super::{Reconciler, Verdict};

impl Reconciler {
    /// Performs an operation that isn't a deployment. When it fails, the pass
    /// ends, and the next one waits longer each time.
    pub(super) async fn upkeep(
        &self,
        snapshot: &Snapshot,
        verb: Verb,
        actions: &[Action],
        unfetched: BTreeMap<ServiceName, Failure>,
        cancel: &CancellationToken,
    ) -> Result<Option<Verdict>, ReconcileError> {
        let app = &snapshot.app;
        let live = snapshot.records.ownership.clone();
        let Some(ownership) = live.or_else(|| ended(snapshot)) else {
            tracing::warn!(app = %app, "ACTIVE without an ownership record: nothing is done");
            return Ok(Some(Verdict::Settled));
        };
        let begin = Begin {
            source: source(snapshot, verb, actions),
            unfetched,
            ..Begin::of(verb, ownership)
        };
        let outcome = self.operate(snapshot, begin, actions, cancel).await?;
        if outcome.result == OutcomeKind::Success {
            return Ok(None);
        }
        self.show(app).await?;
        Ok(Some(Verdict::Again(self.pacing.pause(&self.ctx, app))))
    }

    /// Writes the status as it is now.
    async fn show(&self, app: &AppName) -> Result<(), ReconcileError> {
        let snapshot = self.observe(app).await?;
        self.write_status(&snapshot, &self.resting_phase(&snapshot))
            .await
    }
}

/// The manifest that the operation speaks of: the one that is removed with the app,
/// or rolled back.
pub(super) fn source(snapshot: &Snapshot, verb: Verb, actions: &[Action]) -> i64 {
    let taken = actions.iter().find_map(|action| match action {
        Action::End { manifest } => *manifest,
        _ => None,
    });
    match verb {
        Verb::Rollback => snapshot.desired.source(),
        _ => taken.unwrap_or(0),
    }
}

/// The incarnation of leftovers whose app was removed.
fn ended(snapshot: &Snapshot) -> Option<Ownership> {
    let label = snapshot
        .containers
        .first()?
        .labels
        .get(labels::INCARNATION)?;
    Some(Ownership {
        incarnation: crate::state::Incarnation(label.parse().ok()?),
        since: jiff::Timestamp::UNIX_EPOCH,
        deletion_protection: false,
        resources: Resources::default(),
        shared_networks: BTreeMap::new(),
    })
}
