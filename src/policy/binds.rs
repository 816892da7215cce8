//! Which host paths may be mounted.

use std::path::Path;

use serde::Deserialize;

use super::scope::Scope;
use crate::manifest::is_plain_path;

/// A folder of the host whose content may be mounted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Root {
    pub(super) path: HostPath,
    /// Nothing in it is mounted with write access, whatever another root says.
    #[serde(default)]
    pub(super) read_only: bool,
    pub(super) apps: Scope,
}

/// An absolute path without `.`, `..`, doubled and trailing slashes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct HostPath(String);

impl HostPath {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for HostPath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if is_plain_path(&text) {
            return Ok(Self(text));
        }
        Err(format!(
            "{text:?} is not a plain absolute path: start with '/', and leave out '.', '..', \
             doubled and trailing slashes"
        ))
    }
}

/// Whether a path is this folder or in it, by its parts.
pub(super) fn is_within(path: &str, folder: &str) -> bool {
    Path::new(path).starts_with(folder)
}
