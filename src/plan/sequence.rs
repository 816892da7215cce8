//! The order of the actions of a deployment and of a removal.

use std::collections::BTreeSet;
use std::path::Path;

use crate::manifest::{NetworkName, Protocol, ServiceName, ServiceSpec, Strategy, VolumeName};
use crate::runtime::Container;
use crate::sabotage::{self, Defect};
use crate::state::{
    ActiveService, ContainerId, Inhibition, InhibitionReason, PinnedService, Revision,
    RevisionNumber, Wish, labels,
};

use super::health::{Health, health};
use super::secrets::outdated;
use super::{Action, Snapshot};

/// Makes this revision serve: what the app no longer names is removed first,
/// then each service that isn't already of this revision, verified and with the
/// secrets as they are now, is replaced, in the revision's order. Whoever gives up
/// something that only one can hold is ended before it is made for another. Last,
/// networks are left.
pub fn deploy(snapshot: &Snapshot, revision: &Revision) -> Vec<Action> {
    let active = &snapshot.records.active.services;
    let dropped = active
        .iter()
        .filter(|(name, _)| !revision.services.contains_key(*name));
    let mut actions: Vec<Action> = dropped
        .flat_map(|(name, old)| drop_service(name, old))
        .collect();
    let mut ended: BTreeSet<&ServiceName> = BTreeSet::new();
    for name in &revision.order {
        let Some(wanted) = revision.services.get(name) else {
            continue;
        };
        let old = active.get(name);
        if old.is_some_and(|old| serves(snapshot, name, old, wanted)) {
            continue;
        }
        if let Some(old) = old.filter(|_| overlaps(snapshot, name, wanted)) {
            actions.extend(overlap(name, old, revision.number));
            continue;
        }
        if sabotage::has(Defect::CreatedBeforeRetired) {
            actions.extend(create(name, revision.number));
            actions.extend(
                old.map(|old| end(snapshot, name, old))
                    .into_iter()
                    .flatten(),
            );
            continue;
        }
        let held = holders(snapshot, revision, name, wanted);
        for (holder, old) in held.chain(old.map(|old| (name, old))) {
            if ended.insert(holder) {
                actions.extend(end(snapshot, holder, old));
            }
        }
        actions.extend(create(name, revision.number));
    }
    let networks = left(snapshot, revision);
    if !networks.is_empty() {
        actions.push(Action::Leave { networks });
    }
    actions
}

/// The shared networks that no service of the new revision is in.
fn left(snapshot: &Snapshot, revision: &Revision) -> BTreeSet<NetworkName> {
    let named: BTreeSet<_> = revision
        .services
        .values()
        .flat_map(|pinned| pinned.networks.iter().map(|network| &network.name))
        .collect();
    let ownership = snapshot.records.ownership.iter();
    ownership
        .flat_map(|ownership| ownership.shared_networks.keys())
        .filter(|name| !named.contains(name))
        .cloned()
        .collect()
}

/// The other services that hold, until they are replaced as well, what this one is to
/// get and only one can have.
fn holders<'s>(
    snapshot: &'s Snapshot,
    revision: &'s Revision,
    name: &'s ServiceName,
    wanted: &'s PinnedService,
) -> impl Iterator<Item = (&'s ServiceName, &'s ActiveService)> {
    let others = snapshot.records.active.services.iter();
    others.filter(move |(other, _)| {
        *other != name
            && revision.services.contains_key(*other)
            && snapshot
                .pinned(other)
                .is_none_or(|held| contend(&held.spec, &wanted.spec))
    })
}

/// Whether the effective generation is what the new revision wants.
fn serves(
    snapshot: &Snapshot,
    name: &ServiceName,
    old: &ActiveService,
    wanted: &PinnedService,
) -> bool {
    snapshot.pinned(name) == Some(wanted)
        && health(snapshot, old) == Health::Verified
        && !outdated(snapshot, name, old).is_rotated()
}

/// Withdraws and retires a generation that another is to follow.
fn end(snapshot: &Snapshot, name: &ServiceName, old: &ActiveService) -> Vec<Action> {
    let mut actions = vec![withdraw(name, Some(&old.container))];
    let writes = snapshot.pinned(name).is_none_or(writes_a_volume);
    if writes && !snapshot.inhibited(&old.container) {
        actions.push(inhibit(name, old, InhibitionReason::ReplacementPending));
    }
    actions.push(retire(name, old, false));
    actions
}

/// Whether both generations may run side by side: the new one asks for it, and
/// neither holds anything that only one can have.
fn overlaps(snapshot: &Snapshot, name: &ServiceName, wanted: &PinnedService) -> bool {
    let alone = |pinned: &PinnedService| {
        writes_a_volume(pinned) || pinned.spec.ports.iter().any(|port| port.host.is_some())
    };
    wanted.spec.update.strategy == Strategy::Overlap
        && !alone(wanted)
        && snapshot.pinned(name).is_some_and(|old| !alone(old))
}

/// The new generation serves before the old one is drained. The retirement marker
/// is durable before anything is published, so that no crash can lose the old one.
fn overlap(name: &ServiceName, old: &ActiveService, revision: RevisionNumber) -> Vec<Action> {
    let mut actions = create(name, revision);
    let publish = actions
        .iter()
        .position(|action| matches!(action, Action::Publish { .. }));
    let marker = inhibit(name, old, InhibitionReason::RetirementPending);
    actions.insert(publish.unwrap_or(actions.len()), marker);
    actions.push(drain(name, &old.container));
    actions.push(retire_container(name, &old.container));
    actions
}

/// Whether it keeps anything outside of its container, which only one may write.
fn writes_a_volume(pinned: &PinnedService) -> bool {
    let spec = &pinned.spec;
    written(spec).next().is_some() || written_paths(spec).next().is_some()
}

/// Whether both can't run at once: they write one volume or one host path, or publish one
/// fixed host port.
pub fn contend(one: &ServiceSpec, other: &ServiceSpec) -> bool {
    let volume = written(one).any(|name| written(other).any(|its| its == name));
    let port = fixed(one).any(|port| fixed(other).any(|its| its == port));
    let path = written_paths(one)
        .any(|path| written_paths(other).any(|its| path.starts_with(its) || its.starts_with(path)));
    volume || port || path
}

fn written(spec: &ServiceSpec) -> impl Iterator<Item = &VolumeName> {
    let volumes = spec.volumes.iter();
    volumes
        .filter(|volume| !volume.read_only)
        .map(|volume| &volume.name)
}

fn written_paths(spec: &ServiceSpec) -> impl Iterator<Item = &Path> {
    let binds = spec.binds.iter().filter(|bind| !bind.read_only);
    binds.map(|bind| Path::new(&bind.source))
}

fn fixed(spec: &ServiceSpec) -> impl Iterator<Item = (Protocol, u16)> {
    let ports = spec.ports.iter();
    ports.filter_map(|port| Some((port.protocol, port.host?)))
}

fn drop_service(name: &ServiceName, old: &ActiveService) -> Vec<Action> {
    vec![
        withdraw(name, Some(&old.container)),
        inhibit(name, old, InhibitionReason::Removed),
        retire(name, old, true),
    ]
}

/// Makes a generation of the service and verifies it.
pub(super) fn create(name: &ServiceName, revision: RevisionNumber) -> Vec<Action> {
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

/// Lets a running container serve once it is ready.
pub(super) fn verify(name: &ServiceName) -> Vec<Action> {
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

/// Starts the exact container that ACTIVE names, and verifies it.
pub(super) fn start_again(name: &ServiceName, service: &ActiveService) -> Vec<Action> {
    let mut actions = vec![Action::Start {
        service: name.clone(),
        container: Some(service.container.clone()),
    }];
    actions.extend(verify(name));
    actions
}

/// The same for one that still runs.
pub(super) fn stop_and_start(name: &ServiceName, service: &ActiveService) -> Vec<Action> {
    let mut actions = vec![Action::Stop {
        service: name.clone(),
        container: service.container.clone(),
    }];
    actions.extend(start_again(name, service));
    actions
}

pub(super) fn withdraw(name: &ServiceName, drain: Option<&ContainerId>) -> Action {
    Action::Withdraw {
        service: name.clone(),
        drain: drain.cloned(),
    }
}

fn inhibit(name: &ServiceName, old: &ActiveService, reason: InhibitionReason) -> Action {
    Action::Inhibit {
        service: name.clone(),
        container: old.container.clone(),
        reason,
    }
}

pub(super) fn drain(name: &ServiceName, container: &ContainerId) -> Action {
    Action::Drain {
        service: name.clone(),
        container: container.clone(),
    }
}

/// Retires a container that ACTIVE doesn't name any more.
pub(super) fn retire_container(name: &ServiceName, container: &ContainerId) -> Action {
    Action::Retire {
        service: name.clone(),
        container: container.clone(),
        forget: false,
    }
}

pub(super) fn retire(name: &ServiceName, old: &ActiveService, forget: bool) -> Action {
    Action::Retire {
        service: name.clone(),
        container: old.container.clone(),
        forget,
    }
}

/// Removes the app: everything durable that keeps it from coming back first,
/// then its containers and what is left over, then its networks, then the incarnation, with the manifest
/// of this revision if that is still there.
pub fn remove(snapshot: &Snapshot, manifest: Option<i64>) -> Vec<Action> {
    let active = &snapshot.records.active.services;
    let containers = active
        .iter()
        .map(|(name, old)| (name.clone(), old.container.clone()));
    let mut actions = vec![
        Action::Intent {
            wish: Wish::Stopped,
            inhibited: containers.collect(),
        },
        Action::WithdrawApp,
    ];
    actions.extend(active.iter().map(|(name, old)| retire(name, old, true)));
    actions.extend(leftovers(snapshot));
    actions.extend([Action::Reclaim, Action::End { manifest }]);
    actions
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
