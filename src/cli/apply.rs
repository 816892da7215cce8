//! `podherd apply`: manifests from files into etcd, all or nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::bail;

use super::WELL;
use super::client::{Client, Reach};
use super::desired::{Desired, Fate, Label};
use super::manifests::{self, Manifest};
use super::output::print;
use super::waiting::{USUAL, Wanted, wait_all, warn_without_controller};
use crate::manifest::{AppName, Timespan};
use crate::state::{ConditionType, Ownership, Truth};

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Manifests: files with one or more documents, folders of .yaml, .yml and .json
    /// files, or - for standard input
    #[arg(short, long = "filename", required = true, value_name = "FILE|DIR|-")]
    files: Vec<PathBuf>,
    /// Wait until all of them are ready. Ends at once when one is refused
    #[arg(long)]
    wait: bool,
    /// For how long at most
    #[arg(long, value_name = "TIME", default_value = USUAL)]
    timeout: Timespan,
    /// Check, and say what would be done; write nothing
    #[arg(long)]
    dry_run: bool,
    /// Delete the apps with the labels of -l that aren't among the manifests
    #[arg(long, requires = "selector")]
    prune: bool,
    /// Labels of the apps that --prune may delete
    #[arg(
        short = 'l',
        long,
        value_name = "NAME=VALUE,…",
        value_delimiter = ',',
        requires = "prune"
    )]
    selector: Vec<Label>,
    #[command(flatten)]
    reach: Reach,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<u8> {
    let manifests = manifests::load(&arguments.files)?;
    let client = arguments.reach.connect().await?;
    let desired = Desired::load(&client).await?;
    let gone = if arguments.prune {
        desired.outside(&manifests, &arguments.selector)
    } else {
        Vec::new()
    };
    refuse_protected(&client, &gone).await?;
    let fates: Vec<_> = manifests.iter().map(|it| (it, desired.fate(it))).collect();
    let put = fates.iter().filter(|(_, fate)| *fate != Fate::Unchanged);
    let put: Vec<&Manifest> = put.map(|(manifest, _)| *manifest).collect();
    let mut revision = 0;
    let changes = !put.is_empty() || !gone.is_empty();
    if changes && !arguments.dry_run {
        revision = desired.write(&client, &put, &gone).await?;
    }
    print(&said(&fates, &gone, arguments.dry_run))?;
    if !arguments.wait || arguments.dry_run {
        return Ok(WELL);
    }
    warn_without_controller(&client).await?;
    let mut wanted: BTreeMap<AppName, Wanted> = BTreeMap::new();
    for (manifest, _) in &fates {
        let name = &manifest.app.name;
        let before = desired.get(name).map(|entry| entry.mod_revision);
        let unchanged = desired.fate(manifest) == Fate::Unchanged;
        let at = before.filter(|_| unchanged).unwrap_or(revision);
        let ready = Wanted::Condition(ConditionType::Ready, Truth::True, at);
        _ = wanted.insert(name.clone(), ready);
    }
    wanted.extend(gone.into_iter().map(|app| (app, Wanted::Deleted)));
    wait_all(&client, &wanted, arguments.timeout).await
}

/// An app that is protected isn't deleted by deleting its key.
pub(super) async fn refuse_protected(client: &Client, apps: &[AppName]) -> anyhow::Result<()> {
    for app in apps {
        let ownership = client.one::<Ownership>(client.keys.ownership(app)).await?;
        if ownership.is_some_and(|kept| kept.record.deletion_protection) {
            bail!(
                "app {app} is protected, nothing was done: apply it with deletionProtection: false \
                 first, or say podherd remove {app} --force"
            );
        }
    }
    Ok(())
}

fn said(fates: &[(&Manifest, Fate)], gone: &[AppName], dry: bool) -> String {
    let dry = if dry { " (dry run)" } else { "" };
    let fates = fates
        .iter()
        .map(|(manifest, fate)| (&manifest.app.name, *fate));
    let gone = gone.iter().map(|app| (app, Fate::Pruned));
    let lines = fates.chain(gone);
    let mut text = String::new();
    for (app, fate) in lines {
        // A string can't refuse.
        _ = writeln!(text, "{app} {}{dry}", fate.as_str());
    }
    text
}
