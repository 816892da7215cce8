//! What the runtime is asked for and what it answers.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;

use super::{Applied, SecretEnv, SecretMount};
use crate::manifest::{BindMount, Device, Logging, Protocol, Resources, Security};
use crate::state::{ContainerId, Digest};

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// An image that is present on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Podman's ID of it.
    pub id: String,
    /// Digest of its manifest.
    pub digest: Digest,
    /// Every digest under which its repository knows it: of an image for many platforms
    /// the index' and this platform's, and which of them comes first differs between
    /// versions of Podman.
    pub known_as: Vec<Digest>,
    /// Paths that it declares as volumes.
    pub volumes: Vec<String>,
    /// Whether it declares a health check.
    pub healthcheck: bool,
}

/// All that a container is created from. Its `Debug` names environment variables
/// without their values, and of the commands only the program: both may hold secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ContainerSpec {
    /// Its name, unique on the host.
    pub name: String,
    /// Host name inside.
    pub hostname: String,
    /// ID of the image.
    pub image_id: String,
    /// Replaces the image's entrypoint.
    pub entrypoint: Option<Vec<String>>,
    /// Replaces the image's command.
    pub command: Option<Vec<String>>,
    /// Working directory.
    pub working_dir: Option<String>,
    /// User and group.
    pub user: Option<String>,
    /// Environment.
    pub env: BTreeMap<String, String>,
    /// Labels.
    pub labels: Labels,
    /// Published ports.
    pub ports: Vec<PortMapping>,
    /// Named volumes.
    pub volumes: Vec<VolumeAttachment>,
    /// Host paths.
    pub binds: Vec<BindMount>,
    /// Devices.
    pub devices: Vec<Device>,
    /// Environment variables whose values are secrets.
    pub secret_env: Vec<SecretEnv>,
    /// Secrets as files.
    pub secret_files: Vec<SecretMount>,
    /// Memory file systems.
    pub tmpfs: Vec<TmpfsMount>,
    /// Networks.
    pub networks: Vec<NetworkAttachment>,
    /// Signal that Podman's own stop uses; the image's when absent.
    pub stop_signal: Option<String>,
    /// Grace of Podman's own stop.
    pub stop_timeout: Duration,
    /// Limits.
    pub resources: Resources,
    /// Privileges.
    pub security: Security,
    /// Where the logs go; Podman's default when absent.
    pub logging: Option<Logging>,
}

impl fmt::Debug for ContainerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = |command: &Option<Vec<String>>| {
            command.as_ref().and_then(|parts| parts.first().cloned())
        };
        f.debug_struct("ContainerSpec")
            .field("name", &self.name)
            .field("image_id", &self.image_id)
            .field("entrypoint", &program(&self.entrypoint))
            .field("env", &self.env.keys())
            .field("secret_env", &self.secret_env)
            .field("secret_files", &self.secret_files)
            .field("labels", &self.labels)
            .field("ports", &self.ports)
            .field("volumes", &self.volumes)
            .field("binds", &self.binds)
            .field("devices", &self.devices)
            .field("networks", &self.networks)
            .finish_non_exhaustive()
    }
}

/// A published port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortMapping {
    /// Port in the container.
    pub container: u16,
    /// Transport.
    pub protocol: Protocol,
    /// Host address.
    pub host_ip: IpAddr,
    /// Host port.
    pub host: u16,
}

/// A named volume in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeAttachment {
    /// Podman's name of it.
    pub name: String,
    /// Where it is mounted.
    pub path: String,
    /// Without write access.
    pub read_only: bool,
}

/// A memory file system in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TmpfsMount {
    /// Where it is mounted.
    pub path: String,
    /// Largest size in bytes.
    pub size: Option<u64>,
}

/// A network a container joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkAttachment {
    /// Podman's name of it.
    pub name: String,
    /// Names under which the container is found there.
    pub aliases: Vec<String>,
}

/// A network as an inspection shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// Its labels.
    pub labels: Labels,
    /// Whether it has no way out of the host.
    pub internal: bool,
}

/// A container as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSummary {
    /// Full ID.
    pub id: ContainerId,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Its state.
    pub state: ContainerState,
}

/// A container as an inspection shows it. Never its environment: that may hold secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Full ID.
    pub id: ContainerId,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Its state.
    pub state: ContainerState,
    /// Start of its newest execution; absent when it never ran.
    pub started_at: Option<Timestamp>,
    /// Exit code of its newest execution, when that ended.
    pub exit_code: Option<i32>,
    /// Whether the kernel ended it for lack of memory.
    pub oom_killed: bool,
    /// Host ports that it was given.
    pub ports: Vec<PortMapping>,
    /// Host paths that it has mounted.
    pub binds: Vec<BindMount>,
    /// What became of its limits and privileges.
    pub applied: Applied,
}

/// Podman's states of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerState {
    /// Created or configured, never started since.
    Created,
    /// Its process runs.
    Running,
    /// Its process is frozen.
    Paused,
    /// It is being stopped.
    Stopping,
    /// Its process has ended.
    Exited,
    /// It is being removed.
    Removing,
    /// Something that Podman can't or doesn't say.
    Unknown,
}

impl ContainerState {
    /// Whether its process may still write: only a state that says otherwise says no.
    pub fn may_run(self) -> bool {
        !matches!(self, Self::Created | Self::Exited | Self::Removing)
    }
}

/// Something that happened to a container. A hint: look before you act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeEvent {
    /// The container.
    pub container: ContainerId,
    /// Its labels.
    pub labels: Labels,
    /// What happened.
    pub kind: RuntimeEventKind,
}

/// What happened to a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeEventKind {
    /// Its process started.
    Started,
    /// Its process ended.
    Died,
    /// It was removed.
    Removed,
    /// Somebody paused it, or let it go on.
    Paused,
    /// Something else.
    Other,
}
