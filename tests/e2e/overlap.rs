//! Updates in which the new generation serves before the old one goes.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Image, World, condition, until, with};

fn overlapping(image: Image) -> String {
    with(
        "blog",
        image.reference(),
        "update: {strategy: overlap, drain: 5s}",
    )
}

/// The kinds of an operation's steps, in the journal's order.
fn kinds(operation: &serde_json::Value) -> Vec<&str> {
    let steps = operation["steps"].as_array().expect("steps");
    steps
        .iter()
        .filter_map(|step| step["kind"].as_str())
        .collect()
}

#[test]
fn no_request_fails_while_a_service_is_replaced_under_load() {
    let world = World::start();
    let podherd = world.podherd();
    world.deploy("blog", &overlapping(Image::Web1));
    let old = world.running();
    let done = AtomicBool::new(false);

    let answers: Vec<_> = std::thread::scope(|scope| {
        let ask = || {
            let mut seen = Vec::new();
            while !done.load(Ordering::Relaxed) {
                seen.push(podherd.get(&world, "blog.test", "/"));
            }
            seen
        };
        let load = [scope.spawn(ask), scope.spawn(ask)];
        world.deploy("blog", &overlapping(Image::Web2));
        until("the old one is retired", || {
            let running = world.running();
            running.len() == 1 && running != old
        });
        done.store(true, Ordering::Relaxed);
        load.into_iter()
            .flat_map(|it| it.join().expect("answers"))
            .collect()
    });

    let of = |version: u8| {
        let body = format!("demo-web version {version}\n");
        answers.iter().filter(|it| it.body == body).count()
    };
    assert!(answers.iter().all(|it| it.code == 200), "{answers:?}");
    assert_eq!(of(1) + of(2), answers.len());
    assert!(of(1) > 0 && of(2) > 0, "both were asked: {}", answers.len());
    let operation = world.last_operation("blog").expect("an operation");
    assert_eq!(
        kinds(&operation),
        [
            "provision",
            "create",
            "start",
            "probe",
            "inhibit",
            "publish",
            "traffic",
            "drain",
            "retire"
        ]
    );
    assert_eq!(operation["outcome"]["result"], "success");
    assert!(world.records("state/inhibitions/").is_empty());
    world.assert_only_active(&["blog"]);
}

#[test]
fn a_candidate_that_is_not_ready_leaves_the_old_one_serving() {
    let world = World::start();
    let podherd = world.podherd();
    world.deploy("blog", &overlapping(Image::Web1));
    let old = world.running();

    let revision = world.apply("blog", &overlapping(Image::NeverReady));
    world.wait_refused("blog", revision);

    assert_eq!(podherd.get(&world, "blog.test", "/").code, 200);
    assert_eq!(world.running(), old);
    world.assert_only_active(&["blog"]);
}

#[test]
fn a_failed_update_is_rolled_back_once() {
    let world = World::start();
    let podherd = world.podherd();
    let sequential =
        |image: Image| with("blog", image.reference(), "update: {onFailure: rollback}");
    world.deploy("blog", &sequential(Image::Web1));

    let revision = world.apply("blog", &sequential(Image::NeverReady));
    until("it is rolled back", || {
        let status = world.status("blog").unwrap_or_default();
        status["observedRevision"] == revision
            && condition(&status, "Ready").is_some_and(|it| it["reason"] == "RolledBack")
    });

    assert_eq!(
        podherd.get(&world, "blog.test", "/").body,
        "demo-web version 1\n"
    );
    world.assert_only_active(&["blog"]);
    let verbs: Vec<_> = world
        .operations("blog")
        .iter()
        .map(|it| it["request"]["verb"].clone())
        .collect();
    assert_eq!(verbs, ["deploy", "deploy", "rollback"]);
}
