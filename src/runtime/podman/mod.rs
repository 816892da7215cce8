//! The real runtime: Podman's REST API on its Unix socket.
//!
//! `podman-api` is the client, and a small one beside it ([`socket`]) does what that
//! can't. Which call goes which way is decided in one place each. Whatever the client
//! says, a failed call is judged by the state afterwards: Podman's codes are not enough
//! (a start of a running container is 304, a taken name is 500, …).
//!
//! Nothing here prints, logs or keeps a raw answer: an inspection has the container's
//! environment in it.
//!
//! - [`fault`]: what a client says when a call fails.
//! - [`create`], [`host_files`], [`inspect`], [`images`]: to and from Podman's JSON.
//! - [`secrets`]: secrets, and the list of volumes.
//! - [`pull`], with the credentials of [`auth`]: what it tells, and why it failed.
//! - [`streams`]: logs, events, and the output of a command.
//! - [`frames`]: output taken apart. [`session`]: what a person does with a container.
//! - [`userns`]: whether `userns: auto` can work.
//! - [`calls`]: the [`Runtime`](super::Runtime) trait on top.

mod auth;
mod calls;
mod create;
mod fault;
mod frames;
mod host_files;
mod images;
mod inspect;
mod ports;
mod pull;
mod secrets;
mod session;
mod socket;
mod streams;
#[cfg(test)]
mod tests;
mod userns;

use std::time::Duration;

use tokio::time::timeout;

use super::{
    Applied, Container, ContainerState, ContainerSummary, Labels, Runtime as _, RuntimeError,
    deadline,
};
pub use auth::{AuthFile, AuthFileError};
use fault::Fault;
pub use frames::Output;
use inspect::Inspected;
pub use session::{About, Input, Log, LogPart, Session, Usage};
use socket::{Socket, encoded};

/// How long each kind of call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Looking at something.
    pub look: Duration,
    /// Creating a container, a volume or a network.
    pub create: Duration,
    /// Starting a container.
    pub start: Duration,
    /// Sending a signal.
    pub signal: Duration,
    /// Removing a container or a network.
    pub remove: Duration,
    /// Pulling an image.
    pub pull: Duration,
    /// Without a byte of an image that is being pulled.
    pub stall: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            look: deadline::LOOK,
            create: deadline::CREATE,
            start: deadline::START,
            signal: deadline::SIGNAL,
            remove: deadline::REMOVE,
            pull: deadline::PULL,
            stall: deadline::STALL,
        }
    }
}

impl Deadlines {
    /// The same span for every kind of call.
    pub const fn all(span: Duration) -> Self {
        Self {
            look: span,
            create: span,
            start: span,
            signal: span,
            remove: span,
            pull: span,
            stall: span,
        }
    }
}

/// A Podman on this host.
#[derive(Debug)]
pub struct Podman {
    api: podman_api::Podman,
    socket: Socket,
    deadlines: Deadlines,
    auth_file: Option<AuthFile>,
}

impl Podman {
    /// The Podman behind `unix:///path`. Nothing is sent yet: a service that is away
    /// now may come later.
    pub fn connect(uri: &str) -> Result<Self, RuntimeError> {
        let path = uri
            .strip_prefix("unix://")
            .filter(|path| path.starts_with('/'));
        let path = path.ok_or_else(|| RuntimeError::Refused {
            call: "connect",
            message: format!("{uri:?} is no unix:///path of a socket"),
        })?;
        Ok(Self {
            api: podman_api::Podman::unix(path),
            socket: Socket::new(path),
            deadlines: Deadlines::default(),
            auth_file: None,
        })
    }

    /// The same with credentials from this file, instead of the service's own ones.
    #[must_use]
    pub fn with_auth_file(mut self, file: Option<AuthFile>) -> Self {
        self.auth_file = file;
        self
    }

    /// The same with other deadlines.
    #[must_use]
    pub fn with_deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// Where this user's Podman listens by default: root's is the system's.
    pub fn default_uri() -> String {
        let user = rustix::process::geteuid();
        if user.is_root() {
            return "unix:///run/podman/podman.sock".to_owned();
        }
        let dir = std::env::var("XDG_RUNTIME_DIR")
            .ok()
            .filter(|dir| dir.starts_with('/'));
        let dir = dir.unwrap_or_else(|| format!("/run/user/{}", user.as_raw()));
        format!("unix://{dir}/podman/podman.sock")
    }

    /// Looks at a container by its exact ID or name.
    async fn look(&self, id_or_name: &str) -> Result<Option<Container>, RuntimeError> {
        let path = format!("/containers/{}/json", encoded(id_or_name));
        let found = bounded(
            "inspect",
            self.deadlines.look,
            self.socket.get::<Inspected>(&path),
        );
        let found = match found.await? {
            Ok(found) if !found.is(id_or_name) => return Ok(None),
            Ok(found) => found.into_container(),
            Err(fault) if fault.is_missing() => return Ok(None),
            // A removal that was cut off took the container's storage and left its
            // record, of which Podman tells in lists only.
            Err(fault) if fault.says(&["container not known"]) => {
                return self.half_removed(id_or_name).await;
            }
            Err(fault) => Err(fault),
        };
        found.map(Some).map_err(|fault| fault.of_call("inspect"))
    }

    async fn half_removed(&self, id_or_name: &str) -> Result<Option<Container>, RuntimeError> {
        let listed = self.list(&Labels::new()).await?;
        let is_it =
            |found: &ContainerSummary| found.id.as_str() == id_or_name || found.name == id_or_name;
        Ok(listed.into_iter().find(is_it).map(|found| Container {
            id: found.id,
            name: found.name,
            labels: found.labels,
            state: ContainerState::Removing,
            started_at: None,
            exit_code: None,
            oom_killed: false,
            ports: Vec::new(),
            binds: Vec::new(),
            applied: Applied::default(),
        }))
    }
}

/// Runs a call within its deadline.
async fn bounded<T>(
    call: &'static str,
    limit: Duration,
    act: impl Future<Output = T>,
) -> Result<T, RuntimeError> {
    timeout(limit, act)
        .await
        .map_err(|_| RuntimeError::Deadline {
            call,
            seconds: limit
                .as_millis()
                .div_ceil(1_000)
                .try_into()
                .unwrap_or(u64::MAX),
        })
}

/// The two clients' errors as one.
fn faulty<T>(result: Result<T, podman_api::Error>) -> Result<T, Fault> {
    result.map_err(Fault::from)
}
