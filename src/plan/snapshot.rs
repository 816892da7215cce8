//! What one pass looks at.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::manifest::{App, AppName, NodeName, ServiceName};
use crate::policy::Verdict;
use crate::probe::Unhealthy;
use crate::runtime::Container;
use crate::state::{
    ContainerId, Incarnation, Inhibition, Operation, OutcomeKind, PinnedService, Revision,
    RevisionNumber, SecretVersion, Verb, Wish,
};
use crate::store::AppRecords;
use crate::traffic::AppRoutes;

use super::{Denied, Pending};

/// Everything one pass decides from.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The app.
    pub app: AppName,
    /// This host.
    pub node: NodeName,
    /// What people want.
    pub desired: Desired,
    /// What is recorded.
    pub records: AppRecords,
    /// What people ask for, oldest first.
    pub requests: Vec<Pending>,
    /// What is published.
    pub routes: Option<AppRoutes>,
    /// The containers of this app's live incarnation, and of ended ones that
    /// are known here.
    pub containers: Vec<Container>,
    /// Containers that carry this app's name and an incarnation unknown here.
    pub strangers: Vec<ContainerId>,
    /// The secrets that what serves was made with, by Podman's names, as far as they
    /// are there.
    pub secrets: BTreeMap<String, SecretVersion>,
    /// Executions that failed their liveness probe.
    pub unhealthy: Vec<Unhealthy>,
    /// How often each service was started again, as far as this process knows.
    pub restarts: BTreeMap<ServiceName, u32>,
    /// When a deployment that failed may be tried again.
    pub deploy_due: Due,
    /// When a service that is down may be started again; absent means now.
    pub restart_due: BTreeMap<ServiceName, Due>,
    /// What of the wanted manifest the node's policy doesn't allow.
    pub denied: Option<Denied>,
    /// What the policy says of each service that ACTIVE names; absent means nothing.
    pub verdicts: BTreeMap<ServiceName, Verdict>,
}

/// What people want of an app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Desired {
    /// No manifest.
    Absent,
    /// A manifest that is refused.
    Invalid {
        /// Its key's `mod_revision`.
        source: i64,
        /// Why, with path, line and column.
        message: String,
    },
    /// A valid manifest.
    App {
        /// Its key's `mod_revision`.
        source: i64,
        /// The manifest.
        app: Box<App>,
    },
}

impl Desired {
    /// `mod_revision` of the manifest's key; 0 without one.
    pub fn source(&self) -> i64 {
        match self {
            Self::Absent => 0,
            Self::Invalid { source, .. } | Self::App { source, .. } => *source,
        }
    }
}

/// When something may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// At once.
    Now,
    /// After this time.
    After(Duration),
}

impl Snapshot {
    /// The operation that has no outcome yet.
    pub fn in_flight(&self) -> Option<&Operation> {
        self.operations().find(|operation| operation.in_flight())
    }

    /// The journal, newest first.
    pub fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.records
            .operations
            .iter()
            .rev()
            .map(|kept| &kept.record)
    }

    /// The newest deployment of the manifest that is wanted now.
    pub fn last_deploy(&self) -> Option<&Operation> {
        let source = self.desired.source();
        self.operations()
            .find(|operation| operation.source == source && operation.deploys())
    }

    /// Whether the wanted manifest isn't served whole: it never was, or the last
    /// operation on it failed half way and may be tried again.
    pub fn unserved(&self) -> bool {
        let last = self.last_deploy();
        let outcome = last.and_then(|last| last.outcome.as_ref());
        let failed = outcome
            .is_some_and(|outcome| outcome.result != OutcomeKind::Success && outcome.retryable);
        failed || self.desired.source() != self.records.active.source
    }

    /// Whether there is anything that a status could speak of.
    pub fn has_status(&self) -> bool {
        self.desired != Desired::Absent || self.records.ownership.is_some()
    }

    /// Whether people want the app stopped.
    pub fn stopped(&self) -> bool {
        if crate::sabotage::has(crate::sabotage::Defect::StoppedIsDeployed) {
            return false;
        }
        self.records
            .intent
            .as_ref()
            .is_some_and(|intent| intent.state == Wish::Stopped)
    }

    /// The removal that has begun. It is brought to its end, whatever the manifest
    /// says by now: a removed app comes back as another incarnation or not at all.
    pub fn removal(&self) -> Option<&Operation> {
        let intent = self.records.intent.as_ref()?;
        self.operations().find(|operation| {
            operation.id == intent.operation && operation.request.verb == Verb::Remove
        })
    }

    /// The live incarnation.
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.records
            .ownership
            .as_ref()
            .map(|ownership| ownership.incarnation)
    }

    /// The container of this ID, if it exists.
    pub fn container(&self, id: &ContainerId) -> Option<&Container> {
        self.containers.iter().find(|container| &container.id == id)
    }

    /// How the newest execution of a container failed its liveness probe.
    pub fn failed(&self, container: &Container) -> Option<&Unhealthy> {
        if crate::sabotage::has(crate::sabotage::Defect::UnhealthyIgnored) {
            return None;
        }
        self.unhealthy.iter().find(|failed| {
            failed.container == container.id && Some(failed.started_at) == container.started_at
        })
    }

    /// Whether recovery must never start this container.
    pub fn inhibited(&self, id: &ContainerId) -> bool {
        self.inhibition(id).is_some()
    }

    /// Why recovery must never start this container.
    pub fn inhibition(&self, id: &ContainerId) -> Option<&Inhibition> {
        let mut inhibitions = self.records.inhibitions.iter();
        inhibitions.find(|inhibition| &inhibition.container == id)
    }

    /// A revision by its number.
    pub fn revision(&self, number: RevisionNumber) -> Option<&Revision> {
        Revision::numbered(&self.records.revisions, number)
    }

    /// What the effective generation of a service was made from.
    pub fn pinned(&self, service: &ServiceName) -> Option<&PinnedService> {
        let records = &self.records;
        records.active.pinned(service, &records.revisions)
    }
}
