//! What is refused or fails: the old generation serves on wherever it can.

use std::fmt::Write;

use serde_json::Value;

use crate::support::world::text;
use crate::support::{Image, Podherd, World, condition, manifest, until, with_volume};

#[track_caller]
fn message(status: &Value, kind: &str) -> String {
    text(&condition(status, kind).unwrap_or_else(|| panic!("no {kind} in {status}"))["message"])
}

#[track_caller]
fn assert_serves_1(world: &World, podherd: &Podherd) {
    assert_eq!(
        podherd.get(world, "blog.test", "/").body,
        "demo-web version 1\n"
    );
}

#[test]
fn an_image_that_does_not_exist_leaves_the_old_generation_serving() {
    let world = World::start();
    let podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    let before = world.running();

    for policy in ["Never", "IfNotPresent"] {
        let missing = manifest("blog", Image::Web1)
            .replace(Image::Web1.reference(), "localhost/no-such-image:1")
            .replace("Never", policy);
        let revision = world.apply("blog", &missing);
        let status = world.wait_refused("blog", revision);
        assert!(
            message(&status, "Ready").contains("no-such-image"),
            "{status}"
        );
        assert_serves_1(&world, &podherd);
        assert_eq!(world.running(), before);
    }

    world.deploy("blog", &manifest("blog", Image::Web2));
    assert_eq!(
        podherd.get(&world, "blog.test", "/").body,
        "demo-web version 2\n"
    );
}

#[test]
fn a_candidate_that_never_gets_ready_is_removed_and_the_old_one_stays_inhibited() {
    let world = World::start();
    let podherd = world.podherd();
    world.deploy("blog", &with_volume("blog", Image::Writer1));
    let old = world.active("blog");

    let never = with_volume("blog", Image::WriterNeverReady).replace("timeout: 10s", "timeout: 1s");
    let revision = world.apply("blog", &never);
    until("the deploy has failed", || {
        let last = world.last_operation("blog").expect("an operation");
        last["source"] == revision && last["outcome"]["result"] == "failed"
    });

    assert_eq!(world.active("blog"), old, "ACTIVE is not written");
    let inhibitions = world.records("state/inhibitions/blog/web/");
    assert!(
        inhibitions
            .iter()
            .any(|(_, it)| text(&it["container"]) == old["web"])
    );
    let operation = world.last_operation("blog").expect("an operation");
    let public = operation["outcome"]["message"].to_string();
    assert!(
        public.contains("http") || public.contains("readiness"),
        "names the probe: {public}"
    );
    assert!(
        !public.contains("serving sick"),
        "no container logs: {public}"
    );
    let ids: Vec<_> = world
        .containers()
        .iter()
        .map(|it| text(&it["Id"]))
        .collect();
    assert!(
        !ids.contains(&old["web"]),
        "the old one is gone and isn't made again"
    );
    assert_eq!(podherd.get(&world, "blog.test", "/").code, 503);

    // A mended manifest is deployed, and clears the inhibition.
    world.deploy("blog", &with_volume("blog", Image::Writer2));
    assert!(world.records("state/inhibitions/blog/").is_empty());
    world.assert_only_active(&["blog"]);
    assert_eq!(
        podherd.get(&world, "blog.test", "/").body,
        "demo-web version 2\n"
    );
}

#[test]
fn a_container_that_ends_at_once_fails_the_deploy() {
    let world = World::start();
    let _podherd = world.podherd();
    let revision = world.apply("blog", &manifest("blog", Image::ExitsAtOnce));

    let status = world.wait_refused("blog", revision);

    until("the deploy has failed", || {
        world
            .last_operation("blog")
            .is_some_and(|it| it["outcome"]["result"] == "failed")
    });
    assert!(
        !status.to_string().contains("leaving at once"),
        "no container logs: {status}"
    );
    assert!(world.active("blog").is_empty());
}

#[test]
fn an_image_volume_that_the_manifest_does_not_map_is_refused_in_preflight() {
    let world = World::start();
    let _podherd = world.podherd();
    let revision = world.apply("blog", &manifest("blog", Image::WithVolume));
    let status = world.wait_refused("blog", revision);
    assert!(message(&status, "Ready").contains("/data"), "{status}");
    assert!(world.containers().is_empty());

    world.deploy("blog", &with_volume("blog", Image::WithVolume));
}

#[test]
fn a_wrong_manifest_is_refused_with_its_place_while_the_old_one_serves() {
    let world = World::start();
    let podherd = world.podherd();
    let good = manifest("blog", Image::Web1);
    world.deploy("blog", &good);
    let before = world.running();
    let bomb = {
        let mut levels = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for level in 1..10 {
            let below = format!("*a{}, ", level - 1).repeat(9);
            writeln!(levels, "a{level}: &a{level} [{below}]").expect("a String takes it");
        }
        levels
    };
    let cases: [(&str, String, &str); 9] = [
        (
            "malformed",
            good.replace("metadata:", "metadata: ]"),
            "line",
        ),
        (
            "duplicate key",
            good.replace("kind: App", "kind: App\nkind: App"),
            "line 3",
        ),
        ("alias bomb", bomb, ""),
        (
            "unknown field",
            good.replace("stopGrace:", "stopGrase:"),
            "stopGrase",
        ),
        (
            "bad duration",
            good.replace("stopGrace: 2s", "stopGrace: soon"),
            "stopGrace",
        ),
        (
            "undeclared port",
            good.replace("path: /healthz, port: http", "path: /, port: web"),
            "web",
        ),
        (
            "another name",
            good.replace("name: blog", "name: glob"),
            "glob",
        ),
        (
            "not supported yet",
            good.replace("port: http}]", "port: http, tls: auto}]"),
            "not supported yet",
        ),
        ("two documents", format!("{good}---\n{good}"), "document"),
    ];
    for (case, text, wanted) in cases {
        assert_ne!(text, good, "{case} changes nothing");
        let revision = world.apply("blog", &text);
        let status = world.wait_condition("blog", revision, "Accepted", "False");
        let said = message(&status, "Accepted");
        assert!(said.contains(wanted), "{case}: {said}");
        if !matches!(case, "alias bomb") {
            assert!(
                said.contains("line") && said.contains("column"),
                "{case}: {said}"
            );
        }
        assert_serves_1(&world, &podherd);
        assert_eq!(world.running(), before, "{case}");
    }

    world.deploy("blog", &good);
    assert_eq!(world.running(), before);
}

#[test]
fn a_value_too_large_and_a_key_with_a_slash_change_nothing() {
    let world = World::start();
    let mut podherd = world.podherd();
    let good = manifest("blog", Image::Web1);
    world.deploy("blog", &good);
    let before = world.running();

    let large = format!("{good}# {}\n", "x".repeat(1_400_000));
    let revision = world.apply("blog", &large);
    world.wait_condition("blog", revision, "Accepted", "False");
    let larger = format!("{good}# {}\n", "x".repeat(2 << 20));
    let put = ["put", "/podherd/apps/blog"];
    let refused = world.etcd.output(&world.sandbox, &put, larger.as_bytes());
    assert!(!refused.status.success(), "etcd takes 1.5 MiB at most");
    world.apply("blog/web", &good);
    world.apply("Blog", &good);
    world.apply("", &good);
    world.deploy("next", &manifest("next", Image::Web1));

    assert!(podherd.process().ended().is_none());
    assert_serves_1(&world, &podherd);
    assert!(before.iter().all(|id| world.running().contains(id)));
    world.assert_only_active(&["blog", "next"]);
}
