//! What only the controller needs.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use super::{File, Host, PolicyOptions, SettingsError, wrong};
use crate::manifest::Timespan;

const WORKERS: usize = 4;
const MOST_WORKERS: usize = 64;
const RESYNC: Timespan = Timespan::from_secs(5 * 60);
const SHORTEST_RESYNC: Timespan = Timespan::from_secs(10);
const PORTS: PortRange = PortRange {
    from: 20_000,
    to: 29_999,
};

/// What may be said about the controller.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Controller")]
pub struct ControllerOptions {
    /// Folder for what this host must remember [default: /var/lib/podherd for root,
    /// else podherd in $XDG_STATE_HOME or ~/.local/state]
    #[arg(
        long,
        env = "PODHERD_STATE_DIR",
        value_name = "DIR",
        hide_env_values = true
    )]
    pub state_dir: Option<PathBuf>,
    /// What manifests may have of this host.
    #[command(flatten)]
    pub policy: PolicyOptions,
    /// Host ports for containers, from-to; outside of the kernel's own range for
    /// clients [default: 20000-29999]
    #[arg(
        long,
        env = "PODHERD_PORT_RANGE",
        value_name = "FROM-TO",
        hide_env_values = true
    )]
    pub port_range: Option<PortRange>,
    /// How many apps are worked on at once [default: 4]
    #[arg(
        long,
        env = "PODHERD_WORKERS",
        value_name = "NUMBER",
        hide_env_values = true
    )]
    pub workers: Option<usize>,
    /// How often every app is looked at, whatever Podman's events say [default: 5m]
    #[arg(
        long,
        env = "PODHERD_RESYNC",
        value_name = "DURATION",
        hide_env_values = true
    )]
    pub resync: Option<Timespan>,
    /// Take over the etcd and prefix that are given now, though this host worked
    /// with others before. Not for the file: say it once
    #[arg(long, env = "PODHERD_ADOPT", value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide_possible_values = true,
          value_parser = clap::builder::BoolishValueParser::new(), hide_env_values = true)]
    pub adopt: Option<bool>,
}

/// How the controller works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerSettings {
    /// Folder for what this host must remember.
    pub state_dir: PathBuf,
    /// File of what manifests may have of this host.
    pub policy: Option<PathBuf>,
    /// Host ports for containers.
    pub ports: RangeInclusive<u16>,
    /// How many apps are worked on at once.
    pub workers: usize,
    /// How often every app is looked at.
    pub resync: Duration,
    /// Whether another etcd or prefix than before is taken over.
    pub adopt: bool,
}

impl ControllerOptions {
    /// The settings.
    ///
    /// # Errors
    /// When one is out of bounds, or there is no home for the state folder.
    pub fn resolve(self, file: &File, host: &Host) -> Result<ControllerSettings, SettingsError> {
        let workers = self.workers.or(file.workers).unwrap_or(WORKERS);
        if !(1..=MOST_WORKERS).contains(&workers) {
            return Err(wrong(
                "--workers",
                format!("{workers} isn't between 1 and {MOST_WORKERS}"),
            ));
        }
        let resync = self.resync.or(file.resync).unwrap_or(RESYNC);
        if resync < SHORTEST_RESYNC {
            return Err(wrong(
                "--resync",
                format!("{resync} is too often: say {SHORTEST_RESYNC} or more"),
            ));
        }
        let ports = self.port_range.or(file.port_range).unwrap_or(PORTS);
        let policy = self.policy.resolve(file)?;
        let said = self.state_dir.or_else(|| file.state_dir.clone());
        let state_dir = said.map_or_else(|| default_state_dir(host), Ok)?;
        Ok(ControllerSettings {
            state_dir,
            policy,
            ports: ports.from..=ports.to,
            workers,
            resync: resync.get(),
            adopt: self.adopt.unwrap_or(false),
        })
    }
}

fn default_state_dir(host: &Host) -> Result<PathBuf, SettingsError> {
    if host.is_root() {
        return Ok(PathBuf::from("/var/lib/podherd"));
    }
    let in_home = || host.home.as_ref().map(|home| home.join(".local/state"));
    let Some(state) = host.state_home.clone().or_else(in_home) else {
        return Err(wrong(
            "--state-dir",
            "this user has no home: say --state-dir DIR",
        ));
    };
    Ok(state.join("podherd"))
}

/// Host ports, written `20000-29999`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PortRange {
    from: u16,
    to: u16,
}

/// Why a text is no range of ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} isn't a range of ports from 1024 up, as in 20000-29999")]
pub struct PortRangeError(String);

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let error = || PortRangeError(text.to_owned());
        let (from, to) = text.split_once('-').ok_or_else(error)?;
        let port = |text: &str| text.trim().parse::<u16>().map_err(|_| error());
        let (from, to) = (port(from)?, port(to)?);
        if from < 1024 || from > to {
            return Err(error());
        }
        Ok(Self { from, to })
    }
}

impl TryFrom<String> for PortRange {
    type Error = PortRangeError;

    fn try_from(text: String) -> Result<Self, PortRangeError> {
        text.parse()
    }
}
