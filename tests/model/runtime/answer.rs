//! What is told of an answer: never an ID or a time.

use std::collections::BTreeMap;
use std::fmt::Debug;

use jiff::Timestamp;
use podherd::runtime::{Container, Labels, PortMapping, RuntimeError};
use podherd::state::ContainerId;

/// The label that the containers of a sequence carry.
pub const LABEL: &str = "podherd.test/model";
/// Where host ports begin that nobody asked for by number.
const EPHEMERAL: u16 = 30_000;

/// The executions of each container, in the order in which they were seen.
#[derive(Default)]
pub struct Executions(BTreeMap<ContainerId, Vec<Timestamp>>);

impl Executions {
    /// Which one of the container's executions this is.
    fn number(&mut self, id: &ContainerId, started_at: Timestamp) -> usize {
        let seen = self.0.entry(id.clone()).or_default();
        if let Some(at) = seen.iter().position(|it| *it == started_at) {
            return at;
        }
        seen.push(started_at);
        seen.len() - 1
    }

    pub fn container(&mut self, found: &Container) -> String {
        let execution = found.started_at.map(|at| self.number(&found.id, at));
        let mut ports: Vec<_> = found.ports.iter().map(port).collect();
        ports.sort();
        format!(
            "{} {:?} {:?}, execution {execution:?}, exit code {:?}, out of memory {}, ports {ports:?}",
            found.name,
            label(&found.labels),
            found.state,
            found.exit_code,
            found.oom_killed,
        )
    }
}

/// The sequence's label; an image may bring others.
pub fn label(labels: &Labels) -> Option<&str> {
    labels.get(LABEL).map(String::as_str)
}

fn port(port: &PortMapping) -> String {
    let host = match port.host {
        EPHEMERAL.. => "any".to_owned(),
        host => host.to_string(),
    };
    format!(
        "{} {}:{host}:{}",
        port.protocol.as_str(),
        port.host_ip,
        port.container
    )
}

pub fn told<T: Debug>(answer: Result<T, RuntimeError>) -> String {
    answer.map_or_else(|error| kind(&error), |answer| format!("{answer:?}"))
}

/// Which error it is, and what it is about.
pub fn kind(error: &RuntimeError) -> String {
    match error {
        RuntimeError::Unavailable { .. } => format!("unavailable: {error}"),
        RuntimeError::Deadline { .. } => "deadline".to_owned(),
        RuntimeError::NotFound { what, .. } => format!("no such {what}"),
        RuntimeError::NameInUse { what, name } => format!("{what} {name} exists"),
        RuntimeError::PortInUse { .. } => "port in use".to_owned(),
        RuntimeError::InUse { what, name } => format!("{what} {name} in use"),
        RuntimeError::ImageUnknown { .. } => "image unknown".to_owned(),
        RuntimeError::ImageAbsent { .. } => "image absent".to_owned(),
        RuntimeError::ImageDenied { .. } => "image denied".to_owned(),
        RuntimeError::AuthFile { .. } => "auth file".to_owned(),
        RuntimeError::PullFailed { .. } => "pull failed".to_owned(),
        RuntimeError::NoUserIds => "no user IDs".to_owned(),
        RuntimeError::Refused { .. } => "refused".to_owned(),
    }
}
