//! The services of the apps, by their statuses and ACTIVE.

use serde_json::json;

use super::is_wanted;
use crate::cli::client::Client;
use crate::cli::output::{Column, Listing, item};
use crate::cli::table::or_dash;
use crate::manifest::AppName;
use crate::state::{Active, Bind, ServiceStatus, Status};

/// How much of an ID is shown.
pub(in crate::cli) const SHORT: usize = 12;

const COLUMNS: &[Column] = &[
    Column::Always("APP"),
    Column::Always("SERVICE"),
    Column::Always("READY"),
    Column::Always("RESTARTS"),
    Column::Always("REVISION"),
    Column::Always("IMAGE"),
    Column::Wide("NODE"),
    Column::Wide("CONTAINER"),
    Column::Wide("DIGEST"),
    Column::Wide("PORTS"),
    Column::Wide("ERROR"),
];

pub(super) async fn list(client: &Client, app: Option<&AppName>) -> anyhow::Result<Listing> {
    let statuses = client.list::<Status>(client.keys.statuses()).await?;
    let actives = client.list::<Active>(client.keys.actives()).await?;
    let mut listing = Listing {
        noun: "services",
        columns: COLUMNS,
        rows: Vec::new(),
        items: Vec::new(),
    };
    for found in statuses.iter().filter(|found| is_wanted(app, found.app())) {
        let active = actives.iter().find(|active| active.app() == found.app());
        for (name, service) in &found.record.services {
            let active = active.and_then(|active| active.record.services.get(name));
            let node = active.map(|active| active.node.to_string());
            listing
                .rows
                .push(row(found.app(), name.as_str(), service, node.clone()));
            let mut item = item(found.app(), service)?;
            item["service"] = json!(name);
            item["node"] = json!(node);
            listing.items.push(item);
        }
    }
    Ok(listing)
}

fn row(app: &str, name: &str, service: &ServiceStatus, node: Option<String>) -> Vec<String> {
    let container = service.container.as_ref();
    let digest = service.digest.as_ref();
    vec![
        app.to_owned(),
        name.to_owned(),
        if service.ready { "yes" } else { "no" }.to_owned(),
        service.restarts.to_string(),
        or_dash(service.revision),
        service.image.clone(),
        or_dash(node),
        or_dash(container.map(|id| short(id.as_str()))),
        or_dash(digest.map(|digest| short(digest.as_str().trim_start_matches("sha256:")))),
        or_dash(Some(ports(&service.binds))),
        or_dash(service.last_error.as_ref()),
    ]
}

/// The beginning of an ID, as Podman shows it.
pub(in crate::cli) fn short(id: &str) -> &str {
    id.get(..SHORT).unwrap_or(id)
}

/// The host's ports with those of the container.
pub(in crate::cli) fn ports(binds: &[Bind]) -> String {
    let shown = binds.iter().map(|bind| {
        let (address, protocol) = (bind.address(), bind.protocol.as_str());
        format!("{address}->{}/{protocol}", bind.container)
    });
    shown.collect::<Vec<_>>().join(",")
}
