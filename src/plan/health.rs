//! How the effective generation of a service is.

use crate::manifest::ServiceName;
use crate::runtime::{Container, ContainerState};
use crate::sabotage::{self, Defect};
use crate::state::{ActiveService, InhibitionReason, StepKind};

use super::Snapshot;

/// How the container that ACTIVE names is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It runs, in the execution that was verified, on the recorded binds.
    Verified,
    /// It runs, but in another execution or on other binds.
    Unverified,
    /// It runs, and failed its liveness probe.
    Unhealthy,
    /// Its process has ended, or never began.
    Down {
        /// How it ended.
        exit_code: Option<i32>,
    },
    /// It is gone.
    Missing,
    /// It must never be started again.
    Inhibited,
    /// It is frozen, being stopped or removed, or Podman can't say.
    Unclear(ContainerState),
}

/// How the container is that ACTIVE names for this service.
pub fn health(snapshot: &Snapshot, active: &ActiveService) -> Health {
    let found = snapshot.container(&active.container);
    let inhibition = snapshot.inhibition(&active.container).map(|it| it.reason);
    match (inhibition, found) {
        // Its successor was never published: it serves until a recovery takes the marker off.
        (Some(InhibitionReason::RetirementPending), Some(container))
            if runs_verified(active, container) && snapshot.failed(container).is_none() =>
        {
            Health::Verified
        }
        (Some(_), _) => Health::Inhibited,
        (None, None) => Health::Missing,
        (None, Some(container)) => health_of(snapshot, active, container),
    }
}

fn health_of(snapshot: &Snapshot, active: &ActiveService, container: &Container) -> Health {
    match container.state {
        ContainerState::Running if snapshot.failed(container).is_some() => Health::Unhealthy,
        _ if runs_verified(active, container) => Health::Verified,
        ContainerState::Running => Health::Unverified,
        ContainerState::Exited if sabotage::has(Defect::DeadIgnored) => Health::Verified,
        ContainerState::Created | ContainerState::Exited => Health::Down {
            exit_code: container.exit_code,
        },
        state @ (ContainerState::Paused
        | ContainerState::Stopping
        | ContainerState::Removing
        | ContainerState::Unknown) => Health::Unclear(state),
    }
}

fn runs_verified(active: &ActiveService, container: &Container) -> bool {
    let on_recorded_binds = active.binds.iter().all(|bind| {
        container.ports.iter().any(|port| {
            port.container == bind.container
                && port.protocol == bind.protocol
                && port.host == bind.host
                && port.host_ip == bind.host_ip
        })
    });
    container.state == ContainerState::Running
        && active.verified.is_some()
        && (active.verified == container.started_at || sabotage::has(Defect::ExecutionNotCompared))
        && on_recorded_binds
}

/// Whether a deployment that didn't come to publish this service set out to retire
/// its effective generation. Then only a deployment brings the service back.
pub(super) fn retired_by_deploy(snapshot: &Snapshot, service: &ServiceName) -> bool {
    snapshot
        .operations()
        .filter(|operation| operation.deploys())
        .take_while(|operation| !operation.has(StepKind::Publish, service))
        .flat_map(|operation| &operation.steps)
        .any(|step| {
            step.kind == StepKind::Retire
                && step.service.as_ref() == Some(service)
                && step.started_at.is_some()
        })
}
