//! Durations and quantities as people write them: `500ms`, `1m30s`, `64Mi`, `0.5`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A span of time, written `500ms`, `10s`, `1m30s` or `2h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timespan(Duration);

impl Timespan {
    /// A span of whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// A span of milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// The span as the standard library's type.
    pub const fn get(self) -> Duration {
        self.0
    }
}

/// A number of bytes, written `1024`, `64Ki`, `10Mi`, `1Gi`, or with `k`, `M`, `G`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bytes(u64);

impl Bytes {
    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// CPU time, written `0.5`, `2` or `500m`; kept in thousandths of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cpus(u32);

impl Cpus {
    /// Thousandths of a core.
    pub const fn millis(self) -> u32 {
        self.0
    }
}
