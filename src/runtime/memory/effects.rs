//! One ordered record of what was done to the world, shared by all doubles.

use std::sync::{Arc, Mutex, PoisonError};

/// What was done, in order: `create web`, `start web`, `publish blog`.
///
/// The doubles of one test write into clones of one log, so that the order of
/// effects across runtime, store and traffic can be asserted.
#[derive(Debug, Clone, Default)]
pub struct EffectLog(Arc<Mutex<Vec<String>>>);

impl EffectLog {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }

    fn with<T>(&self, act: impl FnOnce(&mut Vec<String>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds an effect at the end.
    pub fn push(&self, effect: impl Into<String>) {
        let effect = effect.into();
        self.with(|effects| effects.push(effect));
    }

    /// All effects so far.
    pub fn all(&self) -> Vec<String> {
        self.with(|effects| effects.clone())
    }

    /// All effects so far; the log is empty afterwards.
    pub fn take(&self) -> Vec<String> {
        self.with(std::mem::take)
    }

    /// How many effects there are.
    pub fn len(&self) -> usize {
        self.with(|effects| effects.len())
    }

    /// Whether nothing was done.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where this effect is first found.
    pub fn position(&self, effect: &str) -> Option<usize> {
        self.with(|effects| effects.iter().position(|found| found == effect))
    }
}
