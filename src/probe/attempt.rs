//! One try of a check, and what its answer says.

use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::timeout;

use super::{NoAnswer, Prober};
use crate::manifest::{Check, PortName, Protocol, StatusRange};
use crate::runtime::{Runtime, RuntimeError};
use crate::state::{Bind, ContainerId};

/// Longest single try: while a container is replaced, connections hang as well as fail.
const TRY: Duration = Duration::from_secs(2);
/// Longest run of an image's own health check: it begins with a process in the
/// container, and takes what its author thought fit.
const HEALTH_TRY: Duration = Duration::from_secs(10);
/// How long the runtime may take to say that it is there.
const PING: Duration = Duration::from_secs(1);
/// How much of the log is searched at each try.
const LOG_LINES: usize = 10_000;

/// One execution of a container, and how it is reached.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The network part.
    pub prober: &'a dyn Prober,
    /// Where it runs.
    pub runtime: &'a dyn Runtime,
    /// The container.
    pub container: &'a ContainerId,
    /// Tells the execution apart from a later one of the same container.
    pub started_at: Option<Timestamp>,
    /// As inspected after that start.
    pub binds: &'a [Bind],
}

/// A check with its address looked up.
#[derive(Debug, Clone, Copy)]
pub(super) enum Attempt<'a> {
    Http(&'a str, StatusRange, SocketAddr),
    Tcp(SocketAddr),
    Exec(&'a [String]),
    Log(&'a str),
    Health,
    /// Nothing to ask: that it runs is enough.
    Running,
}

/// What a try came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Passed,
    /// The container didn't do it; how it answered, in a few words.
    Failed(String),
    /// It couldn't be asked, and that isn't its fault.
    Unknown(String),
}

/// No host port leads to the port that the check asks.
#[derive(Debug)]
pub(super) struct NotPublished;

impl<'a> Attempt<'a> {
    pub(super) fn of(check: &'a Check, binds: &[Bind]) -> Result<Self, NotPublished> {
        Ok(match check {
            Check::Http { path, port, status } => Self::Http(path, *status, address(port, binds)?),
            Check::Tcp { port } => Self::Tcp(address(port, binds)?),
            Check::Exec { command } => Self::Exec(command),
            Check::Log { contains } => Self::Log(contains),
            Check::Health => Self::Health,
            Check::Delay(_) | Check::None => Self::Running,
        })
    }

    /// How long it may take where the manifest doesn't say.
    pub(super) fn limit(self) -> Duration {
        match self {
            Self::Health => HEALTH_TRY,
            Self::Http(..) | Self::Tcp(_) | Self::Exec(_) | Self::Log(_) | Self::Running => TRY,
        }
    }
}

/// Where this host reaches a declared TCP port.
fn address(port: &PortName, binds: &[Bind]) -> Result<SocketAddr, NotPublished> {
    let bind = binds
        .iter()
        .find(|bind| bind.port == *port && bind.protocol == Protocol::Tcp);
    bind.map(Bind::address).ok_or(NotPublished)
}

impl Subject<'_> {
    /// One try, within a limit.
    pub(super) async fn ask(&self, attempt: Attempt<'_>, limit: Duration) -> Answer {
        match attempt {
            Attempt::Http(path, accepted, address) => {
                match timeout(limit, self.prober.http(address, path)).await {
                    Ok(Ok(code)) if accepted.contains(code) => Answer::Passed,
                    Ok(Ok(code)) => Answer::Failed(format!("HTTP status {code}, not {accepted}")),
                    Ok(Err(none)) => none.into(),
                    Err(_) => late(),
                }
            }
            Attempt::Tcp(address) => match timeout(limit, self.prober.tcp(address)).await {
                Ok(Ok(())) => Answer::Passed,
                Ok(Err(none)) => none.into(),
                Err(_) => late(),
            },
            Attempt::Exec(command) => {
                let run = self.runtime.exec(self.container, command, limit);
                match timeout(limit, run).await {
                    Ok(Ok(0)) => Answer::Passed,
                    Ok(Ok(code)) => Answer::Failed(format!("exit code {code}")),
                    // What Podman says may quote the command's arguments.
                    Ok(Err(error)) => self.unanswered(&error, "the command can't be run").await,
                    Err(_) => self.hung().await,
                }
            }
            Attempt::Health => {
                let run = self.runtime.healthcheck(self.container, limit);
                match timeout(limit, run).await {
                    Ok(Ok(true)) => Answer::Passed,
                    Ok(Ok(false)) => Answer::Failed("unhealthy".to_owned()),
                    Ok(Err(error)) => {
                        let why = "the health check can't be run";
                        self.unanswered(&error, why).await
                    }
                    Err(_) => self.hung().await,
                }
            }
            Attempt::Log(text) => {
                let lines = self
                    .runtime
                    .logs(self.container, LOG_LINES, self.started_at);
                match timeout(limit, lines).await {
                    Ok(Ok(lines)) if lines.iter().any(|line| line.contains(text)) => Answer::Passed,
                    Ok(Ok(_)) => Answer::Failed("the text isn't in the log".to_owned()),
                    Ok(Err(_)) | Err(_) => Answer::Unknown("the log can't be read".to_owned()),
                }
            }
            Attempt::Running => Answer::Passed,
        }
    }

    async fn unanswered(&self, error: &RuntimeError, why: &str) -> Answer {
        match error {
            RuntimeError::Deadline { .. } => self.hung().await,
            _ => Answer::Unknown(why.to_owned()),
        }
    }

    /// What runs in the container doesn't come to its end; or it is the runtime that
    /// hangs, and then it doesn't answer to anything else either.
    async fn hung(&self) -> Answer {
        match timeout(PING, self.runtime.ping()).await {
            Ok(Ok(())) => late(),
            Ok(Err(_)) | Err(_) => Answer::Unknown("Podman doesn't answer".to_owned()),
        }
    }
}

fn late() -> Answer {
    Answer::Failed("no answer in time".to_owned())
}

impl From<NoAnswer> for Answer {
    fn from(none: NoAnswer) -> Self {
        match none {
            NoAnswer::Theirs(why) => Self::Failed(why),
            NoAnswer::Ours(why) => Self::Unknown(why),
        }
    }
}
