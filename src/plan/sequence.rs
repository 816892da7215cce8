//! The order of the actions: deployment, repair, removal.

use crate::manifest::ServiceName;
use crate::state::{ActiveService, InhibitionReason, PinnedService, Revision, RevisionNumber};

use super::health::{Health, health, retired_by_deploy};
use super::{Action, Due, Snapshot};

/// Makes this revision serve: what the app no longer names is removed first,
/// then each service that isn't already of this revision, verified, is
/// replaced, in the revision's order.
pub fn deploy(snapshot: &Snapshot, revision: &Revision) -> Vec<Action> {
    let active = &snapshot.records.active.services;
    let dropped = active
        .iter()
        .filter(|(name, _)| !revision.services.contains_key(*name));
    let mut actions: Vec<Action> = dropped
        .flat_map(|(name, old)| drop_service(name, old))
        .collect();
    for name in &revision.order {
        let Some(pinned) = revision.services.get(name) else {
            continue;
        };
        match active.get(name) {
            Some(old) if serves(snapshot, name, old, pinned) => {}
            Some(old) => actions.extend(replace(snapshot, name, old, revision.number)),
            None => actions.extend(create(name, revision.number)),
        }
    }
    actions
}

/// Whether the effective generation is what the new revision wants.
fn serves(
    snapshot: &Snapshot,
    name: &ServiceName,
    old: &ActiveService,
    wanted: &PinnedService,
) -> bool {
    snapshot.pinned(name) == Some(wanted) && health(snapshot, old) == Health::Verified
}

fn replace(
    snapshot: &Snapshot,
    name: &ServiceName,
    old: &ActiveService,
    revision: RevisionNumber,
) -> Vec<Action> {
    let mut actions = vec![withdraw(name, Some(old))];
    let writes = snapshot.pinned(name).is_none_or(writes_a_volume);
    if writes && !snapshot.inhibited(&old.container) {
        actions.push(inhibit(name, old, InhibitionReason::ReplacementPending));
    }
    actions.push(retire(name, old, false));
    actions.extend(create(name, revision));
    actions
}

fn writes_a_volume(pinned: &PinnedService) -> bool {
    pinned.spec.volumes.iter().any(|volume| !volume.read_only)
}

fn drop_service(name: &ServiceName, old: &ActiveService) -> Vec<Action> {
    vec![
        withdraw(name, Some(old)),
        inhibit(name, old, InhibitionReason::Removed),
        retire(name, old, true),
    ]
}

fn create(name: &ServiceName, revision: RevisionNumber) -> Vec<Action> {
    let service = || name.clone();
    let mut actions = vec![
        Action::Provision {
            service: service(),
            revision,
        },
        Action::Create {
            service: service(),
            revision,
        },
        Action::Start {
            service: service(),
            container: None,
        },
    ];
    actions.extend(verify(name));
    actions
}

fn verify(name: &ServiceName) -> Vec<Action> {
    vec![
        Action::Probe {
            service: name.clone(),
        },
        Action::Publish {
            service: name.clone(),
        },
        Action::Traffic {
            service: Some(name.clone()),
        },
    ]
}

fn withdraw(name: &ServiceName, drained: Option<&ActiveService>) -> Action {
    Action::Withdraw {
        service: name.clone(),
        drain: drained.map(|old| old.container.clone()),
    }
}

fn inhibit(name: &ServiceName, old: &ActiveService, reason: InhibitionReason) -> Action {
    Action::Inhibit {
        service: name.clone(),
        container: old.container.clone(),
        reason,
    }
}

fn retire(name: &ServiceName, old: &ActiveService, forget: bool) -> Action {
    Action::Retire {
        service: name.clone(),
        container: old.container.clone(),
        forget,
    }
}

/// Removes the app: everything durable that keeps it from coming back first,
/// then its containers, then its networks, then the incarnation.
pub fn remove(snapshot: &Snapshot) -> Vec<Action> {
    let active = &snapshot.records.active.services;
    let containers = active
        .iter()
        .map(|(name, old)| (name.clone(), old.container.clone()));
    let mut actions = vec![
        Action::Intent {
            inhibited: containers.collect(),
        },
        Action::WithdrawApp,
    ];
    actions.extend(active.iter().map(|(name, old)| retire(name, old, true)));
    actions.extend([Action::Reclaim, Action::End]);
    actions
}

/// Brings back what ACTIVE names, service by service; and the time after which
/// more can be done, when something has to wait.
pub fn repair(snapshot: &Snapshot) -> (Vec<Action>, Option<Due>) {
    let mut actions = Vec::new();
    let mut later: Option<Due> = None;
    for (name, service) in &snapshot.records.active.services {
        let (first, wait) = repair_service(snapshot, name, service);
        actions.extend(first);
        later = soonest(later, wait);
    }
    (actions, later)
}

fn soonest(left: Option<Due>, right: Option<Due>) -> Option<Due> {
    match (left, right) {
        (Some(Due::After(left)), Some(Due::After(right))) => Some(Due::After(left.min(right))),
        (Some(Due::Now), _) | (_, Some(Due::Now)) => Some(Due::Now),
        (left, right) => left.or(right),
    }
}

fn repair_service(
    snapshot: &Snapshot,
    name: &ServiceName,
    service: &ActiveService,
) -> (Vec<Action>, Option<Due>) {
    let container = service.container.clone();
    let again = match health(snapshot, service) {
        Health::Verified => return (Vec::new(), None),
        Health::Unverified => {
            let mut actions = vec![Action::Inspect {
                service: name.clone(),
                container,
            }];
            actions.extend(verify(name));
            actions
        }
        Health::Down { exit_code } if wants_restart(snapshot, name, exit_code) => {
            let mut actions = vec![Action::Start {
                service: name.clone(),
                container: Some(container),
            }];
            actions.extend(verify(name));
            actions
        }
        Health::Missing if !retired_by_deploy(snapshot, name) => create(name, service.revision),
        Health::Down { .. } | Health::Missing | Health::Inhibited => {
            return (withdraw_verified(name, service), None);
        }
        Health::Unclear(_) => {
            return (withdraw_verified(name, service), Some(Due::After(UNCLEAR)));
        }
    };
    // The withdrawal never waits; only what follows it may have to.
    let mut actions = withdraw_verified(name, service);
    match snapshot.restart_due.get(name) {
        Some(due @ Due::After(_)) => (actions, Some(*due)),
        Some(Due::Now) | None => {
            actions.extend(again);
            (actions, None)
        }
    }
}

/// A service that isn't recorded as verified is withdrawn already.
fn withdraw_verified(name: &ServiceName, service: &ActiveService) -> Vec<Action> {
    service
        .verified
        .iter()
        .map(|_| withdraw(name, None))
        .collect()
}

/// How soon a container in a passing state is looked at again.
const UNCLEAR: std::time::Duration = std::time::Duration::from_secs(2);

fn wants_restart(snapshot: &Snapshot, name: &ServiceName, exit_code: Option<i32>) -> bool {
    use crate::manifest::RestartPolicy;

    match snapshot.pinned(name).map(|pinned| pinned.spec.restart) {
        Some(RestartPolicy::Always) => true,
        Some(RestartPolicy::OnFailure) => exit_code != Some(0),
        Some(RestartPolicy::Never) | None => false,
    }
}
