//! What the node's policy means for the plan.
//!
//! What runs goes on. What isn't allowed any more is neither started nor made again,
//! and nothing of it is touched for that.

use std::time::Duration;

use crate::manifest::ServiceName;
use crate::policy::Denial;

use super::health::Health;
use super::{Answer, Snapshot};

/// How soon it is looked again whether something is allowed by now. A changed policy
/// is noticed at once, a mended path of the host isn't.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Something that isn't allowed, and the service that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The service.
    pub service: ServiceName,
    /// Why not.
    pub denial: Denial,
}

impl Denied {
    /// As a sentence.
    pub fn message(&self) -> String {
        format!("service {}: {}", self.service, self.denial)
    }
}

impl Snapshot {
    /// Why the service's container may not be started again.
    pub(super) fn start_denied(&self, service: &ServiceName) -> Option<Denied> {
        let verdict = self.verdicts.get(service)?;
        denied(service, verdict.start.as_ref())
    }

    /// Why the service's container may not be made again.
    pub(super) fn rebuild_denied(&self, service: &ServiceName) -> Option<Denied> {
        let verdict = self.verdicts.get(service)?;
        denied(service, verdict.rebuild.as_ref())
    }

    /// Why what brings the service back isn't allowed.
    pub(super) fn return_denied(&self, service: &ServiceName, health: Health) -> Option<Denied> {
        match health {
            Health::Missing => self.rebuild_denied(service),
            Health::Down { .. } | Health::Unhealthy | Health::Unclear(_) => {
                self.start_denied(service)
            }
            Health::Verified | Health::Unverified | Health::Inhibited => None,
        }
    }

    /// The first thing of what serves that isn't allowed any more.
    pub(super) fn revoked(&self) -> Option<Denied> {
        let mut services = self.records.active.services.keys();
        services.find_map(|name| {
            self.start_denied(name)
                .or_else(|| self.rebuild_denied(name))
        })
    }
}

fn denied(service: &ServiceName, denial: Option<&Denial>) -> Option<Denied> {
    Some(Denied {
        service: service.clone(),
        denial: denial?.clone(),
    })
}

impl From<Denied> for Answer {
    fn from(denied: Denied) -> Self {
        Self::Refused {
            reason: denied.denial.reason(),
            message: denied.message(),
        }
    }
}
