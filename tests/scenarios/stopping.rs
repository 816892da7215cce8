//! A stopped app stays stopped, whoever revives it, until somebody starts it.

use std::time::Duration;

use podherd::runtime::Behaviour;
use podherd::state::{ConditionType, OutcomeKind, Truth};
use tokio::time::Instant;

use crate::support::{World, blog};

async fn stopped() -> World {
    let world = World::new().await.images(&["web:1", "web:2"]);
    world.deploy(&blog("web:1").volume("web", "data")).await;
    world.effects();
    world.request("blog", "stop-1", r#"{"verb": "stop"}"#).await;
    world.settle("blog").await;
    world
}

#[tokio::test(start_paused = true)]
async fn the_intent_is_durable_before_anything_is_stopped() {
    let world = stopped().await;
    let effects = world.effects();
    assert_eq!(
        effects[..3],
        ["intend-stopped", "withdraw web", "signal web SIGTERM"]
    );
    assert_eq!(
        world.condition("blog", ConditionType::Ready).reason,
        "Stopped"
    );
    assert_eq!(world.runtime.volumes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_app_is_neither_started_nor_deployed() {
    let mut world = stopped().await;
    world.effects();
    world.put(&blog("web:2").volume("web", "data")).await;
    world.restart().await;
    world.settle("blog").await;
    assert_eq!(world.effects(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_started_app_serves_what_active_names_and_then_takes_up_what_waits() {
    let world = stopped().await;
    world.put(&blog("web:2").volume("web", "data")).await;
    world.settle("blog").await;
    world
        .request("blog", "start-1", r#"{"verb": "start"}"#)
        .await;
    world.settle("blog").await;
    let operations = world.operations("blog");
    let start = operations
        .iter()
        .find(|it| it.id.as_str() == "start-1")
        .unwrap();
    assert_eq!(start.outcome.as_ref().unwrap().result, OutcomeKind::Success);
    assert!(world.last_deploy("blog").started_at > start.started_at);
    assert_eq!(world.serving("blog", "web").image, "registry.test/web:2");
    world.assert_serves("blog", &["web"]);
}

/// Whatever is being done: a probe may take minutes.
#[tokio::test(start_paused = true)]
async fn a_stop_or_a_removal_ends_a_probe_at_once() {
    let patient = "readiness: {http: {path: /, port: http}, timeout: 600s}";
    for asked in ["verb: stop", "verb: remove"] {
        let world = World::new()
            .await
            .images(&["web:1"])
            .image("web:sick", Behaviour::NeverReady);
        world.deploy(&blog("web:1")).await;
        world.put(&blog("web:sick").with("web", patient)).await;
        let began = Instant::now();
        let ask = async || world.request("blog", "end-1", asked).await;
        Box::pin(world.pass_while("blog", Duration::from_secs(5), ask)).await;
        assert!(began.elapsed() < Duration::from_secs(30), "{asked}");
        assert!(world.containers("web").is_empty(), "{asked}");
        world.check();
        if asked == "verb: stop" {
            let progressing = world.condition("blog", ConditionType::Progressing);
            assert_eq!(progressing.status, Truth::False, "{progressing:?}");
        }
    }
}

/// As a kill in the middle of it leaves it.
#[tokio::test(start_paused = true)]
async fn what_a_stop_left_half_done_is_brought_to_its_end() {
    let world = World::new().await.images(&["web:1"]);
    world.deploy(&blog("web:1").volume("web", "data")).await;
    world
        .runtime
        .fail_when(podherd::runtime::Call::Remove, |_| {
            Some(crate::failing::refuses())
        });
    world.request("blog", "stop-1", "verb: stop").await;
    let _ = world.pass("blog").await;
    assert_eq!(
        world.containers("web").len(),
        1,
        "it ended and is still there"
    );
    world.runtime.clear_faults();
    world.settle("blog").await;
    assert!(world.containers("web").is_empty());
    assert_eq!(world.claims(), Vec::<String>::new());
}
