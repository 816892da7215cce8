//! The sequencer: one operation, one journaled step at a time.

use std::collections::{BTreeMap, BTreeSet};

use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::manifest::{AppName, ServiceName};
use crate::plan::{Action, Phase, Snapshot, status};
use crate::probe::Unhealthy;
use crate::sabotage::{self, Defect};
use crate::state::{
    Active, BindClaim, ContainerId, Inhibition, Operation, OperationId, Outcome, OutcomeKind,
    Ownership, Request, Revision, Status, Step, StepKind, Verb,
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
    /// Services whose images couldn't be pulled.
    pub unfetched: BTreeMap<ServiceName, Failure>,
    /// Every inhibition, as the steps done so far leave them.
    pub inhibitions: Vec<Inhibition>,
    /// Executions that failed their liveness probe.
    pub unhealthy: Vec<Unhealthy>,
    /// The store's revision at which the operation was decided.
    pub observed_at: i64,
    /// The names of the containers that are there, as the steps done so far leave them.
    pub names: BTreeMap<ContainerId, String>,
    pub journal: Journal<'c>,
}

/// What an operation is begun for.
pub(super) struct Begin {
    pub verb: Verb,
    pub ownership: Ownership,
    /// The revision that is deployed, when it isn't written yet.
    pub revision: Option<Revision>,
    /// `mod_revision` of the manifest that is deployed.
    pub source: i64,
    pub attempt: u32,
    /// The request that it answers.
    pub asked: Option<Claimed>,
    /// Services whose images couldn't be pulled beforehand.
    pub unfetched: BTreeMap<ServiceName, Failure>,
}

/// A request that an operation answers.
#[derive(Debug, Clone)]
pub(super) struct Claimed {
    /// Its ID, which becomes the operation's.
    pub id: OperationId,
    /// What was asked for.
    pub request: Request,
    /// Its key, which goes with the outcome.
    pub key: String,
}

impl Begin {
    /// For an operation that takes up no manifest.
    pub fn of(verb: Verb, ownership: Ownership) -> Self {
        Self {
            verb,
            ownership,
            revision: None,
            source: 0,
            attempt: 1,
            asked: None,
            unfetched: BTreeMap::new(),
        }
    }

    /// The operation, not claimed yet.
    pub fn operation(&self, ctx: &Context, steps: Vec<Step>) -> Operation {
        let now = ctx.clock.now();
        let asked = self.asked.as_ref();
        let id = asked.map(|asked| asked.id.clone());
        Operation {
            id: id.unwrap_or_else(|| OperationId::new(ctx.entropy.uuid_at(now).to_string())),
            request: Request {
                verb: self.verb,
                revision: match &self.revision {
                    Some(revision) => Some(revision.number),
                    None => asked.and_then(|asked| asked.request.revision),
                },
                service: asked.and_then(|asked| asked.request.service.clone()),
                container: asked.and_then(|asked| asked.request.container.clone()),
                note: asked.and_then(|asked| asked.request.note.clone()),
            },
            asked: self.asked.is_some(),
            incarnation: self.ownership.incarnation,
            source: self.source,
            attempt: self.attempt,
            started_at: now,
            finished_at: None,
            steps,
            outcome: None,
            warnings: Vec::new(),
        }
    }
}

impl Reconciler {
    /// Performs the actions as one operation. A failure of a step is an outcome,
    /// not an error.
    pub(super) async fn operate(
        &self,
        snapshot: &Snapshot,
        begin: Begin,
        actions: &[Action],
        cancel: &CancellationToken,
    ) -> Result<Outcome, ReconcileError> {
        let operation = begin.operation(&self.ctx, steps(actions));
        let span = tracing::info_span!(
            "operation",
            app = %snapshot.app,
            operation = %operation.id,
            verb = begin.verb.as_str()
        );
        self.perform(snapshot, operation, actions, begin, cancel)
            .instrument(span)
            .await
    }

    async fn perform(
        &self,
        snapshot: &Snapshot,
        operation: Operation,
        actions: &[Action],
        begin: Begin,
        cancel: &CancellationToken,
    ) -> Result<Outcome, ReconcileError> {
        let ctx = &self.ctx;
        let claim = self.claim(snapshot, &begin, &operation)?;
        let request_key = begin.asked.map(|asked| asked.key);
        let mut revisions = snapshot.records.revisions.clone();
        if let Some(new) = begin.revision {
            revisions.retain(|revision| revision.number != new.number);
            revisions.push(new);
        }
        let mut run = Run {
            ctx,
            app: &snapshot.app,
            cancel,
            ownership: begin.ownership,
            active: snapshot.records.active.clone(),
            revisions,
            candidates: BTreeMap::new(),
            unfetched: begin.unfetched,
            inhibitions: snapshot.records.inhibitions.clone(),
            observed_at: snapshot.records.at,
            unhealthy: snapshot.unhealthy.clone(),
            names: snapshot
                .containers
                .iter()
                .map(|container| (container.id.clone(), container.name.clone()))
                .collect(),
            journal: Journal::new(ctx, &snapshot.app, operation),
        };
        *run.journal.stage() = claim;
        run.release_stale(snapshot).await?;
        tracing::info!(steps = actions.len(), "began");
        let outcome = match run.steps(actions).await {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::warn!(%error, "interrupted");
                return Err(error);
            }
        };
        self.end(snapshot, run, outcome, actions, request_key).await
    }

    /// What is written together with the claim of an operation.
    fn claim(
        &self,
        snapshot: &Snapshot,
        begin: &Begin,
        operation: &Operation,
    ) -> Result<Changes, ReconcileError> {
        let keys = self.ctx.records.keys();
        let app = &snapshot.app;
        let mut changes = Changes::default();
        match &snapshot.records.ownership {
            Some(known) if known == &begin.ownership => {}
            Some(_) => changes.put(keys.ownership(app), &begin.ownership)?,
            // Only a deployment begins an incarnation.
            None if begin.verb == Verb::Deploy => {
                changes.create(keys.ownership(app), &begin.ownership)?;
            }
            None => {}
        }
        if let Some(revision) = &begin.revision
            && !snapshot.records.revisions.contains(revision)
        {
            changes.create(keys.revision(app, revision.number), revision)?;
        }
        if snapshot.has_status() {
            let working = Status {
                operation: Some(operation.id.clone()),
                ..status(snapshot, &Phase::Working(begin.verb), self.ctx.clock.now())
            };
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
        request_key: Option<String>,
    ) -> Result<Outcome, ReconcileError> {
        let app = &snapshot.app;
        let mut changes = Changes::default();
        if let Some(key) = request_key {
            changes.delete(key);
        }
        let operation = run.journal.operation();
        let whole =
            operation.request.verb == Verb::Deploy && outcome.result == OutcomeKind::Success;
        if whole {
            let active = Active {
                source: operation.source,
                ..run.active.clone()
            };
            changes.put(self.ctx.records.keys().active(app), &active)?;
            run.forget_revisions(&mut changes);
        }
        tracing::info!(
            outcome = outcome.result.as_str(),
            reason = outcome.reason.as_str(),
            "{}",
            outcome.message
        );
        let operation = run
            .journal
            .finish(outcome.clone(), changes, snapshot)
            .await?;
        self.ended(snapshot, &operation, actions).await;
        Ok(outcome)
    }

    /// Tells everybody who wants to know how an operation ended.
    pub(super) async fn ended(
        &self,
        snapshot: &Snapshot,
        operation: &Operation,
        actions: &[Action],
    ) {
        let app = &snapshot.app;
        self.pacing.ended(&self.ctx, app, operation, actions);
        self.ctx.observer.operation(app, operation);
        if operation.request.verb == Verb::Remove && operation.succeeded() {
            self.ctx.observer.status(app, None);
        }
        for step in &operation.steps {
            self.ctx.observer.step(app, step);
        }
        self.report(app, operation).await;
    }
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
    /// Stages the release of what is claimed for containers that aren't there: the
    /// predecessor of a rebuild, a create that came to nothing.
    async fn release_stale(&mut self, snapshot: &Snapshot) -> Result<(), ReconcileError> {
        let there: BTreeSet<&str> = snapshot
            .containers
            .iter()
            .map(|container| container.name.as_str())
            .collect();
        let stale = |claim: &BindClaim| !there.contains(claim.container_name.as_str());
        Ok(self.release_binds(stale).await?)
    }

    /// Performs the actions in order. The first failure ends a deployment or a
    /// removal; a recovery goes on with the services that are left, so that one
    /// never holds up another.
    async fn steps(&mut self, actions: &[Action]) -> Result<Outcome, ReconcileError> {
        let verb = self.journal.operation().request.verb;
        let goes_on = !matches!(verb, Verb::Deploy | Verb::Rollback | Verb::Remove);
        let mut failures: Vec<(Option<ServiceName>, Failure)> = Vec::new();
        for (index, action) in actions.iter().enumerate() {
            let service = action.service();
            let failed = |(failed, _): &(Option<ServiceName>, Failure)| failed.as_ref() == service;
            if failures.iter().any(failed) {
                continue;
            }
            let rest = actions.get(index..).unwrap_or_default();
            let failure = match self.step(index, action, rest).await {
                Ok(()) => {
                    self.journal.reached(action.kind().as_str(), "after");
                    self.journal.succeed(index);
                    continue;
                }
                Err(StepError::Interrupted(error)) => return Err(error),
                Err(StepError::Superseded) => {
                    let why = "a newer manifest, a stop or a removal arrived";
                    Failure::passing("Superseded", why)
                }
                Err(StepError::Failed(failure)) => failure,
            };
            self.give_up(index, service, &failure).await?;
            failures.push((service.cloned(), failure));
            if !goes_on {
                break;
            }
        }
        Ok(self.outcome(&failures))
    }

    fn outcome(&self, failures: &[(Option<ServiceName>, Failure)]) -> Outcome {
        let Some((_, first)) = failures.first() else {
            return success();
        };
        let operation = self.journal.operation();
        let published = |service| {
            operation.has(StepKind::Publish, service) && operation.has(StepKind::Traffic, service)
        };
        let mut services = operation
            .steps
            .iter()
            .filter_map(|step| step.service.as_ref());
        let done = services.any(published);
        let told = |(service, failure): &(Option<ServiceName>, Failure)| match service {
            Some(service) => format!("service {service}: {}", failure.message),
            None => failure.message.clone(),
        };
        Outcome {
            result: if done {
                OutcomeKind::Partial
            } else {
                OutcomeKind::Failed
            },
            reason: first.reason.to_owned(),
            message: failures.iter().map(told).collect::<Vec<_>>().join("; "),
            retryable: first.retryable,
        }
    }

    async fn step(
        &mut self,
        index: usize,
        action: &Action,
        rest: &[Action],
    ) -> Result<(), StepError> {
        if self.cancel.is_cancelled() {
            return Err(ReconcileError::Interrupted.into());
        }
        // Before a withdrawal nothing of the service is touched yet.
        let first = matches!(action, Action::Withdraw { .. } | Action::Provision { .. });
        if first && self.superseded().await {
            return Err(StepError::Superseded);
        }
        self.permit_ahead(action, rest).await?;
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
            Action::Clear { service, container } => {
                self.permit_again(index, service, container).await
            }
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
            Action::Probe { .. } if sabotage::has(Defect::ProbeSkipped) => Ok(()),
            Action::Probe { service } => self.probe(index, service).await,
            Action::Publish { service } => self.publish(index, service).await,
            Action::Traffic { .. } => self.apply_traffic(index).await,
            Action::Stop { service, container } => self.stop(index, service, container).await,
            Action::Drain { service, container } => {
                self.drain_superseded(index, service, container).await
            }
            Action::Intent { wish, inhibited } => self.intend(index, *wish, inhibited).await,
            Action::WithdrawApp => self.withdraw_app(index).await,
            Action::Leave { networks } => self.leave(index, networks).await,
            Action::Reclaim => self.reclaim(index).await,
            Action::End { manifest } => self.end_incarnation(*manifest).await,
        }
    }

    /// Whether a newer manifest than the one being deployed arrived.
    async fn superseded(&self) -> bool {
        let operation = self.journal.operation();
        operation.deploys() && self.ctx.superseded(self.app, operation.source).await
    }

    /// Returns when a newer manifest than the one being deployed arrives, or somebody
    /// wants the app to end, whatever is being done.
    pub(super) async fn supersession(&self) {
        let operation = self.journal.operation();
        let newer = async {
            if operation.deploys() {
                self.ctx.supersession(self.app, operation.source).await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = newer => {}
            () = self.ctx.newest.end_asked_beyond(self.app, self.observed_at) => {}
        }
    }

    /// Journals that a step failed, and undoes what can be undone of its service.
    async fn give_up(
        &mut self,
        index: usize,
        service: Option<&ServiceName>,
        failure: &Failure,
    ) -> Result<(), ReconcileError> {
        tracing::warn!(reason = failure.reason, "{}", failure.message);
        let diagnostics = failure.diagnostics.clone();
        self.journal.fail(index, &failure.message, diagnostics);
        match service {
            Some(service) => self.discard_candidate(service).await,
            None => Ok(()),
        }
    }
}
