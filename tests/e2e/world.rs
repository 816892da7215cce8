//! The tests' own Podman, etcd and images behave as the other tests assume.

use std::time::{Duration, Instant};

use crate::support::{Image, World};

#[test]
fn a_container_answers_on_its_published_port_and_survives_the_service() {
    let mut world = World::start();
    let run = [
        "run",
        "--detach",
        "--publish",
        "127.0.0.1:20000:8080",
        Image::Web2.reference(),
    ];
    let id = world.podman.run(&world.sandbox, &run);
    crate::support::until("the demo image answers", || {
        world.get("http://127.0.0.1:20000/", "any").body == "demo-web version 2\n"
    });
    assert_eq!(world.get("http://127.0.0.1:20000/healthz", "any").code, 200);

    world.podman.restart_service(&world.sandbox);
    assert_eq!(world.running(), [id]);
}

#[test]
fn etcd_keeps_its_data_over_kill_9_and_a_pause() {
    let mut world = World::start();
    let first = world.etcd.put(&world.sandbox, "/a", b"1\n2");
    world.etcd.kill_9();
    world.etcd.start_again(&world.sandbox);
    assert_eq!(
        world.etcd.get(&world.sandbox, "/a").as_deref(),
        Some("1\n2")
    );
    world.etcd.pause();
    assert!(
        !world
            .etcd
            .output(&world.sandbox, &["get", "/a"], b"")
            .status
            .success()
    );
    world.etcd.resume();
    crate::support::until("etcd answers again", || {
        world
            .etcd
            .output(&world.sandbox, &["get", "/a"], b"")
            .status
            .success()
    });
    assert!(world.etcd.put(&world.sandbox, "/a", b"3") > first);
    world.etcd.compact(&world.sandbox);
}

#[test]
fn the_demo_images_leave_at_once_when_asked_and_the_writer_writes() {
    let world = World::start();
    for image in [
        Image::Web1,
        Image::SlowStart,
        Image::TcpOnly,
        Image::Writer1,
    ] {
        let volume = [
            "run",
            "--detach",
            "--volume",
            "data:/data",
            image.reference(),
        ];
        let id = world.podman.run(&world.sandbox, &volume);
        std::thread::sleep(Duration::from_millis(300));
        let asked = Instant::now();
        world
            .podman
            .run(&world.sandbox, &["stop", "--time", "10", &id]);
        assert!(
            asked.elapsed() < Duration::from_secs(3),
            "{image:?}: {:?}",
            asked.elapsed()
        );
    }
    let log = world.podman.volume_dir(&world.sandbox, "data").join("log");
    let log = std::fs::read_to_string(log).expect("the writer's log");
    let mut lines = log.lines();
    let start = lines.next().expect("a line");
    let id = start
        .strip_prefix("start ")
        .and_then(|it| it.strip_suffix(" 1"))
        .expect("its start");
    assert_eq!(id.len(), 36);
    assert_eq!(lines.next().map(str::to_owned), Some(format!("tick {id}")));
}
