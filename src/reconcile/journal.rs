//! The journal of one operation: what is written before and after each step.
//!
//! The end of a step and the beginning of the next are one transaction, and
//! what a step changes in the records goes with it. So each state that a crash
//! can leave is one that the journal names.

use crate::clock::Clock;
use crate::manifest::AppName;
use crate::plan::Action;
use crate::state::{ContainerId, Diagnostics, Operation, Outcome, Step, StepState, Warning};
use crate::store::{Changes, Records, RecordsError};

/// How many operations of an app are kept.
const KEPT: usize = 20;

/// The journal of the operation in flight.
#[derive(Debug)]
pub(super) struct Journal<'c> {
    records: &'c Records,
    clock: &'c dyn Clock,
    app: &'c AppName,
    operation: Operation,
    /// Revision of the last write; `None` before the operation is claimed.
    known: Option<i64>,
    /// Changes of steps that succeeded since the last write.
    staged: Changes,
}

impl<'c> Journal<'c> {
    /// A journal for an operation that isn't written yet.
    pub fn new(
        records: &'c Records,
        clock: &'c dyn Clock,
        app: &'c AppName,
        operation: Operation,
    ) -> Self {
        Self {
            records,
            clock,
            app,
            operation,
            known: None,
            staged: Changes::default(),
        }
    }

    /// A journal that goes on with an operation found in flight.
    pub fn resume(
        records: &'c Records,
        clock: &'c dyn Clock,
        app: &'c AppName,
        operation: Operation,
        mod_revision: i64,
    ) -> Self {
        Self {
            known: Some(mod_revision),
            ..Self::new(records, clock, app, operation)
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

    /// Writes that the step begins, with what its effect needs to be durable.
    /// The first call claims the operation. On an error nothing is forgotten.
    pub async fn begin(&mut self, index: usize, needs: Changes) -> Result<(), RecordsError> {
        let now = self.clock.now();
        if let Some(step) = self.operation.steps.get_mut(index) {
            step.state = StepState::Running;
            step.started_at = Some(now);
        }
        self.write(needs).await
    }

    /// Writes the operation as it is, with staged changes.
    pub async fn write(&mut self, needs: Changes) -> Result<(), RecordsError> {
        let mut changes = self.staged.clone();
        changes.extend(needs);
        let key = self.records.keys().operation(self.app, &self.operation.id);
        let revision = self
            .records
            .commit(key, self.known, &self.operation, changes)
            .await?;
        self.known = Some(revision);
        self.staged = Changes::default();
        Ok(())
    }

    /// The step succeeded; written with the next step or the outcome.
    pub fn succeed(&mut self, index: usize) {
        let now = self.clock.now();
        if let Some(step) = self.operation.steps.get_mut(index) {
            step.state = StepState::Succeeded;
            step.finished_at = Some(now);
        }
    }

    /// The step failed; written with the outcome.
    pub fn fail(&mut self, index: usize, error: &str, diagnostics: Option<Diagnostics>) {
        let now = self.clock.now();
        if let Some(step) = self.operation.steps.get_mut(index) {
            step.state = StepState::Failed;
            step.finished_at = Some(now);
            step.error = Some(error.to_owned());
            step.diagnostics = diagnostics;
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

    /// Whether the step succeeded.
    pub fn succeeded(&self, index: usize) -> bool {
        let step = self.operation.steps.get(index);
        step.is_some_and(|step| step.state == StepState::Succeeded)
    }

    /// Writes how the operation ended, and forgets the oldest ones.
    pub async fn finish(
        mut self,
        outcome: Outcome,
        mut changes: Changes,
        earlier: &[Operation],
    ) -> Result<Operation, RecordsError> {
        self.operation.finished_at = Some(self.clock.now());
        self.operation.outcome = Some(outcome);
        let surplus = (earlier.len() + 1).saturating_sub(KEPT);
        for old in earlier
            .iter()
            .filter(|old| old.id != self.operation.id)
            .take(surplus)
        {
            changes.delete(self.records.keys().operation(self.app, &old.id));
        }
        self.write(changes).await?;
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
