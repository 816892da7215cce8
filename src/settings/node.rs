//! This host's name.

use super::{File, Host, SettingsError, wrong};
use crate::manifest::NodeName;

/// What may be said about this host.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Host")]
pub struct NodeOptions {
    /// This host's name among Podherd's hosts [default: the first part of its host name]
    #[arg(
        long,
        env = "PODHERD_NODE",
        value_name = "NAME",
        hide_env_values = true
    )]
    pub node: Option<NodeName>,
}

impl NodeOptions {
    /// The name.
    ///
    /// # Errors
    /// When none was given and the host's own can't be used.
    pub fn resolve(self, file: &File, host: &Host) -> Result<NodeName, SettingsError> {
        if let Some(said) = self.node.or_else(|| file.node.clone()) {
            return Ok(said);
        }
        let first = host.name.split('.').next().unwrap_or_default();
        first.to_ascii_lowercase().parse().map_err(|error| {
            wrong(
                "--node",
                format!("this host's own name can't be used ({error}); say --node NAME"),
            )
        })
    }
}
