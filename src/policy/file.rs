//! The policy's file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::{HostPolicy, PathError, Policy, Rules};
use crate::manifest::{ManifestError, read_strictly, says_nothing};

/// A disk that doesn't answer for as long is no help.
const ANSWER: Duration = Duration::from_secs(5);

/// Why the file is no policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFileError {
    /// It can't be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It says something that isn't a policy.
    #[error("{}: {source}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Every problem, with its place.
        source: ManifestError,
    },
}

/// Reads a policy from its YAML text.
///
/// # Errors
/// When it says something that isn't known or can't be meant.
pub fn read(text: &[u8]) -> Result<Policy, ManifestError> {
    if says_nothing(&String::from_utf8_lossy(text)) {
        return Ok(Policy::default());
    }
    read_strictly(text)
}

/// The policy of this node, read again whenever its file has changed.
#[derive(Debug, Default)]
pub struct NodePolicy {
    path: Option<PathBuf>,
    last: Mutex<Option<Last>>,
}

#[derive(Debug)]
struct Last {
    /// What the file said, or why it couldn't be read.
    content: Result<Vec<u8>, String>,
    rules: Arc<Rules>,
}

impl NodePolicy {
    /// The policy in this file; without one, the default.
    pub fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            last: Mutex::default(),
        }
    }

    /// The policy that a file holds now.
    ///
    /// # Errors
    /// When it can't be read, or isn't a policy.
    pub fn check(path: &Path) -> Result<Policy, PolicyFileError> {
        let text = std::fs::read(path).map_err(|source| PolicyFileError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        read(&text).map_err(|source| PolicyFileError::Wrong {
            path: path.to_owned(),
            source,
        })
    }

    fn take(&self, path: &Path, content: Result<Vec<u8>, String>) -> Arc<Rules> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = last.as_ref().filter(|known| known.content == content) {
            return Arc::clone(&known.rules);
        }
        let policy = match &content {
            Ok(text) => read(text).map_err(|error| error.to_string()),
            Err(why) => Err(why.clone()),
        };
        let rules = Arc::new(match policy {
            Ok(policy) => {
                tracing::info!(path = %path.display(), "the node's policy was read");
                Rules::Known(policy)
            }
            Err(why) => {
                tracing::error!(
                    path = %path.display(),
                    "the node's policy can't be read, so nothing that it has to allow is allowed \
                     until it is mended: {why}"
                );
                Rules::Unreadable(why)
            }
        });
        *last = Some(Last {
            content,
            rules: Arc::clone(&rules),
        });
        rules
    }
}

#[async_trait]
impl HostPolicy for NodePolicy {
    async fn rules(&self) -> Arc<Rules> {
        let Some(path) = &self.path else {
            return Arc::new(Rules::Known(Policy::default()));
        };
        let content = match tokio::time::timeout(ANSWER, tokio::fs::read(path)).await {
            Ok(content) => content.map_err(|error| error.to_string()),
            Err(_) => Err("its disk doesn't answer".to_owned()),
        };
        self.take(path, content)
    }

    async fn resolve(&self, path: &str) -> Result<String, PathError> {
        let real = tokio::time::timeout(ANSWER, tokio::fs::canonicalize(path)).await;
        let real = real.map_err(|_| PathError::Other("its disk doesn't answer".to_owned()))?;
        let real = real.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => PathError::Missing,
            _ => PathError::Other(error.to_string()),
        })?;
        let text = real.into_os_string().into_string();
        text.map_err(|_| PathError::Other("its path isn't UTF-8".to_owned()))
    }
}
