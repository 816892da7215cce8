//! What the reconciler tells, as metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::manifest::{AppName, ServiceName};
use crate::reconcile::Observer;
use crate::state::{
    Inhibition, InhibitionReason, Operation, Status, Step, StepKind, StepState, Truth,
};
use crate::telemetry::{AppMetrics, Metrics, ReconcileMetrics};

/// An observer that counts.
#[derive(Debug)]
pub struct Counting {
    reconcile: ReconcileMetrics,
    apps: AppMetrics,
    /// Services with a series of their own, which end with them.
    restarted: Mutex<BTreeMap<AppName, BTreeSet<ServiceName>>>,
}

impl Counting {
    /// Counts into these metrics.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            reconcile: metrics.reconcile.clone(),
            apps: metrics.apps.clone(),
            restarted: Mutex::default(),
        }
    }

    fn forget_restarts(&self, app: &AppName, keep: impl Fn(&ServiceName) -> bool) {
        let mut restarted = self
            .restarted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(services) = restarted.get_mut(app) else {
            return;
        };
        services.retain(|service| {
            let kept = keep(service);
            if !kept {
                self.reconcile.forget(app, service);
            }
            kept
        });
        if services.is_empty() {
            _ = restarted.remove(app);
        }
    }
}

impl Observer for Counting {
    fn step(&self, _: &AppName, step: &Step) {
        let outcome = match step.state {
            StepState::Succeeded => "success",
            StepState::Failed => "failed",
            // Not ended: only an interrupted one is told of like that.
            StepState::Pending | StepState::Running => "interrupted",
        };
        let took = took(step);
        self.reconcile.step(step.kind, outcome, took);
        if step.kind == StepKind::Probe {
            self.reconcile.probe(outcome, took);
        }
    }

    fn operation(&self, _: &AppName, operation: &Operation) {
        let outcome = operation.outcome.as_ref();
        let outcome = outcome.map_or("interrupted", |outcome| outcome.result.as_str());
        self.reconcile
            .operation(operation.request.verb.as_str(), outcome);
    }

    fn restarted(&self, app: &AppName, service: &ServiceName) {
        self.restarted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(app.clone())
            .or_default()
            .insert(service.clone());
        self.reconcile.restart(app, service);
    }

    fn status(&self, app: &AppName, status: Option<&Status>) {
        let Some(status) = status else {
            self.apps.forget(app);
            self.forget_restarts(app, |_| false);
            return;
        };
        for condition in &status.conditions {
            let holds = condition.status == Truth::True;
            self.apps.condition(app, condition.r#type, holds);
        }
        self.forget_restarts(app, |service| status.services.contains_key(service));
    }

    fn inhibitions(&self, app: &AppName, inhibitions: &[Inhibition]) {
        for reason in [
            InhibitionReason::ReplacementPending,
            InhibitionReason::RetirementPending,
            InhibitionReason::Removed,
        ] {
            let of_it = inhibitions.iter().filter(|one| one.reason == reason);
            self.apps.inhibitions(app, reason, of_it.count());
        }
    }
}

/// By the journal's calendar, all that a step remembers. A calendar that is set
/// meanwhile spoils one figure, nothing else.
fn took(step: &Step) -> Duration {
    let (Some(began), Some(ended)) = (step.started_at, step.finished_at) else {
        return Duration::ZERO;
    };
    Duration::try_from(ended.duration_since(began)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::state::{Condition, ConditionType};

    fn text(metrics: &Metrics) -> String {
        String::from_utf8(metrics.render().unwrap()).unwrap()
    }

    #[test]
    fn a_step_is_counted_with_the_time_the_journal_says() {
        let metrics = Metrics::new().unwrap();
        let step = Step {
            kind: StepKind::Probe,
            service: None,
            state: StepState::Succeeded,
            before: None,
            after: None,
            started_at: Some(Timestamp::from_second(100).unwrap()),
            finished_at: Some(Timestamp::from_second(102).unwrap()),
            error: None,
            diagnostics: None,
        };

        Counting::new(&metrics).step(&"blog".parse().unwrap(), &step);

        let text = text(&metrics);
        for line in [
            r#"podherd_steps_total{kind="probe",outcome="success"} 1"#,
            r#"podherd_step_seconds_sum{kind="probe"} 2"#,
            r#"podherd_probe_seconds_sum{outcome="success"} 2"#,
        ] {
            assert!(text.contains(line), "{line} in:\n{text}");
        }
    }

    #[test]
    fn an_app_that_is_gone_leaves_no_series() {
        let metrics = Metrics::new().unwrap();
        let counting = Counting::new(&metrics);
        let app: AppName = "blog".parse().unwrap();
        let status = Status {
            conditions: vec![Condition {
                r#type: ConditionType::Ready,
                status: Truth::True,
                reason: "Serving".to_owned(),
                message: String::new(),
                last_transition_time: Timestamp::UNIX_EPOCH,
            }],
            services: [(
                "web".parse().unwrap(),
                crate::state::ServiceStatus {
                    image: "web".to_owned(),
                    digest: None,
                    container: None,
                    revision: None,
                    ready: true,
                    restarts: 1,
                    binds: Vec::new(),
                    last_error: None,
                },
            )]
            .into(),
            ..Status::default()
        };
        counting.restarted(&app, &"web".parse().unwrap());
        counting.status(&app, Some(&status));
        counting.inhibitions(&app, &[]);
        let before = text(&metrics);
        assert!(before.contains(r#"podherd_app_condition{app="blog",condition="Ready"} 1"#));
        assert!(before.contains(r#"podherd_restarts_total{app="blog",service="web"} 1"#));

        counting.status(&app, None);

        assert!(!text(&metrics).contains("blog"));
    }
}
