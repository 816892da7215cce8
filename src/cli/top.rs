//! `podherd top`: what the apps' containers on this host use now.

use super::client::Client;
use super::containers::{Reach, Target};
use super::get::short;
use super::output::{Column, Format, Listing};
use super::table::or_dash;
use crate::manifest::ServiceName;
use crate::runtime::Usage;
use crate::state::ActiveService;

/// Memory limits from here on are none.
const UNLIMITED: u64 = 1 << 60;

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The apps, or some of their services [default: all]
    #[arg(value_name = "APP[/SERVICE]")]
    targets: Vec<Target>,
    #[command(flatten)]
    reach: Reach,
}

const COLUMNS: &[Column] = &[
    Column::Always("APP"),
    Column::Always("SERVICE"),
    Column::Always("CPU"),
    Column::Always("MEMORY"),
    Column::Always("LIMIT"),
    Column::Always("PIDS"),
    Column::Always("CONTAINER"),
];

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let (client, podman) = arguments.reach.connect().await?;
    let mut rows = Vec::new();
    for (app, service, active) in containers(&client, &arguments.targets).await? {
        let id = &active.container;
        let usage = match podman.usage(id).await {
            Ok(usage) => Some(usage),
            Err(error) => {
                super::note(&format!("{app}/{service}: {error}"));
                None
            }
        };
        let mut row = vec![app, service.to_string()];
        row.extend(cells(usage.as_ref()));
        row.push(short(id.as_str()).to_owned());
        rows.push(row);
    }
    let listing = Listing {
        noun: "containers",
        columns: COLUMNS,
        rows,
        items: Vec::new(),
    };
    listing.print(Format::Table)
}

async fn containers(
    client: &Client,
    targets: &[Target],
) -> anyhow::Result<Vec<(String, ServiceName, ActiveService)>> {
    let mut containers = Vec::new();
    for target in targets {
        let app = target.app.to_string();
        let found = target.find(client).await?.into_iter();
        containers.extend(found.map(|(service, active)| (app.clone(), service, active)));
    }
    if targets.is_empty() {
        let actives = client
            .list::<crate::state::Active>(client.keys.actives())
            .await?;
        for found in actives {
            let app = found.app().to_owned();
            let services = found.record.services.into_iter();
            containers.extend(services.map(|(service, active)| (app.clone(), service, active)));
        }
    }
    Ok(containers)
}

fn cells(usage: Option<&Usage>) -> [String; 4] {
    let limit = usage.map(|usage| usage.memory_limit);
    let limit = limit.filter(|limit| (1..UNLIMITED).contains(limit));
    [
        or_dash(usage.map(|usage| format!("{:.1}%", usage.cpu))),
        or_dash(usage.map(|usage| mebibytes(usage.memory))),
        or_dash(limit.map(mebibytes)),
        or_dash(usage.map(|usage| usage.pids)),
    ]
}

/// Bytes, as people read them.
fn mebibytes(bytes: u64) -> String {
    let (whole, tenth) = (bytes >> 20, ((bytes >> 10) & 1023) * 10 / 1024);
    format!("{whole}.{tenth}Mi")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_readable_and_no_limit_is_none() {
        let usage = Usage {
            cpu: 12.34,
            memory: 3 * 1024 * 1024 / 2,
            memory_limit: u64::MAX,
            pids: 3,
        };
        assert_eq!(cells(Some(&usage)), ["12.3%", "1.5Mi", "-", "3"]);
        assert_eq!(cells(None), ["-", "-", "-", "-"]);
    }
}
