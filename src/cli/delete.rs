//! `podherd delete`: takes manifests out of etcd; the controller removes the apps.

use super::WELL;
use super::apply::refuse_protected;
use super::client::Reach;
use super::desired::Desired;
use super::output::print;
use super::waiting::{USUAL, Wanted, wait_all, warn_without_controller};
use crate::manifest::{AppName, Timespan};

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The apps. Their containers go; volumes, images and secrets stay
    #[arg(value_name = "APP", required = true)]
    apps: Vec<AppName>,
    /// Wait until they are gone
    #[arg(long)]
    wait: bool,
    /// For how long at most
    #[arg(long, value_name = "TIME", default_value = USUAL)]
    timeout: Timespan,
    #[command(flatten)]
    reach: Reach,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<u8> {
    let client = arguments.reach.connect().await?;
    for app in &arguments.apps {
        client.must_know(app).await?;
    }
    let desired = Desired::load(&client).await?;
    let there = arguments
        .apps
        .iter()
        .filter(|app| desired.get(app).is_some());
    let there: Vec<AppName> = there.cloned().collect();
    refuse_protected(&client, &there).await?;
    if !there.is_empty() {
        _ = desired.write(&client, &[], &there).await?;
    }
    let line = |app| format!("{app} deleted\n");
    print(&arguments.apps.iter().map(line).collect::<String>())?;
    if !arguments.wait {
        return Ok(WELL);
    }
    warn_without_controller(&client).await?;
    let wanted = arguments.apps.into_iter().map(|app| (app, Wanted::Deleted));
    wait_all(&client, &wanted.collect(), arguments.timeout).await
}
