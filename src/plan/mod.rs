//! What to do, decided from what is: pure functions, no I/O.
//!
//! A pass of the reconciler takes a [`Snapshot`] and asks [`next()`] what comes
//! first. A deployment is pinned by the preflight, which needs the runtime,
//! and then laid out by [`deploy()`]. The answer is a list of [`Action`]s that
//! the sequencer journals and performs one by one.

mod health;
mod hold;
mod next;
mod policy;
mod repair;
mod request;
mod routes;
mod secrets;
mod sequence;
mod snapshot;
mod status;

pub use health::{Health, health};
pub use next::{Next, next};
pub use policy::Denied;
pub use repair::{must_withdraw, repair};
pub use request::{Answer, Pending, answer};
pub use routes::{claims, routes, watched};
pub use sequence::{contend, deploy, remove};
pub use snapshot::{Desired, Due, Snapshot};
pub(crate) use status::LIMIT_IGNORED;
pub use status::{Phase, status};

use std::collections::BTreeSet;

use crate::manifest::{NetworkName, ServiceName};
use crate::state::{ContainerId, InhibitionReason, RevisionNumber, StepKind, Wish};

/// One thing to do. Each becomes one journaled step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Take the service out of the traffic graph, confirmed; then wait for the
    /// requests in flight of this container.
    Withdraw {
        /// The service.
        service: ServiceName,
        /// The container whose requests are waited for.
        drain: Option<ContainerId>,
    },
    /// Forbid recovery to ever start this container again.
    Inhibit {
        /// The service.
        service: ServiceName,
        /// The container.
        container: ContainerId,
        /// Why.
        reason: InhibitionReason,
    },
    /// Let this container be started again.
    Clear {
        /// The service.
        service: ServiceName,
        /// The container.
        container: ContainerId,
    },
    /// Stop with grace, remove, confirm that it is gone, release its binds.
    Retire {
        /// The service.
        service: ServiceName,
        /// The container.
        container: ContainerId,
        /// Whether ACTIVE forgets the service: nothing will replace it.
        forget: bool,
    },
    /// Remove by force a container that no record names.
    Sweep {
        /// The service it was made for.
        service: ServiceName,
        /// The container.
        container: ContainerId,
        /// Its name, under which its ports are claimed.
        name: String,
    },
    /// Create the private network and the service's volumes.
    Provision {
        /// The service.
        service: ServiceName,
        /// The revision that is made to serve.
        revision: RevisionNumber,
    },
    /// Create the candidate.
    Create {
        /// The service.
        service: ServiceName,
        /// The revision it is made from.
        revision: RevisionNumber,
    },
    /// Start the candidate, or the container that ACTIVE names, and inspect its binds.
    Start {
        /// The service.
        service: ServiceName,
        /// The container that ACTIVE names; `None` for the candidate.
        container: Option<ContainerId>,
    },
    /// Inspect the binds of the running container that ACTIVE names.
    Inspect {
        /// The service.
        service: ServiceName,
        /// The container.
        container: ContainerId,
    },
    /// Wait for readiness on the fresh binds.
    Probe {
        /// The service.
        service: ServiceName,
    },
    /// Write ACTIVE, clear the superseded container's inhibition.
    Publish {
        /// The service.
        service: ServiceName,
    },
    /// Apply the traffic graph that follows from ACTIVE, confirmed.
    Traffic {
        /// The service for which it is done; `None` for the whole app.
        service: Option<ServiceName>,
    },
    /// Stop the container that ACTIVE names, with grace; it stays.
    Stop {
        /// The service.
        service: ServiceName,
        /// The container.
        container: ContainerId,
    },
    /// Wait for the requests in flight of a superseded container.
    Drain {
        /// The service.
        service: ServiceName,
        /// The container.
        container: ContainerId,
    },
    /// Write the intent, and an inhibition for each of these containers.
    Intent {
        /// Running or stopped.
        wish: Wish,
        /// The containers that must never start again.
        inhibited: Vec<(ServiceName, ContainerId)>,
    },
    /// Take the whole app out of the traffic graph, confirmed.
    WithdrawApp,
    /// Leave shared networks that no service is in any more.
    Leave {
        /// The networks.
        networks: BTreeSet<NetworkName>,
    },
    /// Leave the shared networks, and remove the app's private ones.
    Reclaim,
    /// End the incarnation.
    End {
        /// `mod_revision` of the manifest that goes with it, unless it changes
        /// meanwhile; `None` when it is gone already.
        manifest: Option<i64>,
    },
}

impl Action {
    /// The kind of step it is journaled as.
    pub fn kind(&self) -> StepKind {
        match self {
            Self::Withdraw { .. } | Self::WithdrawApp => StepKind::Withdraw,
            Self::Inhibit { .. } => StepKind::Inhibit,
            Self::Clear { .. } => StepKind::Clear,
            Self::Retire { .. } => StepKind::Retire,
            Self::Sweep { .. } => StepKind::Sweep,
            Self::Provision { .. } => StepKind::Provision,
            Self::Create { .. } => StepKind::Create,
            Self::Start { .. } => StepKind::Start,
            Self::Stop { .. } => StepKind::Stop,
            Self::Drain { .. } => StepKind::Drain,
            Self::Inspect { .. } => StepKind::Inspect,
            Self::Probe { .. } => StepKind::Probe,
            Self::Publish { .. } => StepKind::Publish,
            Self::Traffic { .. } => StepKind::Traffic,
            Self::Intent { .. } => StepKind::Intent,
            Self::Leave { .. } | Self::Reclaim => StepKind::Reclaim,
            Self::End { .. } => StepKind::End,
        }
    }

    /// The service it concerns; `None` for the whole app.
    pub fn service(&self) -> Option<&ServiceName> {
        match self {
            Self::Withdraw { service, .. }
            | Self::Inhibit { service, .. }
            | Self::Clear { service, .. }
            | Self::Retire { service, .. }
            | Self::Sweep { service, .. }
            | Self::Provision { service, .. }
            | Self::Create { service, .. }
            | Self::Start { service, .. }
            | Self::Inspect { service, .. }
            | Self::Stop { service, .. }
            | Self::Drain { service, .. }
            | Self::Probe { service }
            | Self::Publish { service } => Some(service),
            Self::Traffic { service } => service.as_ref(),
            Self::Intent { .. }
            | Self::WithdrawApp
            | Self::Leave { .. }
            | Self::Reclaim
            | Self::End { .. } => None,
        }
    }

    /// The container that exists already and is acted on.
    pub fn container(&self) -> Option<&ContainerId> {
        match self {
            Self::Withdraw { drain, .. } => drain.as_ref(),
            Self::Start { container, .. } => container.as_ref(),
            Self::Inhibit { container, .. }
            | Self::Clear { container, .. }
            | Self::Retire { container, .. }
            | Self::Sweep { container, .. }
            | Self::Stop { container, .. }
            | Self::Drain { container, .. }
            | Self::Inspect { container, .. } => Some(container),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
