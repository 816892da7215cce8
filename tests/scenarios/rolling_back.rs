//! `onFailure: rollback`: what a failed deployment replaced comes back, once.

use podherd::runtime::Behaviour;
use podherd::state::{ConditionType, OutcomeKind, Verb};

use crate::support::{Manifest, World, blog};

fn returning(image: &str) -> Manifest {
    blog(image).with("web", "update: {onFailure: rollback}")
}

async fn serving(manifest: &Manifest) -> World {
    let world = World::new()
        .await
        .images(&["web:1", "web:2", "api:1", "api:2"])
        .image("web:sick", Behaviour::NeverReady);
    world.deploy(manifest).await;
    world.effects();
    world
}

fn rollbacks(world: &World) -> usize {
    let operations = world.operations("blog").into_iter();
    operations
        .filter(|it| it.request.verb == Verb::Rollback)
        .count()
}

#[tokio::test(start_paused = true)]
async fn the_generation_before_serves_again_and_the_manifest_waits_for_a_change() {
    let world = serving(&returning("web:1")).await;
    let before = world.serving("blog", "web");
    world.deploy(&returning("web:sick")).await;
    let after = world.serving("blog", "web");
    assert_eq!(
        (&after.image, &after.digest, after.revision),
        (&before.image, &before.digest, before.revision)
    );
    assert_ne!(after.container, before.container);
    assert_eq!(rollbacks(&world), 1);
    let deploy = world
        .operations("blog")
        .into_iter()
        .rfind(|it| it.request.verb == Verb::Deploy)
        .unwrap();
    assert_eq!(deploy.outcome.unwrap().reason, "NotReady");
    let ready = world.condition("blog", ConditionType::Ready);
    assert_eq!(ready.reason, "RolledBack");
    // It isn't tried again by itself: that would undo the rollback.
    world.effects();
    world
        .run_for("blog", std::time::Duration::from_secs(24 * 3600))
        .await;
    assert_eq!(world.effects(), Vec::<String>::new());

    world.deploy(&returning("web:2")).await;
    world.assert_serves("blog", &["web"]);
    assert_eq!(world.serving("blog", "web").image, "registry.test/web:2");
}

#[tokio::test(start_paused = true)]
async fn without_it_nothing_comes_back() {
    let world = serving(&blog("web:1")).await;
    world.put(&blog("web:sick")).await;
    world.pass("blog").await.unwrap();
    assert_eq!(rollbacks(&world), 0);
    assert!(world.containers("web").is_empty());
}

#[tokio::test(start_paused = true)]
async fn only_the_service_that_failed_is_rolled_back() {
    let two = |web: &str, api: &str| returning(web).service("api", api);
    let world = serving(&two("web:1", "api:1")).await;
    world.deploy(&two("web:sick", "api:2")).await;
    assert_eq!(world.serving("blog", "api").image, "registry.test/api:2");
    assert_eq!(world.serving("blog", "web").image, "registry.test/web:1");
    assert_eq!(rollbacks(&world), 1);
    let rollback = world.last_deploy("blog");
    let others = rollback.steps.iter().filter_map(|it| it.service.as_ref());
    assert!(others.into_iter().all(|it| it.as_str() == "web"));
    assert_eq!(rollback.outcome.unwrap().result, OutcomeKind::Success);
}

#[tokio::test(start_paused = true)]
async fn a_first_deployment_has_nothing_to_go_back_to() {
    let world = World::new().await.image("web:sick", Behaviour::NeverReady);
    world.put(&returning("web:sick")).await;
    world
        .run_for("blog", std::time::Duration::from_secs(60))
        .await;
    assert_eq!(rollbacks(&world), 0);
}

#[tokio::test(start_paused = true)]
async fn a_healthy_generation_is_never_rolled_back() {
    // Overlap: the old one serves on while the candidate fails.
    let fields = "update: {onFailure: rollback, strategy: overlap}";
    let world = serving(&blog("web:1").with("web", fields)).await;
    let before = world.serving("blog", "web");
    world.put(&blog("web:sick").with("web", fields)).await;
    world
        .run_for("blog", std::time::Duration::from_secs(600))
        .await;
    assert_eq!(rollbacks(&world), 0);
    assert_eq!(world.serving("blog", "web"), before);
}

/// The generation before fails as well: the rollback isn't repeated.
#[tokio::test(start_paused = true)]
async fn a_rollback_that_fails_is_not_tried_in_a_loop() {
    let world = serving(&returning("web:1")).await;
    world.runtime.push_image(
        "registry.test/web:1",
        podherd::runtime::MemoryImage::new("web:1").behaves(Behaviour::NeverReady),
    );
    world.runtime.prune_image("registry.test/web:1");
    world.put(&returning("web:sick")).await;
    world
        .run_for("blog", std::time::Duration::from_secs(3600))
        .await;
    assert_eq!(rollbacks(&world), 1);
    world.deploy(&returning("web:2")).await;
    world.assert_serves("blog", &["web"]);
}
