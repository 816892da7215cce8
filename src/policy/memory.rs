//! A host's policy in memory: nothing is a symlink, and everything exists, unless a
//! test says otherwise.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use super::{HostPolicy, PathError, Policy, Rules, read};

/// A policy that a test sets.
#[derive(Debug)]
pub struct MemoryPolicy {
    rules: Mutex<Arc<Rules>>,
    paths: Mutex<BTreeMap<String, Option<String>>>,
}

impl Default for MemoryPolicy {
    fn default() -> Self {
        Self {
            rules: Mutex::new(Arc::new(Rules::Known(Policy::default()))),
            paths: Mutex::default(),
        }
    }
}

impl MemoryPolicy {
    /// The file says this from now on.
    pub fn set(&self, text: &str) {
        let rules = match read(text.as_bytes()) {
            Ok(policy) => Rules::Known(policy),
            Err(error) => Rules::Unreadable(error.to_string()),
        };
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }

    /// The path leads there from now on.
    pub fn link(&self, path: &str, to: &str) {
        self.lead(path, Some(to.to_owned()));
    }

    /// The path doesn't exist from now on.
    pub fn lose(&self, path: &str) {
        self.lead(path, None);
    }

    fn lead(&self, path: &str, to: Option<String>) {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        _ = paths.insert(path.to_owned(), to);
    }
}

#[async_trait]
impl HostPolicy for MemoryPolicy {
    async fn rules(&self) -> Arc<Rules> {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&rules)
    }

    async fn resolve(&self, path: &str) -> Result<String, PathError> {
        let paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        match paths.get(path) {
            Some(Some(to)) => Ok(to.clone()),
            Some(None) => Err(PathError::Missing),
            None => Ok(path.to_owned()),
        }
    }
}
