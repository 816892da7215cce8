//! The controller killed, stopped, doubled, and cut off from Podman.

use std::fs;
use std::time::Duration;

use crate::support::{Image, Options, Podherd, World, manifest, until, with_volume};

/// Ticks of a writer after another one has started on the same volume.
pub fn double_writers(log: &str) -> Vec<&str> {
    let mut latest = "";
    let mut found = Vec::new();
    for line in log.lines() {
        let mut words = line.split(' ');
        match (words.next(), words.next()) {
            (Some("start"), Some(id)) => latest = id,
            (Some("tick"), Some(id)) if id != latest => found.push(line),
            _ => {}
        }
    }
    found
}

#[test]
fn killed_in_the_middle_of_a_replacement_it_converges_without_an_orphan_or_a_double_writer() {
    let world = World::start();
    let mut podherd = world.podherd();
    world.deploy("blog", &with_volume("blog", Image::Writer1));
    let volume = world.podman.volumes(&world.sandbox).remove(0);
    let log = world.podman.volume_dir(&world.sandbox, &volume).join("log");

    // From before the withdrawal to after the publication.
    for (round, delay) in [5, 40, 90, 160, 240, 330, 430, 550, 700]
        .into_iter()
        .enumerate()
    {
        let (image, version) = if round % 2 == 0 {
            (Image::Writer2, 2)
        } else {
            (Image::Writer1, 1)
        };
        let revision = world.apply("blog", &with_volume("blog", image));
        std::thread::sleep(Duration::from_millis(delay));
        podherd.kill_9();
        podherd.start_again(&world).wait_serving(&world);

        world.wait_ready("blog", revision);
        let body = podherd.get(&world, "blog.test", "/").body;
        assert_eq!(
            body,
            format!("demo-web version {version}\n"),
            "killed after {delay} ms"
        );
        world.assert_only_active(&["blog"]);
        assert!(
            world.records("state/inhibitions/").is_empty(),
            "killed after {delay} ms"
        );
        let written = fs::read_to_string(&log).expect("the writers' log");
        assert_eq!(double_writers(&written), [""; 0], "killed after {delay} ms");
        for operation in world.operations("blog") {
            let outcome = &operation["outcome"]["result"];
            assert!(
                outcome.is_string(),
                "no operation stays in flight: {operation}"
            );
            let all_succeeded = operation["steps"]
                .as_array()
                .is_some_and(|steps| steps.iter().all(|step| step["state"] == "succeeded"));
            assert!(outcome != "success" || all_succeeded, "{operation}");
        }
    }
    let claims = world.records("state/binds/");
    assert_eq!(claims.len(), 1, "one container, one port: {claims:?}");
}

#[test]
fn killed_during_a_removal_it_finishes_it() {
    let world = World::start();
    let mut podherd = world.podherd();
    for delay in [20, 120, 300] {
        world.deploy("blog", &with_volume("blog", Image::Web1));
        world.delete("blog");
        std::thread::sleep(Duration::from_millis(delay));
        podherd.kill_9();
        podherd.start_again(&world).wait_serving(&world);
        until("the containers are gone", || world.containers().is_empty());
        until("the incarnation has ended", || {
            world.record("state/ownership/blog").is_none()
        });
    }
    assert_eq!(
        world.podman.volumes(&world.sandbox).len(),
        3,
        "volumes are retained"
    );
}

#[test]
fn a_second_controller_stands_by_and_takes_over_when_the_first_is_killed() {
    let world = World::start();
    let mut first = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    let before = world.running();
    let second = Podherd::start(
        &world,
        Options {
            number: 1,
            ..Options::default()
        },
    );
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(world.running(), before);

    first.kill_9();
    let revision = world.apply("blog", &manifest("blog", Image::Web2));

    world.wait_ready("blog", revision);
    world.assert_only_active(&["blog"]);
    assert_eq!(
        second.get(&world, "blog.test", "/").body,
        "demo-web version 2\n"
    );
}

#[test]
fn only_one_podherd_acts_on_a_podman_socket() {
    let world = World::start();
    let _first = world.podherd();
    let other = ["--prefix", "/other"].map(str::to_owned).to_vec();
    let options = Options {
        number: 1,
        arguments: other,
        ..Options::default()
    };
    let second = Podherd::start(&world, options);
    world.etcd.put(
        &world.sandbox,
        "/other/apps/b",
        manifest("b", Image::Web1).as_bytes(),
    );

    std::thread::sleep(Duration::from_secs(3));

    assert!(world.containers().is_empty());
    assert!(
        second.log().contains("lock"),
        "it says why: {}",
        second.log()
    );
}

#[test]
fn after_sigterm_the_workloads_run_on_and_a_restart_touches_none() {
    let world = World::start();
    let mut podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    let before = world.running();
    let started = |id: &str| {
        world.podman.run(
            &world.sandbox,
            &["inspect", "--format", "{{.State.StartedAt}}", id],
        )
    };
    let since = started(&before[0]);

    assert_eq!(podherd.term(), Some(0));
    assert_eq!(world.running(), before);
    podherd.start_again(&world).wait_serving(&world);

    until("it answers again", || {
        podherd.get(&world, "blog.test", "/").code == 200
    });
    assert_eq!(world.running(), before);
    assert_eq!(started(&before[0]), since);
}

#[test]
fn after_sigterm_in_the_middle_of_a_replacement_the_next_start_finishes_it() {
    let world = World::start();
    let mut podherd = world.podherd();
    world.deploy("blog", &with_volume("blog", Image::Writer1));
    let revision = world.apply("blog", &with_volume("blog", Image::Writer2));
    std::thread::sleep(Duration::from_millis(150));

    assert_eq!(podherd.term(), Some(0));
    podherd.start_again(&world).wait_serving(&world);

    world.wait_ready("blog", revision);
    world.assert_only_active(&["blog"]);
    assert_eq!(
        podherd.get(&world, "blog.test", "/").body,
        "demo-web version 2\n"
    );
}

#[test]
fn a_podman_service_killed_in_the_middle_of_a_replacement_is_found_again() {
    let mut world = World::start();
    let podherd = world.podherd();
    world.deploy("blog", &with_volume("blog", Image::Writer1));
    for (delay, image) in [
        (60, Image::Writer2),
        (200, Image::Writer1),
        (350, Image::Writer2),
    ] {
        let revision = world.apply("blog", &with_volume("blog", image));
        std::thread::sleep(Duration::from_millis(delay));
        world.podman.kill_service();
        std::thread::sleep(Duration::from_millis(500));
        world.podman.start_service(&world.sandbox);

        world.wait_ready("blog", revision);
        until("only what ACTIVE names is left", || {
            world.containers().len() == 1
        });
        world.assert_only_active(&["blog"]);
    }
    assert_eq!(
        podherd.get(&world, "blog.test", "/").body,
        "demo-web version 2\n"
    );
}
