//! The published routes.

use super::is_wanted;
use super::services::short;
use crate::cli::client::Client;
use crate::cli::output::{Column, Listing, item};
use crate::cli::table::or_dash;
use crate::manifest::AppName;
use crate::traffic::{AppRoutes, Backend};

const COLUMNS: &[Column] = &[
    Column::Always("APP"),
    Column::Always("ROUTE"),
    Column::Always("SERVICE"),
    Column::Always("BACKENDS"),
    Column::Wide("ADDRESSES"),
    Column::Wide("CONTAINERS"),
];

pub(super) async fn list(client: &Client, app: Option<&AppName>) -> anyhow::Result<Listing> {
    let found = client.list::<AppRoutes>(client.keys.routes()).await?;
    let mut listing = Listing {
        noun: "routes",
        columns: COLUMNS,
        rows: Vec::new(),
        items: Vec::new(),
    };
    for found in found.iter().filter(|found| is_wanted(app, found.app())) {
        let routes = &found.record;
        for rule in &routes.http {
            let route = format!("http://{}{}", rule.host, rule.path);
            let service = rule.service.as_str();
            listing
                .rows
                .push(row(found.app(), route, service, &rule.backends));
        }
        for (listener, rule) in routes.listeners() {
            let route = format!("{}://:{}", listener.protocol.as_str(), listener.port);
            let service = rule.service.as_str();
            listing
                .rows
                .push(row(found.app(), route, service, &rule.backends));
        }
        listing.items.push(item(found.app(), routes)?);
    }
    Ok(listing)
}

fn row(app: &str, route: String, service: &str, backends: &[Backend]) -> Vec<String> {
    let addresses = backends.iter().map(|backend| backend.address.to_string());
    let containers = backends
        .iter()
        .map(|backend| short(backend.container.as_str()));
    vec![
        app.to_owned(),
        route,
        service.to_owned(),
        backends.len().to_string(),
        or_dash(Some(addresses.collect::<Vec<_>>().join(","))),
        or_dash(Some(containers.collect::<Vec<_>>().join(","))),
    ]
}
