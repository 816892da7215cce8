//! Containers that die or vanish behind Podherd's back.

use crate::support::{Image, World, manifest, until};

#[test]
fn a_container_removed_by_hand_is_built_again() {
    let world = World::start();
    let podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    let old = world.running();

    world
        .podman
        .run(&world.sandbox, &["rm", "--force", &old[0]]);

    until("another one is active", || {
        let running = world.running();
        running.len() == 1 && running != old && world.active("blog")["web"] == running[0]
    });
    until("it answers", || {
        podherd.get(&world, "blog.test", "/").code == 200
    });
    world.assert_only_active(&["blog"]);
}

/// A removal that is cut off can leave a container that Podman lists and can't
/// inspect, for its storage is gone.
#[test]
fn a_half_removed_container_is_removed_and_built_again() {
    let mut world = World::start();
    let podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    let old = world.running();
    world.podman.kill_service();
    world.podman.run(&world.sandbox, &["stop", &old[0]]);
    world.podman.forget_storage(&old[0]);
    world.podman.start_service(&world.sandbox);

    until("another one is active", || {
        let running = world.running();
        running.len() == 1 && running != old && world.active("blog")["web"] == running[0]
    });
    until("it answers", || {
        podherd.get(&world, "blog.test", "/").code == 200
    });
    world.assert_only_active(&["blog"]);
}

#[test]
fn a_killed_container_comes_back() {
    let world = World::start();
    let podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    let old = world.running();

    world.podman.run(&world.sandbox, &["kill", &old[0]]);

    until("one runs", || world.running().len() == 1);
    until("it answers", || {
        podherd.get(&world, "blog.test", "/").code == 200
    });
    world.assert_only_active(&["blog"]);
}

#[test]
fn a_container_restarted_by_hand_is_verified_again() {
    let world = World::start();
    let podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    let running = world.running();
    let verified = || {
        let active = world.record("state/active/blog").expect("ACTIVE");
        active["services"]["web"]["verified"].clone()
    };
    let before = verified();

    world
        .podman
        .run(&world.sandbox, &["restart", "--time", "2", &running[0]]);

    until("its new execution is verified", || {
        verified().is_string() && verified() != before
    });
    until("it answers", || {
        podherd.get(&world, "blog.test", "/").code == 200
    });
    assert_eq!(world.running(), running, "the same container");
    world.assert_only_active(&["blog"]);
}

#[test]
fn a_container_without_our_labels_is_never_touched() {
    let world = World::start();
    let stranger = world.podman.run(
        &world.sandbox,
        &["run", "--detach", "--name", "web", Image::Web1.reference()],
    );
    let _podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    world.delete("blog");
    until("only the stranger is left", || {
        world.running() == [stranger.clone()]
    });
}
