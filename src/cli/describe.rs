//! `podherd describe`: everything about an app, why it isn't ready, and what to do next.

use super::advice::advice;
use super::client::{Client, Reach};
use super::events::told;
use super::get::{RowOfApp, condition, outcome, ports, short, took, truth};
use super::output::print;
use super::page::Page;
use super::span::{self, age};
use super::table::or_dash;
use crate::clock::{Clock as _, SystemClock};
use crate::manifest::AppName;
use crate::state::{
    ConditionType, Event, Leader, Operation, OutcomeKind, Status, Step, StepState, Truth, Wish,
};
use crate::store::{AppRecords, Range};
use crate::traffic::AppRoutes;

/// How many of the newest events are shown.
const EVENTS: usize = 10;

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The app
    app: AppName,
    #[command(flatten)]
    reach: Reach,
}

/// All that is known of an app.
struct Known {
    app: AppName,
    records: AppRecords,
    routes: Option<AppRoutes>,
    events: Vec<Event>,
    leader: Option<Leader>,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let client = arguments.reach.connect().await?;
    client.must_know(&arguments.app).await?;
    let known = Known::load(&client, arguments.app).await?;
    print(&known.describe())
}

impl Known {
    async fn load(client: &Client, app: AppName) -> anyhow::Result<Self> {
        let keys = &client.keys;
        let events = client.entries(Range::Prefix(keys.events_of(&app))).await?;
        let routes = client.one::<AppRoutes>(keys.route(&app)).await?;
        Ok(Self {
            records: client.records().load(&app).await?,
            routes: routes.map(|kept| kept.record),
            events: told(client, &events)
                .into_iter()
                .map(|(_, event)| event)
                .collect(),
            leader: client.leader().await?,
            app,
        })
    }

    fn status(&self) -> Option<&Status> {
        self.records.status.as_ref().map(|kept| &kept.record)
    }

    fn last(&self) -> Option<&Operation> {
        self.records.operations.last().map(|kept| &kept.record)
    }

    fn describe(&self) -> String {
        let mut page = Page::default();
        self.head(&mut page);
        self.conditions(&mut page);
        self.services(&mut page);
        self.routes(&mut page);
        self.inhibitions(&mut page);
        self.operation(&mut page);
        self.requests(&mut page);
        self.resources(&mut page);
        self.events(&mut page);
        page.section("Next", self.next().iter().map(|line| format!("- {line}")));
        page.into_text()
    }

    fn head(&self, page: &mut Page) {
        let records = &self.records;
        let newest = records.manifest.as_ref().map(|entry| entry.mod_revision);
        let row = RowOfApp::of(self.status(), newest);
        page.field("Name", &self.app);
        page.field(
            "Ready",
            format_args!("{} ({}): {}", row.ready, row.reason, row.message),
        );
        match (newest, self.status()) {
            (Some(newest), Some(status)) => page.field(
                "Manifest",
                format_args!(
                    "at etcd revision {newest}, looked at up to {}",
                    status.observed_revision
                ),
            ),
            (Some(newest), None) => page.field(
                "Manifest",
                format_args!("at etcd revision {newest}, not looked at yet"),
            ),
            (None, _) => page.field("Manifest", "none"),
        }
        page.field(
            "Serving",
            format_args!("revision {}, {} services", row.revision, row.services),
        );
        match &records.intent {
            Some(intent) if intent.state == Wish::Stopped => page.field(
                "Intent",
                format_args!(
                    "stopped at {:.0} by operation {}",
                    intent.at, intent.operation
                ),
            ),
            _ => page.field("Intent", "running"),
        }
        if let Some(ownership) = &records.ownership {
            page.field(
                "Incarnation",
                format_args!("{} since {:.0}", ownership.incarnation, ownership.since),
            );
            let protected = if ownership.deletion_protection {
                "yes"
            } else {
                "no"
            };
            page.field("Protected", protected);
        }
    }

    fn conditions(&self, page: &mut Page) {
        let now = SystemClock.now();
        let conditions = self.status().map_or(&[][..], |status| &status.conditions);
        let rows = conditions.iter().map(|it| {
            [
                it.r#type.as_str().to_owned(),
                truth(it.status).to_owned(),
                it.reason.clone(),
                age(now, it.last_transition_time),
                it.message.clone(),
            ]
        });
        page.table(
            "Conditions",
            &["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"],
            &rows.collect::<Vec<_>>(),
        );
    }

    fn services(&self, page: &mut Page) {
        let services = self
            .status()
            .into_iter()
            .flat_map(|status| &status.services);
        let rows: Vec<_> = services
            .map(|(name, it)| {
                [
                    name.to_string(),
                    if it.ready { "yes" } else { "no" }.to_owned(),
                    it.restarts.to_string(),
                    or_dash(it.revision),
                    it.image.clone(),
                    or_dash(it.container.as_ref().map(|id| short(id.as_str()))),
                    or_dash(Some(ports(&it.binds))),
                    or_dash(it.last_error.as_ref()),
                ]
            })
            .collect();
        let headings = [
            "NAME",
            "READY",
            "RESTARTS",
            "REVISION",
            "IMAGE",
            "CONTAINER",
            "PORTS",
            "ERROR",
        ];
        page.table("Services", &headings, &rows);
    }

    fn routes(&self, page: &mut Page) {
        let Some(routes) = &self.routes else { return };
        let http = routes.http.iter().map(|rule| {
            format!(
                "http://{}{} -> {} ({} backends)",
                rule.host,
                rule.path,
                rule.service,
                rule.backends.len()
            )
        });
        let listeners = routes.listeners().map(|(listener, rule)| {
            format!(
                "{listener} -> {} ({} backends)",
                rule.service,
                rule.backends.len()
            )
        });
        page.section("Routes", http.chain(listeners));
    }

    fn inhibitions(&self, page: &mut Page) {
        let lines = self.records.inhibitions.iter().map(|it| {
            let (container, reason) = (short(it.container.as_str()), it.reason.as_str());
            format!(
                "container {container} of {}: {reason}, by operation {} at {:.0}",
                it.service, it.operation, it.at
            )
        });
        page.section("Inhibitions", lines);
    }

    fn operation(&self, page: &mut Page) {
        let Some(operation) = self.last() else { return };
        let verb = operation.request.verb.as_str();
        page.field(
            "Last operation",
            format_args!(
                "{verb} {}, attempt {}, {} after {}",
                operation.id,
                operation.attempt,
                outcome(operation),
                took(operation)
            ),
        );
        if let Some(outcome) = &operation.outcome {
            page.field(
                "Outcome",
                format_args!("{}: {}", outcome.reason, outcome.message),
            );
        }
        let steps: Vec<_> = operation.steps.iter().map(step).collect();
        page.table(
            "Steps",
            &["STEP", "SERVICE", "STATE", "TOOK", "ERROR"],
            &steps,
        );
        page.section("Diagnostics", operation.steps.iter().flat_map(diagnostics));
        let warnings = operation.warnings.iter();
        page.section(
            "Warnings",
            warnings.map(|warning| format!("{} is left: {}", warning.leftover, warning.detail)),
        );
    }

    fn requests(&self, page: &mut Page) {
        let requests = self.records.requests.iter();
        page.section(
            "Waiting requests",
            requests.map(|entry| {
                format!(
                    "{}: {}",
                    entry.key,
                    String::from_utf8_lossy(&entry.value).trim()
                )
            }),
        );
    }

    fn resources(&self, page: &mut Page) {
        let Some(ownership) = &self.records.ownership else {
            return;
        };
        let owned = &ownership.resources;
        let kinds = [
            ("volumes", &owned.volumes),
            ("networks", &owned.networks),
            ("secrets", &owned.secrets),
            ("images", &owned.images),
        ];
        let kinds = kinds.iter().filter(|(_, names)| !names.is_empty());
        page.section(
            "Owns",
            kinds.map(|(kind, names)| {
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                format!("{kind}: {}", names.join(", "))
            }),
        );
    }

    fn events(&self, page: &mut Page) {
        let now = SystemClock.now();
        let from = self.events.len().saturating_sub(EVENTS);
        let events = self.events.iter().skip(from);
        let rows: Vec<_> = events
            .map(|it| {
                [
                    age(now, it.at),
                    it.reason.clone(),
                    or_dash(it.service.as_ref()),
                    it.message.clone(),
                ]
            })
            .collect();
        page.table("Events", &["AGE", "REASON", "SERVICE", "MESSAGE"], &rows);
    }

    /// Why it isn't as it should be, and what a person can do.
    fn next(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.leader.is_none() {
            lines.push("no controller leads: nothing happens until one runs; start podherd run on the host, and see podherd doctor".to_owned());
        }
        let Some(status) = self.status() else {
            return lines;
        };
        for reason in reasons(status, self.last()) {
            let known = lines
                .iter()
                .any(|line: &String| line.starts_with(&format!("{reason}: ")));
            if let Some(next) = advice(reason, &self.app).filter(|_| !known) {
                lines.push(format!("{reason}: {next}"));
            }
        }
        if lines.is_empty() {
            let ready = condition(status, ConditionType::Ready);
            if ready.is_some_and(|ready| ready.status == Truth::True) {
                lines.push("nothing: it is as it should be".to_owned());
            }
        }
        lines
    }
}

/// The reasons that something isn't as it should be, the weightiest first.
fn reasons<'s>(status: &'s Status, last: Option<&'s Operation>) -> Vec<&'s str> {
    let bad = status.conditions.iter().filter(|it| match it.r#type {
        ConditionType::Accepted | ConditionType::Ready => it.status != Truth::True,
        ConditionType::Progressing
        | ConditionType::Degraded
        | ConditionType::Inhibited
        | ConditionType::Outdated => it.status == Truth::True,
    });
    let outcome = last.and_then(|last| last.outcome.as_ref());
    let failed = outcome.filter(|outcome| outcome.result != OutcomeKind::Success);
    bad.map(|it| it.reason.as_str())
        .chain(failed.map(|outcome| outcome.reason.as_str()))
        .collect()
}

fn step(step: &Step) -> [String; 5] {
    let took = match (step.started_at, step.finished_at) {
        (Some(from), Some(to)) => Some(span::took(from, to)),
        _ => None,
    };
    let state = match step.state {
        StepState::Pending => "pending",
        StepState::Running => "running",
        StepState::Succeeded => "done",
        StepState::Failed => "failed",
    };
    [
        step.kind.as_str().to_owned(),
        or_dash(step.service.as_ref()),
        state.to_owned(),
        or_dash(took),
        or_dash(step.error.as_ref()),
    ]
}

/// What the journal keeps for a person who looks into a failed step.
fn diagnostics(step: &Step) -> Vec<String> {
    let Some(found) = &step.diagnostics else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    if let Some(code) = found.exit_code {
        lines.push(format!("exit code {code}"));
    }
    if found.oom_killed {
        lines.push("ended by the kernel for lack of memory".to_owned());
    }
    lines.extend(
        found
            .probe_answers
            .iter()
            .map(|answer| format!("probe: {answer}")),
    );
    lines.extend(found.log_tail.iter().map(|line| format!("log: {line}")));
    lines
}
