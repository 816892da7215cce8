//! A container that somebody pauses: no signal reaches it but SIGKILL.

use podherd::runtime::Behaviour;
use podherd::state::OutcomeKind;

use crate::support::{World, blog};

async fn paused() -> World {
    let world = World::new().await.images(&["web:1", "web:2"]);
    world.deploy(&blog("web:1").volume("web", "data")).await;
    let container = world.container("web").id;
    world.effects();
    world.runtime.pause_by_hand(container.as_str());
    world
}

#[tokio::test(start_paused = true)]
async fn it_is_withdrawn_and_serves_again_when_it_goes_on() {
    let world = paused().await;
    let container = world.container("web").id;
    let _ = world.pass("blog").await;
    assert_eq!(world.effects(), ["withdraw web"]);
    world.runtime.unpause_by_hand(container.as_str());
    world.settle("blog").await;
    assert_eq!(
        world.effects(),
        ["publish-active", "traffic web"],
        "the execution is the same, and it is probed again"
    );
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_deployment_replaces_it_by_force() {
    let world = paused().await;
    world.deploy(&blog("web:2").volume("web", "data")).await;
    let effects = world.effects();
    let end = effects.iter().position(|it| it == "signal web SIGKILL");
    let gone = effects.iter().position(|it| it == "remove web");
    let made = effects.iter().position(|it| it == "create web");
    assert!(end < gone && gone < made, "{effects:?}");
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_place_ends_it_by_force() {
    let world = paused().await;
    world.request("blog", "r-1", "verb: restart").await;
    let _ = world.pass("blog").await;
    let effects = world.effects();
    let end = effects.iter().position(|it| it == "signal web SIGKILL");
    let again = effects.iter().position(|it| it == "start web");
    assert!(end.is_some() && end < again, "{effects:?}");
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_place_of_what_nothing_ends_says_so() {
    let world = paused().await;
    let container = world.container("web").id;
    let stuck = Behaviour::NeverLeaves;
    world.runtime.set_behaviour(container.as_str(), stuck);
    world.request("blog", "r-1", "verb: restart").await;
    let _ = world.pass("blog").await;
    let operations = world.operations("blog");
    let restart = operations
        .iter()
        .find(|it| it.id.as_str() == "r-1")
        .unwrap();
    let outcome = restart.outcome.as_ref().unwrap();
    assert_eq!(
        (outcome.result, outcome.reason.as_str()),
        (OutcomeKind::Failed, "StopFailed")
    );
    assert!(outcome.message.contains("paused"), "{}", outcome.message);
}
