//! The types of a manifest, as the rest of the code sees them: every value
//! parsed, every default filled in, every cross reference checked.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::device::Device;
use super::names::{AppName, ServiceName, VolumeName};
use super::placement::{Placement, SharedNetwork};
use super::ports::{HttpRoute, Port, StreamRoute};
use super::probe::{Liveness, Readiness, Startup};
use super::quantity::{Bytes, Cpus, Timespan};
use super::secret::{SecretFile, SecretRef};

/// One app: a validated manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    /// Equals the last part of the etcd key.
    pub name: AppName,
    /// Free labels, also put on every container of the app.
    pub labels: BTreeMap<String, String>,
    /// App-wide settings and the services.
    pub spec: AppSpec,
}

/// App-wide settings and the services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AppSpec {
    /// Environment that every service gets; a service's own value wins.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Shared networks, beside the app's private one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<SharedNetwork>,
    /// The services by name; at least one.
    pub services: BTreeMap<ServiceName, ServiceSpec>,
    /// Deleting the key then only sets a condition.
    #[serde(default)]
    pub deletion_protection: bool,
    /// Which host runs the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
}

/// One container of an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceSpec {
    /// Image reference, by tag or digest.
    pub image: String,
    /// When the image is pulled.
    #[serde(default)]
    pub pull_policy: PullPolicy,
    /// Replaces the image's entrypoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Replaces the image's command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Working directory in the container, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// User, as `name`, `uid`, `name:group` or `uid:gid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Environment of this service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Environment variables whose values are secrets, by reference.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, SecretRef>,
    /// Secrets mounted as files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<SecretFile>,
    /// Named volumes of the app.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeMount>,
    /// Host paths; allowed only by the node's policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binds: Vec<BindMount>,
    /// Host devices; allowed only by the node's policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    /// Memory file systems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tmpfs: Vec<Tmpfs>,
    /// Declared container ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// HTTP routes of the traffic graph.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<HttpRoute>,
    /// TCP listeners of the traffic graph.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tcp: Vec<StreamRoute>,
    /// UDP listeners of the traffic graph.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub udp: Vec<StreamRoute>,
    /// What must pass before the service is published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Readiness>,
    /// What must go on passing while it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness: Option<Liveness>,
    /// Held before readiness, for slow starters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<Startup>,
    /// How a generation is replaced.
    #[serde(default)]
    pub update: Update,
    /// Time between the stop signal and the kill. Default 10s.
    #[serde(default = "default_stop_grace")]
    pub stop_grace: Timespan,
    /// Signal that asks the container to leave. Default the image's, or SIGTERM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    /// What happens when the container ends.
    #[serde(default)]
    pub restart: RestartPolicy,
    /// Limits.
    #[serde(default)]
    pub resources: Resources,
    /// Privileges.
    #[serde(default)]
    pub security: Security,
    /// Where Podman puts the logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logging: Option<Logging>,
    /// Services deployed before this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<ServiceName>,
}

fn default_stop_grace() -> Timespan {
    Timespan::from_secs(10)
}

/// When an image is pulled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// At every deploy.
    Always,
    /// Only when the host lacks the image.
    IfNotPresent,
    /// When the tag names another digest than the local image's.
    #[default]
    IfTagChanged,
    /// Never; a missing image fails the preflight.
    Never,
}

/// A named volume of the app, mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VolumeMount {
    /// The volume's name within the app.
    pub name: VolumeName,
    /// Absolute path in the container.
    pub path: String,
    /// Mounted without write access.
    #[serde(default)]
    pub read_only: bool,
}

/// A host path, mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BindMount {
    /// Absolute path on the host.
    pub source: String,
    /// Absolute path in the container.
    pub path: String,
    /// Mounted without write access.
    #[serde(default)]
    pub read_only: bool,
}

/// A memory file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tmpfs {
    /// Absolute path in the container.
    pub path: String,
    /// Largest size; the kernel's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
}

/// How a generation is replaced by the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Update {
    /// In which order.
    pub strategy: Strategy,
    /// What a failed replacement leads to.
    pub on_failure: OnFailure,
    /// Longest wait for requests in flight. Default 10s.
    pub drain: Timespan,
}

impl Default for Update {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            on_failure: OnFailure::default(),
            drain: Timespan::from_secs(10),
        }
    }
}

/// The order of a replacement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// The old generation is gone before the new one is created.
    #[default]
    Sequential,
    /// The new generation serves before the old one is drained.
    Overlap,
}

/// What a failed replacement leads to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// Stop, report, wait for a retry or a change.
    #[default]
    Halt,
    /// Deploy the previous revision as an operation of its own.
    Rollback,
}

/// What happens when a container ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestartPolicy {
    /// It is started again, with backoff.
    #[default]
    Always,
    /// It is started again when its exit code was not 0.
    OnFailure,
    /// It stays down.
    Never,
}

/// Limits of a container; absent means unlimited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resources {
    /// CPU time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Number of processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
}

/// Privileges of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Security {
    /// The root file system without write access.
    #[serde(default)]
    pub read_only_root: bool,
    /// Capabilities taken away; `ALL` for every one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cap_drop: Vec<String>,
    /// Capabilities given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cap_add: Vec<String>,
    /// No gain of privileges by setuid programs.
    #[serde(default)]
    pub no_new_privileges: bool,
    /// User namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub userns: Option<Userns>,
}

/// User namespace of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Userns {
    /// One of its own, with IDs that Podman chooses.
    Auto,
    /// The host's.
    Host,
}

/// Where Podman puts a container's logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Logging {
    /// Podman's log driver.
    pub driver: LogDriver,
    /// Largest size of the file; a fuller one begins anew. Only for a driver with a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_size: Option<Bytes>,
}

/// Podman's log drivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LogDriver {
    /// A file a container, in Kubernetes' format.
    #[serde(rename = "k8s-file")]
    K8sFile,
    /// What Podman takes for the same.
    #[serde(rename = "json-file")]
    JsonFile,
    /// The systemd journal.
    #[serde(rename = "journald")]
    Journald,
    /// None kept.
    #[serde(rename = "none")]
    None,
}

impl LogDriver {
    /// The driver as Podman spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::K8sFile => "k8s-file",
            Self::JsonFile => "json-file",
            Self::Journald => "journald",
            Self::None => "none",
        }
    }
}
