//! The containers that may never be started again.

use std::time::Duration;

use super::is_wanted;
use super::services::short;
use crate::cli::client::Client;
use crate::cli::output::{Column, Listing, item};
use crate::cli::span;
use crate::clock::{Clock as _, SystemClock};
use crate::manifest::AppName;
use crate::state::Inhibition;

const COLUMNS: &[Column] = &[
    Column::Always("APP"),
    Column::Always("SERVICE"),
    Column::Always("CONTAINER"),
    Column::Always("REASON"),
    Column::Always("AGE"),
    Column::Wide("OPERATION"),
    Column::Wide("GRACE"),
    Column::Wide("ID"),
];

pub(super) async fn list(client: &Client, app: Option<&AppName>) -> anyhow::Result<Listing> {
    let found = client.list::<Inhibition>(client.keys.inhibitions_all());
    let mut listing = Listing {
        noun: "inhibitions",
        columns: COLUMNS,
        rows: Vec::new(),
        items: Vec::new(),
    };
    for found in found
        .await?
        .iter()
        .filter(|found| is_wanted(app, found.app()))
    {
        let inhibition = &found.record;
        listing.rows.push(vec![
            found.app().to_owned(),
            inhibition.service.to_string(),
            short(inhibition.container.as_str()).to_owned(),
            inhibition.reason.as_str().to_owned(),
            span::age(SystemClock.now(), inhibition.at),
            inhibition.operation.to_string(),
            format!("{:?}", Duration::from_millis(inhibition.stop_grace_ms)),
            inhibition.container.to_string(),
        ]);
        listing.items.push(item(found.app(), inhibition)?);
    }
    Ok(listing)
}
