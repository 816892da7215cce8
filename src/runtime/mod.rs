//! The way to the container runtime: Podman, or the in-memory one of the
//! simulation.
//!
//! Every call has a deadline of its own. An answer that was lost is
//! [`RuntimeError::is_ambiguous`]: look at the state before you call again.
//! Names, labels and loopback addresses are the caller's; nothing here decides.

mod applied;
mod memory;
mod podman;
mod pull;
mod secret;
mod types;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use jiff::Timestamp;

pub use applied::Applied;
pub use memory::{Behaviour, Call, EffectLog, MemoryImage, MemoryRuntime, Reply};
pub use podman::{
    About, AuthFile, AuthFileError, Deadlines, Input, Log, LogPart, Output, Podman, Session, Usage,
};
pub use pull::{PullProgress, PullReport, Wanted};
pub use secret::{Secret, SecretEnv, SecretMount, SecretValue, SecretValueError, Volume};
pub use types::{
    Container, ContainerSpec, ContainerState, ContainerSummary, Image, Labels, Network,
    NetworkAttachment, PortMapping, RuntimeEvent, RuntimeEventKind, TmpfsMount, VolumeAttachment,
};

use crate::manifest::{Protocol, PullPolicy};
use crate::state::{ContainerId, Digest};

/// How long each effect may take. No effect begins with less leadership left.
pub mod deadline {
    use std::time::Duration;

    /// Looking at something.
    pub const LOOK: Duration = Duration::from_secs(10);
    /// Creating a container, a volume or a network.
    pub const CREATE: Duration = Duration::from_secs(15);
    /// Starting a container.
    pub const START: Duration = Duration::from_secs(15);
    /// Sending a signal.
    pub const SIGNAL: Duration = Duration::from_secs(10);
    /// Removing a container or a network.
    pub const REMOVE: Duration = Duration::from_secs(15);
    /// Pulling an image.
    pub const PULL: Duration = Duration::from_secs(15 * 60);
    /// Without a byte of the image that is being pulled.
    pub const STALL: Duration = Duration::from_secs(2 * 60);
}

/// Events of containers that carry a label; ends with an error when it can't go on.
pub type RuntimeEvents = BoxStream<'static, Result<RuntimeEvent, RuntimeError>>;

/// Why a call to the runtime failed.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The socket can't be reached, or the connection broke. The call may have taken effect.
    #[error(
        "Podman can't be reached ({call}): {message}; check --podman and that its service runs"
    )]
    Unavailable {
        /// What was called.
        call: &'static str,
        /// What went wrong.
        message: String,
    },
    /// No answer in time. The call may have taken effect.
    #[error("Podman didn't answer {call} within {seconds} s")]
    Deadline {
        /// What was called.
        call: &'static str,
        /// How long it was waited for.
        seconds: u64,
    },
    /// What the call is about doesn't exist.
    #[error("no such {what}: {name}")]
    NotFound {
        /// Container, image, volume, network or secret.
        what: &'static str,
        /// Its name or ID.
        name: String,
    },
    /// The name is taken.
    #[error("the {what} name {name} is taken by another")]
    NameInUse {
        /// Container, volume, network or secret.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A host port that the container needs is taken.
    #[error("a host port is taken by another process: {message}")]
    PortInUse {
        /// What Podman said.
        message: String,
    },
    /// Somebody still uses it.
    #[error("the {what} {name} is still in use")]
    InUse {
        /// Volume, network or image.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// The registry says for sure that there is no such image.
    #[error("the image {image} doesn't exist: check its name and tag")]
    ImageUnknown {
        /// The reference.
        image: String,
    },
    /// The image isn't here, and the policy or its `localhost/` name forbids a pull.
    #[error(
        "the image {image} isn't on this host and may not be pulled: load it, or change its name \
         or pullPolicy"
    )]
    ImageAbsent {
        /// The reference.
        image: String,
    },
    /// The registry wants other credentials.
    #[error(
        "the registry refused access to {image}: log in on this host as Podman's user (podman \
         login), or mend the file that --auth-file names; it is read again at each try, and a \
         deploy request tries at once"
    )]
    ImageDenied {
        /// The reference.
        image: String,
    },
    /// The file of credentials for registries can't be used.
    #[error("the image {image} can't be pulled: {source}")]
    AuthFile {
        /// The reference.
        image: String,
        /// What is wrong with it.
        source: AuthFileError,
    },
    /// The image couldn't be pulled for another reason; another try may help.
    #[error("the image {image} can't be pulled: {message}")]
    PullFailed {
        /// The reference.
        image: String,
        /// What Podman said.
        message: String,
    },
    /// There are no user IDs for a user namespace.
    #[error(
        "Podman has no user IDs to give for userns: auto: add the line \
         containers:2147483647:2147483648 to /etc/subuid and /etc/subgid on this host, or leave \
         security.userns out"
    )]
    NoUserIds,
    /// Podman refused for another reason; the state is unchanged.
    #[error("Podman refused {call}: {message}")]
    Refused {
        /// What was called.
        call: &'static str,
        /// What it said.
        message: String,
    },
}

impl RuntimeError {
    /// Whether the call may have taken effect in spite of the error.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Deadline { .. })
    }

    /// Whether what the call is about doesn't exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Whether another try, without a change of manifest or host, may succeed.
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::ImageUnknown { .. })
    }
}

/// A container runtime (Podman's model).
#[async_trait]
pub trait Runtime: Send + Sync + fmt::Debug {
    /// Answers when the runtime does.
    async fn ping(&self) -> Result<(), RuntimeError>;

    /// Whether no process holds this host port, so that a container can publish it.
    async fn port_is_free(&self, protocol: Protocol, port: u16) -> Result<bool, RuntimeError>;

    /// Makes the wanted image present, pulling where needed, tells how that goes, and
    /// says what the image is. Dropping the call ends the pull.
    async fn image(
        &self,
        reference: &str,
        wanted: Wanted<'_>,
        report: &PullReport,
    ) -> Result<Image, RuntimeError>;

    /// Makes the image present as the policy wants it, and says what it is.
    async fn ensure_image(
        &self,
        reference: &str,
        policy: PullPolicy,
    ) -> Result<Image, RuntimeError> {
        let silent = PullReport::silent();
        self.image(reference, Wanted::ByPolicy(policy), &silent)
            .await
    }

    /// Makes exactly this image present, by its digest.
    async fn ensure_pinned(&self, reference: &str, digest: &Digest) -> Result<Image, RuntimeError> {
        let silent = PullReport::silent();
        self.image(reference, Wanted::Exactly(digest), &silent)
            .await
    }

    /// All containers, running or not, that carry each of these labels.
    async fn list(&self, labels: &Labels) -> Result<Vec<ContainerSummary>, RuntimeError>;

    /// One container by ID or name; `None` when there is none.
    async fn inspect(&self, id_or_name: &str) -> Result<Option<Container>, RuntimeError>;

    /// Whether containers can have user IDs of their own (`userns: auto`), as far as
    /// can be told before one is created.
    async fn check_user_ids(&self) -> Result<(), RuntimeError>;

    /// Creates a container; nothing runs yet. Never repeated blindly: after an
    /// ambiguous error, inspect the name.
    async fn create(&self, spec: &ContainerSpec) -> Result<ContainerId, RuntimeError>;

    /// Starts a container; one that runs already is a success.
    async fn start(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Sends a signal by name; a container that doesn't run is a success.
    async fn signal(&self, id: &ContainerId, signal: &str) -> Result<(), RuntimeError>;

    /// Waits until the container doesn't run any more or is gone; `false` when
    /// it still runs after `within`.
    async fn wait_stopped(&self, id: &ContainerId, within: Duration) -> Result<bool, RuntimeError>;

    /// Removes a container, with its anonymous volumes but never a named one.
    /// With `force`, a running one too. One that is gone is a success.
    async fn remove(&self, id: &ContainerId, force: bool) -> Result<(), RuntimeError>;

    /// The last `lines` lines of the log, oldest first, at most 64 KiB. With an
    /// `execution`, only what the one that started then has written: a restart goes on
    /// in the same log.
    async fn logs(
        &self,
        id: &ContainerId,
        lines: usize,
        execution: Option<Timestamp>,
    ) -> Result<Vec<String>, RuntimeError>;

    /// Runs a command in the container and gives its exit code.
    async fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        within: Duration,
    ) -> Result<i64, RuntimeError>;

    /// Runs the health check that the container has from its image, once, and says
    /// whether it passed. One without such a check is refused.
    async fn healthcheck(&self, id: &ContainerId, within: Duration) -> Result<bool, RuntimeError>;

    /// The labels of a volume; `None` when there is none.
    async fn volume(&self, name: &str) -> Result<Option<Labels>, RuntimeError>;

    /// Creates a volume.
    async fn create_volume(&self, name: &str, labels: &Labels) -> Result<(), RuntimeError>;

    /// All volumes.
    async fn volumes(&self) -> Result<Vec<Volume>, RuntimeError>;

    /// Removes a volume that no container mounts; never forced. One that is gone is a
    /// success.
    async fn remove_volume(&self, name: &str) -> Result<(), RuntimeError>;

    /// All secrets, without their values.
    async fn secrets(&self) -> Result<Vec<Secret>, RuntimeError>;

    /// The labels of a secret; `None` when there is none.
    async fn secret(&self, name: &str) -> Result<Option<Labels>, RuntimeError>;

    /// Creates a secret.
    async fn create_secret(
        &self,
        name: &str,
        value: &SecretValue,
        labels: &Labels,
    ) -> Result<(), RuntimeError>;

    /// Removes a secret. One that is gone is a success.
    async fn remove_secret(&self, name: &str) -> Result<(), RuntimeError>;

    /// One network by name; `None` when there is none.
    async fn network(&self, name: &str) -> Result<Option<Network>, RuntimeError>;

    /// Creates a bridge network with DNS.
    async fn create_network(&self, name: &str, network: &Network) -> Result<(), RuntimeError>;

    /// Removes a network that nobody uses; never forced. One that is gone is a success.
    async fn remove_network(&self, name: &str) -> Result<(), RuntimeError>;

    /// Events of containers that carry this label key, from now on.
    async fn events(&self, label: &str) -> Result<RuntimeEvents, RuntimeError>;
}
