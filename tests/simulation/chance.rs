//! All chance of a history, from its seed.

use std::time::Duration;

/// Random numbers from one seed.
#[derive(Debug)]
pub struct Chance(fastrand::Rng);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub fn below(&mut self, bound: u32) -> u32 {
        self.0.u32(..bound.max(1))
    }

    pub fn one_in(&mut self, times: u32) -> bool {
        self.below(times) == 0
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.usize(..of.len())]
    }

    pub fn seed(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Up to so many milliseconds.
    pub fn millis(&mut self, most: u32) -> Duration {
        Duration::from_millis(u64::from(self.below(most)))
    }
}
