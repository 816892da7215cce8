//! Time and chance: the two things that a simulation must own.
//!
//! Pauses go through `tokio::time`, which a test can hold; the calendar and
//! random numbers come from here.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use uuid::Uuid;

/// The calendar. Monotonic time is `tokio::time::Instant`; never compare
/// timestamps to measure a span.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

/// The machine's calendar.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Random numbers and IDs, from one seed.
#[derive(Debug)]
pub struct Entropy(Mutex<fastrand::Rng>);

impl Entropy {
    /// Seeded by the operating system.
    pub fn from_system() -> Self {
        Self(Mutex::new(fastrand::Rng::new()))
    }

    /// The same sequence for the same seed.
    pub fn from_seed(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }

    fn with<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A number in `0.0..1.0`.
    pub fn fraction(&self) -> f64 {
        self.with(fastrand::Rng::f64)
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&self, bound: usize) -> usize {
        self.with(|rng| if bound == 0 { 0 } else { rng.usize(..bound) })
    }

    /// A random UUID (RFC 9562, version 4).
    pub fn uuid(&self) -> Uuid {
        let bytes = self.with(|rng| rng.u128(..)).to_be_bytes();
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// A UUID that sorts by time (RFC 9562, version 7).
    pub fn uuid_at(&self, now: Timestamp) -> Uuid {
        let mut random = [0; 10];
        self.with(|rng| rng.fill(&mut random));
        let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }
}
