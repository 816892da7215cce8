//! Where Podman's socket is.

use std::path::{Path, PathBuf};

use super::{File, Host, SettingsError, wrong};

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
}

impl PodmanOptions {
    /// The socket's path.
    ///
    /// # Errors
    /// When what was said isn't a socket's URL.
    pub fn resolve(self, file: &File, host: &Host) -> Result<PathBuf, SettingsError> {
        let Some(said) = self.podman.or_else(|| file.podman.clone()) else {
            return Ok(default_socket(host));
        };
        let path = Path::new(said.strip_prefix("unix://").unwrap_or(&said));
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
