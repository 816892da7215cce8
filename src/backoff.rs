//! Growing pauses between tries.
//!
//! The arithmetic is the `backoff` crate's; only this file knows it.

use std::time::Duration;

use backoff::ExponentialBackoffBuilder;
use backoff::backoff::Backoff as _;

use crate::clock::Entropy;

/// Share of a pause by which it is shortened or lengthened at random, so that
/// what failed together doesn't come back together.
const JITTER: f64 = 0.2;

/// Pauses that double from a first one up to a longest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pauses {
    /// Before the second try.
    pub first: Duration,
    /// No pause is longer, jitter apart.
    pub longest: Duration,
}

impl Pauses {
    /// The pause after this many failures in a row (1 or more), jittered.
    pub fn after(self, failures: u32, entropy: &Entropy) -> Duration {
        let mut steps = ExponentialBackoffBuilder::new()
            .with_initial_interval(self.first)
            .with_multiplier(2.0)
            .with_max_interval(self.longest)
            .with_randomization_factor(0.0)
            .with_max_elapsed_time(None)
            .build();
        let mut pause = self.first;
        // The longest pause is reached within 64 doublings, whatever the first.
        for _ in 0..failures.clamp(1, 64) {
            pause = steps.next_backoff().unwrap_or(self.longest);
        }
        pause.mul_f64(1.0 - JITTER + 2.0 * JITTER * entropy.fraction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_within_the_jitter() {
        let pauses = Pauses {
            first: Duration::from_secs(10),
            longest: Duration::from_secs(600),
        };
        let entropy = Entropy::from_seed(7);
        for (failures, seconds) in [(1, 10.0), (2, 20.0), (3, 40.0), (7, 600.0), (1000, 600.0)] {
            let pause = pauses.after(failures, &entropy).as_secs_f64();
            assert!(
                (seconds * 0.79..=seconds * 1.21).contains(&pause),
                "{failures}: {pause}"
            );
        }
    }
}
