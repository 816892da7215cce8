//! Probes: exactly one check, and its timing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names::PortName;
use super::probe_form::{self, RawCheck, RawLiveness, RawReadiness, RawStartup};
use super::quantity::Timespan;
use super::status_range::StatusRange;

/// What must pass before a service is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "RawReadiness", into = "RawReadiness")]
pub struct Readiness {
    /// The check.
    pub check: Check,
    /// Longest wait for it, without the time to pull. Default 30s.
    pub timeout: Timespan,
    /// Longest pause between two tries. Default 500ms.
    pub interval: Timespan,
    /// Passes in a row that count as ready. Default 1.
    pub successes: u32,
}

impl Readiness {
    /// This check with the default timing.
    pub fn of(check: Check) -> Self {
        Self {
            check,
            timeout: probe_form::default_readiness_timeout(),
            interval: probe_form::default_readiness_interval(),
            successes: probe_form::default_successes(),
        }
    }
}

/// What must go on passing while a service runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "RawLiveness", into = "RawLiveness")]
pub struct Liveness {
    /// The check.
    pub check: Check,
    /// From the beginning of one try to the next. Default 10s.
    pub interval: Timespan,
    /// Longest single try. Default 2s, and 10s for the image's own health check.
    pub timeout: Timespan,
    /// Failures in a row that count as dead, at least 2. Default 3.
    pub failures: u32,
}

/// Held before readiness, for slow starters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "RawStartup", into = "RawStartup")]
pub struct Startup {
    /// The check.
    pub check: Check,
    /// Longest wait for it. Default 120s.
    pub timeout: Timespan,
}

/// One check of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "RawCheck", into = "RawCheck")]
pub enum Check {
    /// GET on the published bind; no redirects or proxies are followed, 2 s a try.
    Http {
        /// Path and query.
        path: String,
        /// Declared TCP port.
        port: PortName,
        /// Accepted status codes, both ends included.
        status: StatusRange,
    },
    /// A connection to the published bind.
    Tcp {
        /// Declared TCP port.
        port: PortName,
    },
    /// A command in the container that must exit with 0.
    Exec {
        /// Program and arguments.
        command: Vec<String>,
    },
    /// A text that the container's log must contain.
    Log {
        /// Plain text, not a pattern.
        contains: String,
    },
    /// The image's own health check, run by Podherd.
    Health,
    /// A pause after the start; the container must still run at its end.
    Delay(Timespan),
    /// Ready as soon as it runs.
    None,
}
