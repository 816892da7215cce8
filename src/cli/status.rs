//! `podherd status`: how the apps are, at a glance or as it changes.

use std::collections::BTreeMap;

use super::client::{Client, Reach, below, read};
use super::get::RowOfApp;
use super::live::{Live, News};
use super::output::print;
use super::span;
use super::table::table;
use crate::clock::{Clock as _, SystemClock};
use crate::manifest::AppName;
use crate::state::{Node, Status};
use crate::store::{Change, Entry};

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Only this app [default: all]
    #[arg(value_name = "APP")]
    app: Option<AppName>,
    /// Go on, and say what changes
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    reach: Reach,
}

const HEADINGS: [&str; 6] = ["NAME", "READY", "STATUS", "REVISION", "SERVICES", "MESSAGE"];

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let client = arguments.reach.connect().await?;
    if let Some(app) = &arguments.app {
        client.must_know(app).await?;
    }
    if arguments.app.is_none() {
        print(&hosts(&client).await?)?;
    }
    follow(&client, arguments.app.as_ref(), arguments.watch).await
}

/// Who leads, and which hosts there are.
async fn hosts(client: &Client) -> anyhow::Result<String> {
    let now = SystemClock.now();
    let nodes = client.list::<Node>(client.keys.nodes()).await?;
    let nodes = nodes.iter().map(|found| {
        let node = &found.record;
        format!(
            "{} ({}, since {})",
            node.node,
            node.version,
            span::age(now, node.since)
        )
    });
    let nodes: Vec<_> = nodes.collect();
    let leader = match client.leader().await? {
        Some(leader) => format!("on {} since {}", leader.node, span::age(now, leader.since)),
        None => "none runs: nothing is changed until one does".to_owned(),
    };
    Ok(format!(
        "controller: {leader}\nhosts:      {}\n\n",
        nodes.join(", ")
    ))
}

/// What was last seen of the apps.
#[derive(Default)]
struct Seen {
    newest: BTreeMap<String, i64>,
    statuses: BTreeMap<String, Status>,
    shown: BTreeMap<String, RowOfApp>,
}

async fn follow(client: &Client, app: Option<&AppName>, watch: bool) -> anyhow::Result<()> {
    let (apps, statuses) = (client.keys.apps(), client.keys.statuses());
    let mut live = Live::new(client, vec![apps.clone(), statuses.clone()]);
    let mut seen = Seen::default();
    let mut first = true;
    loop {
        let news = live.next().await?;
        match news {
            News::Listed(entries) => {
                (seen.newest, seen.statuses) = <_>::default();
                for entry in &entries {
                    seen.put(&apps, &statuses, entry);
                }
            }
            News::Changed(Change::Put(entry)) => seen.put(&apps, &statuses, &entry),
            News::Changed(Change::Delete { key, .. }) => {
                let name = |prefix| below(prefix, &key).join("/");
                if key.starts_with(&apps) {
                    seen.newest.remove(&name(&apps));
                } else {
                    seen.statuses.remove(&name(&statuses));
                }
            }
        }
        let rows = seen.changed(app);
        if first {
            let rows: Vec<_> = rows
                .iter()
                .map(|(name, row)| cells(name, row.as_ref()))
                .collect();
            print(&table(&HEADINGS, &rows))?;
        } else {
            for (name, row) in rows {
                print(&line(&name, row.as_ref()))?;
            }
        }
        if !watch {
            return Ok(());
        }
        first = false;
    }
}

impl Seen {
    fn put(&mut self, apps: &str, statuses: &str, entry: &Entry) {
        if entry.key.starts_with(apps) {
            let name = below(apps, &entry.key).join("/");
            self.newest.insert(name, entry.mod_revision);
        } else if let Some(status) = read(entry) {
            let name = below(statuses, &entry.key).join("/");
            self.statuses.insert(name, status);
        }
    }

    /// The apps that look different now; `None` for one that is gone.
    fn changed(&mut self, app: Option<&AppName>) -> Vec<(String, Option<RowOfApp>)> {
        let names = self.newest.keys().chain(self.statuses.keys());
        let mut now: BTreeMap<String, RowOfApp> = BTreeMap::new();
        for name in names.filter(|name| app.is_none_or(|app| app.as_str() == name.as_str())) {
            let newest = self.newest.get(name).copied();
            let row = RowOfApp::of(self.statuses.get(name), newest);
            _ = now.insert(name.clone(), row);
        }
        let gone = self.shown.keys().filter(|name| !now.contains_key(*name));
        let mut changed: Vec<_> = gone.map(|name| (name.clone(), None)).collect();
        let differ = now
            .iter()
            .filter(|(name, row)| self.shown.get(*name) != Some(row));
        changed.extend(differ.map(|(name, row)| (name.clone(), Some(row.clone()))));
        changed.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.shown = now;
        changed
    }
}

fn cells(name: &str, row: Option<&RowOfApp>) -> [String; 6] {
    let Some(row) = row else {
        let nothing = || "-".to_owned();
        return [
            name.to_owned(),
            nothing(),
            "Gone".to_owned(),
            nothing(),
            nothing(),
            nothing(),
        ];
    };
    [
        name.to_owned(),
        row.ready.to_owned(),
        row.reason.clone(),
        row.revision.clone(),
        row.services.clone(),
        row.message.clone(),
    ]
}

fn line(name: &str, row: Option<&RowOfApp>) -> String {
    let [name, ready, reason, revision, services, message] = cells(name, row);
    let now = SystemClock.now();
    format!(
        "{now:.0}  {name:<16}  {ready:<7}  {reason:<20}  {revision:<4}  {services:<5}  {message}\n"
    )
}
