//! Snapshots for the tables: one app `blog`, changed in a word or two.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::manifest::{self, App, ServiceName};
use crate::plan::{Action, Desired, Due, Snapshot};
use crate::runtime::{Applied, Container, ContainerState, Labels, PortMapping};
use crate::state::{
    Active, ActiveService, Bind, ContainerId, Digest, Incarnation, Inhibition, InhibitionReason,
    Intent, Operation, OperationId, Outcome, OutcomeKind, Ownership, PinnedService, Request,
    Resources, Revision, RevisionNumber, Step, StepKind, StepState, TakenSecrets, Verb, Wish,
    labels,
};
use crate::store::{AppRecords, Kept};

pub const SERVED: i64 = 5;

pub fn service(name: &str) -> ServiceName {
    name.parse().unwrap()
}

pub fn id(text: &str) -> ContainerId {
    ContainerId::new(text)
}

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub fn incarnation() -> Incarnation {
    Incarnation(uuid::Uuid::from_u128(1))
}

/// An app `blog` with these services, each with more fields of its spec.
pub fn app(services: &[(&str, &str)]) -> App {
    let mut text =
        "apiVersion: podherd/v1\nkind: App\nmetadata: {name: blog}\nspec:\n  services:\n"
            .to_owned();
    for (name, fields) in services {
        text += &[
            format!("    {name}:\n"),
            format!("      image: registry.test/{name}:1\n"),
            "      ports: [{name: http, container: 8080}]\n".to_owned(),
            format!("      http: [{{host: {name}.test, port: http}}]\n"),
            format!("      {fields}\n"),
        ]
        .concat();
    }
    manifest::parse("blog", text.as_bytes()).unwrap()
}

/// A revision of the app, with the same digest for every image.
pub fn revision(number: u64, app: &App) -> Revision {
    let pinned = |(name, spec): (&ServiceName, &manifest::ServiceSpec)| {
        let pinned = PinnedService {
            spec: spec.clone(),
            digest: Digest::new("sha256:1"),
            networks: app.spec.networks.clone(),
        };
        (name.clone(), pinned)
    };
    Revision {
        number: RevisionNumber(number),
        incarnation: incarnation(),
        source: SERVED,
        created_at: at(0),
        labels: BTreeMap::new(),
        services: app.spec.services.iter().map(pinned).collect(),
        order: app.spec.order(),
    }
}

/// Nothing wanted, nothing there.
pub fn empty() -> Snapshot {
    Snapshot {
        requests: Vec::new(),
        app: "blog".parse().unwrap(),
        node: "host-a".parse().unwrap(),
        desired: Desired::Absent,
        records: AppRecords::default(),
        routes: None,
        containers: Vec::new(),
        strangers: Vec::new(),
        secrets: BTreeMap::new(),
        unhealthy: Vec::new(),
        restarts: BTreeMap::new(),
        deploy_due: Due::Now,
        restart_due: BTreeMap::new(),
        denied: None,
        verdicts: BTreeMap::new(),
    }
}

/// The manifest is wanted; nothing is deployed.
pub fn wanted(app: &App) -> Snapshot {
    Snapshot {
        desired: Desired::App {
            source: SERVED,
            app: Box::new(app.clone()),
        },
        ..empty()
    }
}

/// Every service of the app runs verified and is routed, as revision 1. The
/// container of `web` is `c-web`, named `n-web`.
pub fn serving(app: &App) -> Snapshot {
    let mut snapshot = wanted(app);
    snapshot.records.ownership = Some(Ownership {
        incarnation: incarnation(),
        since: at(0),
        deletion_protection: false,
        resources: Resources::default(),
        shared_networks: BTreeMap::new(),
    });
    snapshot.records.revisions = vec![revision(1, app)];
    let services = app.spec.services.keys().zip(20_000..);
    snapshot.records.active = Active {
        source: SERVED,
        services: services
            .clone()
            .map(|(name, port)| (name.clone(), active(name, port)))
            .collect(),
    };
    snapshot.containers = services
        .map(|(name, port)| container(name, &format!("c-{name}"), port))
        .collect();
    snapshot.records.operations = vec![kept(succeeded(operation("o-1", Verb::Deploy, &[])))];
    publish(&mut snapshot);
    snapshot
}

fn active(name: &ServiceName, port: u16) -> ActiveService {
    ActiveService {
        revision: RevisionNumber(1),
        image: format!("registry.test/{name}:1"),
        digest: Digest::new("sha256:1"),
        container: id(&format!("c-{name}")),
        node: "host-a".parse().unwrap(),
        binds: vec![Bind {
            port: "http".parse().unwrap(),
            container: 8080,
            protocol: manifest::Protocol::Tcp,
            host_ip: std::net::Ipv4Addr::LOCALHOST.into(),
            host: port,
        }],
        verified: Some(at(10)),
        secrets: TakenSecrets::default(),
    }
}

/// A running container of the service, made by the operation `o-1`.
pub fn container(name: &ServiceName, id_text: &str, port: u16) -> Container {
    let labels = [
        (labels::APP, "blog".to_owned()),
        (labels::SERVICE, name.to_string()),
        (labels::INCARNATION, incarnation().to_string()),
        (labels::REVISION, "1".to_owned()),
        (labels::OPERATION, "o-1".to_owned()),
    ];
    Container {
        id: id(id_text),
        name: format!("n-{name}"),
        labels: Labels::from(labels.map(|(key, value)| (key.to_owned(), value))),
        state: ContainerState::Running,
        started_at: Some(at(10)),
        exit_code: None,
        oom_killed: false,
        ports: vec![PortMapping {
            container: 8080,
            protocol: manifest::Protocol::Tcp,
            host_ip: std::net::Ipv4Addr::LOCALHOST.into(),
            host: port,
        }],
        binds: Vec::new(),
        applied: Applied::default(),
    }
}

/// What follows from ACTIVE is published.
pub fn publish(snapshot: &mut Snapshot) {
    let (active, revisions) = (&snapshot.records.active, &snapshot.records.revisions);
    snapshot.routes = Some(crate::plan::routes(incarnation(), active, revisions));
}

/// The container of `web`, to be changed.
pub fn web(snapshot: &mut Snapshot) -> &mut Container {
    let mut containers = snapshot.containers.iter_mut();
    containers
        .find(|container| container.id == id("c-web"))
        .unwrap()
}

/// The container of `web` has ended.
pub fn down(snapshot: &mut Snapshot, code: i32) {
    web(snapshot).state = ContainerState::Exited;
    web(snapshot).exit_code = Some(code);
}

/// The container of `web` is gone.
pub fn missing(snapshot: &mut Snapshot) {
    snapshot
        .containers
        .retain(|container| container.id != id("c-web"));
}

/// `web` was withdrawn.
pub fn unverify(snapshot: &mut Snapshot) {
    let services = &mut snapshot.records.active.services;
    let web = services.get_mut(&service("web")).unwrap();
    web.verified = None;
    web.binds.clear();
}

/// `web` may be started again in a minute.
pub fn wait_a_minute(snapshot: &mut Snapshot) {
    let wait = Due::After(std::time::Duration::from_secs(60));
    snapshot.restart_due.insert(service("web"), wait);
}

pub fn inhibit(snapshot: &mut Snapshot, reason: InhibitionReason) {
    snapshot.records.inhibitions.push(Inhibition {
        service: service("web"),
        container: id("c-web"),
        reason,
        operation: OperationId::new("o-1"),
        at: at(0),
        stop_grace_ms: 0,
        stop_signal: None,
    });
}

pub fn intend_stopped(snapshot: &mut Snapshot, operation: &str) {
    snapshot.records.intent = Some(Intent {
        state: Wish::Stopped,
        operation: OperationId::new(operation),
        at: at(0),
    });
}

// The journal.

/// An operation in flight with steps of `web`.
pub fn operation(id: &str, verb: Verb, steps: &[(StepKind, StepState)]) -> Operation {
    let step = |(kind, state): &(StepKind, StepState)| Step {
        kind: *kind,
        service: Some(service("web")),
        state: *state,
        before: None,
        after: None,
        started_at: (*state != StepState::Pending).then(|| at(1)),
        finished_at: None,
        error: (*state == StepState::Failed).then(|| "it failed".to_owned()),
        diagnostics: None,
    };
    Operation {
        id: OperationId::new(id),
        request: Request {
            verb,
            revision: None,
            service: None,
            container: None,
            note: None,
        },
        asked: false,
        incarnation: incarnation(),
        source: SERVED,
        attempt: 1,
        started_at: at(0),
        finished_at: None,
        steps: steps.iter().map(step).collect(),
        outcome: None,
        warnings: Vec::new(),
    }
}

fn ended(operation: Operation, result: OutcomeKind, reason: &str, retryable: bool) -> Operation {
    Operation {
        outcome: Some(Outcome {
            result,
            reason: reason.to_owned(),
            message: "so it ended".to_owned(),
            retryable,
        }),
        ..operation
    }
}

pub fn succeeded(operation: Operation) -> Operation {
    ended(operation, OutcomeKind::Success, "Completed", false)
}

pub fn failed(operation: Operation, retryable: bool) -> Operation {
    ended(operation, OutcomeKind::Failed, "NotReady", retryable)
}

pub fn kept(record: Operation) -> Kept<Operation> {
    Kept {
        record,
        mod_revision: 1,
    }
}

pub fn journal(snapshot: &mut Snapshot, operation: Operation) {
    snapshot.records.operations.push(kept(operation));
}

/// `kind service`, as a table shows it.
pub fn told(actions: &[Action]) -> Vec<String> {
    actions
        .iter()
        .map(|action| match action.service() {
            Some(service) => format!("{} {service}", action.kind().as_str()),
            None => action.kind().as_str().to_owned(),
        })
        .collect()
}
