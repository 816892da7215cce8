//! Where Podman's socket is, and how images are pulled.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{File, Host, SettingsError, wrong};
use crate::manifest::Timespan;

const PULL_TIMEOUT: Timespan = Timespan::from_secs(15 * 60);
const PULL_STALL: Timespan = Timespan::from_secs(2 * 60);
const SHORTEST: Timespan = Timespan::from_secs(1);

/// What may be said about Podman.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Podman")]
pub struct PodmanOptions {
    /// Podman's socket, as in unix:///run/podman/podman.sock [default: the one of
    /// this user: /run/podman/podman.sock for root, else podman/podman.sock in
    /// $XDG_RUNTIME_DIR]
    #[arg(
        long,
        env = "PODHERD_PODMAN",
        value_name = "URL",
        hide_env_values = true
    )]
    pub podman: Option<String>,
    /// Credentials for registries, as podman login --authfile writes them; read at
    /// each pull. For a registry that it doesn't name, and without it, Podman's own
    /// files count: containers/auth.json in $XDG_RUNTIME_DIR or /run/containers/0,
    /// then ~/.config/containers/auth.json and ~/.docker/config.json
    #[arg(
        long,
        env = "PODHERD_AUTH_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub auth_file: Option<PathBuf>,
    /// How long a pull may take [default: 15m]
    #[arg(
        long,
        env = "PODHERD_PULL_TIMEOUT",
        value_name = "DURATION",
        hide_env_values = true
    )]
    pub pull_timeout: Option<Timespan>,
    /// How long a pull may go without a byte from the registry [default: 2m]
    #[arg(
        long,
        env = "PODHERD_PULL_STALL",
        value_name = "DURATION",
        hide_env_values = true
    )]
    pub pull_stall: Option<Timespan>,
}

/// Where Podman is, and how it pulls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodmanSettings {
    /// The socket's path.
    pub socket: PathBuf,
    /// Credentials for registries.
    pub auth_file: Option<PathBuf>,
    /// How long a pull may take.
    pub pull_timeout: Duration,
    /// How long a pull may go without a byte.
    pub pull_stall: Duration,
}

impl PodmanOptions {
    /// The settings.
    ///
    /// # Errors
    /// When what was said isn't a socket's URL, or a file or a span is no use.
    pub fn resolve(self, file: &File, host: &Host) -> Result<PodmanSettings, SettingsError> {
        let said = self.podman.or_else(|| file.podman.clone());
        let auth_file = self.auth_file.or_else(|| file.auth_file.clone());
        if let Some(path) = auth_file.as_deref().filter(|path| !path.is_absolute()) {
            return Err(wrong(
                "--auth-file",
                format!("{} isn't a path from / on", path.display()),
            ));
        }
        let span = |flag, said: Option<Timespan>, usual| match said.unwrap_or(usual) {
            span if span < SHORTEST => {
                Err(wrong(flag, format!("{span} is too short: say 1s or more")))
            }
            span => Ok(span.get()),
        };
        let timeout = self.pull_timeout.or(file.pull_timeout);
        let stall = self.pull_stall.or(file.pull_stall);
        Ok(PodmanSettings {
            socket: said.map_or_else(|| Ok(default_socket(host)), |said| socket(&said))?,
            auth_file,
            pull_timeout: span("--pull-timeout", timeout, PULL_TIMEOUT)?,
            pull_stall: span("--pull-stall", stall, PULL_STALL)?,
        })
    }
}

fn socket(said: &str) -> Result<PathBuf, SettingsError> {
    let path = Path::new(said.strip_prefix("unix://").unwrap_or(said));
    if path.is_absolute() {
        Ok(path.to_owned())
    } else {
        Err(wrong(
            "--podman",
            format!(
                "{said:?} isn't of the form unix:///run/podman/podman.sock; Podherd works on its own host's Podman only"
            ),
        ))
    }
}

fn default_socket(host: &Host) -> PathBuf {
    let run = if host.is_root() {
        PathBuf::from("/run")
    } else {
        let of_user = || PathBuf::from(format!("/run/user/{}", host.uid));
        host.runtime_dir.clone().unwrap_or_else(of_user)
    };
    run.join("podman/podman.sock")
}
