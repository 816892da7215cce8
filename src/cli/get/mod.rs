//! `podherd get`: lists what is in etcd.

mod apps;
mod changes;
mod inhibitions;
mod nodes;
mod operations;
mod revisions;
mod routes;
mod services;

use clap::ValueEnum;

use super::client::{Client, Reach};
use super::output::{Format, Listing};
use crate::manifest::AppName;

pub(super) use apps::{RowOfApp, condition, truth};
pub(super) use changes::changes;
pub(super) use operations::{outcome, took};
pub(super) use revisions::serving;
pub(super) use services::{ports, short};

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// What to list
    #[arg(value_enum)]
    what: What,
    /// Only of this app [default: all]
    #[arg(value_name = "APP")]
    app: Option<AppName>,
    /// How it is shown
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    reach: Reach,
}

/// What can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// The apps, with how they are
    #[value(alias = "app")]
    Apps,
    /// Their services
    #[value(alias = "service", alias = "svc")]
    Services,
    /// The journal: what was done, and what came of it
    #[value(alias = "operation", alias = "op", alias = "ops")]
    Operations,
    /// The numbered, pinned copies of manifests
    #[value(alias = "revision", alias = "rev")]
    Revisions,
    /// The containers that may never be started again
    #[value(alias = "inhibition")]
    Inhibitions,
    /// The published routes
    #[value(alias = "route")]
    Routes,
    /// The hosts
    #[value(alias = "node")]
    Nodes,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let client = arguments.reach.connect().await?;
    let app = arguments.app.as_ref();
    if let Some(app) = app {
        client.must_know(app).await?;
    }
    let (what, format) = (arguments.what, arguments.output);
    if let (What::Apps, Some(app), Format::Yaml | Format::Json) = (what, app, format) {
        return super::output::print(&apps::one(&client, app, format).await?);
    }
    listing(&client, what, app).await?.print(format)
}

async fn listing(client: &Client, what: What, app: Option<&AppName>) -> anyhow::Result<Listing> {
    match what {
        What::Apps => apps::list(client, app).await,
        What::Services => services::list(client, app).await,
        What::Operations => operations::list(client, app).await,
        What::Revisions => revisions::list(client, app).await,
        What::Inhibitions => inhibitions::list(client, app).await,
        What::Routes => routes::list(client, app).await,
        What::Nodes => nodes::list(client).await,
    }
}

/// Whether this is the app, or any will do.
fn is_wanted(app: Option<&AppName>, name: &str) -> bool {
    app.is_none_or(|app| app.as_str() == name)
}
