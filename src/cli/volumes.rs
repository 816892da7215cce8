//! `podherd volumes`: the volumes of live and ended incarnations.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use super::holdings::{Chosen, Place, Reach};
use super::table::table;
use crate::manifest::AppName;
use crate::runtime::Volume;
use crate::state::{Incarnation, labels, own_prefix};
use crate::store::AppRecords;

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Only of this app, living and past, or of this incarnation [default: all]
    #[arg(value_name = "APP|UUID")]
    of: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

const HEADINGS: [&str; 7] = [
    "STATE",
    "APP",
    "INCARNATION",
    "VOLUME",
    "SERVICE",
    "SINCE",
    "IN USE",
];

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let place = arguments.reach.connect().await?;
    let rows = rows(&place, arguments.of.as_deref()).await?;
    Ok(std::io::stdout().write_all(table(&HEADINGS, &rows).as_bytes())?)
}

async fn rows(place: &Place, of: Option<&str>) -> anyhow::Result<Vec<[String; 7]>> {
    let incarnations = place.incarnations().await?;
    let volumes = place.runtime.volumes().await?.into_iter();
    let there: BTreeMap<String, Volume> = volumes
        .map(|volume| (volume.name.clone(), volume))
        .collect();
    let mut rows = Vec::new();
    for chosen in incarnations.chosen(of)? {
        match chosen {
            Chosen::Live(app, live) => {
                let records = place.client.records().load(app).await?;
                let users = users(&records, app, live.incarnation);
                for name in &live.resources.volumes {
                    let found = there.get(name);
                    let services = users.get(name).cloned().unwrap_or_default();
                    let service = Vec::from_iter(services).join(",");
                    let service = Some(service).filter(|service| !service.is_empty());
                    rows.push([
                        "live".to_owned(),
                        app.to_string(),
                        live.incarnation.to_string(),
                        name.clone(),
                        service.unwrap_or_else(|| made_for(found)),
                        format!("{:.0}", live.since),
                        in_use(found),
                    ]);
                }
            }
            Chosen::Ended(ended) => {
                for name in &ended.resources.volumes {
                    let found = there.get(name);
                    rows.push([
                        "retained".to_owned(),
                        ended.app.to_string(),
                        ended.incarnation.to_string(),
                        name.clone(),
                        made_for(found),
                        format!("{:.0}", ended.ended_at),
                        in_use(found),
                    ]);
                }
            }
        }
    }
    Ok(rows)
}

/// The services that mount each volume, by what serves.
fn users(
    records: &AppRecords,
    app: &AppName,
    incarnation: Incarnation,
) -> BTreeMap<String, BTreeSet<String>> {
    let prefix = own_prefix(app, incarnation);
    let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for service in records.active.services.keys() {
        let pinned = records.active.pinned(service, &records.revisions);
        for volume in pinned.iter().flat_map(|pinned| &pinned.spec.volumes) {
            let name = format!("{prefix}{}", volume.name);
            users.entry(name).or_default().insert(service.to_string());
        }
    }
    users
}

/// The service that the volume was made for, by its label.
fn made_for(volume: Option<&Volume>) -> String {
    let label = volume.and_then(|volume| volume.labels.get(labels::SERVICE));
    label.cloned().unwrap_or_else(|| "-".to_owned())
}

fn in_use(volume: Option<&Volume>) -> String {
    match volume {
        Some(volume) if volume.in_use => "yes",
        Some(_) => "no",
        None => "not in Podman",
    }
    .to_owned()
}
