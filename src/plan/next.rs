//! What comes first.

use std::time::Duration;

use crate::manifest::ServiceName;
use crate::state::{ContainerId, OperationId};

use super::health::Health;
use super::sequence::{remove, repair};
use super::{Action, Desired, Due, Snapshot, health, routes};

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
    },
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
    if let Some(message) = restored_backup(snapshot) {
        return Next::Hold {
            reason: "NewerGenerationRuns",
            message,
        };
    }
    let leftovers = leftovers(snapshot);
    if !leftovers.is_empty() {
        return Next::Sweep(leftovers);
    }
    match &snapshot.desired {
        Desired::Absent => absent(snapshot),
        Desired::App { .. } if snapshot.stopped() => Next::Settled,
        Desired::App { source, .. } if *source != snapshot.records.active.source => {
            match deploy_due(snapshot) {
                Some(Due::Now) => Next::Deploy,
                Some(Due::After(wait)) => upkeep(snapshot, Some(wait)),
                None => upkeep(snapshot, None),
            }
        }
        Desired::App { .. } | Desired::Invalid { .. } => upkeep(snapshot, None),
    }
}

fn absent(snapshot: &Snapshot) -> Next {
    match &snapshot.records.ownership {
        None if snapshot.records.status.is_some() => Next::Forget,
        None => Next::Settled,
        Some(ownership) if ownership.deletion_protection => Next::Hold {
            reason: "DeletionProtected",
            message: "the manifest was deleted, but the app is protected: put the manifest back, \
                      or put it without deletionProtection and delete it again"
                .to_owned(),
        },
        Some(_) => Next::Remove(remove(snapshot)),
    }
}

/// When the wanted manifest may be deployed; `None` when the last try said that
/// only a change can help.
fn deploy_due(snapshot: &Snapshot) -> Option<Due> {
    match snapshot
        .last_deploy()
        .and_then(|operation| operation.outcome.as_ref())
    {
        Some(outcome) if !outcome.retryable => None,
        Some(_) => Some(snapshot.deploy_due),
        None => Some(Due::Now),
    }
}

fn upkeep(snapshot: &Snapshot, wait: Option<Duration>) -> Next {
    if snapshot.stopped() {
        return Next::Settled;
    }
    let (mut actions, later) = repair(snapshot);
    if actions.is_empty() && unpublished(snapshot) {
        actions.push(Action::Traffic { service: None });
    }
    if !actions.is_empty() {
        return Next::Repair(actions);
    }
    let later = match later {
        Some(Due::After(time)) => Some(time),
        Some(Due::Now) => Some(Duration::ZERO),
        None => None,
    };
    match (wait, later) {
        (Some(left), Some(right)) => Next::Wait(left.min(right)),
        (Some(time), None) | (None, Some(time)) => Next::Wait(time),
        (None, None) => Next::Settled,
    }
}

/// Whether the published graph isn't the one that follows from ACTIVE.
fn unpublished(snapshot: &Snapshot) -> bool {
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
        None => !wanted.http.is_empty(),
    }
}

/// Containers of this app that neither ACTIVE nor a retirement marker names.
fn leftovers(snapshot: &Snapshot) -> Vec<Action> {
    let active = &snapshot.records.active.services;
    let named = |id: &ContainerId| active.values().any(|service| &service.container == id);
    snapshot
        .containers
        .iter()
        .filter(|container| !named(&container.id))
        .filter_map(|container| {
            let service: ServiceName = container
                .labels
                .get(crate::state::labels::SERVICE)?
                .parse()
                .ok()?;
            Some(Action::Sweep {
                service,
                container: container.id.clone(),
                name: container.name.clone(),
            })
        })
        .collect()
}

/// A backup of the store that is older than the host: a generation runs that no
/// record knows, in place of the one that ACTIVE names.
fn restored_backup(snapshot: &Snapshot) -> Option<String> {
    let (name, service) = snapshot
        .records
        .active
        .services
        .iter()
        .find(|(_, service)| health(snapshot, service) == Health::Missing)?;
    let newer = snapshot.containers.iter().find(|container| {
        let label = |key: &str| container.labels.get(key).map(String::as_str);
        let revision: u64 = label(crate::state::labels::REVISION)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        let known = label(crate::state::labels::OPERATION).is_some_and(|id| {
            snapshot
                .operations()
                .any(|operation| operation.id.as_str() == id)
        });
        label(crate::state::labels::SERVICE) == Some(name.as_str())
            && container.state.may_run()
            && revision >= service.revision.0
            && !known
    })?;
    Some(format!(
        "ACTIVE of service {name} names container {}, which is gone, while {} runs, which no \
         record knows: etcd may have been restored from an older backup; restore a newer one, or \
         remove that container by hand",
        service.container, newer.name
    ))
}
