//! Writes the status where it changed, and events about what ended.

use std::time::Duration;

use crate::manifest::AppName;
use crate::plan::{self, Action, Phase, Snapshot};
use crate::state::{Event, EventType, Operation, Status};
use crate::store::Changes;

use super::error::ReconcileError;
use super::publish::is_failure;
use super::{Context, Reconciler};

/// How long events are kept.
const EVENTS_KEPT: Duration = Duration::from_secs(3600);

impl Reconciler {
    /// Writes the app's status, when it differs from what is written.
    pub(super) async fn write_status(
        &self,
        snapshot: &Snapshot,
        phase: &Phase,
    ) -> Result<(), ReconcileError> {
        if !snapshot.has_status() {
            return Ok(());
        }
        let status = plan::status(snapshot, phase, self.ctx.clock.now());
        self.ctx.observer.status(&snapshot.app, Some(&status));
        self.ctx
            .observer
            .inhibitions(&snapshot.app, &snapshot.records.inhibitions);
        let known = snapshot.records.status.as_ref();
        if known.is_some_and(|kept| kept.record == status) {
            return Ok(());
        }
        let key = self.ctx.records.keys().status(&snapshot.app);
        let known = known.map(|kept| kept.mod_revision);
        self.ctx
            .records
            .commit(key, known, &status, Changes::default())
            .await?;
        self.tell_of_ignored_limit(snapshot, &status).await;
        Ok(())
    }

    /// An event when `Degraded` begins to say that a limit is ignored.
    async fn tell_of_ignored_limit(&self, snapshot: &Snapshot, status: &Status) {
        let before = snapshot.records.status.as_ref();
        let before = before.and_then(|kept| ignored_limit(&kept.record));
        let Some(now) = ignored_limit(status).filter(|now| Some(*now) != before) else {
            return;
        };
        let event = Event {
            r#type: EventType::Warning,
            reason: plan::LIMIT_IGNORED.to_owned(),
            message: now.to_owned(),
            service: None,
            operation: None,
            at: self.ctx.clock.now(),
        };
        self.tell(&snapshot.app, &[event]).await;
    }

    /// What the app waits for while nothing is done.
    pub(super) fn resting_phase(&self, snapshot: &Snapshot) -> Phase {
        let source = snapshot.desired.source();
        let awaited = snapshot.unserved() && snapshot.denied.is_none() && !snapshot.stopped();
        let failed = snapshot.last_deploy().filter(|_| awaited);
        match (failed, self.pacing.next_try(&snapshot.app, source)) {
            (Some(operation), Some(at)) => Phase::Retry {
                attempt: operation.attempt + 1,
                at,
            },
            _ => Phase::Settled,
        }
    }

    /// Tells people how an operation ended. Best effort: the journal has it all.
    pub(super) async fn report(&self, app: &AppName, operation: &Operation) {
        let Some(outcome) = &operation.outcome else {
            return;
        };
        let failed = is_failure(outcome.result);
        let verb = operation.request.verb.as_str();
        let result = outcome.result.as_str();
        let mut events = vec![Event {
            r#type: if failed {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: outcome.reason.clone(),
            message: format!("{verb} ended as {result}: {}", outcome.message),
            service: None,
            operation: Some(operation.id.clone()),
            at: self.ctx.clock.now(),
        }];
        events.extend(operation.warnings.iter().map(|warning| Event {
            r#type: EventType::Warning,
            reason: "CleanupWarning".to_owned(),
            message: format!("{} is left: {}", warning.leftover, warning.detail),
            service: warning.service.clone(),
            operation: Some(operation.id.clone()),
            at: self.ctx.clock.now(),
        }));
        self.tell(app, &events).await;
    }

    /// Tells people which services are withdrawn because they failed their liveness
    /// probe, and how.
    pub(super) async fn tell_unhealthy(&self, snapshot: &Snapshot, actions: &[Action]) {
        let withdrawn = actions.iter().filter_map(|action| match action {
            Action::Withdraw { service, .. } => Some(service),
            _ => None,
        });
        let failed = withdrawn.filter_map(|service| {
            let active = snapshot.records.active.services.get(service)?;
            let failed = snapshot.failed(snapshot.container(&active.container)?)?;
            Some(Event {
                r#type: EventType::Warning,
                reason: "Unhealthy".to_owned(),
                message: format!("service {service} is withdrawn: {}", failed.message),
                service: Some(service.clone()),
                operation: None,
                at: self.ctx.clock.now(),
            })
        });
        let events: Vec<Event> = failed.collect();
        if !events.is_empty() {
            self.tell(&snapshot.app, &events).await;
        }
    }

    /// Writes events, for people only.
    pub(super) async fn tell(&self, app: &AppName, events: &[Event]) {
        self.ctx.tell(app, events).await;
    }
}

impl Context {
    /// Writes events, for people only.
    pub(super) async fn tell(&self, app: &AppName, events: &[Event]) {
        if let Err(error) = self.records.report(app, events, EVENTS_KEPT).await {
            tracing::debug!(%error, "events weren't written");
        }
    }
}

/// What a status says of limits that are ignored.
fn ignored_limit(status: &Status) -> Option<&str> {
    let mut conditions = status.conditions.iter();
    let found = conditions.find(|condition| condition.reason == plan::LIMIT_IGNORED)?;
    Some(&found.message)
}
