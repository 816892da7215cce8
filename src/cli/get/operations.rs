//! The journal.

use super::is_wanted;
use crate::cli::client::{Client, Found};
use crate::cli::output::{Column, Listing, item};
use crate::cli::span;
use crate::cli::table::or_dash;
use crate::clock::{Clock as _, SystemClock};
use crate::manifest::AppName;
use crate::state::{Operation, StepState};

const COLUMNS: &[Column] = &[
    Column::Always("APP"),
    Column::Always("ID"),
    Column::Always("VERB"),
    Column::Always("SERVICE"),
    Column::Always("REVISION"),
    Column::Always("OUTCOME"),
    Column::Always("STEPS"),
    Column::Always("AGE"),
    Column::Always("TOOK"),
    Column::Wide("ATTEMPT"),
    Column::Wide("REASON"),
    Column::Wide("MESSAGE"),
];

pub(super) async fn list(client: &Client, app: Option<&AppName>) -> anyhow::Result<Listing> {
    let prefix = client.keys.operations_all();
    let mut found: Vec<Found<Operation>> = client.list(prefix).await?;
    found.retain(|found| is_wanted(app, found.app()));
    // In the order in which they were claimed: a calendar may be set back.
    found.sort_by_key(|found| found.create_revision);
    let mut listing = Listing {
        noun: "operations",
        columns: COLUMNS,
        rows: Vec::new(),
        items: Vec::new(),
    };
    for found in &found {
        listing.rows.push(row(found.app(), &found.record));
        listing.items.push(item(found.app(), &found.record)?);
    }
    Ok(listing)
}

fn row(app: &str, operation: &Operation) -> Vec<String> {
    let ended = operation.outcome.as_ref();
    let steps = operation.steps.iter();
    let done = steps.filter(|step| step.state == StepState::Succeeded);
    vec![
        app.to_owned(),
        operation.id.to_string(),
        operation.request.verb.as_str().to_owned(),
        or_dash(operation.request.service.as_ref()),
        or_dash(operation.request.revision),
        outcome(operation).to_owned(),
        format!("{}/{}", done.count(), operation.steps.len()),
        span::age(SystemClock.now(), operation.started_at),
        took(operation),
        operation.attempt.to_string(),
        or_dash(ended.map(|outcome| outcome.reason.as_str())),
        or_dash(ended.map(|outcome| outcome.message.as_str())),
    ]
}

/// How it ended.
pub(in crate::cli) fn outcome(operation: &Operation) -> &'static str {
    let outcome = operation.outcome.as_ref();
    outcome.map_or("in flight", |outcome| outcome.result.as_str())
}

/// How long it took.
pub(in crate::cli) fn took(operation: &Operation) -> String {
    let ended = operation.finished_at;
    or_dash(ended.map(|ended| span::took(operation.started_at, ended)))
}
