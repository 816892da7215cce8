//! The commands that show what is in etcd.

use serde_json::Value;

use crate::support::{Image, World, ask, cli, condition, manifest, text, until, with_volume};

/// The line of a listing that begins with these cells.
#[track_caller]
fn line<'t>(listing: &'t str, cells: &[&str]) -> Vec<&'t str> {
    let mut lines = listing
        .lines()
        .map(|line| line.split_whitespace().collect());
    let found = lines.find(|line: &Vec<&str>| line.starts_with(cells));
    found.unwrap_or_else(|| panic!("{cells:?} in\n{listing}"))
}

#[test]
fn everything_about_the_apps_is_listed() {
    let world = World::start();
    let _podherd = world.podherd();
    world.deploy("blog", &with_volume("blog", Image::Web1));
    world.deploy("blog", &with_volume("blog", Image::Web2));
    world.deploy("shop", &manifest("shop", Image::Web1));

    let apps = ask(&world, &["get", "apps"]);
    assert_eq!(
        line(&apps, &["blog"]),
        ["blog", "True", "Serving", "2", "1/1"]
    );
    line(&apps, &["shop", "True"]);
    let services = ask(&world, &["get", "services", "blog", "-o", "wide"]);
    let container = &world.active("blog")["web"];
    assert!(
        line(&services, &["blog", "web", "yes"]).contains(&&container[..12]),
        "{services}"
    );
    assert!(!services.contains("shop"), "only the app asked for");
    let operations = ask(&world, &["get", "operations", "blog"]);
    assert_eq!(operations.matches("deploy").count(), 2, "{operations}");
    let revisions = ask(&world, &["get", "revisions", "blog"]);
    line(&revisions, &["blog", "1", "no"]);
    line(&revisions, &["blog", "2", "yes"]);
    let routes = ask(&world, &["get", "routes"]);
    line(&routes, &["blog", "http://blog.test/", "web", "1"]);
    line(&ask(&world, &["get", "nodes"]), &["host-a", "leader"]);

    let history = ask(&world, &["history", "blog"]);
    assert!(
        history.contains("localhost/demo-web:1 -> localhost/demo-web:2"),
        "{history}"
    );
    let events = ask(&world, &["events", "blog"]);
    assert!(events.contains("Normal"), "{events}");
    let status = ask(&world, &["status"]);
    assert!(status.contains("controller: on host-a"), "{status}");
}

#[test]
fn programs_get_the_records_whole() {
    let world = World::start();
    let _podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));

    let app = ask(&world, &["get", "apps", "blog", "-o", "json"]);
    let app: Value = serde_json::from_str(&app).expect("JSON");
    assert_eq!(app["metadata"]["name"], "blog");
    let image = &app["spec"]["services"]["web"]["image"];
    assert_eq!(image, Image::Web1.reference());
    let ready = condition(&app["status"], "Ready").expect("Ready");
    assert_eq!(ready["status"], "True");

    for what in [
        "apps",
        "services",
        "operations",
        "revisions",
        "routes",
        "nodes",
    ] {
        let listed = ask(&world, &["get", what, "-o", "json"]);
        let listed: Value = serde_json::from_str(&listed).expect("JSON");
        assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{what}");
        assert!(ask(&world, &["get", what, "-o", "yaml"]).starts_with("items:"));
    }
    let operation = ask(&world, &["get", "operations", "-o", "json"]);
    let operation: Value = serde_json::from_str(&operation).expect("JSON");
    let operation = &operation["items"][0];
    assert_eq!(operation["outcome"]["result"], "success");
    assert_eq!(operation["app"], "blog");
}

#[test]
fn describe_says_why_an_app_is_not_ready_and_what_to_do() {
    let world = World::start();
    let mut podherd = world.podherd();
    let revision = world.apply(
        "blog",
        &manifest("blog", Image::NeverReady).replace("timeout: 10s", "timeout: 1s"),
    );
    world.wait_refused("blog", revision);
    until("it is journaled", || {
        world
            .last_operation("blog")
            .is_some_and(|it| it["outcome"].is_object())
    });

    let said = ask(&world, &["describe", "blog"]);
    let reason = text(&world.last_operation("blog").unwrap()["outcome"]["reason"]);
    assert!(said.contains(&reason), "{said}");
    let (_, next) = said.split_once("\nNext:\n").expect("what to do next");
    assert!(next.contains("podherd logs blog"), "{said}");
    assert!(said.contains("probe: "), "the probe's answers: {said}");

    let revision = world.apply("blog", "kind: Ap");
    world.wait_condition("blog", revision, "Accepted", "False");
    let said = ask(&world, &["describe", "blog"]);
    let (_, next) = said.split_once("\nNext:\n").expect("what to do next");
    assert!(next.contains("podherd validate"), "{said}");

    assert_eq!(podherd.term(), Some(0));
    until("nobody leads", || world.records("leader/").is_empty());
    let said = ask(&world, &["describe", "blog"]);
    assert!(said.contains("no controller leads"), "{said}");
}

#[test]
fn an_unknown_app_is_an_error_that_names_those_there_are() {
    let world = World::start();
    for command in ["describe", "history"] {
        let (code, out, err) = cli(&world, &[command, "blog"], "");
        assert_eq!((code, out.as_str()), (1, ""));
        assert!(err.contains("apply a manifest first"), "{err}");
    }
    world.apply("shop", &manifest("shop", Image::Web1));
    let (code, _, err) = cli(&world, &["get", "services", "blog"], "");
    assert_eq!(code, 1);
    assert!(err.contains("there are shop"), "{err}");
    let apps = ask(&world, &["get", "apps"]);
    line(&apps, &["shop", "Unknown", "Unseen"]);
    let (code, out, err) = cli(&world, &["get", "routes"], "");
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(err.contains("no routes"), "{err}");
}
