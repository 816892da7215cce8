//! Bringing back what ACTIVE names: the exact containers, never a newer revision.

use std::time::Duration;

use crate::manifest::{RestartPolicy, ServiceName};
use crate::runtime::ContainerState;
use crate::sabotage::{self, Defect};
use crate::state::{ActiveService, Step, StepKind, StepState, Verb};

use super::health::{Health, health, retired_by_deploy};
use super::policy::LOOK_AGAIN;
use super::sequence::{create, retire, start_again, stop_and_start, verify, withdraw};
use super::{Action, Due, Snapshot};

/// How soon a container in a passing state is looked at again.
const UNCLEAR: Duration = Duration::from_secs(2);

/// Every withdrawal that is due, then what brings each service back; and the time
/// after which more can be done, when something has to wait.
pub fn repair(snapshot: &Snapshot) -> (Vec<Action>, Option<Duration>) {
    let mut actions = withdrawals(snapshot);
    let mut later: Option<Duration> = None;
    for (name, service) in &snapshot.records.active.services {
        let (again, wait) = bring_back(snapshot, name, service);
        actions.extend(again);
        later = later.into_iter().chain(wait).min();
    }
    (actions, later)
}

/// Whether a service has to be taken out of the graph.
pub fn must_withdraw(snapshot: &Snapshot) -> bool {
    !withdrawals(snapshot).is_empty()
}

/// Takes out of the graph every service whose container isn't the verified
/// execution, and every one whose last withdrawal wasn't confirmed.
pub(super) fn withdrawals(snapshot: &Snapshot) -> Vec<Action> {
    if sabotage::has(Defect::EndedStaysRouted) {
        return Vec::new();
    }
    let services = snapshot.records.active.services.iter();
    services
        .filter(|(name, service)| {
            let changed =
                service.verified.is_some() && health(snapshot, service) != Health::Verified;
            changed || owes_withdrawal(snapshot, name)
        })
        .map(|(name, _)| withdraw(name, None))
        .collect()
}

/// Whether the last withdrawal of the service began and wasn't confirmed. Then some
/// data plane may still serve what was to be withdrawn: nothing of the service is
/// published before it is.
fn owes_withdrawal(snapshot: &Snapshot, service: &ServiceName) -> bool {
    let steps = snapshot
        .operations()
        .flat_map(|operation| operation.steps.iter().rev());
    let mut withdrawals = steps.filter(|step| {
        step.kind == StepKind::Withdraw
            && step.service.as_ref().is_none_or(|of| of == service)
            && step.started_at.is_some()
    });
    let last = withdrawals.next();
    last.is_some_and(|step| step.state == StepState::Failed)
}

/// What makes the service serve again, or how long it has to wait for that.
fn bring_back(
    snapshot: &Snapshot,
    name: &ServiceName,
    service: &ActiveService,
) -> (Vec<Action>, Option<Duration>) {
    let container = service.container.clone();
    let now = health(snapshot, service);
    let again = match now {
        Health::Verified if !owes_withdrawal(snapshot, name) => return (Vec::new(), None),
        Health::Unverified
            if meant_to_restart(snapshot, name)
                && restarts(snapshot, name) != RestartPolicy::Never =>
        {
            stop_and_start(name, service)
        }
        Health::Verified | Health::Unverified => {
            let mut actions = vec![Action::Inspect {
                service: name.clone(),
                container,
            }];
            actions.extend(verify(name));
            actions
        }
        Health::Down { exit_code } if wants_restart(snapshot, name, exit_code) => {
            start_again(name, service)
        }
        // It doesn't do what it is there for: that is a failure, whatever its exit
        // code will be.
        Health::Unhealthy if restarts(snapshot, name) != RestartPolicy::Never => {
            stop_and_start(name, service)
        }
        // Its process is gone, and it never comes back: the removal is brought to
        // its end.
        Health::Unclear(ContainerState::Removing) => {
            let mut actions = vec![retire(name, service, false)];
            actions.extend(create(name, service.revision));
            actions
        }
        Health::Missing if !retired_by_deploy(snapshot, name) => create(name, service.revision),
        Health::Down { .. } | Health::Unhealthy | Health::Missing | Health::Inhibited => {
            return (Vec::new(), None);
        }
        Health::Unclear(_) => return (Vec::new(), Some(UNCLEAR)),
    };
    let denied = match now {
        // It is made again.
        Health::Unclear(_) => snapshot.rebuild_denied(name),
        now => snapshot.return_denied(name, now),
    };
    if denied.is_some() {
        return (Vec::new(), Some(LOOK_AGAIN));
    }
    match snapshot.restart_due.get(name) {
        Some(Due::After(wait)) => (Vec::new(), Some(*wait)),
        Some(Due::Now) | None => (again, None),
    }
}

/// Whether a container that ended with this code is started again.
pub(super) fn wants_restart(
    snapshot: &Snapshot,
    name: &ServiceName,
    exit_code: Option<i32>,
) -> bool {
    let wanted = match restarts(snapshot, name) {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => exit_code != Some(0),
        RestartPolicy::Never => false,
    };
    wanted || half_restarted(snapshot, name)
}

/// What the manifest says about restarts; nothing is restarted of which nobody knows.
pub(super) fn restarts(snapshot: &Snapshot, name: &ServiceName) -> RestartPolicy {
    let pinned = snapshot.pinned(name);
    pinned.map_or(RestartPolicy::Never, |pinned| pinned.spec.restart)
}

/// Whether a recovery set out to restart the service's container, for it failed its
/// liveness, and nothing came of it since. Nobody else remembers.
fn meant_to_restart(snapshot: &Snapshot, name: &ServiceName) -> bool {
    newest_word(snapshot, name, |verb, step| match step.kind {
        StepKind::Stop if verb == Verb::Recover => Some(true),
        StepKind::Start | StepKind::Publish if step.state == StepState::Succeeded => Some(false),
        _ => None,
    })
}

/// Whether it was us who stopped the service's container, to start it again, and
/// didn't come to do that. Its exit code says nothing then.
fn half_restarted(snapshot: &Snapshot, name: &ServiceName) -> bool {
    newest_word(snapshot, name, |verb, step| match step.kind {
        StepKind::Stop if step.started_at.is_some() => Some(true),
        // A restart that makes the container again, for its secrets changed.
        StepKind::Retire if verb == Verb::Restart && step.started_at.is_some() => Some(true),
        StepKind::Start if step.state == StepState::Succeeded => Some(false),
        _ => None,
    })
}

/// What the newest step of the service says that says anything.
fn newest_word(
    snapshot: &Snapshot,
    name: &ServiceName,
    says: impl Fn(Verb, &Step) -> Option<bool>,
) -> bool {
    let steps = snapshot.operations().flat_map(|operation| {
        let verb = operation.request.verb;
        operation.steps.iter().rev().map(move |step| (verb, step))
    });
    let mut of_it = steps.filter(|(_, step)| step.service.as_ref() == Some(name));
    of_it.find_map(|(verb, step)| says(verb, step)) == Some(true)
}
