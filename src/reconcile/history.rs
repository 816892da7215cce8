//! Which operations the journal keeps, so that its size is bounded.

use crate::manifest::ServiceName;
use crate::plan::Snapshot;
use crate::state::{Operation, OperationId, StepKind, Verb, labels};

/// How many operations of an app are kept whole.
const WHOLE: usize = 20;
/// How many answered requests are remembered without their steps, so that a request
/// that is put again isn't done again.
const ANSWERS: usize = 100;

/// What makes room for a new operation.
#[derive(Debug, Default)]
pub(super) struct Room<'s> {
    /// These are forgotten.
    pub gone: Vec<&'s OperationId>,
    /// Of these only the request and the outcome are kept.
    pub shortened: Vec<Operation>,
}

/// Recoveries go first, then the oldest. After a removal that succeeded only the answers
/// are left, and what removed: the name is free, and an ID is never done twice all the same.
pub(super) fn make_room<'s>(snapshot: &'s Snapshot, operation: &Operation) -> Room<'s> {
    let mut oldest_first: Vec<&Operation> = snapshot
        .operations()
        .filter(|old| old.id != operation.id)
        .collect();
    oldest_first.reverse();
    let (answers, whole): (Vec<_>, Vec<_>) = oldest_first.into_iter().partition(|it| it.is_short());
    let ended = operation.request.verb == Verb::Remove && operation.succeeded();
    let surplus = if ended {
        whole.len()
    } else {
        (whole.len() + 1).saturating_sub(WHOLE)
    };
    let mut spare = whole;
    spare.retain(|old| {
        if ended {
            old.request.verb != Verb::Remove
        } else {
            !is_needed(snapshot, operation, old)
        }
    });
    spare.sort_by_key(|old| old.request.verb != Verb::Recover);
    let mut room = Room::default();
    for old in spare.into_iter().take(surplus) {
        if old.asked {
            room.shortened.push(old.shortened());
        } else {
            room.gone.push(&old.id);
        }
    }
    let surplus = (answers.len() + room.shortened.len()).saturating_sub(ANSWERS);
    let spare = answers.into_iter();
    let spare = spare.filter(|old| !is_needed(snapshot, operation, old));
    room.gone.extend(spare.take(surplus).map(|old| &old.id));
    room
}

/// Whether something is still decided from this record: how the last try at the wanted
/// manifest ended, which service a deployment set out to retire, how a removal goes on,
/// and that somebody knows where a container comes from.
fn is_needed(snapshot: &Snapshot, operation: &Operation, old: &Operation) -> bool {
    let is = |it: &Operation| it.id == old.id;
    let tried = !(operation.deploys() && operation.source == old.source)
        && snapshot.last_deploy().is_some_and(is);
    let intent = snapshot.records.intent.as_ref();
    let intended = intent.is_some_and(|intent| intent.operation == old.id);
    let made_one = snapshot.containers.iter().any(|container| {
        container.labels.get(labels::OPERATION).map(String::as_str) == Some(old.id.as_str())
    });
    let active = &snapshot.records.active.services;
    let moved = active
        .keys()
        .any(|service| last_move(snapshot, service).is_some_and(is));
    tried || intended || made_one || moved
}

/// The newest deployment that retired or published the service.
fn last_move<'s>(snapshot: &'s Snapshot, service: &ServiceName) -> Option<&'s Operation> {
    let mut deployments = snapshot.operations().filter(|it| it.deploys());
    deployments.find(|it| {
        it.steps.iter().any(|step| {
            matches!(step.kind, StepKind::Retire | StepKind::Publish)
                && step.service.as_ref() == Some(service)
                && step.started_at.is_some()
        })
    })
}
