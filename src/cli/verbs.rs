//! `podherd stop`, `start`, `restart`, `remove`, `rollback` and `deploy`: each is one
//! request, followed to its outcome.

use super::request::How;
use crate::manifest::{AppName, ServiceName};
use crate::state::{Asked, AskedVerb, RevisionNumber};

/// Options of a verb for a whole app.
#[derive(Debug, clap::Args)]
pub(super) struct OfApp {
    /// The app
    app: AppName,
    #[command(flatten)]
    how: How,
}

/// Options of a verb that one service can be asked for.
#[derive(Debug, clap::Args)]
pub(super) struct OfService {
    /// The app
    app: AppName,
    /// Only this service
    #[arg(long, value_name = "NAME")]
    service: Option<ServiceName>,
    #[command(flatten)]
    how: How,
}

/// Options of a removal.
#[derive(Debug, clap::Args)]
pub(super) struct Remove {
    /// The app. Its manifest and containers go; volumes, images and secrets stay
    app: AppName,
    /// In spite of deletionProtection
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    how: How,
}

/// Options of a rollback.
#[derive(Debug, clap::Args)]
pub(super) struct Rollback {
    /// The app
    app: AppName,
    /// The revision to go back to; podherd history lists them
    #[arg(long, value_name = "REVISION")]
    to: u64,
    #[command(flatten)]
    how: How,
}

fn asked(verb: AskedVerb) -> Asked {
    Asked {
        verb,
        service: None,
        revision: None,
        force: false,
        container: None,
        note: None,
    }
}

/// Asks for a verb that takes no more than the app.
pub(super) async fn of_app(verb: AskedVerb, arguments: OfApp) -> anyhow::Result<u8> {
    let OfApp { app, how } = arguments;
    how.ask(&app, &asked(verb)).await
}

/// Asks for a verb, for one service or for all.
pub(super) async fn of_service(verb: AskedVerb, arguments: OfService) -> anyhow::Result<u8> {
    let OfService { app, service, how } = arguments;
    let asked = Asked {
        service,
        ..asked(verb)
    };
    how.ask(&app, &asked).await
}

pub(super) async fn remove(arguments: Remove) -> anyhow::Result<u8> {
    let Remove { app, force, how } = arguments;
    let asked = Asked {
        force,
        ..asked(AskedVerb::Remove)
    };
    how.ask(&app, &asked).await
}

pub(super) async fn rollback(arguments: Rollback) -> anyhow::Result<u8> {
    let Rollback { app, to, how } = arguments;
    let asked = Asked {
        revision: Some(RevisionNumber(to)),
        ..asked(AskedVerb::Rollback)
    };
    how.ask(&app, &asked).await
}
