//! What the preflight finds out: nothing is touched.

use std::time::Duration;

use podherd::manifest::Protocol;
use podherd::reconcile::Verdict;
use podherd::runtime::{Behaviour, Labels, MemoryImage, Network};
use podherd::state::{ConditionType, OutcomeKind, Truth};

use crate::support::{Manifest, World, app, blog};

async fn serving() -> World {
    let world = World::new().await.images(&["web:1", "web:2"]);
    world.deploy(&blog("web:1")).await;
    world.effects();
    world
}

/// The manifest is refused for this reason: the old generation serves untouched, and
/// the status says so at the new revision.
async fn refused(world: &World, manifest: &Manifest, reason: &str) -> Verdict {
    let app = manifest.name.as_str();
    let (active, routes) = (world.active(app), world.routes(app));
    let revision = world.put(manifest).await;
    let verdict = world.pass(app).await.unwrap();
    assert_eq!(world.effects(), Vec::<String>::new());
    assert_eq!(world.active(app), active);
    assert_eq!(world.routes(app), routes);
    let operation = world.last(app);
    let outcome = operation.outcome.unwrap();
    assert_eq!(
        (outcome.result, outcome.reason.as_str()),
        (OutcomeKind::Failed, reason)
    );
    assert_eq!((operation.source, operation.steps), (revision, Vec::new()));
    assert_eq!(outcome.retryable, verdict != Verdict::Settled);
    assert_eq!(world.status(app).unwrap().observed_revision, revision);
    let ready = world.condition(app, ConditionType::Ready);
    assert_eq!(
        (ready.status, ready.reason.as_str()),
        (Truth::False, reason)
    );
    assert_eq!(
        world.condition(app, ConditionType::Degraded).status,
        Truth::False
    );
    verdict
}

#[tokio::test(start_paused = true)]
async fn an_unknown_image_leaves_the_old_generation_and_waits_for_a_change() {
    let world = serving().await;
    let verdict = refused(&world, &blog("web:9"), "ImageUnknown").await;
    assert_eq!(verdict, Verdict::Settled);
    let progressing = world.condition("blog", ConditionType::Progressing);
    assert_eq!(progressing.status, Truth::False);
    assert!(
        progressing
            .message
            .ends_with("waiting for a changed manifest")
    );
}

#[tokio::test(start_paused = true)]
async fn a_registry_that_is_down_leaves_the_old_generation_and_is_asked_again() {
    let world = serving().await;
    world.runtime.set_registry_down(true);
    let verdict = refused(&world, &blog("web:2"), "ImagePullFailed").await;
    assert!(matches!(verdict, Verdict::Again(_)));
    world.runtime.set_registry_down(false);
    world.settle("blog").await;
    assert_eq!(world.last("blog").attempt, 2);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn an_image_volume_that_nothing_is_mounted_on_is_refused() {
    let world = serving().await;
    world.push("web:2", MemoryImage::new("with a volume").volume("/data"));
    refused(&world, &blog("web:2"), "ImageVolumeNotMapped").await;
    // With a volume there it is deployed.
    world.deploy(&blog("web:2").volume("web", "data")).await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_route_of_another_app_is_refused_and_not_accepted() {
    let world = serving().await;
    let route = "http: [{host: blog.test, path: /, port: http}]";
    let shop = app("shop").service("web", "web:1").with("web", route);
    refused(&world, &shop, "RouteConflict").await;
    let accepted = world.condition("shop", ConditionType::Accepted);
    assert_eq!(accepted.status, Truth::False);
    assert!(
        accepted.message.contains("held by app blog"),
        "{}",
        accepted.message
    );
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_port_that_another_app_holds_is_refused() {
    let world = serving().await;
    let fixed = "ports: [{name: http, container: 8080, host: 8443}]";
    let shop = app("shop").service("web", "web:1").with("web", fixed);
    world.deploy(&shop).await;
    world.effects();
    let verdict = refused(&world, &blog("web:1").with("web", fixed), "PortInUse").await;
    assert!(matches!(verdict, Verdict::Again(_)), "the other app may go");
    world.delete("shop").await;
    world.settle("shop").await;
    world.settle("blog").await;
    assert_eq!(world.serving("blog", "web").binds[0].host, 8443);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_port_that_another_process_holds_is_refused() {
    let world = serving().await;
    world.runtime.occupy_port(Protocol::Tcp, 8443);
    let fixed = "ports: [{name: http, container: 8080, host: 8443}]";
    let verdict = refused(&world, &blog("web:1").with("web", fixed), "PortInUse").await;
    assert!(matches!(verdict, Verdict::Again(_)), "it may end");
    world.runtime.free_port(Protocol::Tcp, 8443);
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
    // Its own port is no obstacle.
    world.deploy(&blog("web:2").with("web", fixed)).await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_somebody_else_is_never_taken_over() {
    let world = serving().await;
    let network = world.runtime.networks().remove(0);
    let volume = format!("{network}-data");
    world.runtime.add_volume(&volume, &Labels::new());
    refused(
        &world,
        &blog("web:1").volume("web", "data"),
        "ForeignResource",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_network_of_somebody_else_is_never_taken_over() {
    let world = serving().await;
    let network = world.runtime.networks().remove(0);
    world.runtime.add_network(&network, &Network::default());
    refused(&world, &blog("web:2"), "ForeignResource").await;
    world.delete("blog").await;
    world.settle("blog").await;
    assert_eq!(
        world.runtime.networks(),
        [network],
        "nor removed with the app"
    );
    let warnings = world.last("blog").warnings;
    assert!(warnings[0].detail.contains("left alone"), "{warnings:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_deployment_goes_on_repairing_the_old_generation() {
    let world = serving().await;
    refused(&world, &blog("web:9"), "ImageUnknown").await;
    world.runtime.crash(world.container("web").id.as_str(), 1);
    world.settle("blog").await;
    assert_eq!(
        world.container("web").started_at,
        world.serving("blog", "web").verified
    );
    assert_eq!(
        world.condition("blog", ConditionType::Degraded).status,
        Truth::False
    );
    let ready = world.condition("blog", ConditionType::Ready);
    assert_eq!(
        (ready.status, ready.reason.as_str()),
        (Truth::False, "ImageUnknown")
    );
}

/// Both were free to have it when they were checked.
#[tokio::test(start_paused = true)]
async fn an_app_that_lost_the_race_for_a_route_can_still_be_mended() {
    let world = World::new()
        .await
        .images(&["web:1"])
        .image("web:slow", Behaviour::SlowReady(Duration::from_secs(5)));
    world.put(&blog("web:slow")).await;
    let route = "http: [{host: blog.test, path: /, port: http}]";
    let faster = async || {
        let shop = app("shop").service("web", "web:1").with("web", route);
        world.deploy(&shop).await;
    };
    Box::pin(world.pass_while("blog", Duration::from_secs(1), faster)).await;
    let lost = world.last_deploy("blog").outcome.unwrap();
    assert_eq!(lost.reason, "RouteConflict");
    let accepted = world.condition("blog", ConditionType::Accepted);
    assert_eq!(accepted.reason, "RouteConflict");

    let elsewhere = "http: [{host: elsewhere.test, path: /, port: http}]";
    world.deploy(&blog("web:1").with("web", elsewhere)).await;
    world.settle("blog").await;
    let serving = world.serving("blog", "web");
    assert_eq!(serving.image, "registry.test/web:1");
    assert!(world.traffic.may_reach(&serving.container));
}

#[tokio::test(start_paused = true)]
async fn a_route_that_the_other_app_gives_up_is_taken() {
    let world = serving().await;
    let route = "http: [{host: blog.test, path: /, port: http}]";
    let shop = app("shop").service("web", "web:1").with("web", route);
    let verdict = refused(&world, &shop, "RouteConflict").await;
    assert!(matches!(verdict, Verdict::Again(_)), "the other app may go");
    world.delete("blog").await;
    world.settle("blog").await;
    world.settle("shop").await;
    assert_eq!(
        world.condition("shop", ConditionType::Accepted).status,
        Truth::True
    );
    assert!(world.traffic.routes(&"shop".parse().unwrap()).is_some());
}
