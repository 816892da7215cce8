//! The hosts, their controllers and their data planes.

use serde_json::json;

use crate::cli::client::Client;
use crate::cli::output::{Column, Listing};
use crate::cli::span;
use crate::cli::table::or_dash;
use crate::clock::{Clock as _, SystemClock};
use crate::state::Node;
use crate::traffic::DataPlane;

const COLUMNS: &[Column] = &[
    Column::Always("NAME"),
    Column::Always("ROLE"),
    Column::Always("VERSION"),
    Column::Always("AGE"),
    Column::Always("PROXIES"),
    Column::Wide("PROXY NAMES"),
    Column::Wide("APPLIED"),
];

pub(super) async fn list(client: &Client) -> anyhow::Result<Listing> {
    let nodes = client.list::<Node>(client.keys.nodes()).await?;
    let planes = client.list::<DataPlane>(client.keys.proxies()).await?;
    let leader = client.leader().await?;
    let mut listing = Listing {
        noun: "nodes: no controller runs",
        columns: COLUMNS,
        rows: Vec::new(),
        items: Vec::new(),
    };
    for found in &nodes {
        let node = &found.record;
        let leads = leader
            .as_ref()
            .is_some_and(|leader| leader.node == node.node);
        let role = if leads { "leader" } else { "standby" };
        let planes = planes.iter().map(|plane| &plane.record);
        let planes: Vec<_> = planes.filter(|plane| plane.node == node.node).collect();
        let names = planes.iter().map(|plane| plane.name.as_str());
        let applied = planes.iter().map(|plane| plane.applied.to_string());
        listing.rows.push(vec![
            node.node.to_string(),
            role.to_owned(),
            node.version.clone(),
            span::age(SystemClock.now(), node.since),
            planes.len().to_string(),
            or_dash(Some(names.collect::<Vec<_>>().join(","))),
            or_dash(Some(applied.collect::<Vec<_>>().join(","))),
        ]);
        let mut item = serde_json::to_value(node)?;
        item["role"] = json!(role);
        item["proxies"] = serde_json::to_value(&planes)?;
        listing.items.push(item);
    }
    Ok(listing)
}
