//! What people and GitOps watchers read: status, conditions, events.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::manifest::ServiceName;

use super::active::Bind;
use super::ids::{ContainerId, Digest, OperationId, RevisionNumber};
use super::record::Record;

/// Kubernetes-style status of an app.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// `mod_revision` of the manifest's key that this status speaks of.
    pub observed_revision: i64,
    /// The revision that serves, when all services are of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionNumber>,
    /// The conditions, sorted by type.
    pub conditions: Vec<Condition>,
    /// The services.
    #[serde(default)]
    pub services: BTreeMap<ServiceName, ServiceStatus>,
    /// The operation in flight, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationId>,
}

/// One condition, as Kubernetes has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which condition.
    pub r#type: ConditionType,
    /// True, False or Unknown.
    pub status: Truth,
    /// Why, in CamelCase.
    pub reason: String,
    /// Why, as a sentence.
    pub message: String,
    /// When `status` last changed.
    pub last_transition_time: Timestamp,
}

/// The conditions an app has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConditionType {
    /// The newest manifest is valid and wanted.
    Accepted,
    /// An operation is in flight or will be tried again.
    Progressing,
    /// Everything the newest manifest wants is verified and published.
    Ready,
    /// Something that serves isn't as it should be.
    Degraded,
    /// A container may never be started again, and something waits for that.
    Inhibited,
    /// What serves was made with something that has changed since; a restart or a
    /// deployment takes it.
    Outdated,
}

impl ConditionType {
    /// The type as records and metrics spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Progressing => "Progressing",
            Self::Ready => "Ready",
            Self::Degraded => "Degraded",
            Self::Inhibited => "Inhibited",
            Self::Outdated => "Outdated",
        }
    }
}

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Truth {
    /// It holds.
    True,
    /// It doesn't.
    False,
    /// Nobody can say.
    Unknown,
}

/// Status of one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    /// The image as the manifest names it.
    pub image: String,
    /// Its digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerId>,
    /// The revision the container was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionNumber>,
    /// Verified and published.
    pub ready: bool,
    /// How often it was started again since this controller saw it first.
    pub restarts: u32,
    /// Its host ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binds: Vec<Bind>,
    /// Why it isn't ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// A short event for people, on a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Normal or Warning.
    pub r#type: EventType,
    /// In CamelCase.
    pub reason: String,
    /// As a sentence.
    pub message: String,
    /// The service it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// The operation it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationId>,
    /// When.
    pub at: Timestamp,
}

/// Normal or Warning, as Kubernetes has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventType {
    /// As it should be.
    Normal,
    /// Somebody may want to look.
    Warning,
}

impl Record for Status {
    const SCHEMA: u32 = 1;
    const KIND: &'static str = "status";
}

impl Record for Event {
    const SCHEMA: u32 = 1;
    const KIND: &'static str = "event";
}
