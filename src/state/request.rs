//! What people ask for by `requests/<app>/<id>`.

use serde::{Deserialize, Serialize};

use crate::manifest::ServiceName;

use super::ids::{ContainerId, OperationId, RevisionNumber};
use super::operation::{Request, Verb};
use super::text::shorten;

/// Longest ID of a request.
const MAX_ID: usize = 63;
/// Longest request, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// A request as somebody wrote it: YAML or JSON, one verb.
///
/// ```yaml
/// {verb: restart, service: web}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Asked {
    /// The verb.
    pub verb: AskedVerb,
    /// The one service it is limited to; for deploy and restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// The revision to roll back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionNumber>,
    /// Remove in spite of `deletionProtection`.
    #[serde(default)]
    pub force: bool,
    /// The container whose inhibition is cleared: its whole ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerId>,
    /// Who clears it, and why; it is journaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The verbs that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AskedVerb {
    /// Deploy the manifest now, images resolved anew.
    Deploy,
    /// Stop and stay stopped.
    Stop,
    /// Run again, from ACTIVE.
    Start,
    /// Restart in place.
    Restart,
    /// End the incarnation and delete the manifest.
    Remove,
    /// Make an older revision serve.
    Rollback,
    /// Let a container be started again.
    ClearInhibition,
}

/// Why a request is refused. Nothing was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The last part of the key isn't an ID.
    #[error("request ID {0:?}: use 1 to 63 characters of A-Z, a-z, 0-9, '.', '_' and '-'")]
    Id(String),
    /// It isn't a request.
    #[error("request: {0}")]
    Text(String),
    /// A field that this verb doesn't take.
    #[error("{field} doesn't go with {}", verb.as_str())]
    Field {
        /// The field.
        field: &'static str,
        /// The verb.
        verb: Verb,
    },
    /// A rollback without a revision.
    #[error("rollback needs the revision to go back to")]
    NoRevision,
    /// A clearance that leaves open what, by whom, or why.
    #[error("clearInhibition needs the container's whole ID, and a note of who clears it and why")]
    NoContainer,
}

/// Reads the ID of a request from the last part of its key.
///
/// # Errors
/// When it isn't one.
pub fn parse_id(text: &str) -> Result<OperationId, RequestError> {
    let fits = (1..=MAX_ID).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if fits {
        Ok(OperationId::new(text))
    } else {
        Err(RequestError::Id(shorten(text)))
    }
}

impl Asked {
    /// Reads a request.
    ///
    /// # Errors
    /// When it isn't one, or its fields don't go together.
    pub fn parse(text: &[u8]) -> Result<Self, RequestError> {
        if text.len() > MAX_BYTES {
            let message = format!("longer than {MAX_BYTES} bytes");
            return Err(RequestError::Text(message));
        }
        let asked: Self = serde_yaml::from_slice(text)
            .map_err(|error| RequestError::Text(shorten(&error.to_string())))?;
        let verb = asked.request().verb;
        let refuse = |field| Err(RequestError::Field { field, verb });
        if asked.service.is_some() && !matches!(verb, Verb::Deploy | Verb::Restart) {
            return refuse("service");
        }
        if asked.force && verb != Verb::Remove {
            return refuse("force");
        }
        if verb == Verb::ClearInhibition {
            let note = asked.note.as_deref().map_or("", str::trim);
            if asked.container.is_none() || note.is_empty() {
                return Err(RequestError::NoContainer);
            }
        } else if asked.container.is_some() {
            return refuse("container");
        } else if asked.note.is_some() {
            return refuse("note");
        }
        match (verb, asked.revision) {
            (Verb::Rollback, None) => Err(RequestError::NoRevision),
            (Verb::Rollback, Some(_)) | (_, None) => Ok(asked),
            (_, Some(_)) => refuse("revision"),
        }
    }

    /// Whether it asks to stop or to remove: that comes before all else.
    pub fn ends(&self) -> bool {
        matches!(self.verb, AskedVerb::Stop | AskedVerb::Remove)
    }

    /// What the journal compares a replay with.
    pub fn request(&self) -> Request {
        let verb = match self.verb {
            AskedVerb::Deploy => Verb::Deploy,
            AskedVerb::Stop => Verb::Stop,
            AskedVerb::Start => Verb::Start,
            AskedVerb::Restart => Verb::Restart,
            AskedVerb::Remove => Verb::Remove,
            AskedVerb::Rollback => Verb::Rollback,
            AskedVerb::ClearInhibition => Verb::ClearInhibition,
        };
        Request {
            verb,
            revision: self.revision,
            service: self.service.clone(),
            container: self.container.clone(),
            note: self.note.clone(),
        }
    }
}
