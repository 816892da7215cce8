//! What this host lets manifests have.

use std::path::PathBuf;

use super::{File, SettingsError, wrong};
use crate::policy::NodePolicy;

/// What may be said about the policy.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Host")]
pub struct PolicyOptions {
    /// YAML file of what manifests may have of this host: registries, host paths,
    /// devices, privileges. It is read again when it changes [default: images of
    /// every registry, and nothing of the host]
    #[arg(
        long,
        env = "PODHERD_POLICY",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub policy: Option<PathBuf>,
}

impl PolicyOptions {
    /// The file's path.
    ///
    /// # Errors
    /// When the file can't be read now, or isn't a policy.
    pub fn resolve(self, file: &File) -> Result<Option<PathBuf>, SettingsError> {
        let path = self.policy.or_else(|| file.policy.clone());
        if let Some(path) = &path {
            NodePolicy::check(path).map_err(|error| wrong("--policy", error.to_string()))?;
        }
        Ok(path)
    }
}
