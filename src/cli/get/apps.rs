//! The apps: their manifests with their statuses.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::is_wanted;
use crate::cli::client::{Client, below, read};
use crate::cli::output::{Column, Format, Listing, data};
use crate::cli::table::or_dash;
use crate::manifest::AppName;
use crate::state::{Condition, ConditionType, Intent, Status, Truth, Wish};
use crate::store::{Entry, Range};

const COLUMNS: &[Column] = &[
    Column::Always("NAME"),
    Column::Always("READY"),
    Column::Always("STATUS"),
    Column::Always("REVISION"),
    Column::Always("SERVICES"),
    Column::Wide("INTENT"),
    Column::Wide("OPERATION"),
    Column::Wide("CONDITIONS"),
    Column::Wide("MESSAGE"),
];

/// What is known of one app.
#[derive(Debug, Default)]
struct App {
    manifest: Option<Entry>,
    status: Option<Status>,
    intent: Option<Intent>,
}

/// How an app is, in a few words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct RowOfApp {
    pub ready: &'static str,
    pub reason: String,
    pub message: String,
    pub revision: String,
    pub services: String,
}

impl RowOfApp {
    /// From its status; `newest` is the `mod_revision` of its manifest.
    pub(in crate::cli) fn of(status: Option<&Status>, newest: Option<i64>) -> Self {
        let Some(status) = status else {
            return Self {
                ready: "Unknown",
                reason: "Unseen".to_owned(),
                message: "no controller has looked at it yet".to_owned(),
                revision: "-".to_owned(),
                services: "-".to_owned(),
            };
        };
        let ready = condition(status, ConditionType::Ready);
        let unseen = newest.is_some_and(|newest| status.observed_revision < newest);
        let (word, reason, message) = match ready {
            _ if unseen => (
                "Unknown",
                "Unseen",
                "the newest manifest hasn't been looked at yet",
            ),
            Some(ready) => (
                truth(ready.status),
                ready.reason.as_str(),
                ready.message.as_str(),
            ),
            None => ("Unknown", "Unseen", "its status says nothing"),
        };
        let served = status.services.values().filter(|service| service.ready);
        Self {
            ready: word,
            reason: reason.to_owned(),
            message: message.to_owned(),
            revision: or_dash(status.revision),
            services: format!("{}/{}", served.count(), status.services.len()),
        }
    }
}

/// The condition of this type.
pub(in crate::cli) fn condition(status: &Status, kind: ConditionType) -> Option<&Condition> {
    let mut conditions = status.conditions.iter();
    conditions.find(|condition| condition.r#type == kind)
}

/// The word for it.
pub(in crate::cli) fn truth(truth: Truth) -> &'static str {
    match truth {
        Truth::True => "True",
        Truth::False => "False",
        Truth::Unknown => "Unknown",
    }
}

/// The conditions that hold.
pub(in crate::cli) fn conditions_line(status: &Status) -> String {
    let conditions = status.conditions.iter();
    let holding = conditions.filter(|condition| condition.status == Truth::True);
    let names: Vec<_> = holding.map(|condition| condition.r#type.as_str()).collect();
    names.join(",")
}

pub(super) async fn list(client: &Client, app: Option<&AppName>) -> anyhow::Result<Listing> {
    let apps = all(client).await?;
    let mut listing = Listing {
        noun: "apps",
        columns: COLUMNS,
        rows: Vec::new(),
        items: Vec::new(),
    };
    for (name, app) in apps.iter().filter(|(name, _)| is_wanted(app, name)) {
        listing.rows.push(row(name, app));
        listing.items.push(object(name, app)?);
    }
    Ok(listing)
}

/// One app, as programs like it: its manifest with its status.
pub(super) async fn one(client: &Client, app: &AppName, format: Format) -> anyhow::Result<String> {
    let mut apps = all(client).await?;
    let found = apps.remove(app.as_str()).unwrap_or_default();
    data(format, &object(app.as_str(), &found)?)
}

async fn all(client: &Client) -> anyhow::Result<BTreeMap<String, App>> {
    let keys = &client.keys;
    let prefixes = [keys.apps(), keys.statuses(), keys.intents()];
    let view = client
        .store
        .read(&prefixes.clone().map(Range::Prefix))
        .await?;
    let mut apps: BTreeMap<String, App> = BTreeMap::new();
    for (which, (prefix, entries)) in (0..).zip(prefixes.iter().zip(view.ranges)) {
        for entry in entries {
            let name = below(prefix, &entry.key).join("/");
            let app = apps.entry(name).or_default();
            match which {
                0 => app.manifest = Some(entry),
                1 => app.status = read(&entry),
                _ => app.intent = read(&entry),
            }
        }
    }
    // An intent stays when its app has gone.
    apps.retain(|_, app| app.manifest.is_some() || app.status.is_some());
    Ok(apps)
}

fn row(name: &str, app: &App) -> Vec<String> {
    let status = app.status.as_ref();
    let newest = app.manifest.as_ref().map(|entry| entry.mod_revision);
    let row = RowOfApp::of(status, newest);
    let wish = app.intent.as_ref().map(|intent| match intent.state {
        Wish::Running => "running",
        Wish::Stopped => "stopped",
    });
    vec![
        name.to_owned(),
        row.ready.to_owned(),
        row.reason,
        row.revision,
        row.services,
        wish.unwrap_or("running").to_owned(),
        or_dash(status.and_then(|status| status.operation.clone())),
        or_dash(status.map(conditions_line)),
        row.message,
    ]
}

/// The manifest as it was written, with the status beside its spec. One that can't be
/// read stays a text.
fn object(name: &str, app: &App) -> anyhow::Result<Value> {
    let written = app.manifest.as_ref();
    let parsed = written.and_then(|entry| serde_yaml::from_slice::<Value>(&entry.value).ok());
    let mut object = match (parsed, written) {
        (Some(parsed @ Value::Object(_)), _) => parsed,
        (_, Some(entry)) => json!({
            "metadata": { "name": name },
            "manifest": String::from_utf8_lossy(&entry.value),
        }),
        (_, None) => json!({ "metadata": { "name": name } }),
    };
    if let (Some(status), Some(object)) = (&app.status, object.as_object_mut()) {
        _ = object.insert("status".to_owned(), serde_json::to_value(status)?);
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(ready: Truth) -> Status {
        Status {
            observed_revision: 7,
            conditions: vec![Condition {
                r#type: ConditionType::Ready,
                status: ready,
                reason: "Serving".to_owned(),
                message: "every service is verified and published".to_owned(),
                last_transition_time: jiff::Timestamp::UNIX_EPOCH,
            }],
            ..Status::default()
        }
    }

    #[test]
    fn a_status_of_an_older_manifest_says_nothing_of_the_newest() {
        let status = status(Truth::True);
        assert_eq!(RowOfApp::of(Some(&status), Some(7)).ready, "True");
        assert_eq!(RowOfApp::of(Some(&status), Some(8)).reason, "Unseen");
        assert_eq!(RowOfApp::of(None, Some(8)).ready, "Unknown");
    }

    #[test]
    fn an_unreadable_manifest_is_shown_as_it_is() {
        let entry = |text: &str| Entry {
            key: String::new(),
            value: text.as_bytes().to_vec(),
            create_revision: 1,
            mod_revision: 1,
        };
        let app = |text| App {
            manifest: Some(entry(text)),
            status: Some(status(Truth::True)),
            intent: None,
        };
        let object = |text| object("blog", &app(text)).unwrap();
        assert_eq!(object("{")["manifest"], "{");
        let good = object("{kind: App, spec: {}}");
        assert_eq!(good["kind"], "App");
        assert_eq!(good["status"]["observedRevision"], 7);
    }
}
