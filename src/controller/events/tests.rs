//! Podman's events on a host that comes and goes.

use super::super::testing::{World, pulse};
use super::*;
use crate::runtime::{ContainerSpec, MemoryImage};

const LONG: Duration = Duration::from_secs(60);

/// Events followed on a host where `blog` and `shop` run a container each.
async fn follow() -> World {
    let world = World::start();
    world.host.load_image("web", MemoryImage::new("web"));
    for app in ["blog", "shop"] {
        world.store.put(&format!("apps/{app}")).await;
        run_container(&world, app);
    }
    let (events, tried) = EventWatch::new(
        world.catalog.clone(),
        world.queue.clone(),
        world.entropy.clone(),
        world.metrics.controller.clone(),
    );
    tokio::spawn(events.run(world.stop.clone(), pulse()));
    tried.await.unwrap();
    world
}

fn run_container(world: &World, app: &str) {
    world.host.run_by_hand(&ContainerSpec {
        name: app.to_owned(),
        image_id: "web".to_owned(),
        labels: [(labels::APP.to_owned(), app.to_owned())].into(),
        ..ContainerSpec::default()
    });
}

#[tokio::test(start_paused = true)]
async fn at_the_beginning_apps_that_only_containers_name_are_looked_at_too() {
    let world = follow().await;

    assert_eq!(world.worked_on().await, ["blog", "shop"]);
}

#[tokio::test(start_paused = true)]
async fn a_death_puts_its_app_in() {
    let world = follow().await;
    world.worked_on().await;

    world.host.crash("shop", 1);

    assert_eq!(world.worked_on().await, ["shop"]);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_not_ours_is_no_concern() {
    let world = follow().await;
    world.worked_on().await;

    run_container(&world, "Not An App");
    world.host.crash("Not An App", 1);

    assert!(world.worked_on().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn after_a_broken_stream_every_app_is_looked_at() {
    let world = follow().await;
    world.worked_on().await;

    world.host.end_events();

    assert_eq!(world.worked_on_within(LONG).await, ["blog", "shop"]);
    world.host.crash("blog", 1);
    assert_eq!(world.worked_on().await, ["blog"]);
}

#[tokio::test(start_paused = true)]
async fn a_podman_that_is_away_is_found_again() {
    let world = follow().await;
    world.worked_on().await;

    world.host.set_down(true);
    world.host.end_events();
    assert!(world.worked_on_within(LONG).await.is_empty());
    world.host.set_down(false);

    assert_eq!(world.worked_on_within(LONG).await, ["blog", "shop"]);
}

#[tokio::test(start_paused = true)]
async fn a_podman_that_is_away_at_the_beginning_holds_nothing_up() {
    let world = World::start();
    world.store.put("apps/blog").await;
    world.host.set_down(true);
    let (events, tried) = EventWatch::new(
        world.catalog.clone(),
        world.queue.clone(),
        world.entropy.clone(),
        world.metrics.controller.clone(),
    );
    tokio::spawn(events.run(world.stop.clone(), pulse()));
    tried.await.unwrap();

    world.host.set_down(false);

    assert_eq!(world.worked_on_within(LONG).await, ["blog"]);
}

#[tokio::test(start_paused = true)]
async fn a_resync_looks_at_every_app_about_once_a_period() {
    let world = World::start();
    world.store.put("apps/blog").await;
    world.store.put("state/ownership/old").await;
    run_container(&world, "orphan");
    let period = Duration::from_secs(300);
    tokio::spawn(resync(
        world.catalog.clone(),
        world.queue.clone(),
        period,
        world.entropy.clone(),
        world.stop.clone(),
    ));

    assert!(world.worked_on_within(period * 8 / 10).await.is_empty());
    assert_eq!(
        world.worked_on_within(period * 4 / 10).await,
        ["blog", "old", "orphan"]
    );
}
