//! What ends a pass or a step.

use crate::runtime::RuntimeError;
use crate::state::{Diagnostics, RecordError};
use crate::store::{NotLeading, RecordsError, StoreError};
use crate::traffic::TrafficError;

/// Why a pass ended without a result. Nothing terminal was written: the next
/// pass, here or in another controller, finds what is in flight.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The records couldn't be read or written.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// The runtime couldn't be observed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The traffic graph couldn't be read.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The controller stops, or doesn't lead any more.
    #[error("interrupted: the operation stays in flight for whoever leads next")]
    Interrupted,
    /// A candidate of an interrupted operation couldn't be removed: changing
    /// anything else might make a second writer.
    #[error(
        "candidate {container} could not be removed: {cause}; every change of the app waits until it is gone"
    )]
    CandidateStays {
        /// Its name.
        container: String,
        /// Why not.
        cause: String,
    },
}

impl From<NotLeading> for ReconcileError {
    fn from(error: NotLeading) -> Self {
        Self::Records(error.into())
    }
}

impl From<StoreError> for ReconcileError {
    fn from(error: StoreError) -> Self {
        Self::Records(error.into())
    }
}

/// Why a step didn't succeed.
#[derive(Debug)]
pub(super) enum StepError {
    /// Nothing terminal may be written.
    Interrupted(ReconcileError),
    /// A newer manifest arrived at a safe point.
    Superseded,
    /// It failed.
    Failed(Failure),
}

/// A failure that the journal keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// In CamelCase.
    pub reason: &'static str,
    /// As a sentence fit for everybody's eyes.
    pub message: String,
    /// Whether another try without a change may succeed.
    pub retryable: bool,
    /// For the journal only.
    pub diagnostics: Option<Diagnostics>,
}

impl Failure {
    /// A failure that another try may mend.
    pub fn passing(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            retryable: true,
            diagnostics: None,
        }
    }

    /// A failure that only a changed manifest or host mends.
    pub fn lasting(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            retryable: false,
            ..Self::passing(reason, message)
        }
    }
}

impl From<Failure> for StepError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<ReconcileError> for StepError {
    fn from(error: ReconcileError) -> Self {
        Self::Interrupted(error)
    }
}

impl From<RecordsError> for StepError {
    fn from(error: RecordsError) -> Self {
        Self::Interrupted(error.into())
    }
}

impl From<NotLeading> for StepError {
    fn from(error: NotLeading) -> Self {
        Self::Interrupted(error.into())
    }
}

impl From<RecordError> for StepError {
    fn from(source: RecordError) -> Self {
        Self::Interrupted(
            RecordsError::Damaged {
                key: String::new(),
                source,
            }
            .into(),
        )
    }
}

/// What a runtime error means for the step in which it came.
pub(super) fn runtime_failure(error: &RuntimeError) -> Failure {
    let reason = match error {
        RuntimeError::Unavailable { .. } | RuntimeError::Deadline { .. } => "PodmanUnavailable",
        RuntimeError::ImageUnknown { .. } => "ImageUnknown",
        RuntimeError::ImageAbsent { .. } => "ImageAbsent",
        RuntimeError::ImageDenied { .. } => "ImageDenied",
        RuntimeError::AuthFile { .. } => "AuthFileUnusable",
        RuntimeError::PullFailed { .. } => "ImagePullFailed",
        RuntimeError::PortInUse { .. } => "PortInUse",
        RuntimeError::NameInUse { .. } => "NameInUse",
        RuntimeError::InUse { .. } => "InUse",
        RuntimeError::NotFound { .. } => "NotFound",
        RuntimeError::NoUserIds => "NoUserIds",
        RuntimeError::Refused { .. } => "PodmanRefused",
    };
    Failure {
        reason,
        message: error.to_string(),
        retryable: error.is_retryable(),
        diagnostics: None,
    }
}

/// What a traffic error means for the step in which it came.
pub(super) fn traffic_error(what: &str, error: TrafficError) -> StepError {
    match error {
        TrafficError::Unconfirmed { .. } => {
            Failure::passing("TrafficUnconfirmed", format!("{what}: {error}")).into()
        }
        // The other app may give the route up.
        TrafficError::Conflict { .. } => {
            Failure::passing("RouteConflict", error.to_string()).into()
        }
        TrafficError::Reserved { .. } => {
            Failure::lasting("ListenerReserved", error.to_string()).into()
        }
        TrafficError::Store(_) | TrafficError::Record(_) | TrafficError::NotLeading(_) => {
            StepError::Interrupted(error.into())
        }
    }
}
