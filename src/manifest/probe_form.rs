//! How probes are written, in manifests and in records.
//!
//! The check stands beside its timing (`readiness: {http: {…}, timeout: 60s}`), so
//! each probe has a raw struct with one optional field per check. That keeps unknown
//! fields refused and lets an error say which of two checks is one too many.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use super::names::PortName;
use super::probe::{Check, Liveness, Readiness, Startup};
use super::quantity::Timespan;
use super::status_range::StatusRange;

/// Why a probe's check could not be told.
#[derive(Debug, thiserror::Error)]
#[error(
    "say exactly one of http, tcp, exec, log, health, delay or none ({found}); the two without \
     settings are written `health: {{}}` and `none: {{}}`"
)]
pub(super) struct CheckError {
    found: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawHttp {
    /// Path and query. Default `/`.
    #[serde(default = "default_probe_path")]
    path: String,
    /// Declared TCP port.
    port: PortName,
    /// Accepted status codes. Default 200-399.
    #[serde(default)]
    status: StatusRange,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawTcp {
    /// Declared TCP port.
    port: PortName,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawExec {
    /// Program and arguments.
    command: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawLog {
    /// Plain text, not a pattern.
    contains: String,
}

/// A check without settings, written `{}`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawNothing {}

/// A struct of one optional field per check, and the probe's timing beside it.
macro_rules! raw_probe {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        #[schemars(transform = exactly_one_check)]
        pub(super) struct $name {
            /// GET on the published bind; no redirects or proxies are followed, 2 s a try.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            http: Option<RawHttp>,
            /// A connection to the published bind.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            tcp: Option<RawTcp>,
            /// A command in the container that must exit with 0.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            exec: Option<RawExec>,
            /// A text that the container's log must contain.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            log: Option<RawLog>,
            /// The image's own health check, run by Podherd.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            health: Option<RawNothing>,
            /// A pause after the start; the container must still run at its end.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            delay: Option<Timespan>,
            /// Ready as soon as it runs.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            none: Option<RawNothing>,
            $($(#[$field_doc])* $field: $type,)*
        }

        impl $name {
            fn new(check: Check $(, $field: $type)*) -> Self {
                let mut raw = Self {
                    http: None,
                    tcp: None,
                    exec: None,
                    log: None,
                    health: None,
                    delay: None,
                    none: None,
                    $($field,)*
                };
                match check {
                    Check::Http { path, port, status } => {
                        raw.http = Some(RawHttp { path, port, status });
                    }
                    Check::Tcp { port } => raw.tcp = Some(RawTcp { port }),
                    Check::Exec { command } => raw.exec = Some(RawExec { command }),
                    Check::Log { contains } => raw.log = Some(RawLog { contains }),
                    Check::Health => raw.health = Some(RawNothing {}),
                    Check::Delay(pause) => raw.delay = Some(pause),
                    Check::None => raw.none = Some(RawNothing {}),
                }
                raw
            }

            fn check(&mut self) -> Result<Check, CheckError> {
                let found = [
                    self.http.take().map(|RawHttp { path, port, status }| {
                        ("http", Check::Http { path, port, status })
                    }),
                    self.tcp.take().map(|RawTcp { port }| ("tcp", Check::Tcp { port })),
                    self.exec.take().map(|RawExec { command }| ("exec", Check::Exec { command })),
                    self.log.take().map(|RawLog { contains }| ("log", Check::Log { contains })),
                    self.health.take().map(|RawNothing {}| ("health", Check::Health)),
                    self.delay.take().map(|pause| ("delay", Check::Delay(pause))),
                    self.none.take().map(|RawNothing {}| ("none", Check::None)),
                ];
                exactly_one(found)
            }
        }
    };
}

fn exactly_one<const N: usize>(
    candidates: [Option<(&'static str, Check)>; N],
) -> Result<Check, CheckError> {
    let mut found: Vec<_> = candidates.into_iter().flatten().collect();
    match (found.pop(), found.is_empty()) {
        (Some((_, check)), true) => Ok(check),
        (None, _) => Err(CheckError {
            found: "there is none here".to_owned(),
        }),
        (Some((last, _)), false) => {
            let mut words: Vec<_> = found.iter().map(|(word, _)| *word).collect();
            words.push(last);
            Err(CheckError {
                found: format!("here are {}", words.join(" and ")),
            })
        }
    }
}

/// Tells editors what [`exactly_one`] demands.
fn exactly_one_check(schema: &mut Schema) {
    let choices = ["http", "tcp", "exec", "log", "health", "delay", "none"]
        .map(|word| serde_json::json!({ "required": [word] }));
    schema.insert("oneOf".to_owned(), choices.to_vec().into());
}

raw_probe! {
    /// What must pass before a service is published.
    RawReadiness {
        /// Longest wait for it, without the time to pull. Default 30s.
        #[serde(default = "default_readiness_timeout")]
        timeout: Timespan,
        /// Longest pause between two tries. Default 500ms.
        #[serde(default = "default_readiness_interval")]
        interval: Timespan,
        /// Passes in a row that count as ready. Default 1.
        #[serde(default = "default_successes")]
        successes: u32
    }
}
raw_probe! {
    /// What must go on passing while a service runs.
    RawLiveness {
        /// From the beginning of one try to the next. Default 10s.
        #[serde(default = "default_liveness_interval")]
        interval: Timespan,
        /// Longest single try. Default 2s, and 10s for the image's own health check.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout: Option<Timespan>,
        /// Failures in a row that count as dead, at least 2. Default 3.
        #[serde(default = "default_failures")]
        failures: u32
    }
}
raw_probe! {
    /// Held before readiness, for slow starters.
    RawStartup {
        /// Longest wait for it. Default 120s.
        #[serde(default = "default_startup_timeout")]
        timeout: Timespan
    }
}
raw_probe! {
    /// One check of a container.
    RawCheck {}
}

fn default_probe_path() -> String {
    "/".to_owned()
}

pub(super) fn default_readiness_timeout() -> Timespan {
    Timespan::from_secs(30)
}

pub(super) fn default_readiness_interval() -> Timespan {
    Timespan::from_millis(500)
}

pub(super) fn default_successes() -> u32 {
    1
}

fn default_liveness_interval() -> Timespan {
    Timespan::from_secs(10)
}

/// Such a check starts a process in the container, and images say themselves how
/// long theirs may take: seconds, mostly.
fn default_liveness_timeout(check: &Check) -> Timespan {
    match check {
        Check::Health => Timespan::from_secs(10),
        Check::Http { .. }
        | Check::Tcp { .. }
        | Check::Exec { .. }
        | Check::Log { .. }
        | Check::Delay(_)
        | Check::None => Timespan::from_secs(2),
    }
}

fn default_failures() -> u32 {
    3
}

fn default_startup_timeout() -> Timespan {
    Timespan::from_secs(120)
}

impl TryFrom<RawReadiness> for Readiness {
    type Error = CheckError;

    fn try_from(mut raw: RawReadiness) -> Result<Self, CheckError> {
        let check = raw.check()?;
        let RawReadiness {
            timeout,
            interval,
            successes,
            ..
        } = raw;
        Ok(Self {
            check,
            timeout,
            interval,
            successes,
        })
    }
}

impl From<Readiness> for RawReadiness {
    fn from(probe: Readiness) -> Self {
        Self::new(probe.check, probe.timeout, probe.interval, probe.successes)
    }
}

impl TryFrom<RawLiveness> for Liveness {
    type Error = CheckError;

    fn try_from(mut raw: RawLiveness) -> Result<Self, CheckError> {
        let check = raw.check()?;
        Ok(Self {
            interval: raw.interval,
            timeout: raw
                .timeout
                .unwrap_or_else(|| default_liveness_timeout(&check)),
            failures: raw.failures,
            check,
        })
    }
}

impl From<Liveness> for RawLiveness {
    fn from(probe: Liveness) -> Self {
        Self::new(
            probe.check,
            probe.interval,
            Some(probe.timeout),
            probe.failures,
        )
    }
}

impl TryFrom<RawStartup> for Startup {
    type Error = CheckError;

    fn try_from(mut raw: RawStartup) -> Result<Self, CheckError> {
        let check = raw.check()?;
        Ok(Self {
            check,
            timeout: raw.timeout,
        })
    }
}

impl From<Startup> for RawStartup {
    fn from(probe: Startup) -> Self {
        Self::new(probe.check, probe.timeout)
    }
}

impl TryFrom<RawCheck> for Check {
    type Error = CheckError;

    fn try_from(mut raw: RawCheck) -> Result<Self, CheckError> {
        raw.check()
    }
}

impl From<Check> for RawCheck {
    fn from(check: Check) -> Self {
        Self::new(check)
    }
}
