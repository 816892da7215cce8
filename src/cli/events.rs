//! `podherd events`: what happened lately, and what happens now.

use std::collections::BTreeSet;

use super::client::{Client, Reach, below, read};
use super::live::{Live, News};
use super::output::{Column, Format, Listing, item, print};
use super::span;
use super::table::or_dash;
use crate::clock::{Clock as _, SystemClock};
use crate::manifest::AppName;
use crate::state::{Event, EventType};
use crate::store::{Change, Entry, Range};

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Only of this app [default: all]
    #[arg(value_name = "APP")]
    app: Option<AppName>,
    /// Go on, and show each event as it comes
    #[arg(short, long)]
    watch: bool,
    /// How they are shown; with --watch, json is one event a line
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    reach: Reach,
}

const COLUMNS: &[Column] = &[
    Column::Always("AGE"),
    Column::Always("TYPE"),
    Column::Always("REASON"),
    Column::Always("APP"),
    Column::Always("SERVICE"),
    Column::Always("MESSAGE"),
    Column::Wide("OPERATION"),
    Column::Wide("AT"),
];

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let client = arguments.reach.connect().await?;
    let prefix = match &arguments.app {
        Some(app) => {
            client.must_know(app).await?;
            client.keys.events_of(app)
        }
        None => client.keys.events(),
    };
    if arguments.watch {
        return watch(&client, prefix, arguments.output).await;
    }
    let entries = client.entries(Range::Prefix(prefix)).await?;
    listing(&client, &entries)?.print(arguments.output)
}

/// The events in these entries, oldest first.
pub(super) fn told(client: &Client, entries: &[Entry]) -> Vec<(String, Event)> {
    let prefix = client.keys.events();
    let app = |entry: &Entry| below(&prefix, &entry.key).into_iter().next();
    let read = |entry| Some((app(entry)?, read::<Event>(entry)?));
    let mut events: Vec<_> = entries.iter().filter_map(read).collect();
    events.sort_by_key(|(_, event)| event.at);
    events
}

fn listing(client: &Client, entries: &[Entry]) -> anyhow::Result<Listing> {
    let mut listing = Listing {
        noun: "events: they are kept for a while only",
        columns: COLUMNS,
        rows: Vec::new(),
        items: Vec::new(),
    };
    for (app, event) in told(client, entries) {
        listing.items.push(item(&app, &event)?);
        listing.rows.push(row(app, event));
    }
    Ok(listing)
}

fn row(app: String, event: Event) -> Vec<String> {
    vec![
        span::age(SystemClock.now(), event.at),
        kind(event.r#type).to_owned(),
        event.reason,
        app,
        or_dash(event.service),
        event.message,
        or_dash(event.operation),
        format!("{:.0}", event.at),
    ]
}

fn kind(kind: EventType) -> &'static str {
    match kind {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    }
}

async fn watch(client: &Client, prefix: String, format: Format) -> anyhow::Result<()> {
    let mut live = Live::new(client, vec![prefix]);
    let mut shown = BTreeSet::new();
    loop {
        let entries = match live.next().await? {
            News::Listed(entries) => entries,
            News::Changed(Change::Put(entry)) => vec![entry],
            News::Changed(Change::Delete { key, .. }) => {
                shown.remove(&key);
                continue;
            }
        };
        let new: Vec<_> = entries
            .into_iter()
            .filter(|entry| shown.insert(entry.key.clone()))
            .collect();
        for (app, event) in told(client, &new) {
            print(&line(&app, &event, format)?)?;
        }
    }
}

/// An event as one line, or as one document.
fn line(app: &str, event: &Event, format: Format) -> anyhow::Result<String> {
    match format {
        Format::Json => Ok(format!("{}\n", item(app, event)?)),
        Format::Yaml => Ok(format!(
            "---\n{}",
            serde_yaml::to_string(&item(app, event)?)?
        )),
        Format::Table | Format::Wide => {
            let object = match &event.service {
                Some(service) => format!("{app}/{service}"),
                None => app.to_owned(),
            };
            let (at, kind) = (event.at, kind(event.r#type));
            let (reason, message) = (&event.reason, &event.message);
            Ok(format!(
                "{at:.0}  {kind:<7}  {reason:<22}  {object:<20}  {message}\n"
            ))
        }
    }
}
