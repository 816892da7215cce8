//! `podherd purge`: deletes for good exactly one thing that an ended incarnation left.
//!
//! Whoever may use this host's Podman may delete its volumes; a request in etcd may
//! not, so that writing manifests is never enough to lose data. The record of what is
//! retained is corrected afterwards, by a transaction that compares its revision: the
//! controller writes it once, when the incarnation ends. Cut off in between, it lists
//! what is gone, and the same command again mends that.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _, Write as _};

use anyhow::{Context as _, bail};
use uuid::Uuid;

use super::holdings::{Place, Reach};
use crate::runtime::{Labels, Runtime, RuntimeError};
use crate::state::{Incarnation, Resources, Retained, encode, labels, own_prefix};
use crate::store::{Commit, Kept, Target, Txn};

/// How often the record may change while it is being corrected.
const TRIES: u32 = 5;

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// UUID of the ended incarnation, as `podherd volumes` shows it
    #[arg(value_name = "UUID")]
    incarnation: Uuid,
    #[command(flatten)]
    thing: Thing,
    /// Don't ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    reach: Reach,
}

/// What is deleted.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Thing {
    /// A volume: its name within the app, or Podman's
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,
    /// A secret: its name within the app, or Podman's
    #[arg(long, value_name = "NAME")]
    secret: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Volume,
    Secret,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Secret => "secret",
        }
    }

    fn listed(self, resources: &Resources) -> &BTreeSet<String> {
        match self {
            Self::Volume => &resources.volumes,
            Self::Secret => &resources.secrets,
        }
    }

    async fn look(self, runtime: &dyn Runtime, name: &str) -> Result<Option<Labels>, RuntimeError> {
        match self {
            Self::Volume => runtime.volume(name).await,
            Self::Secret => runtime.secret(name).await,
        }
    }

    async fn remove(self, runtime: &dyn Runtime, name: &str) -> Result<(), RuntimeError> {
        match self {
            Self::Volume => runtime.remove_volume(name).await,
            Self::Secret => runtime.remove_secret(name).await,
        }
    }
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let (kind, named) = match (arguments.thing.volume, arguments.thing.secret) {
        (Some(name), _) => (Kind::Volume, name),
        (None, Some(name)) => (Kind::Secret, name),
        (None, None) => bail!("say which --volume or --secret"),
    };
    let place = arguments.reach.connect().await?;
    let incarnation = Incarnation(arguments.incarnation);
    let ended = ended(&place, incarnation).await?.record;
    let name = retained_name(&ended, kind, &named)?;
    let runtime = place.runtime.as_ref();
    match kind.look(runtime, &name).await? {
        None => {}
        Some(found) if found.get(labels::INCARNATION) == Some(&incarnation.to_string()) => {
            if !arguments.yes {
                confirm(&ended, kind, &name)?;
            }
            kind.remove(runtime, &name).await?;
        }
        Some(_) => bail!(
            "{} {name} doesn't have the labels of incarnation {incarnation}; it is left alone",
            kind.name()
        ),
    }
    strike(&place, incarnation, kind, &name).await?;
    super::say(&format!("{} {name} is gone", kind.name()))
}

/// The record of an incarnation that has ended; refuses a live one.
async fn ended(place: &Place, incarnation: Incarnation) -> anyhow::Result<Kept<Retained>> {
    let mut all = place.incarnations().await?;
    if let Some((app, _)) = all.live.get(&incarnation) {
        bail!("app {app} lives: only what a removed app left can be purged");
    }
    all.ended
        .remove(&incarnation)
        .with_context(|| format!("no ended incarnation {incarnation} is known here"))
}

/// Podman's name of what is retained, from that or the name within the app.
fn retained_name(ended: &Retained, kind: Kind, named: &str) -> anyhow::Result<String> {
    let full = format!("{}{named}", own_prefix(&ended.app, ended.incarnation));
    let listed = kind.listed(&ended.resources);
    let found = [named, &full]
        .into_iter()
        .find(|name| listed.contains(*name));
    match found {
        Some(name) => Ok(name.to_owned()),
        None if listed.is_empty() => bail!("that incarnation retains no {}", kind.name()),
        None => {
            let listed: Vec<_> = listed.iter().map(String::as_str).collect();
            bail!(
                "that incarnation retains no {} {named}, but {}",
                kind.name(),
                listed.join(", ")
            )
        }
    }
}

fn confirm(ended: &Retained, kind: Kind, name: &str) -> anyhow::Result<()> {
    let input = io::stdin();
    if !input.is_terminal() {
        bail!(
            "nobody can be asked here: say --yes to delete {} {name}",
            kind.name()
        );
    }
    let mut error = io::stderr();
    write!(
        error,
        "Delete for good the {} {name} of {}, removed at {:.0}? [y/N] ",
        kind.name(),
        ended.app,
        ended.ended_at
    )?;
    error.flush()?;
    let mut answer = String::new();
    _ = input.read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        bail!("nothing was deleted")
    }
}

/// Takes it from the record.
async fn strike(
    place: &Place,
    incarnation: Incarnation,
    kind: Kind,
    name: &str,
) -> anyhow::Result<()> {
    let key = place.client.keys.retained(incarnation);
    for _ in 0..TRIES {
        let Kept {
            record: mut ended,
            mod_revision,
        } = self::ended(place, incarnation).await?;
        let was_listed = match kind {
            Kind::Volume => ended.resources.volumes.remove(name),
            Kind::Secret => ended.resources.secrets.remove(name),
        };
        if !was_listed {
            return Ok(());
        }
        let txn = Txn::default()
            .when(key.clone(), Target::ModRevision(mod_revision))
            .put(key.clone(), encode(&ended)?);
        let written = place.client.store.commit(txn).await.with_context(|| {
            format!("it is gone, but {key} still lists it: run the same command again")
        })?;
        if matches!(written, Commit::Applied(_)) {
            return Ok(());
        }
    }
    bail!("{key} changes all the time: run the same command again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended() -> Retained {
        let incarnation = Incarnation(Uuid::from_u128(1));
        let app = "blog".parse().unwrap();
        Retained {
            resources: Resources {
                volumes: [format!("{}data", own_prefix(&app, incarnation))].into(),
                ..Resources::default()
            },
            app,
            incarnation,
            since: jiff::Timestamp::UNIX_EPOCH,
            ended_at: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn what_is_retained_is_named_in_short_or_as_podman_does() {
        let full = "podherd-blog-00000000-data";
        for named in ["data", full] {
            assert_eq!(retained_name(&ended(), Kind::Volume, named).unwrap(), full);
        }
    }

    #[test]
    fn what_is_not_retained_is_refused() {
        let other = retained_name(&ended(), Kind::Volume, "other").unwrap_err();
        assert!(other.to_string().contains("podherd-blog-00000000-data"));
        assert!(retained_name(&ended(), Kind::Secret, "data").is_err());
    }
}
