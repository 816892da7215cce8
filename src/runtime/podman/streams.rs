//! What comes in pieces: logs, events, and the output of a command. And what a
//! container's own health check says.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use jiff::Timestamp;
use podman_api::opts::{ExecCreateOpts, ExecStartOpts};
use serde::Deserialize;

use super::super::{Labels, RuntimeError, RuntimeEvent, RuntimeEventKind, RuntimeEvents};
use super::fault::{Fault, unreadable};
use super::frames::Frames;
use super::inspect::Inspected;
use super::socket::encoded;
use super::{Podman, bounded, faulty};
use crate::state::ContainerId;

/// Largest tail of a log.
const LOG_BYTES: usize = 64 * 1024;
/// How long after a process' end its last lines may reach the log. A next execution
/// takes longer than this to begin.
const LAST_WORDS: Duration = Duration::from_millis(10);
/// Longest line of an event.
const EVENT_BYTES: usize = 1024 * 1024;

impl Podman {
    pub(super) async fn log_tail(
        &self,
        id: &ContainerId,
        lines: usize,
        execution: Option<Timestamp>,
    ) -> Result<Vec<String>, RuntimeError> {
        let since = match execution {
            Some(started_at) => self.written_since(id, started_at).await?,
            None => None,
        };
        let since = since.map(|since| format!("&since={}", encoded(&since.to_string())));
        let path = format!(
            "/containers/{id}/logs?stdout=true&stderr=true&tail={lines}{}",
            since.unwrap_or_default()
        );
        let tail = bounded("logs", self.deadlines.look, async {
            let mut body = self.socket.stream(Method::GET, &path).await?;
            let mut tail = Tail::new(lines);
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| Fault::Lost(error.to_string()))?;
                if let Ok(data) = frame.into_data() {
                    tail.read(data);
                }
            }
            Ok(tail.into_lines())
        });
        tail.await?.map_err(|fault: Fault| match fault {
            fault if fault.is_missing() => no_container(id),
            fault => fault.of_call("logs"),
        })
    }

    /// From when on the log is this execution's. Its first lines are often older than
    /// its `StartedAt`, which Podman notes last; the end of the one before is the border.
    async fn written_since(
        &self,
        id: &ContainerId,
        started_at: Timestamp,
    ) -> Result<Option<Timestamp>, RuntimeError> {
        let path = format!("/containers/{id}/json");
        let inspected = self.socket.get::<Inspected>(&path);
        let inspected = bounded("inspect", self.deadlines.look, inspected).await?;
        let border = inspected.and_then(|inspected| {
            let (now_started, ended) = (inspected.started_at()?, inspected.finished_at()?);
            let border = ended.and_then(|ended| ended.checked_add(LAST_WORDS).ok());
            Ok(match border {
                // Another execution by now, or this one has ended: nothing better is known.
                _ if now_started != Some(started_at) => Some(started_at),
                Some(border) if border >= started_at => Some(started_at),
                border => border,
            })
        });
        border.map_err(|fault| match fault {
            fault if fault.is_missing() => no_container(id),
            fault => fault.of_call("logs"),
        })
    }

    /// Attached: Podman 4.3 never learns of the end of a detached command.
    pub(super) async fn run_in(
        &self,
        id: &ContainerId,
        command: &[String],
        within: Duration,
    ) -> Result<i64, RuntimeError> {
        let container = self.api.containers().get(id.as_str());
        let options = ExecCreateOpts::builder()
            .command(command)
            .attach_stdout(true)
            .attach_stderr(true)
            .build();
        let ended = bounded("exec", within, async {
            let exec = faulty(container.create_exec(&options).await)?;
            let start = ExecStartOpts::builder().detach(false).build();
            if let Some(mut output) = faulty(exec.start(&start).await)? {
                // Nobody's to see. An error is told by the inspection that follows.
                while let Some(Ok(_)) = output.next().await {}
            }
            let ended = faulty(exec.inspect().await)?;
            if ended["Running"].as_bool() != Some(false) {
                return Err(Fault::Lost("the command's end wasn't told".to_owned()));
            }
            ended["ExitCode"].as_i64().ok_or_else(unreadable)
        });
        ended.await?.map_err(|fault| match fault {
            fault if fault.is_missing() => no_container(id),
            fault => fault.of_call("exec"),
        })
    }

    /// Podman's timers need systemd, and without it a container stays `starting` for
    /// ever; asked for, the check runs once, here and now.
    pub(super) async fn check_health(
        &self,
        id: &ContainerId,
        within: Duration,
    ) -> Result<bool, RuntimeError> {
        let path = format!("/containers/{id}/healthcheck");
        // Podman doesn't end a check that hangs: whoever asks stops waiting.
        let checked = bounded("healthcheck", within, self.socket.get::<Checked>(&path));
        match checked.await? {
            Ok(checked) => Ok(checked.status == "healthy"),
            Err(fault) if fault.is_missing() => Err(no_container(id)),
            Err(fault) => Err(fault.of_call("healthcheck")),
        }
    }

    pub(super) async fn event_stream(&self, label: &str) -> Result<RuntimeEvents, RuntimeError> {
        // Only the type is filtered there: 4.3 doesn't find labels by their key alone.
        let filters = encoded(r#"{"type":["container"]}"#);
        let path = format!("/events?stream=true&filters={filters}");
        let body = bounded(
            "events",
            self.deadlines.look,
            self.socket.stream(Method::GET, &path),
        );
        let body = body.await?.map_err(|fault| fault.of_call("events"))?;
        let events = Events {
            body,
            line: Vec::new(),
            ready: VecDeque::new(),
            label: label.to_owned(),
            over: false,
        };
        Ok(stream::unfold(events, |mut events| async move {
            let next = events.next().await?;
            Some((next, events))
        })
        .boxed())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Checked {
    status: String,
}

pub(super) fn no_container(id: &ContainerId) -> RuntimeError {
    RuntimeError::NotFound {
        what: "container",
        name: id.to_string(),
    }
}

/// The last lines of a log that comes in frames.
pub(super) struct Tail {
    most: usize,
    frames: Frames,
    line: Vec<u8>,
    lines: VecDeque<String>,
    bytes: usize,
}

impl Tail {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            frames: Frames::default(),
            line: Vec::new(),
            lines: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(super) fn read(&mut self, mut data: Bytes) {
        while let Some((_, piece)) = self.frames.next(&mut data) {
            self.text(&piece);
        }
    }

    fn text(&mut self, piece: &[u8]) {
        let mut parts = piece.split(|byte| *byte == b'\n');
        self.add(parts.next().unwrap_or_default());
        for part in parts {
            self.end_line();
            self.add(part);
        }
    }

    fn add(&mut self, part: &[u8]) {
        let room = LOG_BYTES.saturating_sub(self.line.len());
        self.line.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line).into_owned();
        self.line.clear();
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.lines.len() > self.most || self.bytes > LOG_BYTES {
            let Some(first) = self.lines.pop_front() else {
                break;
            };
            self.bytes -= first.len();
        }
    }

    pub(super) fn into_lines(mut self) -> Vec<String> {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.lines.into()
    }
}

struct Events {
    body: Incoming,
    line: Vec<u8>,
    ready: VecDeque<RuntimeEvent>,
    label: String,
    over: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Told {
    action: String,
    actor: Actor,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Actor {
    #[serde(rename = "ID")]
    id: String,
    /// The labels, and a few facts of Podman's beside them.
    #[serde(default)]
    attributes: Labels,
}

impl Events {
    /// The next event; an error, once, when the stream is over.
    async fn next(&mut self) -> Option<Result<RuntimeEvent, RuntimeError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.over {
                return None;
            }
            let message = match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.read(&data);
                    }
                    continue;
                }
                Some(Err(error)) => error.to_string(),
                None => "the event stream ended".to_owned(),
            };
            self.over = true;
            return Some(Err(Fault::Lost(message).of_call("events")));
        }
    }

    fn read(&mut self, data: &[u8]) {
        for byte in data {
            if *byte != b'\n' {
                if self.line.len() < EVENT_BYTES {
                    self.line.push(*byte);
                }
                continue;
            }
            // A line that can't be read is a lost hint, no more.
            let told = serde_json::from_slice::<Told>(&self.line).ok();
            self.line.clear();
            let told = told.filter(|told| told.actor.attributes.contains_key(&self.label));
            self.ready.extend(told.map(|told| RuntimeEvent {
                container: ContainerId::new(told.actor.id),
                kind: kind(&told.action),
                labels: told.actor.attributes,
            }));
        }
    }
}

fn kind(action: &str) -> RuntimeEventKind {
    match action {
        "start" | "restart" => RuntimeEventKind::Started,
        "died" | "die" => RuntimeEventKind::Died,
        "remove" => RuntimeEventKind::Removed,
        "pause" | "unpause" => RuntimeEventKind::Paused,
        _ => RuntimeEventKind::Other,
    }
}
