//! Records that can't be right beside what runs: etcd was restored from a backup, or
//! somebody deleted a key. Nothing is changed until a person has looked.

use crate::manifest::ServiceName;
use crate::runtime::Container;
use crate::state::{ContainerId, Operation, StepKind, StepState, labels};

use super::health::{Health, health};
use super::{Next, Snapshot};

/// Why everything is held, if it is.
pub(super) fn lost_records(snapshot: &Snapshot) -> Option<Next> {
    newer_generation(snapshot).or_else(|| lost_active(snapshot))
}

/// ACTIVE without the incarnation whose containers it names.
pub(super) fn lost_ownership(snapshot: &Snapshot) -> Option<Next> {
    let orphaned =
        snapshot.records.ownership.is_none() && !snapshot.records.active.services.is_empty();
    orphaned.then(|| {
        let message = "ACTIVE names containers, but the record of the app's incarnation is gone: \
                       restore state/ownership from a backup of etcd";
        hold("OwnershipMissing", message.to_owned())
    })
}

fn hold(reason: &'static str, message: String) -> Next {
    Next::Hold {
        reason,
        message,
        again: None,
    }
}

/// A backup of the store that is older than the host: a generation runs that no
/// record knows, in place of the one that ACTIVE names, or of a revision that isn't
/// written.
fn newer_generation(snapshot: &Snapshot) -> Option<Next> {
    let known = |container: &Container| {
        let by = container.labels.get(labels::OPERATION);
        by.is_some_and(|by| snapshot.operations().any(|it| it.id.as_str() == by))
    };
    let newest = snapshot
        .records
        .revisions
        .iter()
        .map(|it| it.number.0)
        .max();
    let newest = newest.unwrap_or(0);
    let strange = of_live_incarnation(snapshot).filter(|container| !known(container));
    strange.into_iter().find_map(|container| {
        let service: ServiceName = container.labels.get(labels::SERVICE)?.parse().ok()?;
        let revision = container
            .labels
            .get(labels::REVISION)?
            .parse::<u64>()
            .ok()?;
        let active = snapshot.records.active.services.get(&service);
        let missing = active.filter(|active| health(snapshot, active) == Health::Missing);
        if missing.is_none() && revision <= newest {
            return None;
        }
        let instead = missing.map_or_else(String::new, |active| {
            format!(" while {}, which ACTIVE names, is gone", active.container)
        });
        let message = format!(
            "container {} of service {service} runs, and no record knows it{instead}: etcd may \
             have been restored from an older backup; restore a newer one, or remove that \
             container by hand",
            container.name
        );
        Some(hold("NewerGenerationRuns", message))
    })
}

/// What was published by the journal and never retired, and ACTIVE doesn't name.
fn lost_active(snapshot: &Snapshot) -> Option<Next> {
    let active = &snapshot.records.active.services;
    let mut lost = of_live_incarnation(snapshot).filter(|container| {
        !active.values().any(|it| it.container == container.id)
            && !snapshot.inhibited(&container.id)
            && published(snapshot, &container.id)
    });
    lost.next().map(|container| {
        let message = format!(
            "container {} was published, and ACTIVE doesn't name it: restore state/active from a \
             backup of etcd, or remove that container by hand",
            container.name
        );
        hold("ActiveMissing", message)
    })
}

fn of_live_incarnation(snapshot: &Snapshot) -> impl Iterator<Item = &Container> {
    let live = snapshot.incarnation().map(|it| it.to_string());
    snapshot.containers.iter().filter(move |container| {
        live.is_some()
            && container.labels.get(labels::INCARNATION) == live.as_ref()
            && container.state.may_run()
    })
}

/// Whether the last that the journal says of the container is that it was published.
fn published(snapshot: &Snapshot, id: &ContainerId) -> bool {
    let mut steps = snapshot
        .operations()
        .flat_map(|operation: &Operation| operation.steps.iter().rev())
        .filter(|step| step.started_at.is_some());
    let last = steps.find(|step| match step.kind {
        StepKind::Publish => step.after.as_ref() == Some(id),
        StepKind::Retire | StepKind::Sweep => step.before.as_ref() == Some(id),
        _ => false,
    });
    last.is_some_and(|step| step.kind == StepKind::Publish && step.state == StepState::Succeeded)
}
