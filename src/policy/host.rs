//! Where the rules and the host's paths are read.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::Rules;

/// Why a path of the host can't be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It doesn't exist.
    #[error("it doesn't exist")]
    Missing,
    /// Something else.
    #[error("{0}")]
    Other(String),
}

/// This host, as far as its policy is concerned.
#[async_trait]
pub trait HostPolicy: Send + Sync + fmt::Debug {
    /// The rules as they are now.
    async fn rules(&self) -> Arc<Rules>;

    /// The path without symlinks.
    async fn resolve(&self, path: &str) -> Result<String, PathError>;
}
