//! `podherd secret`: secrets that belong to one incarnation of an app. A value goes
//! from standard input into this host's Podman, and nowhere else: never into etcd.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Subcommand;

use super::holdings::{Chosen, Place, Reach};
use super::table::table;
use crate::clock::Entropy;
use crate::manifest::{self, AppName, SecretName, SecretRef, ServiceSpec};
use crate::runtime::{Labels, Runtime, RuntimeError, SecretValue};
use crate::state::{
    ConditionType, Incarnation, OperationId, labels, own_prefix, podman_name, references,
};
use crate::store::{AppRecords, Txn};

/// How long a manifest that was put just now may take to be looked at.
const BEGINS: Duration = Duration::from_secs(15);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// More than Podman takes shows that it is too large.
const READ: u64 = 1024 * 1024;
/// Why an app that lacks a secret isn't deployed.
const WAITS: &str = "SecretMissing";

/// Its commands.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Set a secret of the app to what is on standard input, byte for byte. The manifest
    /// names it as {app: NAME}
    Set {
        #[command(flatten)]
        secret: Named,
        #[command(flatten)]
        reach: Reach,
    },
    /// List the secrets of an app, or of an ended incarnation, without their values
    List {
        /// The app, or an incarnation's UUID
        #[arg(value_name = "APP|UUID")]
        of: String,
        #[command(flatten)]
        reach: Reach,
    },
    /// Delete a secret that no service of the app uses
    Delete {
        #[command(flatten)]
        secret: Named,
        #[command(flatten)]
        reach: Reach,
    },
}

/// Which secret.
#[derive(Debug, clap::Args)]
struct Named {
    /// The app
    app: AppName,
    /// The secret's name within the app
    name: SecretName,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let said = match arguments.command {
        Command::Set { secret, reach } => {
            let value = read_value()?;
            set(&reach.connect().await?, &secret, &value).await?
        }
        Command::List { of, reach } => list(&reach.connect().await?, &of).await?,
        Command::Delete { secret, reach } => delete(&reach.connect().await?, &secret).await?,
    };
    Ok(io::stdout().write_all(said.as_bytes())?)
}

fn read_value() -> anyhow::Result<SecretValue> {
    let input = io::stdin();
    if input.is_terminal() {
        bail!("give the value on standard input, as in: podherd secret set APP NAME < FILE");
    }
    let mut bytes = Vec::new();
    _ = input.lock().take(READ).read_to_end(&mut bytes)?;
    Ok(SecretValue::new(bytes)?)
}

impl Named {
    fn podman(&self, incarnation: Incarnation) -> String {
        let secret = SecretRef::App(self.name.clone());
        podman_name(&self.app, incarnation, &secret)
    }

    fn labels(&self, incarnation: Incarnation) -> Labels {
        Labels::from([
            (labels::APP.to_owned(), self.app.to_string()),
            (labels::INCARNATION.to_owned(), incarnation.to_string()),
            (labels::SECRET.to_owned(), self.name.to_string()),
        ])
    }
}

async fn set(place: &Place, secret: &Named, value: &SecretValue) -> anyhow::Result<String> {
    let (records, incarnation) = live(place, &secret.app).await?;
    let podman = secret.podman(incarnation);
    let runtime = place.runtime.as_ref();
    let existed = check_ours(runtime, &podman, incarnation).await?;
    if existed {
        // Podman 4.3 can't replace one in place.
        runtime.remove_secret(&podman).await?;
    }
    let created = create(runtime, &podman, value, &secret.labels(incarnation)).await;
    created.with_context(|| {
        let lost = if existed {
            ": the old value is gone"
        } else {
            ""
        };
        format!("secret {} isn't set{lost}; set it again", secret.name)
    })?;
    let mut said = format!(
        "secret {} of {} is set, as Podman's {podman}\n",
        secret.name, secret.app
    );
    if waits(&records) {
        ask_for_deployment(place, &secret.app).await?;
        said.push_str("the app waited for a secret: its deployment is asked for\n");
    } else if existed && !users(&records, &secret.app, &secret.name).is_empty() {
        said.push_str("what runs has the old value until a restart or a deployment\n");
    }
    Ok(said)
}

/// Creates it; a lost answer isn't a failure.
async fn create(
    runtime: &dyn Runtime,
    podman: &str,
    value: &SecretValue,
    labels: &Labels,
) -> Result<(), RuntimeError> {
    match runtime.create_secret(podman, value, labels).await {
        Err(error)
            if error.is_ambiguous() && runtime.secret(podman).await?.as_ref() == Some(labels) =>
        {
            Ok(())
        }
        created => created,
    }
}

/// The app's records and its live incarnation. One with secrets of its own begins its
/// incarnation as soon as its manifest is looked at: that is waited for.
async fn live(place: &Place, app: &AppName) -> anyhow::Result<(AppRecords, Incarnation)> {
    let end = tokio::time::Instant::now() + BEGINS;
    loop {
        let records = place.client.records().load(app).await?;
        if let Some(ownership) = &records.ownership {
            let incarnation = ownership.incarnation;
            return Ok((records, incarnation));
        }
        if records.manifest.is_none() {
            bail!(
                "there is no app {app}: put its manifest first, with the secret in it as \
                 {{app: NAME}}; the app is deployed once the secret is set"
            );
        }
        if tokio::time::Instant::now() >= end {
            bail!(
                "app {app} has a manifest, but owns nothing yet: does a controller run, is the \
                 manifest accepted (see its status), and does it name the secret as {{app: NAME}}?"
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether there is such a secret; refuses somebody else's.
async fn check_ours(
    runtime: &dyn Runtime,
    podman: &str,
    incarnation: Incarnation,
) -> anyhow::Result<bool> {
    match runtime.secret(podman).await? {
        None => Ok(false),
        Some(found) if found.get(labels::INCARNATION) == Some(&incarnation.to_string()) => Ok(true),
        Some(_) => {
            bail!("Podman's secret {podman} doesn't have this app's labels; it is left alone")
        }
    }
}

/// Whether the app isn't deployed for lack of a secret.
fn waits(records: &AppRecords) -> bool {
    let status = records.status.iter();
    let mut conditions = status.flat_map(|kept| &kept.record.conditions);
    conditions.any(|it| it.r#type == ConditionType::Ready && it.reason == WAITS)
}

async fn ask_for_deployment(place: &Place, app: &AppName) -> anyhow::Result<()> {
    let id = format!("secret-{}", Entropy::from_system().uuid());
    let key = place.client.keys.request(app, &OperationId::new(id));
    let request = Txn::default().put(key, b"verb: deploy".to_vec());
    let asked = place.client.store.commit(request).await;
    asked.context(
        "the secret is set, but its deployment couldn't be asked for: it comes with the next try",
    )?;
    Ok(())
}

/// The services that use the secret, by what serves and by the manifest.
fn users(records: &AppRecords, app: &AppName, secret: &SecretName) -> BTreeSet<String> {
    used(records, app).remove(secret).unwrap_or_default()
}

/// The app's own secrets by what serves and by the manifest, with who uses each.
fn used(records: &AppRecords, app: &AppName) -> BTreeMap<SecretName, BTreeSet<String>> {
    let mut used: BTreeMap<SecretName, BTreeSet<String>> = BTreeMap::new();
    let mut note = |service: String, spec: &ServiceSpec| {
        for secret in references(spec) {
            if let SecretRef::App(name) = secret {
                used.entry(name.clone())
                    .or_default()
                    .insert(service.clone());
            }
        }
    };
    for name in records.active.services.keys() {
        if let Some(pinned) = records.active.pinned(name, &records.revisions) {
            note(name.to_string(), &pinned.spec);
        }
    }
    let manifest = records.manifest.as_ref();
    let parsed = manifest.and_then(|entry| manifest::parse(app.as_str(), &entry.value).ok());
    for (name, spec) in parsed.iter().flat_map(|parsed| &parsed.spec.services) {
        note(name.to_string(), spec);
    }
    used
}

async fn delete(place: &Place, secret: &Named) -> anyhow::Result<String> {
    let (records, incarnation) = live(place, &secret.app).await?;
    let users = users(&records, &secret.app, &secret.name);
    if !users.is_empty() {
        let users: Vec<_> = users.into_iter().collect();
        bail!(
            "secret {} is used by {}: take it out of the manifest first",
            secret.name,
            users.join(", ")
        );
    }
    let podman = secret.podman(incarnation);
    if !check_ours(place.runtime.as_ref(), &podman, incarnation).await? {
        bail!("{} has no secret {}", secret.app, secret.name);
    }
    place.runtime.remove_secret(&podman).await?;
    Ok(format!(
        "secret {} of {} is deleted\n",
        secret.name, secret.app
    ))
}

async fn list(place: &Place, of: &str) -> anyhow::Result<String> {
    let incarnations = place.incarnations().await?;
    let mut rows = Vec::new();
    for chosen in incarnations.chosen(Some(of))? {
        let (app, incarnation, state) = match &chosen {
            Chosen::Live(app, live) => (*app, live.incarnation, "live"),
            Chosen::Ended(ended) => (&ended.app, ended.incarnation, "retained"),
        };
        let mut used = match chosen {
            Chosen::Live(..) => used(&place.client.records().load(app).await?, app),
            Chosen::Ended(_) => BTreeMap::new(),
        };
        for (name, updated) in own(place.runtime.as_ref(), app, incarnation).await? {
            let users = name
                .parse()
                .ok()
                .and_then(|name: SecretName| used.remove(&name));
            rows.push(row(state, app, incarnation, name, updated, users));
        }
        for (name, users) in used {
            let never = "not set".to_owned();
            rows.push(row(
                state,
                app,
                incarnation,
                name.into(),
                never,
                Some(users),
            ));
        }
    }
    let headings = [
        "STATE",
        "APP",
        "INCARNATION",
        "SECRET",
        "UPDATED",
        "USED BY",
    ];
    Ok(table(&headings, &rows))
}

fn row(
    state: &str,
    app: &AppName,
    incarnation: Incarnation,
    name: String,
    updated: String,
    users: Option<BTreeSet<String>>,
) -> [String; 6] {
    let users: Vec<_> = users.into_iter().flatten().collect();
    let users = if users.is_empty() {
        "-".to_owned()
    } else {
        users.join(",")
    };
    let (app, incarnation) = (app.to_string(), incarnation.to_string());
    [state.to_owned(), app, incarnation, name, updated, users]
}

/// The secrets of an incarnation, by their names within the app, and when each was set.
async fn own(
    runtime: &dyn Runtime,
    app: &AppName,
    incarnation: Incarnation,
) -> anyhow::Result<Vec<(String, String)>> {
    let prefix = own_prefix(app, incarnation);
    let mut own = Vec::new();
    for secret in runtime.secrets().await? {
        if let Some(name) = secret.name.strip_prefix(&prefix)
            && check_ours(runtime, &secret.name, incarnation)
                .await
                .unwrap_or(false)
        {
            own.push((name.to_owned(), format!("{:.0}", secret.version.updated_at)));
        }
    }
    own.sort();
    Ok(own)
}
