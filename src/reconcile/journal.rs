//! The journal of one operation: what is written before and after each step.
//!
//! The end of a step and the beginning of the next are one transaction, and
//! what a step changes in the records goes with it. So each state that a crash
//! can leave is one that the journal names.

use crate::manifest::AppName;
use crate::plan::{Action, Snapshot};
use crate::state::{
    ContainerId, Diagnostics, Operation, Outcome, Step, StepKind, StepState, Warning,
};
use crate::store::{Changes, RecordsError};

use super::Context;
use super::failpoint;
use super::history::make_room;
use super::ports::HostPort;

/// How much of an operation's record diagnostics may take, in bytes: a record has to fit
/// into a transaction of etcd.
const DIAGNOSTICS: usize = 256 * 1024;

/// The journal of the operation in flight.
#[derive(Debug)]
pub(super) struct Journal<'c> {
    ctx: &'c Context,
    app: &'c AppName,
    operation: Operation,
    /// Revision of the last write; `None` before the operation is claimed.
    known: Option<i64>,
    /// Changes of steps that succeeded since the last write.
    staged: Changes,
    /// Ports whose release is staged.
    released: Vec<HostPort>,
}

impl<'c> Journal<'c> {
    /// A journal for an operation that isn't written yet.
    pub fn new(ctx: &'c Context, app: &'c AppName, operation: Operation) -> Self {
        Self {
            ctx,
            app,
            operation,
            known: None,
            staged: Changes::default(),
            released: Vec::new(),
        }
    }

    /// A journal that goes on with an operation found in flight.
    pub fn resume(
        ctx: &'c Context,
        app: &'c AppName,
        operation: Operation,
        mod_revision: i64,
    ) -> Self {
        Self {
            known: Some(mod_revision),
            ..Self::new(ctx, app, operation)
        }
    }

    /// The operation as it will be written next.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Changes that go with the next write.
    pub fn stage(&mut self) -> &mut Changes {
        &mut self.staged
    }

    /// These claims on host ports are deleted with the next write.
    pub fn release(&mut self, ports: &[HostPort]) {
        let (keys, node) = (self.ctx.records.keys(), &self.ctx.node);
        for (protocol, port) in ports {
            self.staged.delete(keys.bind(node, *protocol, *port));
        }
        self.released.extend(ports);
    }

    /// Writes that the step begins, with what its effect needs to be durable.
    /// The first call claims the operation. On an error nothing is forgotten.
    pub async fn begin(&mut self, index: usize, needs: Changes) -> Result<(), RecordsError> {
        self.enter(index);
        self.write(needs).await?;
        if let Some(step) = self.operation.steps.get(index) {
            self.reached(step.kind.as_str(), "begun");
        }
        Ok(())
    }

    /// A point at which a test may crash.
    pub fn reached(&self, step: &str, moment: &str) {
        failpoint::reached(self.operation.request.verb.as_str(), step, moment);
    }

    /// The next write also says that this step begins, if it is a change of the graph.
    pub fn enter_traffic(&mut self, index: usize) {
        let step = self.operation.steps.get(index);
        if step.is_some_and(|step| step.kind == StepKind::Traffic) {
            self.enter(index);
        }
    }

    fn enter(&mut self, index: usize) {
        let now = self.ctx.clock.now();
        if let Some(step) = self.operation.steps.get_mut(index) {
            step.state = StepState::Running;
            step.started_at = Some(now);
        }
    }

    /// Whether the step has begun.
    pub fn running(&self, index: usize) -> bool {
        let step = self.operation.steps.get(index);
        step.is_some_and(|step| step.state == StepState::Running)
    }

    /// Writes the operation as it is, with staged changes.
    pub async fn write(&mut self, needs: Changes) -> Result<(), RecordsError> {
        let mut changes = self.staged.clone();
        changes.extend(needs);
        let records = &self.ctx.records;
        let key = records.keys().operation(self.app, &self.operation.id);
        let revision = records
            .commit(key, self.known, &self.operation, changes)
            .await?;
        self.known = Some(revision);
        self.staged = Changes::default();
        let released = std::mem::take(&mut self.released);
        self.ctx.ports.released(&released).await;
        Ok(())
    }

    /// The step succeeded; written with the next step or the outcome.
    pub fn succeed(&mut self, index: usize) {
        let now = self.ctx.clock.now();
        let step = self.operation.steps.get_mut(index);
        // Publishing says so itself, in the write that is its effect.
        if let Some(step) = step.filter(|step| step.state != StepState::Succeeded) {
            step.state = StepState::Succeeded;
            // A step that is nothing but a write begins and ends with it.
            step.started_at.get_or_insert(now);
            step.finished_at = Some(now);
        }
    }

    /// The diagnostics without the log, when the record has as much as it can hold.
    fn bounded(&self, mut diagnostics: Diagnostics) -> Diagnostics {
        let size = |it: &Diagnostics| serde_json::to_vec(it).map_or(0, |json| json.len());
        let steps = self.operation.steps.iter();
        let kept: usize = steps.flat_map(|step| &step.diagnostics).map(size).sum();
        if kept + size(&diagnostics) > DIAGNOSTICS {
            diagnostics.log_tail = vec!["(left out: too much failed at once)".to_owned()];
        }
        diagnostics
    }

    /// The step failed; written with the outcome.
    pub fn fail(&mut self, index: usize, error: &str, diagnostics: Option<Diagnostics>) {
        let now = self.ctx.clock.now();
        let diagnostics = diagnostics.map(|it| self.bounded(it));
        if let Some(step) = self.operation.steps.get_mut(index) {
            step.state = StepState::Failed;
            step.finished_at = Some(now);
            step.error = Some(error.to_owned());
            step.diagnostics = diagnostics;
        }
    }

    /// What a person needs to find out why the step was done.
    pub fn diagnose(&mut self, index: usize, diagnostics: Diagnostics) {
        let diagnostics = self.bounded(diagnostics);
        if let Some(step) = self.operation.steps.get_mut(index) {
            step.diagnostics = Some(diagnostics);
        }
    }

    /// What was going on when the operation was interrupted failed.
    pub fn interrupt(&mut self) {
        for index in 0..self.operation.steps.len() {
            let step = &self.operation.steps[index];
            let error = match step.kind {
                StepKind::Traffic => "interrupted before traffic was confirmed",
                _ => "interrupted",
            };
            if step.state == StepState::Running {
                self.fail(index, error, None);
            }
        }
    }

    /// The container that the step made or verified.
    pub fn made(&mut self, index: usize, container: &ContainerId) {
        if let Some(step) = self.operation.steps.get_mut(index) {
            step.after = Some(container.clone());
        }
    }

    /// Notes a leftover.
    pub fn warn(&mut self, warning: Warning) {
        self.operation.warnings.push(warning);
    }

    /// Writes how the operation ended, and forgets the oldest ones.
    pub async fn finish(
        mut self,
        outcome: Outcome,
        mut changes: Changes,
        snapshot: &Snapshot,
    ) -> Result<Operation, RecordsError> {
        self.operation.finished_at = Some(self.ctx.clock.now());
        self.operation.outcome = Some(outcome);
        let keys = self.ctx.records.keys();
        let room = make_room(snapshot, &self.operation);
        for old in room.gone {
            changes.delete(keys.operation(self.app, old));
        }
        for old in &room.shortened {
            changes.put(keys.operation(self.app, &old.id), old)?;
        }
        self.write(changes).await?;
        self.reached("outcome", "after");
        Ok(self.operation)
    }
}

/// The pending steps of a plan.
pub(super) fn steps(actions: &[Action]) -> Vec<Step> {
    let pending = |action: &Action| Step {
        kind: action.kind(),
        service: action.service().cloned(),
        state: StepState::Pending,
        before: action.container().cloned(),
        after: None,
        started_at: None,
        finished_at: None,
        error: None,
        diagnostics: None,
    };
    actions.iter().map(pending).collect()
}
