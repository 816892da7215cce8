//! What is told when a probe fails.

use std::collections::VecDeque;
use std::time::Duration;

use crate::manifest::Check;

/// Answers that a failure remembers.
const ANSWERS_KEPT: usize = 5;

/// Why a container isn't ready. The message is fit for a status: it names the
/// probe and its answers, never what the container printed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProbeFailure {
    /// What kind of failure.
    pub kind: ProbeFailureKind,
    /// The probe, what went wrong, and after how long.
    pub message: String,
    /// The last answers, oldest first.
    pub answers: Vec<String>,
    /// The container's exit code, when it ended.
    pub exited: Option<i32>,
    /// Whether the kernel ended it for lack of memory.
    pub oom_killed: bool,
}

/// Kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeFailureKind {
    /// It runs, but the check didn't pass in time.
    TimedOut,
    /// It runs, but its startup check didn't pass in time.
    NotStarted,
    /// The container ended.
    Exited,
    /// The container was started again meanwhile: another execution than asked for.
    Restarted,
    /// The container doesn't exist any more.
    Gone,
    /// The check can't be done at all: its port has no bind, or it isn't supported.
    Impossible,
}

/// What a probe is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Startup,
    Readiness,
    Liveness,
}

impl Purpose {
    fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Readiness => "readiness",
            Self::Liveness => "liveness",
        }
    }
}

/// The answers of one probing, and how a failure of it is told.
#[derive(Debug, Clone)]
pub(super) struct Account {
    purpose: Purpose,
    probe: String,
    started: tokio::time::Instant,
    answers: VecDeque<String>,
}

impl Account {
    pub(super) fn of(purpose: Purpose, check: &Check) -> Self {
        Self {
            purpose,
            probe: describe(purpose, check),
            started: tokio::time::Instant::now(),
            answers: VecDeque::new(),
        }
    }

    pub(super) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    pub(super) fn note(&mut self, answer: String) {
        if self.answers.len() == ANSWERS_KEPT {
            self.answers.pop_front();
        }
        self.answers.push_back(answer);
    }

    fn fail(&self, kind: ProbeFailureKind, what: &str) -> ProbeFailure {
        ProbeFailure {
            kind,
            message: format!("{}: {what}", self.probe),
            answers: self.answers(),
            exited: None,
            oom_killed: false,
        }
    }

    fn waited(&self) -> String {
        seconds(self.started.elapsed())
    }

    fn last_answer(&self) -> &str {
        self.answers.back().map_or("none", String::as_str)
    }

    /// The last answers, oldest first.
    pub(super) fn answers(&self) -> Vec<String> {
        self.answers.iter().cloned().collect()
    }

    /// What is told of an execution that failed so often in a row.
    pub(super) fn dead(&self, failures: u32) -> String {
        let last = self.last_answer();
        format!("{} failed {failures} times in a row: {last}", self.probe)
    }

    pub(super) fn timed_out(&self) -> ProbeFailure {
        let last = self.last_answer();
        let what = format!("last answer {last} after {}", self.waited());
        let kind = match self.purpose {
            Purpose::Startup => ProbeFailureKind::NotStarted,
            Purpose::Readiness | Purpose::Liveness => ProbeFailureKind::TimedOut,
        };
        self.fail(kind, &what)
    }

    pub(super) fn exited(&self, code: Option<i32>, oom_killed: bool) -> ProbeFailure {
        let mut what = code.map_or_else(
            || "container doesn't run".to_owned(),
            |code| format!("container exited with code {code}"),
        );
        if oom_killed {
            what.push_str(" (out of memory)");
        }
        let what = format!("{what} after {}", self.waited());
        ProbeFailure {
            exited: code,
            oom_killed,
            ..self.fail(ProbeFailureKind::Exited, &what)
        }
    }

    pub(super) fn restarted(&self) -> ProbeFailure {
        let what = format!("container was started again after {}", self.waited());
        self.fail(ProbeFailureKind::Restarted, &what)
    }

    pub(super) fn gone(&self) -> ProbeFailure {
        let what = format!("container is gone after {}", self.waited());
        self.fail(ProbeFailureKind::Gone, &what)
    }

    pub(super) fn impossible(&self, why: &str) -> ProbeFailure {
        self.fail(ProbeFailureKind::Impossible, why)
    }
}

/// The probe in a few words. A command's arguments may be secret: only its program is named.
fn describe(purpose: Purpose, check: &Check) -> String {
    let what = match check {
        Check::Http { path, port, .. } => {
            let path = path.split_once('?').map_or(path.as_str(), |(path, _)| path);
            format!("http {path} on port {port}")
        }
        Check::Tcp { port } => format!("tcp on port {port}"),
        Check::Exec { command } => {
            format!("exec {}", command.first().map_or("", String::as_str))
        }
        Check::Log { .. } => "log".to_owned(),
        Check::Health => "health".to_owned(),
        Check::Delay(pause) => format!("delay {pause}"),
        Check::None => "none".to_owned(),
    };
    format!("{} probe {what}", purpose.as_str())
}

/// Whole seconds from ten on, tenths below, so that tests and people can read it.
fn seconds(span: Duration) -> String {
    if span.as_secs() >= 10 {
        format!("{}s", span.as_secs())
    } else {
        let tenths = span.as_millis() / 100;
        match tenths % 10 {
            0 => format!("{}s", tenths / 10),
            rest => format!("{}.{rest}s", tenths / 10),
        }
    }
}
