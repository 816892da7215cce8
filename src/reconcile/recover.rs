//! What a crash, a lost leadership or a failed clean-up left.

use tokio_util::sync::CancellationToken;

use crate::manifest::AppName;
use crate::plan::{Action, Phase, Snapshot};
use crate::runtime::Container;
use crate::state::{
    InhibitionReason, Operation, OperationId, Outcome, OutcomeKind, Ownership, Resources, StepKind,
    StepState, Verb, labels,
};
use crate::store::{Changes, Kept};

use super::error::ReconcileError;
use super::journal::Journal;
use super::run::Begin;
use super::{Reconciler, Verdict};

impl Reconciler {
    /// Reconciles an operation that was interrupted. A candidate that ACTIVE
    /// names is kept, any other is removed by force. When that fails the
    /// operation stays in flight, and nothing else of the app is changed.
    pub(super) async fn recover(
        &self,
        snapshot: &Snapshot,
        id: &OperationId,
    ) -> Result<(), ReconcileError> {
        let found = snapshot
            .records
            .operations
            .iter()
            .find(|kept| &kept.record.id == id);
        let Some(Kept {
            record: operation,
            mod_revision,
        }) = found.cloned()
        else {
            return Ok(());
        };
        let app = &snapshot.app;
        tracing::warn!(app = %app, operation = %id, "reconciling an interrupted operation");
        for candidate in candidates(snapshot, &operation) {
            if let Err(error) = self.ctx.remove(&candidate.id).await? {
                return Err(self
                    .candidate_stays(snapshot, candidate, error.to_string())
                    .await);
            }
        }
        let mut changes = Changes::default();
        self.release_unnamed(snapshot, &operation, &mut changes)
            .await?;
        self.clear_inhibitions(snapshot, &operation, &mut changes);
        let outcome = interrupted(&operation);
        let ctx = &self.ctx;
        let mut journal = Journal::resume(
            &ctx.records,
            ctx.clock.as_ref(),
            app,
            operation,
            mod_revision,
        );
        for index in 0..journal.operation().steps.len() {
            let step = &journal.operation().steps[index];
            if step.state == StepState::Running {
                let error = match step.kind {
                    StepKind::Traffic => "interrupted before traffic was confirmed",
                    _ => "interrupted",
                };
                journal.fail(index, error, None);
            }
        }
        let earlier: Vec<Operation> = snapshot
            .records
            .operations
            .iter()
            .map(|kept| kept.record.clone())
            .collect();
        let operation = journal.finish(outcome, changes, &earlier).await?;
        ctx.observer.operation(app, &operation);
        self.report(app, &operation).await;
        Ok(())
    }

    async fn candidate_stays(
        &self,
        snapshot: &Snapshot,
        candidate: &Container,
        cause: String,
    ) -> ReconcileError {
        let stays = ReconcileError::CandidateStays {
            container: candidate.name.clone(),
            cause,
        };
        let held = Phase::Held {
            reason: "CandidateStays",
            message: stays.to_string(),
        };
        match self.write_status(snapshot, &held).await {
            Ok(()) => stays,
            Err(error) => error,
        }
    }

    /// Releases the ports that the operation claimed for what is gone.
    async fn release_unnamed(
        &self,
        snapshot: &Snapshot,
        operation: &Operation,
        changes: &mut Changes,
    ) -> Result<(), ReconcileError> {
        let ctx = &self.ctx;
        let kept = |name: &str| {
            snapshot
                .containers
                .iter()
                .any(|container| container.name == name && is_active(snapshot, container))
        };
        let held = ctx
            .ports
            .held(&ctx.records, &snapshot.app, |claim| {
                claim.operation == operation.id && !kept(&claim.container_name)
            })
            .await?;
        for (protocol, port) in &held {
            changes.delete(ctx.records.keys().bind(&ctx.node, *protocol, *port));
        }
        Ok(ctx.ports.released(&ctx.records, &held).await?)
    }

    /// No candidate of the operation is left, so nothing can have a second
    /// writer: its superseded containers need no inhibition any more.
    fn clear_inhibitions(&self, snapshot: &Snapshot, operation: &Operation, changes: &mut Changes) {
        let keys = self.ctx.records.keys();
        for inhibition in &snapshot.records.inhibitions {
            if inhibition.operation == operation.id
                && inhibition.reason == InhibitionReason::ReplacementPending
            {
                let (service, container) = (&inhibition.service, &inhibition.container);
                changes.delete(keys.inhibition(&snapshot.app, service, container));
            }
        }
    }

    /// Removes containers that no record names, as an operation.
    pub(super) async fn sweep(
        &self,
        snapshot: &Snapshot,
        actions: Vec<Action>,
        cancel: &CancellationToken,
    ) -> Result<Option<Verdict>, ReconcileError> {
        let ownership = snapshot
            .records
            .ownership
            .clone()
            .or_else(|| ended(snapshot));
        let begin = ownership.map(|ownership| Begin {
            ownership,
            revision: None,
            source: 0,
            attempt: 1,
        });
        self.upkeep(snapshot, Verb::Recover, actions, begin, cancel)
            .await
    }

    /// Performs an operation that isn't a deployment. When it fails, the pass
    /// ends, and the next one waits longer each time.
    pub(super) async fn upkeep(
        &self,
        snapshot: &Snapshot,
        verb: Verb,
        actions: Vec<Action>,
        begin: Option<Begin>,
        cancel: &CancellationToken,
    ) -> Result<Option<Verdict>, ReconcileError> {
        let app = &snapshot.app;
        let outcome = self.operate(snapshot, verb, actions, begin, cancel).await?;
        if outcome.is_none_or(|outcome| outcome.result == OutcomeKind::Success) {
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

/// The containers that the operation made and that ACTIVE doesn't name.
fn candidates<'s>(
    snapshot: &'s Snapshot,
    operation: &'s Operation,
) -> impl Iterator<Item = &'s Container> {
    let made = move |container: &&Container| {
        let label = container.labels.get(labels::OPERATION).map(String::as_str);
        label == Some(operation.id.as_str())
    };
    snapshot
        .containers
        .iter()
        .filter(made)
        .filter(|found| !is_active(snapshot, found))
}

fn is_active(snapshot: &Snapshot, container: &Container) -> bool {
    let mut active = snapshot.records.active.services.values();
    active.any(|service| service.container == container.id)
}

/// A success only if every step was.
fn interrupted(operation: &Operation) -> Outcome {
    let all = operation
        .steps
        .iter()
        .all(|step| step.state == StepState::Succeeded);
    let some = operation
        .steps
        .iter()
        .any(|step| step.kind == StepKind::Publish && step.state == StepState::Succeeded);
    if all && !operation.steps.is_empty() {
        return Outcome {
            result: OutcomeKind::Success,
            reason: "Completed".to_owned(),
            message: "every step succeeded before it was interrupted".to_owned(),
            retryable: false,
        };
    }
    Outcome {
        result: if some {
            OutcomeKind::Partial
        } else {
            OutcomeKind::Failed
        },
        reason: "Interrupted".to_owned(),
        message: "the controller was interrupted; what was left is reconciled".to_owned(),
        retryable: true,
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
    })
}
