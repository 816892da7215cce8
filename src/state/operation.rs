//! The journal: operations and their steps.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::manifest::ServiceName;

use super::ids::{ContainerId, Incarnation, OperationId, RevisionNumber};
use super::record::Record;

/// One journaled verb.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// Its ID, the idempotency key.
    pub id: OperationId,
    /// What was asked for.
    pub request: Request,
    /// Whether somebody asked for it by a key, and its ID is theirs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
    /// The incarnation it works on.
    pub incarnation: Incarnation,
    /// `mod_revision` of the manifest it was begun for; 0 when none is.
    pub source: i64,
    /// Which try this is at the same manifest, from 1.
    pub attempt: u32,
    /// When it was claimed.
    pub started_at: Timestamp,
    /// When its outcome was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// What it does, in order.
    pub steps: Vec<Step>,
    /// How it ended; absent while it is in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Leftovers that somebody may have to look at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// What an operation was asked to do; equal for a replay of the same request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// The verb.
    pub verb: Verb,
    /// The revision that is deployed or rolled back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionNumber>,
    /// The one service it is limited to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// The container whose inhibition is cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerId>,
    /// Who asked, and why, where that has to be known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// Makes a revision serve.
    Deploy,
    /// Stops and removes the containers, keeps the app.
    Stop,
    /// Ensures that ACTIVE runs.
    Start,
    /// Restarts in place.
    Restart,
    /// Ends the incarnation.
    Remove,
    /// Makes an older revision serve.
    Rollback,
    /// Lets a container be started again: a person answers for it.
    ClearInhibition,
    /// Brings back what ACTIVE names, after a fault.
    Recover,
}

impl Verb {
    /// The verb as records and metrics spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deploy => "deploy",
            Self::Stop => "stop",
            Self::Start => "start",
            Self::Restart => "restart",
            Self::Remove => "remove",
            Self::Rollback => "rollback",
            Self::ClearInhibition => "clearInhibition",
            Self::Recover => "recover",
        }
    }
}

/// One journaled action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// What is done.
    pub kind: StepKind,
    /// The service it is done to; absent for what concerns the whole app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// How far it is.
    pub state: StepState,
    /// The superseded container it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<ContainerId>,
    /// The container it made or verified; of a create step, the candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ContainerId>,
    /// When its effect began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Why it failed, fit for everybody's eyes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What a person needs to find out more; never shown in public errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostics: Option<Diagnostics>,
}

/// The kinds of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StepKind {
    /// Take the service out of the traffic graph, confirmed.
    Withdraw,
    /// Write the old container's inhibition.
    Inhibit,
    /// Delete an inhibition.
    Clear,
    /// Stop, remove, confirm gone, release binds.
    Retire,
    /// Remove by force what an earlier operation left behind.
    Sweep,
    /// Create volumes and networks with ownership labels.
    Provision,
    /// Create the candidate.
    Create,
    /// Start the container and inspect its binds.
    Start,
    /// Inspect the binds of a container that runs already.
    Inspect,
    /// Stop the container, which stays.
    Stop,
    /// Wait for the requests in flight of a superseded container.
    Drain,
    /// Wait for readiness on the fresh bind.
    Probe,
    /// Write ACTIVE.
    Publish,
    /// Apply the traffic graph, acknowledged.
    Traffic,
    /// Write the intent.
    Intent,
    /// Leave shared networks, remove the app's private ones.
    Reclaim,
    /// End the incarnation.
    End,
}

impl StepKind {
    /// The kind as records and metrics spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Withdraw => "withdraw",
            Self::Inhibit => "inhibit",
            Self::Clear => "clear",
            Self::Retire => "retire",
            Self::Sweep => "sweep",
            Self::Provision => "provision",
            Self::Create => "create",
            Self::Start => "start",
            Self::Inspect => "inspect",
            Self::Stop => "stop",
            Self::Drain => "drain",
            Self::Probe => "probe",
            Self::Publish => "publish",
            Self::Traffic => "traffic",
            Self::Intent => "intent",
            Self::Reclaim => "reclaim",
            Self::End => "end",
        }
    }
}

/// How far a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StepState {
    /// Not begun.
    Pending,
    /// Its effect may have happened.
    Running,
    /// Done.
    Succeeded,
    /// Not done, or undone.
    Failed,
}

/// How an operation ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// In one word.
    pub result: OutcomeKind,
    /// Why, in CamelCase, as in the conditions.
    pub reason: String,
    /// Why, as a sentence.
    pub message: String,
    /// Whether another try without a change can mend it.
    pub retryable: bool,
}

/// How an operation ended, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OutcomeKind {
    /// Every step succeeded.
    Success,
    /// Some services were done and are kept; a later one failed.
    Partial,
    /// Nothing was achieved.
    Failed,
}

impl OutcomeKind {
    /// The outcome as records and metrics spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Partial => "partial",
            Self::Failed => "failed",
        }
    }
}

/// A leftover that somebody may have to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Warning {
    /// The service it belongs to, when one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// What is left: a container, a network.
    pub leftover: String,
    /// Why.
    pub detail: String,
}

/// What a person needs to find out why a container failed. Bounded in size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Diagnostics {
    /// Last lines of the container's log.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log_tail: Vec<String>,
    /// Exit code, when it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Whether the kernel ended it for lack of memory.
    pub oom_killed: bool,
    /// The probe's last answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub probe_answers: Vec<String>,
}

impl Operation {
    /// Whether no outcome is written yet.
    pub fn in_flight(&self) -> bool {
        self.outcome.is_none()
    }

    /// Whether it ended well.
    pub fn succeeded(&self) -> bool {
        let outcome = self.outcome.as_ref();
        outcome.is_some_and(|outcome| outcome.result == OutcomeKind::Success)
    }

    /// Whether it is an answer to a request of which the steps aren't kept.
    pub fn is_short(&self) -> bool {
        self.asked && self.steps.is_empty()
    }

    /// What is kept of an old answer: the request and the outcome.
    #[must_use]
    pub fn shortened(&self) -> Self {
        Self {
            steps: Vec::new(),
            warnings: Vec::new(),
            ..self.clone()
        }
    }

    /// Whether it takes up a revision.
    pub fn deploys(&self) -> bool {
        matches!(self.request.verb, Verb::Deploy | Verb::Rollback)
    }

    /// Whether a step of this kind succeeded for the service.
    pub fn has(&self, kind: StepKind, service: &ServiceName) -> bool {
        self.steps.iter().any(|step| {
            step.kind == kind
                && step.service.as_ref() == Some(service)
                && step.state == StepState::Succeeded
        })
    }
}

impl Record for Operation {
    const SCHEMA: u32 = 1;
    const KIND: &'static str = "operation";
}
