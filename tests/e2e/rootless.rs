//! An ordinary user's Podherd on that user's own Podman. Neither the socket nor the state
//! folder is told to it.

use std::path::PathBuf;

use crate::support::world::text;
use crate::support::{Image, Options, Podherd, World, manifest, until, with_volume};

fn world() -> (World, Podherd) {
    let world = World::of_user();
    let options = Options {
        defaults: true,
        ..Options::default()
    };
    let mut podherd = Podherd::start(&world, options);
    podherd.wait_serving(&world);
    (world, podherd)
}

fn started_at(world: &World, container: &str) -> String {
    let format = ["inspect", "--format", "{{.State.StartedAt}}", container];
    world.podman.run(&world.sandbox, &format)
}

#[test]
fn an_app_s_life_without_root() {
    let (world, mut podherd) = world();
    let rootless = ["info", "--format", "{{.Host.Security.Rootless}}"];
    assert_eq!(world.podman.run(&world.sandbox, &rootless), "true");
    assert!(
        state_dir(&world).is_dir(),
        "the state is in the user's home"
    );

    world.deploy("blog", &manifest("blog", Image::Web1));
    assert_eq!(
        podherd.get(&world, "blog.test", "/").body,
        "demo-web version 1\n"
    );
    let old = world.running();
    world.deploy("blog", &manifest("blog", Image::Web2));
    assert_eq!(
        podherd.get(&world, "blog.test", "/").body,
        "demo-web version 2\n"
    );
    assert_ne!(world.running(), old);
    world.assert_only_active(&["blog"]);

    let before = world.running();
    let started = started_at(&world, &before[0]);
    let request = "/podherd/requests/blog/again";
    let asked = b"{verb: restart, service: web}";
    world.etcd.put(&world.sandbox, request, asked);
    until("the restart is recorded", || {
        let operation = world.record("state/operations/blog/again");
        operation.is_some_and(|it| it["outcome"]["result"] == "success")
    });
    assert_eq!(world.running(), before, "in place");
    assert_ne!(started_at(&world, &before[0]), started);
    assert_eq!(podherd.get(&world, "blog.test", "/").code, 200);

    podherd.kill_9();
    assert_eq!(world.running(), before, "workloads run on");
    podherd.start_again(&world).wait_serving(&world);
    until("it answers again", || {
        podherd.get(&world, "blog.test", "/").code == 200
    });
    assert_eq!(world.running(), before, "and aren't touched");

    world.podman.run(&world.sandbox, &["kill", &before[0]]);
    until("the killed container is back", || {
        world.running().len() == 1 && podherd.get(&world, "blog.test", "/").code == 200
    });

    world.delete("blog");
    until("the container is gone", || world.containers().is_empty());
    until("the incarnation has ended", || {
        world.record("state/ownership/blog").is_none()
    });
}

#[test]
fn a_volume_keeps_its_data_over_replacements_and_kills_without_root() {
    let (world, mut podherd) = world();
    world.deploy("blog", &with_volume("blog", Image::Writer1));
    let volume = world.podman.volumes(&world.sandbox).remove(0);
    let starts = || {
        let mountpoint = world.podman.volume_dir(&world.sandbox, &volume);
        let log = std::fs::read_to_string(mountpoint.join("log")).expect("the writers' log");
        log.lines()
            .filter(|line| line.starts_with("start "))
            .count()
    };
    assert_eq!(starts(), 1);

    let revision = world.apply("blog", &with_volume("blog", Image::Writer2));
    until("the replacement is under way", || {
        world
            .last_operation("blog")
            .is_some_and(|it| it["source"] == revision)
    });
    podherd.kill_9();
    podherd.start_again(&world).wait_serving(&world);
    world.wait_ready("blog", revision);
    assert_eq!(
        podherd.get(&world, "blog.test", "/").body,
        "demo-web version 2\n"
    );
    assert!(starts() >= 2, "one log, and every writer in it");
    world.assert_only_active(&["blog"]);

    world.delete("blog");
    until("the container is gone", || world.containers().is_empty());
    assert_eq!(world.podman.volumes(&world.sandbox), [volume], "it stays");
    let retained = || world.records("state/retained/");
    until("and is listed", || !retained().is_empty());
    assert!(text(&retained()[0].1["volumes"][0]).contains("data"));
}

fn state_dir(world: &World) -> PathBuf {
    world.sandbox.dir().join("home/.local/state/podherd")
}
