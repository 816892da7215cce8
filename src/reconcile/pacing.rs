//! How often something failed, and when it may be tried again. Not durable: a
//! restarted controller may try once more.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::backoff::Pauses;
use crate::manifest::{AppName, ServiceName};
use crate::plan::{Action, Due, Snapshot};
use crate::runtime::Container;
use crate::state::{ContainerId, Operation, Outcome, OutcomeKind, StepKind, StepState, Verb};
use crate::store::Entry;

use super::Context;

/// Between two tries of a deployment that failed.
const DEPLOY: Pauses = Pauses {
    first: Duration::from_secs(10),
    longest: Duration::from_secs(600),
};
/// The same when the registry refused access: only another login can help, and tries
/// with a wrong one may lock an account.
const DENIED: Pauses = Pauses {
    first: Duration::from_secs(120),
    longest: Duration::from_secs(1800),
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

/// What failed how often, by app.
#[derive(Debug, Default)]
pub(super) struct Pacing(Mutex<BTreeMap<AppName, AppPacing>>);

#[derive(Debug, Default)]
struct AppPacing {
    deploy: Option<Retry>,
    failures: u32,
    /// Whether a registry refused access at the last of them.
    denied: bool,
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

    /// When the next try at this manifest begins, by the calendar.
    pub fn next_try(&self, app: &AppName, source: i64) -> Option<Timestamp> {
        let apps = self.apps();
        let retry = apps.get(app)?.deploy.as_ref()?;
        (retry.source == source).then_some(retry.at)
    }

    /// How often each service was started again.
    pub fn restarts(&self, app: &AppName) -> BTreeMap<ServiceName, u32> {
        let apps = self.apps();
        let budgets = apps.get(app).into_iter().flat_map(|app| &app.budgets);
        budgets
            .map(|(service, budget)| (service.clone(), budget.restarts))
            .collect()
    }

    /// When each service may be started again. A budget belongs to one container,
    /// and begins anew when that has run healthy for long enough.
    pub fn restart_due(&self, snapshot: &Snapshot) -> BTreeMap<ServiceName, Due> {
        let services = &snapshot.records.active.services;
        let mut apps = self.apps();
        let budgets = apps
            .get_mut(&snapshot.app)
            .into_iter()
            .flat_map(|app| &mut app.budgets);
        let mut all = BTreeMap::new();
        for (service, budget) in budgets {
            let effective = services.get(service).map(|active| &active.container);
            if effective == Some(&budget.container) {
                let container = snapshot.container(&budget.container);
                let well =
                    |found: &Container| found.state.may_run() && snapshot.failed(found).is_none();
                budget.observe(container.is_some_and(well));
                all.insert(service.clone(), due(budget.due));
            }
        }
        all
    }

    /// How long to wait after an upkeep operation that failed.
    pub fn pause(&self, ctx: &Context, app: &AppName) -> Duration {
        let apps = self.apps();
        let (failures, denied) = apps
            .get(app)
            .map_or((1, false), |app| (app.failures, app.denied));
        let pauses = if denied { DENIED } else { UPKEEP };
        pauses.after(failures.max(1), &ctx.entropy)
    }

    /// Takes down how an operation ended.
    pub fn ended(&self, ctx: &Context, app: &AppName, operation: &Operation, actions: &[Action]) {
        let mut apps = self.apps();
        if operation.request.verb == Verb::Remove && operation.succeeded() {
            apps.remove(app);
            return;
        }
        let pacing = apps.entry(app.clone()).or_default();
        // One that speaks of no manifest says nothing about when to try it again.
        if operation.deploys() && operation.source != 0 {
            pacing.deploy = retry(ctx, operation);
        }
        let outcome = operation.outcome.as_ref();
        pacing.denied = outcome.is_some_and(is_denied);
        pacing.failures = if operation.succeeded() {
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

fn due(at: Instant) -> Due {
    match at.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Due::Now,
        wait => Due::After(wait),
    }
}

/// Whether a registry refused access.
fn is_denied(outcome: &Outcome) -> bool {
    outcome.reason == "ImageDenied"
}

fn retry(ctx: &Context, operation: &Operation) -> Option<Retry> {
    let outcome = operation.outcome.as_ref()?;
    if outcome.result == OutcomeKind::Success || !outcome.retryable {
        return None;
    }
    let pauses = if is_denied(outcome) { DENIED } else { DEPLOY };
    let pause = pauses.after(operation.attempt, &ctx.entropy);
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

    /// Whether the container runs well at this moment. One that was brought back and
    /// has done so for long enough since begins with a new budget.
    fn observe(&mut self, well: bool) {
        let stable = self.up_since.is_some_and(|since| since.elapsed() >= STABLE);
        if stable {
            self.streak = 0;
            self.due = Instant::now();
        }
        if !well {
            self.up_since = None;
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
        self.streak = self.streak.saturating_add(1);
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
    let [.., longest] = RESTART_MINUTES;
    let index = usize::try_from(late).unwrap_or(usize::MAX);
    let minutes = RESTART_MINUTES.get(index).unwrap_or(&longest);
    Duration::from_secs(minutes * 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_restarts_are_done_at_once_and_then_each_waits_longer() {
        let minutes: Vec<u64> = (0..10)
            .map(|streak| restart_pause(streak).as_secs() / 60)
            .collect();
        assert_eq!(minutes, [0, 0, 0, 1, 2, 4, 8, 15, 15, 15]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_container_that_ran_for_five_minutes_begins_with_a_new_budget() {
        let container = ContainerId::new("c1");
        let mut budget = Budget::new(&container);
        for _ in 0..6 {
            budget.tried(&container, true, true);
        }
        tokio::time::advance(STABLE / 2).await;
        budget.observe(true);
        assert_eq!(
            due(budget.due),
            Due::After(Duration::from_secs(8 * 60 - 150))
        );
        tokio::time::advance(STABLE / 2).await;
        budget.observe(false);
        assert_eq!((budget.streak, due(budget.due)), (0, Due::Now));
    }

    #[tokio::test(start_paused = true)]
    async fn a_container_that_waits_for_its_turn_is_not_stable_for_it() {
        let container = ContainerId::new("c1");
        let mut budget = Budget::new(&container);
        for _ in 0..9 {
            budget.tried(&container, true, true);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        budget.observe(false);
        tokio::time::advance(STABLE * 2).await;
        budget.observe(false);
        assert_eq!(budget.streak, 9);
    }
}
