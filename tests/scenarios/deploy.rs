//! A manifest becomes a service that serves, and a changed one replaces it.

use podherd::runtime::Behaviour;
use podherd::state::{ConditionType, OutcomeKind, StepKind, StepState, Truth};

use crate::support::{World, app, blog};

#[tokio::test(start_paused = true)]
async fn a_first_deployment_creates_probes_and_publishes_and_withdraws_nothing() {
    let world = World::new().await.images(&["web:1"]);
    world.deploy(&blog("web:1")).await;
    assert_eq!(
        world.effects(),
        [
            "create-network blog",
            "create web",
            "start web",
            "probe web",
            "publish-active",
            "traffic web",
        ]
    );
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_first_deployment_takes_at_most_ten_writes() {
    let world = World::new().await.images(&["web:1"]);
    world.deploy(&blog("web:1")).await;
    // The graph's own write comes on top of these.
    assert!(world.writes() <= 9, "{} writes", world.writes());
}

#[tokio::test(start_paused = true)]
async fn a_replacement_is_sequential_and_the_old_generation_is_gone_before_the_new_is_created() {
    let world = World::new().await.images(&["web:1", "web:2"]);
    world.deploy(&blog("web:1")).await;
    world.effects();
    world.deploy(&blog("web:2")).await;
    assert_eq!(
        world.effects(),
        [
            "withdraw web",
            "signal web SIGTERM",
            "remove web",
            "create web",
            "start web",
            "probe web",
            "publish-active",
            "traffic web",
        ]
    );
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_manifest_does_nothing_at_all() {
    let world = World::new().await.images(&["web:1"]);
    world.deploy(&blog("web:1")).await;
    let (writes, container) = (world.writes(), world.container("web").id);
    world.effects();
    world.settle("blog").await;
    assert_eq!(world.effects(), Vec::<String>::new());
    assert_eq!(world.writes(), writes);
    assert_eq!(world.container("web").id, container);
}
