//! What a crash, a lost leadership or a failed clean-up left.

use crate::manifest::ServiceName;
use crate::plan::{self, Health, Phase, Snapshot};
use crate::runtime::Container;
use crate::sabotage::{self, Defect};
use crate::state::{
    BindClaim, Inhibition, InhibitionReason, Operation, OperationId, Outcome, OutcomeKind,
    StepKind, StepState, labels,
};
use crate::store::{Changes, Kept};
use crate::traffic::Backend;

use super::Reconciler;
use super::error::ReconcileError;
use super::journal::Journal;
use super::ports::HostPort;

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
        self.withdraw_unverified(snapshot).await?;
        for candidate in candidates(snapshot, &operation) {
            if sabotage::has(Defect::CandidateLeft) {
                continue;
            }
            if let Err(error) = self.ctx.remove(&candidate.id).await? {
                let stays = self.candidate_stays(snapshot, candidate, error.to_string());
                return Err(stays.await);
            }
        }
        let mut changes = Changes::default();
        self.clear_inhibitions(snapshot, &operation, &mut changes);
        let outcome = interrupted(&operation);
        let mut journal = Journal::resume(&self.ctx, app, operation, mod_revision);
        journal.release(&self.unnamed(snapshot, id).await?);
        journal.interrupt();
        let operation = journal.finish(outcome, changes, snapshot).await?;
        self.ctx.observer.operation(app, &operation);
        self.report(app, &operation).await;
        Ok(())
    }

    /// Takes out of the graph what isn't the verified execution any more: whatever
    /// becomes of the operation, nobody may be sent there meanwhile.
    async fn withdraw_unverified(&self, snapshot: &Snapshot) -> Result<(), ReconcileError> {
        let (Some(incarnation), Some(published)) = (snapshot.incarnation(), &snapshot.routes)
        else {
            return Ok(());
        };
        let records = &snapshot.records;
        let mut active = records.active.clone();
        for service in active.services.values_mut() {
            if plan::health(snapshot, service) != Health::Verified {
                service.verified = None;
            }
        }
        let verified = plan::routes(incarnation, &active, &records.revisions);
        let verified = verified.backends();
        let kept =
            |service: &ServiceName, backend: &Backend| verified.contains(&(service, backend));
        let safe = published.clone().only(kept);
        if &safe != published {
            // An error ends the pass: it is tried again before anything else is done.
            self.ctx.traffic.apply(&snapshot.app, &safe).await?;
        }
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

    /// The ports that the operation claimed for what is gone.
    async fn unnamed(
        &self,
        snapshot: &Snapshot,
        operation: &OperationId,
    ) -> Result<Vec<HostPort>, ReconcileError> {
        let kept = |name: &str| {
            let mut containers = snapshot.containers.iter();
            containers.any(|container| container.name == name && is_active(snapshot, container))
        };
        let (ports, records) = (&self.ctx.ports, &self.ctx.records);
        let of_gone =
            |claim: &BindClaim| &claim.operation == operation && !kept(&claim.container_name);
        Ok(ports.held(records, &snapshot.app, of_gone).await?)
    }

    /// No candidate of the operation is left, so nothing can have a second
    /// writer: its superseded containers need no inhibition any more. Nor does one
    /// that was to be superseded and that ACTIVE still names.
    fn clear_inhibitions(&self, snapshot: &Snapshot, operation: &Operation, changes: &mut Changes) {
        let keys = self.ctx.records.keys();
        let active = &snapshot.records.active.services;
        let names = |inhibition: &Inhibition| {
            let effective = active.get(&inhibition.service);
            effective.is_some_and(|effective| effective.container == inhibition.container)
        };
        let ends = |inhibition: &Inhibition| match inhibition.reason {
            InhibitionReason::ReplacementPending => true,
            InhibitionReason::RetirementPending => names(inhibition),
            InhibitionReason::Removed => false,
        };
        let of_it = snapshot
            .records
            .inhibitions
            .iter()
            .filter(|inhibition| inhibition.operation == operation.id);
        for inhibition in of_it.filter(|inhibition| ends(inhibition)) {
            let (service, container) = (&inhibition.service, &inhibition.container);
            changes.delete(keys.inhibition(&snapshot.app, service, container));
        }
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
        .all(|step| step.state == StepState::Succeeded)
        || sabotage::has(Defect::InterruptedIsSuccess);
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
