//! Structured logs.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// How a log line looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for log collectors.
    Json,
}

/// Why logging couldn't be set up.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The filter can't be read.
    #[error(
        "{filter:?} is no log level or filter ({message}); say error, warn, info, debug, trace, or target=level,…"
    )]
    Filter {
        /// What was asked for.
        filter: String,
        /// What is wrong with it.
        message: String,
    },
    /// Something else logs already.
    #[error("logging is set up already: {0}")]
    Taken(String),
}

/// Sends everything that is logged to standard error, from `filter` upwards.
///
/// # Errors
/// When the filter can't be read, or logging is set up already.
pub fn init(format: LogFormat, filter: &str) -> Result<(), TraceError> {
    let parsed = EnvFilter::try_new(filter).map_err(|error| TraceError::Filter {
        filter: filter.to_owned(),
        message: error.to_string(),
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_span_events(FmtSpan::NONE)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .try_init(),
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .try_init(),
    }
    .map_err(|error| TraceError::Taken(error.to_string()))
}
