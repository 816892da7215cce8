//! What either client says when a call fails, before the state is looked at.

use podman_api::Error;

use super::super::RuntimeError;

/// Longest message that is kept of what Podman said.
const MESSAGE: usize = 400;

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// No answer, or none that can be read: the call may have taken effect.
    Lost(String),
    /// Podman's own refusal. It may still have had an effect, and an answer such as
    /// 304 is no failure at all: look at the state.
    Said {
        /// HTTP status.
        code: u16,
        /// Podman's message.
        message: String,
    },
}

impl Fault {
    /// Whether the message contains one of these, which are lower case.
    pub(super) fn says(&self, any: &[&str]) -> bool {
        match self {
            Self::Lost(_) => false,
            Self::Said { message, .. } => {
                let message = message.to_lowercase();
                any.iter().any(|part| message.contains(part))
            }
        }
    }

    /// Whether Podman doesn't know what the call is about.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Said { code: 404, .. })
    }

    /// The error for a call about which the state says nothing more exact.
    pub(super) fn of_call(self, call: &'static str) -> RuntimeError {
        match self {
            Self::Lost(message) => RuntimeError::Unavailable { call, message },
            Self::Said { message, .. } => RuntimeError::Refused { call, message },
        }
    }

    /// Podman's refusal, in one bounded line.
    pub(super) fn said(code: u16, message: &str) -> Self {
        let mut line = message.split_whitespace().collect::<Vec<_>>().join(" ");
        // The cause is often told twice.
        if let Some((head, cause)) = line.rsplit_once(": ")
            && head.ends_with(cause)
        {
            line.truncate(head.len());
        }
        if let Some((end, _)) = line.char_indices().nth(MESSAGE) {
            line.truncate(end);
            line.push('…');
        }
        Self::Said {
            code,
            message: line,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Fault { code, message } => Self::said(code.as_u16(), &message),
            // The text of a JSON error may quote the answer.
            Error::SerdeJsonError(_) | Error::InvalidResponse(_) => unreadable(),
            error => Self::Lost(error.to_string()),
        }
    }
}

/// An answer that isn't what the API promises; never quoted.
pub(super) fn unreadable() -> Fault {
    Fault::Lost("its answer can't be read".to_owned())
}
