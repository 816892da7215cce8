//! What comes first.

use std::time::Duration;

use crate::manifest::ServiceName;
use crate::runtime::Container;
use crate::state::{
    ContainerId, Inhibition, InhibitionReason, OperationId, OutcomeKind, StepKind, StepState, Verb,
    labels,
};

use super::hold::{lost_ownership, lost_records};
use super::policy::LOOK_AGAIN;
use super::repair::{repair, withdrawals};
use super::request::{keep_stopped, roll_back_failed};
use super::sequence::{drain, remove, retire_container};
use super::{Action, Answer, Desired, Due, Pending, Snapshot, answer, routes};

/// What a pass does first. After it, look again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Reconcile the operation that a crash or a lost leadership interrupted.
    Recover(OperationId),
    /// Remove containers that no record names.
    Sweep(Vec<Action>),
    /// Change nothing until a person has looked.
    Hold {
        /// In CamelCase.
        reason: &'static str,
        /// What was found, and what to do.
        message: String,
        /// When to look again all the same.
        again: Option<Duration>,
    },
    /// Answer the oldest request.
    Answer(Pending, Answer),
    /// Bring back what a failed deployment replaced.
    RollBack(Vec<Action>),
    /// End the incarnation.
    Remove(Vec<Action>),
    /// Forget an app that never came to own anything.
    Forget,
    /// Pin the wanted manifest and make it serve.
    Deploy,
    /// Bring back what ACTIVE names.
    Repair(Vec<Action>),
    /// Nothing now; look again after this time.
    Wait(Duration),
    /// Nothing, until something changes.
    Settled,
}

/// Decides what comes first.
pub fn next(snapshot: &Snapshot) -> Next {
    if let Some(operation) = snapshot.in_flight() {
        return Next::Recover(operation.id.clone());
    }
    // Without its incarnation it can't be told what is the app's own.
    if let Some(hold) = lost_ownership(snapshot) {
        return hold;
    }
    match undisturbed(snapshot) {
        // Each of these withdraws before all else.
        next @ (Next::Repair(_) | Next::Remove(_)) => next,
        // Anything else may take long, or never end: nobody may be sent meanwhile
        // to what doesn't run as it was verified.
        next => match withdrawals(snapshot) {
            actions if actions.is_empty() => next,
            actions => Next::Repair(actions),
        },
    }
}

/// What comes first when every operation has ended.
fn undisturbed(snapshot: &Snapshot) -> Next {
    if let Some(hold) = lost_records(snapshot) {
        return hold;
    }
    // It takes what is left over with it, and doesn't wait until that is gone.
    if let Some(pending) = snapshot.requests.iter().find(|it| it.ends())
        && snapshot.removal().is_none()
    {
        return Next::Answer(pending.clone(), answer(snapshot, pending));
    }
    let leftovers = leftovers(snapshot);
    if !leftovers.is_empty() {
        return Next::Sweep(leftovers);
    }
    if snapshot.records.ownership.is_some()
        && let Some(removal) = snapshot.removal()
    {
        // A manifest that was put since comes back as another incarnation.
        let taken = snapshot.desired.source();
        let manifest = (taken != 0 && taken == removal.source).then_some(taken);
        return Next::Remove(remove(snapshot, manifest));
    }
    if let Some(pending) = snapshot.requests.first() {
        return Next::Answer(pending.clone(), answer(snapshot, pending));
    }
    match &snapshot.desired {
        Desired::Absent => absent(snapshot),
        _ if snapshot.stopped() => stopped(snapshot),
        Desired::App { .. } if snapshot.unserved() => match deploy_due(snapshot) {
            _ if let Some(actions) = roll_back_failed(snapshot) => Next::RollBack(actions),
            // Once it is allowed, it is taken up.
            _ if snapshot.denied.is_some() => upkeep(snapshot, Some(LOOK_AGAIN)),
            Some(Due::Now) => Next::Deploy,
            Some(Due::After(wait)) => upkeep(snapshot, Some(wait)),
            None => upkeep(snapshot, None),
        },
        Desired::App { .. } | Desired::Invalid { .. } => upkeep(snapshot, None),
    }
}

fn absent(snapshot: &Snapshot) -> Next {
    match &snapshot.records.ownership {
        None if snapshot.records.status.is_some() => Next::Forget,
        None => Next::Settled,
        Some(ownership) if ownership.deletion_protection => protected(snapshot),
        Some(_) => Next::Remove(remove(snapshot, None)),
    }
}

/// A protected app goes on without its manifest.
fn protected(snapshot: &Snapshot) -> Next {
    let again = match upkeep(snapshot, None) {
        Next::Wait(time) => Some(time),
        Next::Settled => None,
        repair => return repair,
    };
    Next::Hold {
        reason: "DeletionProtected",
        message: "the manifest was deleted, but the app is protected: put the manifest back, or \
                  put it without deletionProtection and delete it again"
            .to_owned(),
        again,
    }
}

/// When the wanted manifest may be deployed; `None` when the last try said that
/// only a change can help.
fn deploy_due(snapshot: &Snapshot) -> Option<Due> {
    let last = snapshot.last_deploy();
    match last.and_then(|operation| operation.outcome.as_ref()) {
        None => Some(Due::Now),
        // Deploying again would undo it: that waits for another manifest.
        Some(outcome)
            if outcome.result == OutcomeKind::Success
                && last.is_some_and(|last| last.request.verb == Verb::Rollback) =>
        {
            None
        }
        // ACTIVE doesn't say so: it was changed or restored since.
        Some(outcome) if outcome.result == OutcomeKind::Success => Some(Due::Now),
        Some(outcome) if outcome.retryable => Some(snapshot.deploy_due),
        Some(_) => None,
    }
}

/// A stopped app stays stopped, whoever revived it.
fn stopped(snapshot: &Snapshot) -> Next {
    match keep_stopped(snapshot) {
        actions if actions.is_empty() => Next::Settled,
        actions => Next::Repair(actions),
    }
}

fn upkeep(snapshot: &Snapshot, wait: Option<Duration>) -> Next {
    if snapshot.stopped() {
        return stopped(snapshot);
    }
    let (mut actions, later) = repair(snapshot);
    if actions.is_empty() && unpublished(snapshot) {
        actions.push(Action::Traffic { service: None });
    }
    if !actions.is_empty() {
        return Next::Repair(actions);
    }
    match wait.into_iter().chain(later).min() {
        Some(time) => Next::Wait(time),
        None => Next::Settled,
    }
}

/// Whether the published graph isn't the one that follows from ACTIVE, or was never
/// confirmed to be.
fn unpublished(snapshot: &Snapshot) -> bool {
    if unconfirmed(snapshot) {
        return true;
    }
    let Some(incarnation) = snapshot.incarnation() else {
        return false;
    };
    let wanted = routes(
        incarnation,
        &snapshot.records.active,
        &snapshot.records.revisions,
    );
    match &snapshot.routes {
        Some(published) => published != &wanted,
        None => !wanted.is_empty(),
    }
}

/// Whether the last change of the graph wasn't confirmed.
fn unconfirmed(snapshot: &Snapshot) -> bool {
    let changes = snapshot
        .operations()
        .flat_map(|operation| operation.steps.iter().rev())
        .filter(|step| matches!(step.kind, StepKind::Traffic | StepKind::Withdraw));
    let mut begun = changes.filter(|step| step.started_at.is_some());
    let last = begun.next();
    last.is_some_and(|step| step.kind == StepKind::Traffic && step.state == StepState::Failed)
}

/// What is left over of this app: superseded generations that have to be retired, and
/// containers that no record names.
pub(super) fn leftovers(snapshot: &Snapshot) -> Vec<Action> {
    let active = &snapshot.records.active.services;
    let named = |id: &ContainerId| active.values().any(|service| &service.container == id);
    let markers = snapshot.records.inhibitions.iter();
    let superseded = markers.filter(|inhibition| {
        inhibition.reason == InhibitionReason::RetirementPending && !named(&inhibition.container)
    });
    let nameless = snapshot.containers.iter().filter(|container| {
        let marked = |it: &&Inhibition| it.container == container.id;
        !named(&container.id) && !superseded.clone().any(|it| marked(&it))
    });
    let retired = superseded
        .clone()
        .flat_map(|marker| retire_superseded(&marker.service, &marker.container));
    retired.chain(nameless.filter_map(sweep)).collect()
}

/// With grace, and only once it is confirmed that nobody is sent there. One that is
/// gone already only leaves its marker behind.
fn retire_superseded(service: &ServiceName, container: &ContainerId) -> [Action; 2] {
    [
        drain(service, container),
        retire_container(service, container),
    ]
}

fn sweep(container: &Container) -> Option<Action> {
    Some(Action::Sweep {
        service: container.labels.get(labels::SERVICE)?.parse().ok()?,
        container: container.id.clone(),
        name: container.name.clone(),
    })
}
