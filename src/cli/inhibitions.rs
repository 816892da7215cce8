//! `podherd inhibitions clear`: a person answers for it that a container may be started
//! again. State is the controller's to write, so this is a request, journaled with who
//! asked and why.

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::bail;
use clap::Subcommand;

use super::client::Client;
use super::request::How;
use crate::manifest::AppName;
use crate::settings::Host;
use crate::state::{Asked, AskedVerb, Inhibition};

/// Its commands.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Let a container be started again
    Clear(Clear),
}

/// Options of a clearance.
#[derive(Debug, clap::Args)]
struct Clear {
    /// The app
    app: AppName,
    /// The container, or the beginning of its ID; podherd get inhibitions lists them
    container: String,
    /// Why; it stays in the journal, with who asked
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
    /// Don't ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    how: How,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<u8> {
    let Command::Clear(Clear {
        app,
        container,
        why,
        yes,
        how,
    }) = arguments.command;
    let client = how.connect().await?;
    let inhibition = find(&client, &app, &container).await?;
    if !yes {
        confirm(&app, &inhibition)?;
    }
    let why = why.unwrap_or_else(|| "no reason was given".to_owned());
    let asked = Asked {
        verb: AskedVerb::ClearInhibition,
        service: None,
        revision: None,
        force: false,
        container: Some(inhibition.container),
        note: Some(format!("{}: {why}", who())),
    };
    how.ask_by(&client, &app, &asked).await
}

async fn find(client: &Client, app: &AppName, container: &str) -> anyhow::Result<Inhibition> {
    client.must_know(app).await?;
    let all = client
        .list::<Inhibition>(client.keys.inhibitions(app))
        .await?;
    let mut found = all.into_iter().map(|found| found.record);
    let mut found = found
        .by_ref()
        .filter(|it| it.container.as_str().starts_with(container));
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => bail!("{container} is the beginning of several IDs: say more of it"),
        (None, _) => bail!(
            "no container {container} of {app} is inhibited; see podherd get inhibitions {app}"
        ),
    }
}

fn confirm(app: &AppName, inhibition: &Inhibition) -> anyhow::Result<()> {
    let Inhibition {
        service,
        container,
        reason,
        ..
    } = inhibition;
    if !io::stdin().is_terminal() {
        bail!("nobody can be asked here: say --yes to let container {container} be started again");
    }
    let mut error = io::stderr();
    write!(
        error,
        "Container {container} of {app}/{service} is inhibited: {}. Newer data may be in its \
         volumes. Let it be started again? [y/N] ",
        reason.as_str()
    )?;
    error.flush()?;
    let mut answer = String::new();
    _ = io::stdin().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        bail!("nothing was asked for")
    }
}

/// Who sits here: the user behind sudo too.
fn who() -> String {
    let user = ["SUDO_USER", "USER", "LOGNAME"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok());
    let here = Host::here();
    format!(
        "{}@{}",
        user.unwrap_or_else(|| here.uid.to_string()),
        here.name
    )
}
