//! What a person does with a container: reads its log, runs a command in it, looks at
//! what it uses. None of it is the controller's business, so none is in the trait.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, ReadHalf, WriteHalf};

use super::super::RuntimeError;
use super::fault::Fault;
use super::frames::{Frames, Output};
use super::socket::Repeat;
use super::streams::no_container;
use super::{Podman, bounded};
use crate::state::ContainerId;

/// What is read of a command's output at once.
const READ: usize = 16 * 1024;
/// How long the end of a command's output may come before its end itself.
const LAST: Duration = Duration::from_secs(5);

/// Which part of a log is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPart {
    /// Only so many of its last lines.
    pub tail: Option<usize>,
    /// Goes on with what is written from now on.
    pub follow: bool,
    /// Each line begins with when it was written.
    pub timestamps: bool,
}

/// A log that is read.
#[derive(Debug)]
pub struct Log {
    body: Incoming,
    frames: Frames,
    data: Bytes,
}

impl Log {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// When Podman is lost.
    pub async fn next(&mut self) -> Result<Option<(Output, Bytes)>, RuntimeError> {
        loop {
            if let Some(piece) = self.frames.next(&mut self.data) {
                return Ok(Some(piece));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => self.data = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Err(Fault::Lost(error.to_string()).of_call("logs")),
            }
        }
    }
}

/// A command that runs in a container.
#[derive(Debug)]
pub struct Session {
    id: String,
    tty: bool,
    frames: Frames,
    output: ReadHalf<TokioIo<Upgraded>>,
    data: Bytes,
}

/// Where a command reads.
pub type Input = WriteHalf<TokioIo<Upgraded>>;

impl Session {
    /// The next piece of what it says; `None` at its end.
    ///
    /// # Errors
    /// When Podman is lost.
    pub async fn next(&mut self) -> Result<Option<(Output, Bytes)>, RuntimeError> {
        loop {
            if self.tty && !self.data.is_empty() {
                return Ok(Some((Output::Out, std::mem::take(&mut self.data))));
            }
            if let Some(piece) = self.frames.next(&mut self.data) {
                return Ok(Some(piece));
            }
            let mut read = vec![0; READ];
            let got = self.output.read(&mut read).await;
            let got = got.map_err(|error| Fault::Lost(error.to_string()).of_call("exec"))?;
            if got == 0 {
                return Ok(None);
            }
            read.truncate(got);
            self.data = read.into();
        }
    }
}

/// What a container uses.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Usage {
    /// Share of one CPU, in percent.
    #[serde(rename = "CPU", default)]
    pub cpu: f64,
    /// Bytes of memory.
    #[serde(rename = "MemUsage", default)]
    pub memory: u64,
    /// Most bytes of memory that it may have.
    #[serde(rename = "MemLimit", default)]
    pub memory_limit: u64,
    /// Processes and threads.
    #[serde(rename = "PIDs", default)]
    pub pids: u64,
}

#[derive(Deserialize)]
struct Stats {
    #[serde(rename = "Error")]
    error: Option<Value>,
    #[serde(rename = "Stats")]
    stats: Option<Vec<Usage>>,
}

/// What kind of Podman this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Its version.
    pub version: String,
    /// Whether it is an ordinary user's.
    pub rootless: bool,
    /// Who makes its networks.
    pub network_backend: String,
    /// `v1` or `v2`.
    pub cgroup_version: String,
    /// Who makes its cgroups.
    pub cgroup_manager: String,
    /// What cgroups can limit here.
    pub cgroup_controllers: Vec<String>,
}

#[derive(Deserialize)]
struct Info {
    host: HostInfo,
    version: VersionInfo,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HostInfo {
    cgroup_controllers: Option<Vec<String>>,
    cgroup_manager: String,
    cgroup_version: String,
    network_backend: String,
    security: SecurityInfo,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SecurityInfo {
    rootless: bool,
}

#[derive(Deserialize)]
struct VersionInfo {
    #[serde(rename = "Version")]
    version: String,
}

#[derive(Deserialize)]
struct Created {
    #[serde(rename = "Id")]
    id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Ended {
    running: bool,
    exit_code: i64,
}

impl Podman {
    /// Reads a container's log.
    ///
    /// # Errors
    /// When there is no such container, or Podman fails.
    pub async fn read_log(&self, id: &ContainerId, part: LogPart) -> Result<Log, RuntimeError> {
        let tail = part
            .tail
            .map_or_else(|| "all".to_owned(), |tail| tail.to_string());
        let LogPart {
            follow, timestamps, ..
        } = part;
        let path = format!(
            "/containers/{id}/logs?stdout=true&stderr=true&tail={tail}&follow={follow}&timestamps={timestamps}"
        );
        let body = self.socket.stream(Method::GET, &path);
        let body = bounded("logs", self.deadlines.look, body).await?;
        Ok(Log {
            body: body.map_err(|fault| of_container(fault, id, "logs"))?,
            frames: Frames::default(),
            data: Bytes::new(),
        })
    }

    /// Begins a command in a running container, with or without a terminal and an input.
    ///
    /// # Errors
    /// When it doesn't run, or Podman fails.
    pub async fn begin_command(
        &self,
        id: &ContainerId,
        command: &[String],
        tty: bool,
        input: bool,
    ) -> Result<(Session, Input), RuntimeError> {
        let path = format!("/containers/{id}/exec");
        let asked = json!({
            "Cmd": command, "Tty": tty, "AttachStdin": input,
            "AttachStdout": true, "AttachStderr": true,
        });
        let created = self
            .socket
            .post::<Created>(&path, Some(&asked), Repeat::Never);
        let created = bounded("exec", self.deadlines.create, created).await?;
        let session = created.map_err(|fault| of_container(fault, id, "exec"))?.id;
        let path = format!("/exec/{session}/start");
        let asked = json!({ "Detach": false, "Tty": tty });
        let started = bounded(
            "exec",
            self.deadlines.start,
            self.socket.upgrade(&path, &asked),
        );
        let started = started.await?.map_err(|fault| fault.of_call("exec"))?;
        let (output, input) = tokio::io::split(TokioIo::new(started));
        let session = Session {
            id: session,
            tty,
            frames: Frames::default(),
            output,
            data: Bytes::new(),
        };
        Ok((session, input))
    }

    /// Tells a command's terminal how large it is.
    ///
    /// # Errors
    /// When Podman fails.
    pub async fn resize(
        &self,
        session: &Session,
        rows: u16,
        columns: u16,
    ) -> Result<(), RuntimeError> {
        let path = format!(
            "/exec/{}/resize?h={rows}&w={columns}&running=true",
            session.id
        );
        let resized = self.socket.upload(&path, &[]);
        let resized = bounded("exec", self.deadlines.look, resized).await?;
        resized.map_err(|fault| fault.of_call("exec"))
    }

    /// The exit code of a command whose output has ended.
    ///
    /// # Errors
    /// When Podman fails or can't say.
    pub async fn exit_code(&self, session: &Session) -> Result<i64, RuntimeError> {
        let path = format!("/exec/{}/json", session.id);
        let end = tokio::time::Instant::now() + LAST;
        loop {
            let ended = self.socket.get::<Ended>(&path);
            let ended = bounded("exec", self.deadlines.look, ended).await?;
            let ended = ended.map_err(|fault| fault.of_call("exec"))?;
            if !ended.running || tokio::time::Instant::now() >= end {
                return Ok(ended.exit_code);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What kind of Podman this is; slow.
    ///
    /// # Errors
    /// When Podman fails.
    pub async fn about(&self) -> Result<About, RuntimeError> {
        let info = bounded(
            "info",
            self.deadlines.start,
            self.socket.get::<Info>("/info"),
        );
        let Info { host, version } = info.await?.map_err(|fault| fault.of_call("info"))?;
        Ok(About {
            version: version.version,
            rootless: host.security.rootless,
            network_backend: host.network_backend,
            cgroup_version: host.cgroup_version,
            cgroup_manager: host.cgroup_manager,
            cgroup_controllers: host.cgroup_controllers.unwrap_or_default(),
        })
    }

    /// What a running container uses now.
    ///
    /// # Errors
    /// When Podman fails, or can't say it on this host.
    pub async fn usage(&self, id: &ContainerId) -> Result<Usage, RuntimeError> {
        let path = format!("/containers/stats?stream=false&containers={id}");
        let stats = bounded(
            "stats",
            self.deadlines.start,
            self.socket.get::<Stats>(&path),
        );
        let stats = stats
            .await?
            .map_err(|fault| of_container(fault, id, "stats"))?;
        let usage = stats.stats.and_then(|stats| stats.into_iter().next());
        usage.ok_or_else(|| RuntimeError::Refused {
            call: "stats",
            message: match stats.error.filter(|error| !error.is_null()) {
                Some(error) => format!("{error}: are cgroups usable on this host?"),
                None => "Podman says nothing: does the container run?".to_owned(),
            },
        })
    }
}

fn of_container(fault: Fault, id: &ContainerId, call: &'static str) -> RuntimeError {
    if fault.is_missing() {
        no_container(id)
    } else {
        fault.of_call(call)
    }
}
