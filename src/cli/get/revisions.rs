//! The revisions.

use super::is_wanted;
use super::services::short;
use crate::cli::client::Client;
use crate::cli::output::{Column, Listing, item};
use crate::cli::span;
use crate::clock::{Clock as _, SystemClock};
use crate::manifest::{AppName, ServiceName};
use crate::state::{Active, Revision};

const COLUMNS: &[Column] = &[
    Column::Always("APP"),
    Column::Always("REVISION"),
    Column::Always("SERVING"),
    Column::Always("SERVICES"),
    Column::Always("AGE"),
    Column::Wide("IMAGES"),
];

pub(super) async fn list(client: &Client, app: Option<&AppName>) -> anyhow::Result<Listing> {
    let prefix = client.keys.revisions_all();
    let revisions = client.list::<Revision>(prefix).await?;
    let actives = client.list::<Active>(client.keys.actives()).await?;
    let mut listing = Listing {
        noun: "revisions",
        columns: COLUMNS,
        rows: Vec::new(),
        items: Vec::new(),
    };
    for found in revisions.iter().filter(|found| is_wanted(app, found.app())) {
        let active = actives.iter().find(|active| active.app() == found.app());
        let serving = active.map(|active| serving(&active.record, &found.record));
        listing
            .rows
            .push(row(found.app(), &found.record, serving.unwrap_or_default()));
        listing.items.push(item(found.app(), &found.record)?);
    }
    Ok(listing)
}

/// The services that this revision serves.
pub(in crate::cli) fn serving(active: &Active, revision: &Revision) -> String {
    let services = active.services.iter();
    let of_it = services.filter(|(_, service)| service.revision == revision.number);
    let names: Vec<_> = of_it.map(|(name, _)| name.as_str()).collect();
    match names.len() {
        0 => "no".to_owned(),
        n if n == active.services.len() => "yes".to_owned(),
        _ => names.join(","),
    }
}

fn row(app: &str, revision: &Revision, serving: String) -> Vec<String> {
    let names: Vec<_> = revision.order.iter().map(ServiceName::as_str).collect();
    let images = revision.services.values().map(|service| {
        let digest = service.digest.as_str().trim_start_matches("sha256:");
        format!("{}@{}", service.spec.image, short(digest))
    });
    vec![
        app.to_owned(),
        revision.number.to_string(),
        serving,
        names.join(","),
        span::age(SystemClock.now(), revision.created_at),
        images.collect::<Vec<_>>().join(","),
    ]
}
