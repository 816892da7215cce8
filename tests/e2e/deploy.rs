//! Deploy, replace, remove: what a manifest leads to when nothing goes wrong.

use std::time::Duration;

use serde_json::Value;

use crate::support::world::text;
use crate::support::{Image, World, condition, manifest, until, with_volume};

/// The kinds of an operation's steps, in the journal's order, without the provisioning
/// of networks and volumes.
fn steps(operation: &Value) -> Vec<String> {
    let steps = operation["steps"].as_array().expect("steps");
    let kinds = steps.iter().map(|step| text(&step["kind"]));
    kinds.filter(|kind| kind != "provision").collect()
}

/// Asserts that every step succeeded, and began only after the one before had ended.
#[track_caller]
fn assert_in_sequence(operation: &Value) {
    let mut last = String::new();
    for step in operation["steps"].as_array().expect("steps") {
        assert_eq!(step["state"], "succeeded", "{step}");
        let started: jiff::Timestamp = text(&step["startedAt"]).parse().expect("a time");
        if let Ok(ended) = last.parse::<jiff::Timestamp>() {
            assert!(started >= ended, "{step} began before {last}");
        }
        last = text(&step["finishedAt"]);
    }
    assert_eq!(operation["outcome"]["result"], "success");
}

#[test]
fn a_manifest_becomes_a_service_that_answers_through_the_proxy() {
    let world = World::start();
    let podherd = world.podherd();

    let revision = world.apply("blog", &manifest("blog", Image::Web1));
    let status = world.wait_ready("blog", revision);

    assert_eq!(
        podherd.get(&world, "blog.test", "/").body,
        "demo-web version 1\n"
    );
    assert_eq!(podherd.get(&world, "other.test", "/").code, 404);
    assert_eq!(status["observedRevision"], revision);
    assert_eq!(condition(&status, "Accepted").unwrap()["status"], "True");
    assert_eq!(status["services"]["web"]["ready"], true);
    assert!(text(&status["services"]["web"]["digest"]).starts_with("sha256:"));
    let operation = world.last_operation("blog").expect("an operation");
    assert_eq!(
        steps(&operation),
        ["create", "start", "probe", "publish", "traffic"]
    );
    assert_in_sequence(&operation);
    world.assert_only_active(&["blog"]);
    let pinned = world.records("state/revisions/blog/");
    assert_eq!(pinned.len(), 1, "{pinned:?}");
}

#[test]
fn a_changed_manifest_replaces_the_container_in_sequence_and_keeps_the_volume() {
    let world = World::start();
    let podherd = world.podherd();
    world.deploy("blog", &with_volume("blog", Image::Writer1));
    let old = world.active("blog");
    let volumes = world.podman.volumes(&world.sandbox);
    assert_eq!(volumes.len(), 1, "{volumes:?}");

    world.deploy("blog", &with_volume("blog", Image::Writer2));

    assert_eq!(
        podherd.get(&world, "blog.test", "/").body,
        "demo-web version 2\n"
    );
    assert_ne!(world.active("blog"), old);
    world.assert_only_active(&["blog"]);
    assert_eq!(world.podman.volumes(&world.sandbox), volumes);
    let operation = world.last_operation("blog").expect("an operation");
    assert_eq!(
        steps(&operation),
        [
            "withdraw", "inhibit", "retire", "create", "start", "probe", "publish", "traffic"
        ]
    );
    assert_in_sequence(&operation);
    assert!(
        world.records("state/inhibitions/blog/").is_empty(),
        "cleared by the publish"
    );
    let active = world.record("state/active/blog").expect("ACTIVE");
    assert_eq!(active["services"]["web"]["revision"], 2);
    let log = world
        .podman
        .volume_dir(&world.sandbox, &volumes[0])
        .join("log");
    let log = std::fs::read_to_string(log).expect("the writers' log");
    assert_eq!(
        log.matches("start").count(),
        2,
        "both wrote to the one volume"
    );
}

#[test]
fn nothing_is_touched_or_written_while_nothing_changes() {
    let world = World::start();
    let _podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    let before = (world.running(), world.etcd.revision(&world.sandbox));

    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(
        (world.running(), world.etcd.revision(&world.sandbox)),
        before
    );

    // The same text again is a new revision of the key, and not of the app.
    world.deploy("blog", &manifest("blog", Image::Web1));
    assert_eq!(world.running(), before.0);
    assert_eq!(
        world.record("state/active/blog").unwrap()["services"]["web"]["revision"],
        1
    );
}

#[test]
fn only_the_service_that_differs_is_replaced() {
    let world = World::start();
    let _podherd = world.podherd();
    let both = |tag: &str| {
        let one = |tag: &str| {
            format!(
                "{{image: 'localhost/demo-web:{tag}', pullPolicy: Never, \
                 ports: [{{name: http, container: 8080}}], \
                 readiness: {{tcp: {{port: http}}, timeout: 10s}}}}"
            )
        };
        format!(
            "apiVersion: podherd/v1\nkind: App\nmetadata: {{name: pair}}\nspec:\n  services:\n    \
             a: {}\n    b: {}\n",
            one("1"),
            one(tag)
        )
    };
    world.deploy("pair", &both("1"));
    let old = world.active("pair");

    world.deploy("pair", &both("2"));

    let new = world.active("pair");
    assert_eq!(new["a"], old["a"]);
    assert_ne!(new["b"], old["b"]);
    world.assert_only_active(&["pair"]);
}

#[test]
fn a_deleted_key_removes_containers_and_networks_and_retains_volumes() {
    let world = World::start();
    let podherd = world.podherd();
    let networks = || {
        world
            .podman
            .run(&world.sandbox, &["network", "ls", "--quiet"])
    };
    let networks_before = networks();
    world.deploy("blog", &with_volume("blog", Image::Web1));
    let volumes = world.podman.volumes(&world.sandbox);
    let incarnation = world.record("state/ownership/blog").unwrap()["incarnation"].clone();

    world.delete("blog");

    until("the containers are gone", || world.containers().is_empty());
    until("the incarnation has ended", || {
        world.record("state/ownership/blog").is_none()
    });
    assert_eq!(podherd.get(&world, "blog.test", "/").code, 404);
    assert_eq!(world.podman.volumes(&world.sandbox), volumes);
    assert_eq!(networks(), networks_before);
    assert!(world.record("state/active/blog").is_none());
    assert!(world.records("state/binds/").is_empty());
    let retained = world.records("state/retained/");
    assert_eq!(retained.len(), 1);
    assert_eq!(retained[0].1["incarnation"], incarnation);
    assert_eq!(text(&retained[0].1["volumes"][0]), volumes[0]);

    // The same name again is another incarnation, with a volume of its own.
    world.deploy("blog", &with_volume("blog", Image::Web1));
    assert_ne!(
        world.record("state/ownership/blog").unwrap()["incarnation"],
        incarnation
    );
    assert_eq!(world.podman.volumes(&world.sandbox).len(), 2);
}

#[test]
fn a_slow_app_holds_up_no_other() {
    let world = World::start();
    let _podherd = world.podherd();
    let slow = world.apply("slow", &manifest("slow", Image::SlowStart));
    let quick = world.apply("quick", &manifest("quick", Image::Web1));

    world.wait_ready("quick", quick);
    let status = world.status("slow").unwrap_or_default();
    assert_ne!(
        condition(&status, "Ready").map(|it| &it["status"]),
        Some(&Value::from("True"))
    );
    world.wait_ready("slow", slow);
    world.assert_only_active(&["quick", "slow"]);
}

#[test]
fn a_newer_manifest_supersedes_one_that_is_being_probed() {
    let world = World::start();
    let podherd = world.podherd();
    let never = manifest("blog", Image::NeverReady).replace("timeout: 10s", "timeout: 300s");
    world.apply("blog", &never);
    until("the candidate is probed", || !world.running().is_empty());

    world.deploy("blog", &manifest("blog", Image::Web1));

    assert_eq!(
        podherd.get(&world, "blog.test", "/").body,
        "demo-web version 1\n"
    );
    world.assert_only_active(&["blog"]);
    let first = &world.operations("blog")[0];
    assert_eq!(first["outcome"]["reason"], "Superseded", "{first}");
}
