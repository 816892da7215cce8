//! A container that somebody pauses: no signal reaches it but SIGKILL.

use crate::support::{Image, World, manifest, until};

/// Lets everything go on at the end: what is paused can't be killed with the sandbox.
struct Thawed<'w>(&'w World);

impl Drop for Thawed<'_> {
    fn drop(&mut self) {
        let world = self.0;
        for container in world.containers() {
            if let (Some(id), true) = (container["Id"].as_str(), container["State"] == "paused") {
                world.podman.run(&world.sandbox, &["unpause", id]);
            }
        }
    }
}

fn paused(world: &World) -> Thawed<'_> {
    world.deploy("blog", &manifest("blog", Image::Web1));
    let container = &world.running()[0];
    world.podman.run(&world.sandbox, &["pause", container]);
    Thawed(world)
}

#[test]
fn it_is_withdrawn_and_serves_again_when_it_goes_on() {
    let world = World::start();
    let podherd = world.podherd();
    let thawed = paused(&world);
    until("it is withdrawn", || {
        podherd.get(&world, "blog.test", "/").code == 503
    });
    drop(thawed);
    until("it answers", || {
        podherd.get(&world, "blog.test", "/").code == 200
    });
    world.assert_only_active(&["blog"]);
}

#[test]
fn a_deployment_replaces_it() {
    let world = World::start();
    let podherd = world.podherd();
    let _thawed = paused(&world);
    world.deploy("blog", &manifest("blog", Image::Web2));
    assert_eq!(
        podherd.get(&world, "blog.test", "/").body,
        "demo-web version 2\n"
    );
    world.assert_only_active(&["blog"]);
}
