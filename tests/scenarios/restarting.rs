//! Restarts that are of one service, that fail, and that are refused.

use std::time::Duration;

use podherd::runtime::{Behaviour, Call};
use podherd::state::{ConditionType, Outcome, OutcomeKind, Truth};

use crate::failing::refuses;
use crate::support::{Manifest, World, blog};

fn two() -> Manifest {
    blog("web:1").service("db", "db:1")
}

async fn serving(manifest: &Manifest) -> World {
    let world = World::new().await.images(&["web:1", "web:2", "db:1"]);
    world.deploy(manifest).await;
    world.effects();
    world
}

async fn ask(world: &World, asked: &str) -> Outcome {
    world.request("blog", "r-1", asked).await;
    let _ = world.pass("blog").await;
    let mut operations = world.operations("blog").into_iter();
    let operation = operations.find(|it| it.id.as_str() == "r-1");
    operation.unwrap().outcome.unwrap()
}

fn starts(world: &World) -> Vec<String> {
    let mut effects = world.effects();
    effects.retain(|effect| effect.starts_with("start"));
    effects
}

#[tokio::test(start_paused = true)]
async fn one_service_is_restarted_alone_and_all_in_their_order() {
    let world = serving(&two()).await;
    let outcome = ask(&world, "{verb: restart, service: web}").await;
    assert_eq!(outcome.result, OutcomeKind::Success);
    assert!(!world.effects().iter().any(|it| it.ends_with("db")));
    world.request("blog", "r-2", "verb: restart").await;
    world.settle("blog").await;
    assert_eq!(starts(&world), ["start db", "start web"]);
    world.assert_serves("blog", &["db", "web"]);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_that_is_not_confirmed_restarts_nothing() {
    let world = serving(&blog("web:1")).await;
    let before = world.container("web");
    world.traffic.set_stuck(true);
    let outcome = ask(&world, "verb: restart").await;
    assert_eq!(
        (outcome.result, outcome.reason.as_str()),
        (OutcomeKind::Failed, "TrafficUnconfirmed")
    );
    assert_eq!(world.container("web"), before);
    world.traffic.set_stuck(false);
    world.settle("blog").await;
    assert_eq!(world.container("web"), before);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_ready_afterwards_stays_withdrawn_and_holds_up_no_other() {
    let world = serving(&two()).await;
    let (db, web) = (world.container("db"), world.container("web"));
    world
        .runtime
        .set_behaviour(db.id.as_str(), Behaviour::NeverReady);
    let outcome = ask(&world, "verb: restart").await;
    assert_eq!(
        (outcome.result, outcome.reason.as_str()),
        (OutcomeKind::Partial, "NotReady")
    );
    world.run_for("blog", Duration::from_secs(60)).await;
    let failed = world.serving("blog", "db");
    assert_eq!((failed.container, failed.verified), (db.id.clone(), None));
    assert!(failed.binds.is_empty());
    assert_ne!(world.container("web").started_at, web.started_at);
    assert_eq!(
        world.serving("blog", "web").verified,
        world.container("web").started_at
    );
    let degraded = world.condition("blog", ConditionType::Degraded);
    assert_eq!(degraded.status, Truth::True);

    world
        .runtime
        .set_behaviour(db.id.as_str(), Behaviour::Ready);
    world.settle("blog").await;
    assert_eq!(world.container("db").id, db.id);
    world.assert_serves("blog", &["db", "web"]);
}

/// Only one that is gone is made again.
#[tokio::test(start_paused = true)]
async fn one_that_podman_does_not_start_is_not_replaced() {
    let world = serving(&two()).await;
    let db = world.container("db").id;
    world
        .runtime
        .fail_when(Call::Start, |of| (of == "db").then(refuses));
    let outcome = ask(&world, "verb: restart").await;
    assert_eq!(outcome.result, OutcomeKind::Partial);
    assert!(outcome.message.starts_with("service db: "));
    assert_eq!(world.serving("blog", "db").verified, None);
    let effects = world.effects();
    assert!(!effects.contains(&"create db".to_owned()), "{effects:?}");
    world.runtime.clear_faults();
    world.settle("blog").await;
    assert_eq!(world.container("db").id, db);
    world.assert_serves("blog", &["db", "web"]);
}

#[tokio::test(start_paused = true)]
async fn an_inhibited_container_is_refused_and_stays_withdrawn() {
    let world = serving(&blog("web:1").volume("web", "data")).await;
    world.runtime.fail_when(Call::Signal, |_| Some(refuses()));
    // Its replacement comes as far as the inhibition.
    world.put(&blog("web:2").volume("web", "data")).await;
    world.pass("blog").await.unwrap();
    let kept = world.inhibitions("blog");
    assert_eq!(kept.len(), 1);
    world.runtime.clear_faults();
    world.runtime.set_registry_down(true);
    world.effects();
    let outcome = ask(&world, "verb: restart").await;
    assert_eq!(
        (outcome.result, outcome.reason.as_str()),
        (OutcomeKind::Failed, "Inhibited")
    );
    assert_eq!(world.effects(), Vec::<String>::new());
    assert_eq!(world.inhibitions("blog"), kept);
    assert!(!world.traffic.may_reach(&kept[0].container));
}

#[tokio::test(start_paused = true)]
async fn what_never_served_is_refused() {
    let world = World::new().await.image("web:1", Behaviour::NeverReady);
    world.put(&blog("web:1")).await;
    world.pass("blog").await.unwrap();
    world.effects();
    let outcome = ask(&world, "verb: restart").await;
    assert_eq!(
        (outcome.result, outcome.reason.as_str()),
        (OutcomeKind::Failed, "NeverDeployed")
    );
    assert_eq!(world.effects(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_revoked_device_is_refused_by_every_way_back() {
    let world = World::new().await.images(&["web:1"]);
    world
        .policy
        .set("devices: {fuse: {path: /dev/fuse, access: rw, apps: [blog]}}");
    let device = blog("web:1").with("web", "devices: [/dev/fuse:/dev/fuse:rw]");
    world.deploy(&device).await;
    world.assert_serves("blog", &["web"]);
    world.effects();
    world.policy.set("");
    assert_eq!(ask(&world, "verb: restart").await.reason, "PolicyDenied");
    assert_eq!(world.effects(), Vec::<String>::new());
    let container = world.container("web").id;
    world.runtime.crash(container.as_str(), 1);
    world.pass("blog").await.unwrap();
    assert_eq!(world.effects(), ["withdraw web"]);
    world.runtime.remove_by_hand(container.as_str());
    world.pass("blog").await.unwrap();
    assert_eq!(world.effects(), Vec::<String>::new(), "nor made again");
}
