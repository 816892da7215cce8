//! A calendar that follows tokio's paused time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use podherd::clock::Clock;
use tokio::time::Instant;

/// Starts at a fixed moment. No two looks at it are equal, as in life.
#[derive(Debug)]
pub struct TestClock {
    began: Instant,
    looks: AtomicU64,
}

impl TestClock {
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            looks: AtomicU64::new(0),
        }
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let start: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        let passed = self.began.elapsed() + Duration::from_micros(looks);
        start.checked_add(passed).unwrap()
    }
}
