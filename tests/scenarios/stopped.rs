//! Stops that meet trouble, and what a stopped app leaves behind.

use std::time::Duration;

use podherd::runtime::{Behaviour, Call, ContainerState};
use podherd::state::{ConditionType, Operation, Outcome, OutcomeKind};

use crate::failing::refuses;
use crate::support::{World, blog};

async fn serving() -> World {
    let world = World::new().await.images(&["web:1", "db:1"]);
    let both = blog("web:1").volume("web", "data").service("db", "db:1");
    world.deploy(&both).await;
    world.effects();
    world
}

async fn ask(world: &World, id: &str) -> Outcome {
    world.request("blog", id, "verb: stop").await;
    let _ = world.pass("blog").await;
    let mut operations = world.operations("blog").into_iter();
    let of_it = |operation: &Operation| operation.id.as_str() == id;
    operations.find(of_it).unwrap().outcome.unwrap()
}

/// Nothing of the app runs.
fn assert_down(world: &World) {
    let containers = world.runtime.containers();
    let runs = |state: ContainerState| state == ContainerState::Running;
    assert!(!containers.iter().any(|it| runs(it.state)));
    let ready = world.condition("blog", ConditionType::Ready);
    assert_eq!(ready.reason, "Stopped");
}

#[tokio::test(start_paused = true)]
async fn a_stop_leaves_no_claim_and_no_inhibition_and_can_be_asked_for_again() {
    let world = serving().await;
    assert_eq!(ask(&world, "s-1").await.result, OutcomeKind::Success);
    assert_down(&world);
    assert_eq!(world.claims(), Vec::<String>::new());
    assert_eq!(world.inhibitions("blog"), []);
    assert_eq!(world.runtime.volumes().len(), 1);
    assert!(world.serving("blog", "web").binds.is_empty());

    world.effects();
    assert_eq!(ask(&world, "s-2").await.result, OutcomeKind::Success);
    assert_eq!(world.effects(), ["intend-stopped"]);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_that_is_not_confirmed_stops_nothing_and_fails() {
    let world = World::new().await.images(&["web:1"]);
    world.deploy(&blog("web:1")).await;
    world.traffic.set_stuck(true);
    world.effects();
    let outcome = ask(&world, "s-1").await;
    assert_eq!(
        (outcome.result, outcome.reason.as_str()),
        (OutcomeKind::Failed, "TrafficUnconfirmed")
    );
    let effects = world.effects();
    assert_eq!(
        effects[..2],
        ["intend-stopped", "withdraw web (unconfirmed)"]
    );
    let ends = |effect: &String| effect.starts_with("signal") || effect.starts_with("remove");
    assert!(!effects.iter().any(ends), "{effects:?}");

    world.traffic.set_stuck(false);
    world.settle("blog").await;
    assert_down(&world);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_stays_fails_the_stop_and_holds_up_no_other() {
    let world = serving().await;
    world
        .runtime
        .fail_when(Call::Remove, |of| (of == "db").then(refuses));
    let outcome = ask(&world, "s-1").await;
    assert_eq!(
        (outcome.result, outcome.reason.as_str()),
        (OutcomeKind::Failed, "RetireFailed")
    );
    let stays = world.container("db").id;
    assert!(
        outcome.message.starts_with("service db: ") && outcome.message.contains(stays.as_str()),
        "{}",
        outcome.message
    );
    assert_eq!(world.containers("web"), [], "it goes all the same");
    assert_down(&world);

    world.runtime.clear_faults();
    assert_eq!(ask(&world, "s-2").await.result, OutcomeKind::Success);
    assert_eq!(world.containers("db"), []);
}

#[tokio::test(start_paused = true)]
async fn an_app_of_which_nothing_serves_yet_is_not_tried_again() {
    let world = World::new().await.image("web:1", Behaviour::NeverReady);
    world.put(&blog("web:1")).await;
    world.pass("blog").await.unwrap();
    assert_eq!(ask(&world, "s-1").await.result, OutcomeKind::Success);
    world.effects();
    world.run_for("blog", Duration::from_secs(3600)).await;
    assert_eq!(world.effects(), Vec::<String>::new());
    assert_down(&world);
}

/// The exact container: a stop could end it and not remove it.
#[tokio::test(start_paused = true)]
async fn a_container_that_is_started_by_hand_is_stopped_again_at_the_next_boot() {
    let mut world = serving().await;
    let web = world.container("web").id;
    world
        .runtime
        .fail_when(Call::Remove, |of| (of == "web").then(refuses));
    ask(&world, "s-1").await;
    world.runtime.clear_faults();
    world.runtime.start_by_hand(web.as_str());
    world.restart().await;
    world.effects();
    world.settle("blog").await;
    let effects = world.effects();
    assert_eq!(effects, ["signal web SIGTERM", "remove web"]);
    assert_down(&world);
}
