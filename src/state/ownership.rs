//! Who an app is, what it owns, and what it leaves behind.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::manifest::{AppName, NetworkName, NodeName, ServiceName};

use super::ids::{ContainerId, Incarnation, OperationId};
use super::record::Record;

/// The live incarnation of an app's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ownership {
    /// Its UUID.
    pub incarnation: Incarnation,
    /// When the name was first used.
    pub since: Timestamp,
    /// `deletionProtection` of the newest accepted manifest.
    #[serde(default)]
    pub deletion_protection: bool,
    /// What it owns in the runtime.
    #[serde(flatten)]
    pub resources: Resources,
    /// The shared networks that it has a part in.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shared_networks: BTreeMap<NetworkName, Stake>,
}

/// An app's part in a shared network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stake {
    /// Its services are in it, or are about to be.
    Held,
    /// They have left. Whoever leaves last removes the network; of two that leave at
    /// the same time each sees the other's mark, so that one of them does.
    Leaving,
}

/// Names of what an incarnation owns in the runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// Podman volumes.
    pub volumes: BTreeSet<String>,
    /// Podman networks.
    pub networks: BTreeSet<String>,
    /// Podman secrets.
    pub secrets: BTreeSet<String>,
    /// Images, by reference.
    pub images: BTreeSet<String>,
}

/// What an ended incarnation left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retained {
    /// The app's name while it lived.
    pub app: AppName,
    /// Its UUID.
    pub incarnation: Incarnation,
    /// When the name was first used.
    pub since: Timestamp,
    /// When it was removed.
    pub ended_at: Timestamp,
    /// What is still there.
    #[serde(flatten)]
    pub resources: Resources,
}

/// The durable wish that an app be running or stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// The wish.
    pub state: Wish,
    /// The operation that set it.
    pub operation: OperationId,
    /// When it was set.
    pub at: Timestamp,
}

/// Running or stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Wish {
    /// The app is kept running.
    Running,
    /// The app stays stopped.
    Stopped,
}

/// Forbids recovery from ever starting one exact container again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inhibition {
    /// The service it was a generation of.
    pub service: ServiceName,
    /// The exact container.
    pub container: ContainerId,
    /// Why.
    pub reason: InhibitionReason,
    /// The operation that wrote it.
    pub operation: OperationId,
    /// When.
    pub at: Timestamp,
    /// How long its stop may take, for whoever retires it.
    pub stop_grace_ms: u64,
    /// Signal that asks it to leave; the image's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
}

/// Why a container must never be started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum InhibitionReason {
    /// A replacement may have written to its volumes.
    ReplacementPending,
    /// It is superseded, still runs, and must be retired (a retirement marker).
    RetirementPending,
    /// Its app or service is being removed.
    Removed,
}

impl InhibitionReason {
    /// The reason as records and metrics spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReplacementPending => "ReplacementPending",
            Self::RetirementPending => "RetirementPending",
            Self::Removed => "Removed",
        }
    }
}

/// Which container claims a host port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BindClaim {
    /// The app.
    pub app: AppName,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The service.
    pub service: ServiceName,
    /// Name of the container, known before it exists.
    pub container_name: String,
    /// The operation that claimed it.
    pub operation: OperationId,
}

/// The host's heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// The host.
    pub node: NodeName,
    /// Podherd's version.
    pub version: String,
    /// Since when this process runs.
    pub since: Timestamp,
}

/// Who leads, on that controller's lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leader {
    /// The host.
    pub node: NodeName,
    /// This process, unlike any other.
    pub holder: String,
    /// The same for whoever runs on the same machine, where it can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessIdentity>,
    /// Since when.
    pub since: Timestamp,
}

/// A process, told apart from every other that ever ran on any machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessIdentity {
    /// The kernel's ID of the machine's boot.
    pub boot: String,
    /// The PID namespace in which the ID below means something.
    pub namespace: String,
    /// The process ID.
    pub pid: u32,
    /// When it began, in clock ticks since the boot.
    pub started: u64,
}

macro_rules! record {
    ($($type:ident $kind:literal),* $(,)?) => {
        $(impl Record for $type {
            const SCHEMA: u32 = 1;
            const KIND: &'static str = $kind;
        })*
    };
}

record! {
    Ownership "ownership",
    Retained "retained",
    Intent "intent",
    Inhibition "inhibition",
    BindClaim "bind claim",
    Node "node",
    Leader "leader",
}
