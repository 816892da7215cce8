//! The order of the actions, and the graph that follows from ACTIVE.

use super::scene::{
    app, at, down, id, incarnation, inhibit, missing, revision, service, serving, told, wanted, web,
};
use crate::manifest::{App, ServiceSpec, Strategy, VolumeMount};
use crate::plan::{Snapshot, claims, deploy, remove, repair, routes};
use crate::state::{InhibitionReason, RevisionNumber};

const CREATE: [&str; 6] = [
    "provision",
    "create",
    "start",
    "probe",
    "publish",
    "traffic",
];

fn created(service: &str) -> Vec<String> {
    CREATE.map(|kind| format!("{kind} {service}")).to_vec()
}

fn replaced(service: &str, before: &[&str]) -> Vec<String> {
    let before = before.iter().map(|kind| format!("{kind} {service}"));
    before.chain(created(service)).collect()
}

fn spec_of<'a>(app: &'a mut App, name: &str) -> &'a mut ServiceSpec {
    app.spec.services.get_mut(&service(name)).unwrap()
}

#[test]
fn a_first_deployment_withdraws_and_retires_nothing() {
    let app = app(&[("web", "")]);
    let actions = deploy(&wanted(&app), &revision(1, &app));
    assert_eq!(told(&actions), created("web"));
}

#[test]
fn what_serves_already_is_left_alone() {
    let app = app(&[("web", "")]);
    assert_eq!(
        told(&deploy(&serving(&app), &revision(2, &app))),
        Vec::<String>::new()
    );
}

#[test]
fn a_changed_service_is_replaced_and_a_writer_is_inhibited_before() {
    let volume = "volumes: [{name: data, path: /data}]";
    let read_only = "volumes: [{name: data, path: /data, readOnly: true}]";
    for (fields, before) in [
        ("", &["withdraw", "retire"][..]),
        (read_only, &["withdraw", "retire"]),
        (volume, &["withdraw", "inhibit", "retire"]),
    ] {
        let old = serving(&app(&[("web", fields)]));
        let new = app(&[("web", "env: {A: b}")]);
        let actions = deploy(&old, &revision(2, &new));
        assert_eq!(told(&actions), replaced("web", before), "{fields}");
    }
}

/// The marker is durable before anything is published, and the old generation is
/// touched only after that. Nothing that only one can have may be held by either.
#[test]
fn an_overlapping_update_touches_the_old_generation_last() {
    let overlap = |fields: &str| {
        let mut app = app(&[("web", fields)]);
        for spec in app.spec.services.values_mut() {
            spec.update.strategy = Strategy::Overlap;
        }
        app
    };
    let told_of = |old: &str, new: &str| {
        let old = serving(&app(&[("web", old)]));
        told(&deploy(&old, &revision(2, &overlap(new)))).join(", ")
    };
    assert_eq!(
        told_of("", "env: {A: b}"),
        "provision web, create web, start web, probe web, inhibit web, publish web, traffic web, \
         drain web, retire web"
    );
    let volume = "volumes: [{name: data, path: /data}]";
    assert!(told_of(volume, "env: {A: b}").starts_with("withdraw web, inhibit web, retire web"));
    assert!(told_of("", volume).starts_with("withdraw web, retire web"));
}

#[test]
fn an_old_generation_of_an_unknown_revision_counts_as_a_writer() {
    let app = app(&[("web", "")]);
    let mut snapshot = serving(&app);
    snapshot.records.revisions.clear();
    let actions = deploy(&snapshot, &revision(2, &app));
    assert_eq!(
        told(&actions),
        replaced("web", &["withdraw", "inhibit", "retire"])
    );
}

#[test]
fn an_unchanged_service_that_does_not_run_verified_is_replaced() {
    let app = app(&[("web", "")]);
    let change: [fn(&mut Snapshot); 4] = [
        |it| down(it, 0),
        |it| web(it).started_at = Some(at(11)),
        missing,
        |it| inhibit(it, InhibitionReason::Removed),
    ];
    for change in change {
        let mut snapshot = serving(&app);
        change(&mut snapshot);
        let actions = deploy(&snapshot, &revision(2, &app));
        assert_eq!(told(&actions), replaced("web", &["withdraw", "retire"]));
    }
}

#[test]
fn dropped_services_go_first_and_the_rest_follows_its_dependencies() {
    let old = serving(&app(&[("web", ""), ("zoo", "")]));
    let new = app(&[("a", "dependsOn: [web]"), ("web", "env: {A: b}")]);
    let actions = deploy(&old, &revision(2, &new));
    let expected = [
        replaced("zoo", &["withdraw", "inhibit", "retire"])[..3].to_vec(),
        replaced("web", &["withdraw", "retire"]),
        created("a"),
    ];
    assert_eq!(told(&actions), expected.concat());
}

/// What only one can hold: a volume that is written, a fixed host port.
#[test]
fn whoever_gives_something_up_is_ended_before_it_is_made_for_another() {
    type Hold = fn(&mut App, &str);
    let written: Hold = |app, name| {
        let data = VolumeMount {
            name: "data".parse().unwrap(),
            path: "/data".to_owned(),
            read_only: false,
        };
        spec_of(app, name).volumes.push(data);
    };
    let published: Hold = |app, name| spec_of(app, name).ports[0].host = Some(9000);
    for (hold, ended) in [
        (written, &["withdraw", "inhibit", "retire"][..]),
        (published, &["withdraw", "retire"]),
    ] {
        let mut old = app(&[("a", "env: {A: a}"), ("z", "")]);
        hold(&mut old, "z");
        let mut moved = app(&[("a", ""), ("z", "env: {A: b}")]);
        hold(&mut moved, "a");
        let old = serving(&old);
        let ends = |service: &str, kinds: &[&str]| -> Vec<String> {
            kinds
                .iter()
                .map(|kind| format!("{kind} {service}"))
                .collect()
        };
        let expected = [
            ends("z", ended),
            ends("a", &["withdraw", "retire"]),
            created("a"),
            created("z"),
        ];
        let actions = told(&deploy(&old, &revision(2, &moved)));
        assert_eq!(actions, expected.concat());
    }
}

#[test]
fn two_services_that_change_places_are_both_ended_first() {
    let on = |a: u16, z: u16| {
        let mut app = app(&[("a", ""), ("z", "")]);
        spec_of(&mut app, "a").ports[0].host = Some(a);
        spec_of(&mut app, "z").ports[0].host = Some(z);
        app
    };
    let old = serving(&on(9000, 9001));
    let swapped = on(9001, 9000);
    let actions = told(&deploy(&old, &revision(2, &swapped)));
    assert_eq!(
        actions[..4],
        ["withdraw z", "retire z", "withdraw a", "retire a"]
    );
    assert_eq!(actions[4..], [created("a"), created("z")].concat());
}

#[test]
fn a_removal_is_durable_before_it_begins() {
    let actions = remove(&serving(&app(&[("db", ""), ("web", "")])), None);
    let expected = [
        "intent",
        "withdraw",
        "retire db",
        "retire web",
        "reclaim",
        "end",
    ];
    assert_eq!(told(&actions), expected);
}

#[test]
fn every_withdrawal_comes_before_every_repair() {
    let mut snapshot = serving(&app(&[("db", ""), ("web", "")]));
    for container in &mut snapshot.containers {
        container.state = crate::runtime::ContainerState::Exited;
    }
    let (actions, later) = repair(&snapshot);
    assert_eq!(
        told(&actions)[..4],
        ["withdraw db", "withdraw web", "start db", "probe db"]
    );
    assert_eq!(later, None);
}

#[test]
fn only_a_verified_execution_is_a_backend() {
    let mut snapshot = serving(&app(&[("db", ""), ("web", "")]));
    let active = &mut snapshot.records.active;
    active.services.get_mut(&service("db")).unwrap().verified = None;
    let graph = routes(incarnation(), active, &snapshot.records.revisions);
    let shown: Vec<(&str, usize)> = graph
        .http
        .iter()
        .map(|rule| (rule.host.as_str(), rule.backends.len()))
        .collect();
    assert_eq!(shown, [("db.test", 0), ("web.test", 1)]);
    let backend = &graph.http[1].backends[0];
    assert_eq!(backend.container, id("c-web"));
    assert_eq!(backend.started_at, at(10));
    assert_eq!(backend.address.to_string(), "127.0.0.1:20001");
}

#[test]
fn a_service_of_an_unknown_revision_has_no_rule() {
    let mut snapshot = serving(&app(&[("web", "")]));
    let active = &mut snapshot.records.active;
    active.services.get_mut(&service("web")).unwrap().revision = RevisionNumber(9);
    assert!(
        routes(incarnation(), active, &snapshot.records.revisions)
            .http
            .is_empty()
    );
}

#[test]
fn a_revision_claims_its_routes_before_anybody_answers() {
    let app = app(&[("db", ""), ("web", "")]);
    let claimed = claims(incarnation(), &revision(1, &app));
    assert_eq!(claimed.http.len(), 2);
    assert!(claimed.containers().is_empty());
}
