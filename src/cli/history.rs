//! `podherd history`: the revisions of an app, what each changed, and what was done.

use std::fmt::Write as _;

use super::client::Reach;
use super::get::{changes, outcome, serving, took};
use super::output::print;
use super::span;
use super::table::{or_dash, table};
use crate::clock::{Clock as _, SystemClock};
use crate::manifest::AppName;
use crate::state::Operation;
use crate::store::AppRecords;

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The app
    app: AppName,
    #[command(flatten)]
    reach: Reach,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let client = arguments.reach.connect().await?;
    client.must_know(&arguments.app).await?;
    let records = client.records().load(&arguments.app).await?;
    print(&describe(&arguments.app, &records))
}

fn describe(app: &AppName, records: &AppRecords) -> String {
    let now = SystemClock.now();
    let mut revisions = Vec::new();
    let mut before = None;
    for revision in &records.revisions {
        revisions.push([
            revision.number.to_string(),
            serving(&records.active, revision),
            span::age(now, revision.created_at),
            changes(before, revision).join("; "),
        ]);
        before = Some(revision);
    }
    let operations = records.operations.iter().map(|kept| row(&kept.record));
    let operations: Vec<_> = operations.collect();
    let mut text = table(&["REVISION", "SERVING", "AGE", "CHANGES"], &revisions);
    let headings = [
        "AGE",
        "OPERATION",
        "VERB",
        "REVISION",
        "OUTCOME",
        "TOOK",
        "MESSAGE",
    ];
    // A string can't refuse.
    _ = write!(text, "\n{}", table(&headings, &operations));
    if records.revisions.len() > 1 {
        _ = writeln!(
            text,
            "\nBack to one of them: podherd rollback {app} --to REVISION"
        );
    }
    text
}

fn row(operation: &Operation) -> [String; 7] {
    let ended = operation.outcome.as_ref();
    [
        span::age(SystemClock.now(), operation.started_at),
        operation.id.to_string(),
        operation.request.verb.as_str().to_owned(),
        or_dash(operation.request.revision),
        outcome(operation).to_owned(),
        took(operation),
        or_dash(ended.map(|outcome| outcome.message.as_str())),
    ]
}
