//! How often something failed, and when it may be tried again. Not durable: a
//! restarted controller may try once more.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::backoff::Pauses;
use crate::manifest::{AppName, ServiceName};
use crate::plan::{Action, Due};
use crate::state::{Active, ContainerId, Operation, OutcomeKind, StepKind, StepState, Verb};
use crate::store::Entry;

use super::Context;

/// Between two tries of a deployment that failed.
const DEPLOY: Pauses = Pauses {
    first: Duration::from_secs(10),
    longest: Duration::from_secs(600),
};
/// Between two tries of anything else that failed.
const UPKEEP: Pauses = Pauses {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(300),
};
/// Restarts of a container that are done at once.
const AT_ONCE: u32 = 3;
/// Then these many minutes pass before each.
const RESTART_MINUTES: [u64; 5] = [1, 2, 4, 8, 15];
/// A container that ran as long begins with a new budget.
const STABLE: Duration = Duration::from_secs(300);
/// A restart this long after it was due means that the container ran until then.
const PROMPT: Duration = Duration::from_secs(30);

/// What failed how often, by app.
#[derive(Debug, Default)]
pub(super) struct Pacing(Mutex<BTreeMap<AppName, AppPacing>>);

#[derive(Debug, Default)]
struct AppPacing {
    deploy: Option<Retry>,
    failures: u32,
    budgets: BTreeMap<ServiceName, Budget>,
}

#[derive(Debug)]
struct Retry {
    source: i64,
    due: Instant,
    at: Timestamp,
}

/// The restarts of one container.
#[derive(Debug)]
struct Budget {
    container: ContainerId,
    restarts: u32,
    streak: u32,
    up_since: Option<Instant>,
    due: Instant,
}

impl Pacing {
    fn apps(&self) -> MutexGuard<'_, BTreeMap<AppName, AppPacing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything.
    pub fn forget(&self) {
        self.apps().clear();
    }

    /// When the manifest may be deployed again.
    pub fn deploy(&self, app: &AppName, manifest: Option<&Entry>) -> Due {
        let apps = self.apps();
        let retry = apps.get(app).and_then(|app| app.deploy.as_ref());
        let wanted = manifest.map(|entry| entry.mod_revision);
        match retry.filter(|retry| Some(retry.source) == wanted) {
            Some(retry) => due(retry.due),
            None => Due::Now,
        }
    }

    /// When the next try begins, by the calendar.
    pub fn next_try(&self, app: &AppName) -> Option<Timestamp> {
        Some(self.apps().get(app)?.deploy.as_ref()?.at)
    }

    /// How often each service was started again.
    pub fn restarts(&self, app: &AppName) -> BTreeMap<ServiceName, u32> {
        let apps = self.apps();
        let budgets = apps.get(app).into_iter().flat_map(|app| &app.budgets);
        budgets
            .map(|(service, budget)| (service.clone(), budget.restarts))
            .collect()
    }

    /// When each service may be started again. A budget belongs to one container.
    pub fn restart_due(&self, app: &AppName, active: &Active) -> BTreeMap<ServiceName, Due> {
        let apps = self.apps();
        let budgets = apps.get(app).into_iter().flat_map(|app| &app.budgets);
        budgets
            .filter(|(service, budget)| {
                active
                    .services
                    .get(*service)
                    .is_some_and(|active| active.container == budget.container)
            })
            .map(|(service, budget)| (service.clone(), due(budget.due)))
            .collect()
    }

    /// How long to wait after an upkeep operation that failed.
    pub fn pause(&self, ctx: &Context, app: &AppName) -> Duration {
        let failures = self.apps().get(app).map_or(1, |app| app.failures);
        UPKEEP.after(failures.max(1), &ctx.entropy)
    }

    /// Takes down how an operation ended.
    pub fn ended(&self, ctx: &Context, app: &AppName, operation: &Operation, actions: &[Action]) {
        let mut apps = self.apps();
        if operation.request.verb == Verb::Remove && succeeded(operation) {
            apps.remove(app);
            return;
        }
        let pacing = apps.entry(app.clone()).or_default();
        if operation.deploys() {
            pacing.deploy = retry(ctx, operation);
        }
        pacing.failures = if succeeded(operation) {
            0
        } else {
            pacing.failures.saturating_add(1)
        };
        for (action, step) in actions.iter().zip(&operation.steps) {
            let restarts = matches!(step.kind, StepKind::Start | StepKind::Inspect);
            let (Some(service), Some(container)) = (action.service(), action.container()) else {
                continue;
            };
            if restarts && step.state != StepState::Pending {
                let up = operation.has(StepKind::Publish, service);
                let started = step.kind == StepKind::Start;
                pacing
                    .budgets
                    .entry(service.clone())
                    .or_insert_with(|| Budget::new(container));
                if let Some(budget) = pacing.budgets.get_mut(service) {
                    budget.tried(container, started, up);
                }
            }
        }
    }
}

fn succeeded(operation: &Operation) -> bool {
    operation
        .outcome
        .as_ref()
        .is_some_and(|outcome| outcome.result == OutcomeKind::Success)
}

fn due(at: Instant) -> Due {
    match at.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Due::Now,
        wait => Due::After(wait),
    }
}

fn retry(ctx: &Context, operation: &Operation) -> Option<Retry> {
    let outcome = operation.outcome.as_ref()?;
    if outcome.result == OutcomeKind::Success || !outcome.retryable {
        return None;
    }
    let pause = DEPLOY.after(operation.attempt, &ctx.entropy);
    let at = ctx.clock.now().checked_add(pause).ok()?;
    Some(Retry {
        source: operation.source,
        due: Instant::now() + pause,
        at,
    })
}

impl Budget {
    fn new(container: &ContainerId) -> Self {
        Self {
            container: container.clone(),
            restarts: 0,
            streak: 0,
            up_since: None,
            due: Instant::now(),
        }
    }

    /// A try to bring the container back ended.
    fn tried(&mut self, container: &ContainerId, started: bool, up: bool) {
        let now = Instant::now();
        if &self.container != container {
            *self = Self {
                restarts: self.restarts,
                ..Self::new(container)
            };
        }
        let ran_until_now = now.saturating_duration_since(self.due) > PROMPT;
        let stable = self
            .up_since
            .is_some_and(|since| ran_until_now && now.saturating_duration_since(since) >= STABLE);
        self.streak = if stable {
            1
        } else {
            self.streak.saturating_add(1)
        };
        self.restarts = self.restarts.saturating_add(u32::from(started));
        self.up_since = up.then_some(now);
        self.due = now + restart_pause(self.streak);
    }
}

/// The pause after this many restarts in a row.
fn restart_pause(streak: u32) -> Duration {
    let Some(late) = streak.checked_sub(AT_ONCE) else {
        return Duration::ZERO;
    };
    if late == 0 {
        return Duration::ZERO;
    }
    let index = usize::try_from(late - 1).unwrap_or(usize::MAX);
    let minutes = RESTART_MINUTES
        .get(index)
        .or(RESTART_MINUTES.last())
        .copied()
        .unwrap_or(15);
    Duration::from_secs(minutes * 60)
}
