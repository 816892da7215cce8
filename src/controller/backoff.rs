//! Exponential pauses with jitter.
//!
//! The `backoff` crate does the arithmetic of the intervals; only this file
//! knows it. Chance comes from [`Entropy`], so that a simulation sees the same
//! pauses again.

use std::time::Duration;

use backoff::backoff::Backoff as _;

use crate::clock::Entropy;

/// A pause is shortened by up to this part of itself, so that many that failed
/// together don't come back together.
const JITTER: f64 = 0.25;

/// How long to wait after each failure in a row.
#[derive(Debug, Clone)]
pub struct Backoff {
    intervals: backoff::ExponentialBackoff,
    failures: u32,
}

impl Backoff {
    /// Pauses that double from `first` to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self {
            intervals: backoff::ExponentialBackoff {
                current_interval: first,
                initial_interval: first,
                multiplier: 2.0,
                max_interval: longest,
                // The crate's own jitter can't be seeded, and it must never give up.
                randomization_factor: 0.0,
                max_elapsed_time: None,
                ..backoff::ExponentialBackoff::default()
            },
            failures: 0,
        }
    }

    /// The pause after one more failure.
    pub fn failed(&mut self, entropy: &Entropy) -> Duration {
        let interval = self.intervals.current_interval;
        // Only called for what it does to `current_interval`.
        _ = self.intervals.next_backoff();
        self.failures = self.failures.saturating_add(1);
        interval.mul_f64(1.0 - JITTER * entropy.fraction())
    }

    /// It went well, or something changed: begin anew.
    pub fn reset(&mut self) {
        self.intervals.reset();
        self.failures = 0;
    }

    /// Failures since the last [`Backoff::reset`].
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(300);

    #[test]
    fn pauses_double_up_to_the_longest_and_are_only_shortened() {
        let entropy = Entropy::from_seed(1);
        let mut backoff = Backoff::new(FIRST, LONGEST);

        for whole in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300] {
            let whole = Duration::from_secs(whole);
            let pause = backoff.failed(&entropy);
            assert!(pause <= whole && pause >= whole.mul_f64(0.75), "{pause:?}");
        }
        assert_eq!(backoff.failures(), 12);
    }

    #[test]
    fn a_reset_begins_anew() {
        let entropy = Entropy::from_seed(1);
        let mut backoff = Backoff::new(FIRST, LONGEST);
        for _ in 0..5 {
            backoff.failed(&entropy);
        }

        backoff.reset();

        assert_eq!(backoff.failures(), 0);
        assert!(backoff.failed(&entropy) <= FIRST);
    }

    #[test]
    fn the_same_seed_gives_the_same_pauses() {
        let pauses = || {
            let entropy = Entropy::from_seed(7);
            let mut backoff = Backoff::new(FIRST, LONGEST);
            [(); 8].map(|()| backoff.failed(&entropy))
        };

        assert_eq!(pauses(), pauses());
    }
}
