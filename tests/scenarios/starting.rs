//! What a start does with each state in which it finds a service.

use podherd::runtime::Behaviour;
use podherd::state::{Outcome, OutcomeKind};

use crate::support::{Manifest, World, blog};

async fn serving(manifest: &Manifest) -> World {
    let world = World::new().await.images(&["web:1", "web:2", "db:1"]);
    world.deploy(manifest).await;
    world.effects();
    world
}

/// Two services that stay down when they go down.
fn two() -> Manifest {
    let two = blog("web:1").service("db", "db:1");
    two.with("web", "restart: Never")
        .with("db", "restart: Never")
}

async fn ask(world: &World, verb: &str) -> Outcome {
    let asked = format!("verb: {verb}");
    world.request("blog", verb, &asked).await;
    world.pass("blog").await.unwrap();
    let mut operations = world.operations("blog").into_iter();
    let operation = operations.find(|it| it.id.as_str() == verb);
    operation.unwrap().outcome.unwrap()
}

/// The effects but the write of the intent.
fn effects(world: &World) -> Vec<String> {
    let mut effects = world.effects();
    effects.retain(|effect| !effect.starts_with("intend"));
    effects
}

#[tokio::test(start_paused = true)]
async fn what_runs_verified_is_left_alone() {
    let world = serving(&two()).await;
    let before = (world.active("blog"), world.runtime.containers());
    assert_eq!(ask(&world, "start").await.result, OutcomeKind::Success);
    assert_eq!(effects(&world), Vec::<String>::new());
    let after = (world.active("blog"), world.runtime.containers());
    assert_eq!(after, before);
}

#[tokio::test(start_paused = true)]
async fn what_is_down_is_started_by_its_id_and_what_is_gone_is_rebuilt() {
    let world = serving(&two()).await;
    let (db, web) = (world.serving("blog", "db"), world.serving("blog", "web"));
    world.request("blog", "start", "verb: start").await;
    world.runtime.crash(web.container.as_str(), 1);
    world.runtime.remove_by_hand(db.container.as_str());
    world.settle("blog").await;
    let effects = effects(&world);
    let made = |effect: &&String| effect.starts_with("create ");
    let made: Vec<_> = effects.iter().filter(made).collect();
    assert_eq!(made, ["create db"], "{effects:?}");
    assert_eq!(world.serving("blog", "web").container, web.container);
    let rebuilt = world.serving("blog", "db");
    assert_ne!(rebuilt.container, db.container);
    assert_eq!((rebuilt.digest, rebuilt.revision), (db.digest, db.revision));
    world.assert_serves("blog", &["db", "web"]);
}

#[tokio::test(start_paused = true)]
async fn it_is_what_active_names_and_not_what_waits() {
    let world = serving(&blog("web:1")).await;
    ask(&world, "stop").await;
    assert_eq!(world.containers("web"), []);
    world.runtime.set_registry_down(true);
    world.put(&blog("web:2")).await;
    assert_eq!(ask(&world, "start").await.result, OutcomeKind::Success);
    let serving = world.serving("blog", "web");
    assert_eq!(serving.image, "registry.test/web:1");
    assert_eq!(serving.verified, world.container("web").started_at);
    assert_eq!(
        world.routes("blog").unwrap().containers(),
        [&serving.container].into()
    );
    world.runtime.set_registry_down(false);
    world.settle("blog").await;
    assert_eq!(world.serving("blog", "web").image, "registry.test/web:2");
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_ready_stays_withdrawn_and_holds_up_no_other() {
    let world = serving(&two()).await;
    for service in ["db", "web"] {
        let container = world.container(service).id;
        world.runtime.crash(container.as_str(), 1);
    }
    world.settle("blog").await;
    let db = world.container("db").id;
    world
        .runtime
        .set_behaviour(db.as_str(), Behaviour::NeverReady);
    let outcome = ask(&world, "start").await;
    assert_eq!(
        (outcome.result, outcome.reason.as_str()),
        (OutcomeKind::Partial, "NotReady")
    );
    assert!(
        outcome.message.starts_with("service db: readiness"),
        "{}",
        outcome.message
    );
    let failed = world.serving("blog", "db");
    assert_eq!((failed.container, failed.verified), (db, None));
    assert!(failed.binds.is_empty(), "nobody may be sent there");
    let web = world.serving("blog", "web");
    assert_eq!(web.verified, world.container("web").started_at);
}
