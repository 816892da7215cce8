//! What Podherd shows of itself, and where.

use std::net::{Ipv4Addr, SocketAddr};

use super::File;
use crate::telemetry::LogFormat;

const FILTER: &str = "info";
/// Loopback: who may see the metrics from elsewhere is for the operator to say.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9616);

/// What may be said about logs.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Logs, metrics and health")]
pub struct LogOptions {
    /// What is logged: error, warn, info, debug, trace, or a filter such as
    /// info,podherd::reconcile=debug [default: info]
    #[arg(
        long,
        env = "PODHERD_LOG",
        value_name = "LEVEL",
        hide_env_values = true
    )]
    pub log: Option<String>,
    /// How a log line looks [default: text]
    #[arg(
        long,
        env = "PODHERD_LOG_FORMAT",
        value_name = "FORMAT",
        hide_env_values = true
    )]
    pub log_format: Option<LogFormat>,
}

/// How is logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// What is logged.
    pub filter: String,
    /// How a log line looks.
    pub format: LogFormat,
}

/// What may be said about the listener for metrics and health.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Logs, metrics and health")]
pub struct ListenOptions {
    /// Address to serve /metrics, /healthz and /readyz on [default: 127.0.0.1:9616]
    #[arg(
        long,
        env = "PODHERD_LISTEN",
        value_name = "ADDR",
        hide_env_values = true
    )]
    pub listen: Option<SocketAddr>,
}

impl LogOptions {
    /// The settings.
    pub fn resolve(self, file: &File) -> LogSettings {
        let said = self.log.or_else(|| file.log.clone());
        LogSettings {
            filter: said.unwrap_or_else(|| FILTER.to_owned()),
            format: self.log_format.or(file.log_format).unwrap_or_default(),
        }
    }
}

impl ListenOptions {
    /// The address.
    pub fn resolve(self, file: &File) -> SocketAddr {
        self.listen.or(file.listen).unwrap_or(LISTEN)
    }
}
