//! A run that ends anywhere: whoever leads next brings the app where it was going.

use podherd::runtime::{Container, ContainerState};
use podherd::state::{ConditionType, OutcomeKind};

use crate::support::{Cut, Manifest, World, blog};

/// Far more effects than any operation here has.
const EFFECTS: usize = 200;

/// Cuts what `begin` sets off at every effect, in every way, and lets another
/// controller (or, where only a reply was lost, the same one) go on.
async fn cut_everywhere<T>(
    prepare: impl AsyncFn() -> World,
    begin: impl AsyncFn(&World) -> T,
    verify: impl Fn(&World),
) {
    for (cut, takes_over) in [
        (Cut::Before, true),
        (Cut::After, true),
        (Cut::LosesReply, true),
        (Cut::LosesReply, false),
        (Cut::Fails, true),
        (Cut::Fails, false),
    ] {
        let mut reached = 0;
        for number in 0..EFFECTS {
            let mut world = prepare().await;
            begin(&world).await;
            world.effects();
            if !world.pass_cut("blog", number, cut).await {
                break;
            }
            println!(
                "{cut:?} at {number}, takes over: {takes_over}: {:?}",
                world.effects()
            );
            reached += 1;
            world.check();
            if takes_over {
                world.restart().await;
            }
            world.settle("blog").await;
            verify(&world);
        }
        assert!(reached > 3 && reached < EFFECTS, "{reached} effects");
    }
}

fn replaced(world: &World) {
    world.assert_serves("blog", &["web"]);
    let last = world.last_deploy("blog");
    assert_eq!(last.outcome.unwrap().result, OutcomeKind::Success);
    assert_eq!(world.serving("blog", "web").image, "registry.test/web:2");
}

async fn running(manifest: Manifest) -> World {
    let world = World::new().await.images(&["web:1", "web:2"]);
    world.deploy(&manifest).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_first_deployment_cut_at_any_effect_is_brought_to_its_end() {
    let empty = async || World::new().await.images(&["web:2"]);
    let begin = async |world: &World| world.put(&blog("web:2")).await;
    cut_everywhere(empty, begin, replaced).await;
}

#[tokio::test(start_paused = true)]
async fn a_replacement_cut_at_any_effect_is_brought_to_its_end() {
    let begin = async |world: &World| world.put(&blog("web:2")).await;
    cut_everywhere(async || running(blog("web:1")).await, begin, replaced).await;
}

#[tokio::test(start_paused = true)]
async fn a_replacement_with_a_volume_cut_at_any_effect_never_has_two_writers() {
    let stateful = |image: &str| blog(image).volume("web", "data");
    let begin = async |world: &World| world.put(&stateful("web:2")).await;
    cut_everywhere(async || running(stateful("web:1")).await, begin, replaced).await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_cut_at_any_effect_is_brought_to_its_end() {
    let begin = async |world: &World| world.delete("blog").await;
    let verify = |world: &World| world.assert_gone("blog");
    cut_everywhere(async || running(blog("web:1")).await, begin, verify).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_service_cut_at_any_effect_is_gone_in_the_end() {
    let two = blog("web:1").service("db", "web:2");
    let begin = async |world: &World| world.put(&blog("web:2")).await;
    cut_everywhere(async || running(two.clone()).await, begin, replaced).await;
}

#[tokio::test(start_paused = true)]
async fn a_repair_cut_at_any_effect_is_brought_to_its_end() {
    for lose in [crash, remove] {
        let begin = async |world: &World| lose(world);
        let verify = |world: &World| world.assert_serves("blog", &["web"]);
        cut_everywhere(async || running(blog("web:1")).await, begin, verify).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_and_a_start_cut_at_any_effect_are_brought_to_their_end() {
    let ask = async |world: &World| {
        world.request("blog", "stop-1", r#"{"verb": "stop"}"#).await;
    };
    cut_everywhere(
        async || running(blog("web:1")).await,
        ask,
        |world| {
            world.check();
            assert_eq!(
                world.condition("blog", ConditionType::Ready).reason,
                "Stopped"
            );
            let running = |found: &Container| found.state == ContainerState::Running;
            assert!(!world.containers("web").iter().any(running));
        },
    )
    .await;
    let stopped = async || {
        let world = running(blog("web:1")).await;
        world.request("blog", "stop-1", r#"{"verb": "stop"}"#).await;
        world.settle("blog").await;
        world
    };
    let ask = async |world: &World| {
        world
            .request("blog", "start-1", r#"{"verb": "start"}"#)
            .await;
    };
    cut_everywhere(stopped, ask, |world| world.assert_serves("blog", &["web"])).await;
}

fn crash(world: &World) {
    world.runtime.crash(world.container("web").id.as_str(), 1);
}

fn remove(world: &World) {
    world
        .runtime
        .remove_by_hand(world.container("web").id.as_str());
}

#[tokio::test(start_paused = true)]
async fn a_removal_cut_at_any_effect_leaves_no_shared_network() {
    let shared = blog("web:1").spec("networks: [{name: db-shared}]");
    let begin = async |world: &World| world.delete("blog").await;
    let gone = |world: &World| world.assert_gone("blog");
    cut_everywhere(async || running(shared.clone()).await, begin, gone).await;
}
