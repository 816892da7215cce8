//! What a container is given: volumes in time, ports as Podman gave them, or none.

use podherd::state::OutcomeKind;

use crate::support::{Manifest, World, app, blog};

async fn serving(manifest: &Manifest) -> World {
    let world = World::new().await.images(&["web:1", "web:2"]);
    world.deploy(manifest).await;
    world.effects();
    world
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_made_once_the_old_generation_is_gone() {
    let world = serving(&blog("web:1")).await;
    world.deploy(&blog("web:2").volume("web", "data")).await;
    assert_eq!(
        world.effects()[..5],
        [
            "withdraw web",
            "signal web SIGTERM",
            "remove web",
            "create-volume data",
            "create web",
        ]
    );
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_without_ports_is_verified_without_binds() {
    let worker = app("blog").service("web", "web:1");
    let worker = worker.with("web", "ports: []");
    let world = serving(&worker.with("web", "readiness: {none: {}}")).await;
    assert!(world.serving("blog", "web").binds.is_empty());
    world.request("blog", "r-1", "verb: restart").await;
    world.settle("blog").await;
    let outcome = world.last("blog").outcome.unwrap();
    assert_eq!(outcome.result, OutcomeKind::Success);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_udp_port_that_moved_while_the_controller_was_away_is_looked_up_before_it_is_served() {
    let dns = app("blog")
        .service("web", "web:1")
        .with("web", "ports: [{name: dns, container: 53, protocol: udp}]")
        .with("web", "udp: [{listen: 53, port: dns}]")
        .with("web", "readiness: {none: {}}");
    let mut world = serving(&dns).await;
    let container = world.container("web").id;
    world
        .runtime
        .restart_by_hand(container.as_str(), Some(25_000));
    world.restart().await;
    world.settle("blog").await;
    assert_eq!(
        world.effects(),
        ["withdraw web", "publish-active", "traffic web"]
    );
    assert_eq!(world.serving("blog", "web").binds[0].host, 25_000);
    let routes = world.routes("blog").unwrap();
    let (_, rule) = routes.listeners().next().unwrap();
    assert_eq!(rule.backends[0].address.port(), 25_000);
    world.assert_serves("blog", &["web"]);
}
