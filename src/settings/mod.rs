//! How Podherd is set up: flags, then the environment, then a YAML file.
//!
//! Each concern is a file with two structs: what may be said (`…Options`, on the
//! command line or in the environment) and what follows from it (`…Settings`,
//! complete and checked). [`File`] is what may be said in the YAML file: the
//! same, under the flags' names without the dashes. `resolve` is where a concern
//! takes the first of flag, environment, file and default, and checks it.

// The comments of options are what `--help` shows: plain text.
#![allow(clippy::doc_markdown, rustdoc::bare_urls, rustdoc::invalid_html_tags)]

mod controller;
mod etcd;
mod file;
mod host;
mod log;
mod node;
mod podman;
mod policy;
mod proxy;

use std::path::{Path, PathBuf};

pub use controller::{ControllerOptions, ControllerSettings, PortRange};
pub use etcd::{EtcdChoice, EtcdOptions, LocalEtcdOptions, LocalEtcdSettings};
pub use file::File;
pub use host::Host;
pub use log::{ListenOptions, LogOptions, LogSettings};
pub use node::NodeOptions;
pub use podman::{PodmanOptions, PodmanSettings};
pub use policy::PolicyOptions;
pub use proxy::{ProxyOptions, ProxySettings};

/// Where the YAML file is.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ConfigOption {
    /// YAML file with further settings: each flag's name without the dashes is a
    /// key, as in `etcd: [http://127.0.0.1:2379]`. A flag wins over the
    /// environment, the environment over the file.
    #[arg(
        long,
        env = "PODHERD_CONFIG",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,
}

impl ConfigOption {
    /// The file's settings; none without a file.
    ///
    /// # Errors
    /// When the file can't be read, or says something that isn't a setting.
    pub fn load(&self) -> Result<File, SettingsError> {
        self.config
            .as_deref()
            .map_or_else(|| Ok(File::default()), File::read)
    }
}

/// Why the settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A file that a setting names can't be read.
    #[error("{setting}: {} can't be read: {source}", path.display())]
    Unreadable {
        /// The flag.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The YAML file is wrong.
    #[error("{}{}: {message}", path.display(), place.map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default())]
    File {
        /// The file.
        path: PathBuf,
        /// Line and column, where they are known.
        place: Option<(usize, usize)>,
        /// What is wrong and what to do.
        message: String,
    },
    /// A setting is wrong or missing.
    #[error("{setting}: {problem}")]
    Wrong {
        /// The flag.
        setting: &'static str,
        /// What is wrong and what to do.
        problem: String,
    },
}

fn wrong(setting: &'static str, problem: impl Into<String>) -> SettingsError {
    SettingsError::Wrong {
        setting,
        problem: problem.into(),
    }
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, SettingsError> {
    std::fs::read(path).map_err(|source| SettingsError::Unreadable {
        setting,
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
