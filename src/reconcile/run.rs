//! The sequencer: one operation, one journaled step at a time.

use std::collections::BTreeMap;

use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::manifest::{AppName, ServiceName};
use crate::plan::{Action, Phase, Snapshot, status};
use crate::state::{
    Active, Operation, OperationId, Outcome, OutcomeKind, Ownership, Request, Revision, StepKind,
    Verb,
};
use crate::store::Changes;

use super::candidate::Candidate;
use super::error::{Failure, ReconcileError, StepError};
use super::journal::{Journal, steps};
use super::{Context, Reconciler};

/// One operation being performed.
pub(super) struct Run<'c> {
    pub ctx: &'c Context,
    pub app: &'c AppName,
    pub cancel: &'c CancellationToken,
    /// The live incarnation, with what it comes to own.
    pub ownership: Ownership,
    /// ACTIVE as the steps done so far leave it.
    pub active: Active,
    /// Every revision that ACTIVE or the operation names.
    pub revisions: Vec<Revision>,
    /// What the operation makes, by service.
    pub candidates: BTreeMap<ServiceName, Candidate>,
    pub journal: Journal<'c>,
}

/// What an operation is begun for.
pub(super) struct Begin {
    pub ownership: Ownership,
    /// The revision that is deployed, when it isn't written yet.
    pub revision: Option<Revision>,
    /// `mod_revision` of the manifest that is deployed.
    pub source: i64,
    pub attempt: u32,
}

impl Reconciler {
    /// Performs the actions as one operation. A failure of a step is an outcome,
    /// not an error.
    pub(super) async fn operate(
        &self,
        snapshot: &Snapshot,
        verb: Verb,
        actions: Vec<Action>,
        begin: Option<Begin>,
        cancel: &CancellationToken,
    ) -> Result<Option<Outcome>, ReconcileError> {
        let Some(begin) = begin.or_else(|| begin_for_owned(snapshot)) else {
            return Ok(None);
        };
        let operation = self.operation(verb, &actions, &begin);
        let span = tracing::info_span!(
            "operation", app = %snapshot.app, operation = %operation.id, verb = verb.as_str()
        );
        self.perform(snapshot, operation, actions, begin, cancel)
            .instrument(span)
            .await
            .map(Some)
    }

    fn operation(&self, verb: Verb, actions: &[Action], begin: &Begin) -> Operation {
        let now = self.ctx.clock.now();
        Operation {
            id: OperationId::new(self.ctx.entropy.uuid_at(now).to_string()),
            request: Request {
                verb,
                revision: begin.revision.as_ref().map(|revision| revision.number),
                service: None,
            },
            incarnation: begin.ownership.incarnation,
            source: begin.source,
            attempt: begin.attempt,
            started_at: now,
            finished_at: None,
            steps: steps(actions),
            outcome: None,
            warnings: Vec::new(),
        }
    }

    async fn perform(
        &self,
        snapshot: &Snapshot,
        operation: Operation,
        actions: Vec<Action>,
        begin: Begin,
        cancel: &CancellationToken,
    ) -> Result<Outcome, ReconcileError> {
        let ctx = &self.ctx;
        let claim = self.claim(snapshot, operation.request.verb, &begin)?;
        let mut revisions = snapshot.records.revisions.clone();
        if let Some(new) = begin.revision {
            revisions.retain(|revision| revision.number != new.number);
            revisions.push(new);
        }
        let journal = Journal::new(&ctx.records, ctx.clock.as_ref(), &snapshot.app, operation);
        let mut run = Run {
            ctx,
            app: &snapshot.app,
            cancel,
            ownership: begin.ownership,
            active: snapshot.records.active.clone(),
            revisions,
            candidates: BTreeMap::new(),
            journal,
        };
        *run.journal.stage() = claim;
        tracing::info!(steps = actions.len(), "began");
        let outcome = match run.steps(&actions).await {
            Ok(()) => success(),
            Err((_, StepError::Interrupted(error))) => {
                tracing::warn!(%error, "interrupted");
                return Err(error);
            }
            Err((index, StepError::Superseded)) => {
                let failure = Failure::passing("Superseded", "a newer manifest arrived");
                run.give_up(index, &actions, failure).await?
            }
            Err((index, StepError::Failed(failure))) => {
                run.give_up(index, &actions, failure).await?
            }
        };
        self.end(snapshot, run, outcome, &actions).await
    }

    /// What is written together with the claim of an operation.
    fn claim(
        &self,
        snapshot: &Snapshot,
        verb: Verb,
        begin: &Begin,
    ) -> Result<Changes, ReconcileError> {
        let keys = self.ctx.records.keys();
        let app = &snapshot.app;
        let mut changes = Changes::default();
        match &snapshot.records.ownership {
            Some(known) if known == &begin.ownership => {}
            Some(_) => changes.put(keys.ownership(app), &begin.ownership)?,
            // Only a deployment begins an incarnation.
            None if verb == Verb::Deploy => {
                changes.create(keys.ownership(app), &begin.ownership)?;
            }
            None => {}
        }
        if let Some(revision) = &begin.revision
            && !snapshot.records.revisions.contains(revision)
        {
            changes.create(keys.revision(app, revision.number), revision)?;
        }
        let working = status(snapshot, &Phase::Working(verb), self.ctx.clock.now());
        let known = snapshot.records.status.as_ref().map(|kept| &kept.record);
        if known != Some(&working) {
            changes.put(keys.status(app), &working)?;
        }
        Ok(changes)
    }

    /// Writes the outcome, and what follows from it for the next try.
    async fn end(
        &self,
        snapshot: &Snapshot,
        run: Run<'_>,
        outcome: Outcome,
        actions: &[Action],
    ) -> Result<Outcome, ReconcileError> {
        let app = &snapshot.app;
        let mut changes = Changes::default();
        let operation = run.journal.operation();
        let whole = operation.deploys() && outcome.result == OutcomeKind::Success;
        if whole {
            let active = Active {
                source: operation.source,
                ..run.active.clone()
            };
            changes.put(self.ctx.records.keys().active(app), &active)?;
            run.forget_revisions(&mut changes);
        }
        let earlier: Vec<Operation> = snapshot
            .records
            .operations
            .iter()
            .map(|kept| kept.record.clone())
            .collect();
        tracing::info!(
            outcome = outcome.result.as_str(),
            reason = outcome.reason.as_str(),
            "{}",
            outcome.message
        );
        let operation = run
            .journal
            .finish(outcome.clone(), changes, &earlier)
            .await?;
        self.pacing.ended(&self.ctx, app, &operation, actions);
        self.ctx.observer.operation(app, &operation);
        for step in &operation.steps {
            self.ctx.observer.step(app, step);
        }
        self.report(app, &operation).await;
        Ok(outcome)
    }
}

fn begin_for_owned(snapshot: &Snapshot) -> Option<Begin> {
    Some(Begin {
        ownership: snapshot.records.ownership.clone()?,
        revision: None,
        source: 0,
        attempt: 1,
    })
}

fn success() -> Outcome {
    Outcome {
        result: OutcomeKind::Success,
        reason: "Completed".to_owned(),
        message: "every step succeeded".to_owned(),
        retryable: false,
    }
}

impl Run<'_> {
    async fn steps(&mut self, actions: &[Action]) -> Result<(), (usize, StepError)> {
        for (index, action) in actions.iter().enumerate() {
            self.step(index, action)
                .await
                .map_err(|error| (index, error))?;
            self.journal.succeed(index);
        }
        Ok(())
    }

    async fn step(&mut self, index: usize, action: &Action) -> Result<(), StepError> {
        if self.cancel.is_cancelled() {
            return Err(ReconcileError::Interrupted.into());
        }
        // Before a withdrawal nothing of the service is touched yet.
        let first = matches!(action, Action::Withdraw { .. } | Action::Provision { .. });
        if first && self.superseded() {
            return Err(StepError::Superseded);
        }
        let service = action
            .service()
            .map(ServiceName::as_str)
            .unwrap_or_default();
        let span = tracing::info_span!("step", kind = action.kind().as_str(), service);
        self.perform(index, action).instrument(span).await
    }

    async fn perform(&mut self, index: usize, action: &Action) -> Result<(), StepError> {
        match action {
            Action::Withdraw { service, drain } => {
                self.withdraw(index, service, drain.as_ref()).await
            }
            Action::Inhibit {
                service,
                container,
                reason,
            } => self.inhibit(index, service, container, *reason).await,
            Action::Retire {
                service,
                container,
                forget,
            } => self.retire(index, service, container, *forget).await,
            Action::Sweep {
                container, name, ..
            } => self.sweep(index, container, name).await,
            Action::Provision { service, revision } => {
                self.provision(index, service, *revision).await
            }
            Action::Create { service, revision } => self.create(index, service, *revision).await,
            Action::Start { service, container } => {
                self.start(index, service, container.as_ref()).await
            }
            Action::Inspect { service, container } => self.inspect(index, service, container).await,
            Action::Probe { service } => self.probe(index, service).await,
            Action::Publish { service } => self.publish(index, service).await,
            Action::Traffic { .. } => self.apply_traffic(index).await,
            Action::Intent { inhibited } => self.intend_stopped(index, inhibited).await,
            Action::WithdrawApp => self.withdraw_app(index).await,
            Action::Reclaim => self.reclaim(index).await,
            Action::End => self.end_incarnation(),
        }
    }

    /// Whether a newer manifest than the one being deployed arrived.
    pub(super) fn superseded(&self) -> bool {
        let operation = self.journal.operation();
        operation.deploys() && self.ctx.newest.newest(self.app) > operation.source
    }

    /// Returns when a newer manifest than the one being deployed arrives.
    pub(super) async fn supersession(&self) {
        let operation = self.journal.operation();
        if operation.deploys() {
            self.ctx
                .newest
                .changed_beyond(self.app, operation.source)
                .await;
        } else {
            std::future::pending::<()>().await;
        }
    }

    /// Undoes what can be undone of a failed step, and says how it ended.
    async fn give_up(
        &mut self,
        index: usize,
        actions: &[Action],
        failure: Failure,
    ) -> Result<Outcome, ReconcileError> {
        self.journal
            .fail(index, &failure.message, failure.diagnostics.clone());
        let service = actions.get(index).and_then(Action::service);
        if let Some(service) = service {
            self.discard_candidate(service).await?;
        }
        let done = actions.iter().enumerate().any(|(other, action)| {
            action.kind() == StepKind::Publish
                && action.service() != service
                && self.journal.succeeded(other)
        });
        let subject = service
            .map(|service| format!("service {service}: "))
            .unwrap_or_default();
        Ok(Outcome {
            result: if done {
                OutcomeKind::Partial
            } else {
                OutcomeKind::Failed
            },
            reason: failure.reason.to_owned(),
            message: format!("{subject}{}", failure.message),
            retryable: failure.retryable,
        })
    }
}
