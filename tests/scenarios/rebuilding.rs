//! What is gone is built again: from what, into what, and what if that fails.

use std::time::Duration;

use podherd::runtime::{Call, ContainerSpec};
use podherd::state::{OutcomeKind, RevisionNumber, Verb, labels};
use podherd::store::{Store, Txn};

use crate::failing::refuses;
use crate::support::{Manifest, World, blog, name};

async fn serving(manifest: &Manifest) -> World {
    let world = World::new().await.images(&["web:1", "web:2"]);
    world.deploy(manifest).await;
    world.effects();
    world
}

fn vanish(world: &World) {
    let web = world.container("web").id;
    world.runtime.remove_by_hand(web.as_str());
}

/// How the container was made, without what differs from one to the next.
fn made(world: &World) -> ContainerSpec {
    let container = world.container("web");
    let mut spec = world.runtime.spec(container.id.as_str()).unwrap();
    spec.name.clear();
    spec.labels.remove(labels::OPERATION);
    for port in &mut spec.ports {
        port.host = 0;
    }
    spec
}

#[tokio::test(start_paused = true)]
async fn it_is_made_as_its_revision_says_whatever_the_manifest_says_by_now() {
    let manifest = |image: &str, zone: &str| {
        blog(image)
            .volume("web", "data")
            .spec(&format!("env: {{TZ: {zone}}}"))
            .spec("networks: [{name: db-shared}]")
    };
    let world = serving(&manifest("web:1", "UTC")).await;
    let before = made(&world);
    assert_eq!(before.env["TZ"], "UTC");
    assert_eq!(before.networks.len(), 2);
    world.runtime.set_registry_down(true);
    world.put(&manifest("web:2", "CET")).await;
    world.pass("blog").await.unwrap();
    vanish(&world);
    world.run_for("blog", Duration::from_secs(2)).await;
    assert_eq!(made(&world), before);
    assert!(world.serving("blog", "web").verified.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_rebuild_that_fails_leaves_nothing_that_forbids_the_next() {
    let world = serving(&blog("web:1").volume("web", "data")).await;
    let before = world.serving("blog", "web");
    world.runtime.fail_when(Call::Create, |_| Some(refuses()));
    vanish(&world);
    world.request("blog", "r-1", "verb: restart").await;
    world.pass("blog").await.unwrap();
    let mut operations = world.operations("blog").into_iter();
    let restart = operations.find(|it| it.id.as_str() == "r-1").unwrap();
    let outcome = restart.outcome.unwrap();
    assert_eq!(outcome.result, OutcomeKind::Failed);
    assert!(outcome.message.starts_with("service web: "));
    assert_eq!(world.inhibitions("blog"), []);
    assert_eq!(world.claims(), Vec::<String>::new());
    world.runtime.clear_faults();
    world.settle("blog").await;
    assert_eq!(world.serving("blog", "web").digest, before.digest);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn without_its_revision_nothing_is_made_up() {
    let world = serving(&blog("web:1")).await;
    let key = world.keys.revision(&name("blog"), RevisionNumber(1));
    let lose = Txn::default().delete(key);
    world.store.commit(lose).await.unwrap();
    vanish(&world);
    let _ = world.pass("blog").await;
    let effects = world.effects();
    assert!(!effects.contains(&"create web".to_owned()), "{effects:?}");
    let recovery = world.last("blog");
    assert_eq!(recovery.request.verb, Verb::Recover);
    let outcome = recovery.outcome.unwrap();
    assert_eq!(outcome.reason, "RevisionMissing");
    assert!(
        outcome.message.contains("change the manifest"),
        "{}",
        outcome.message
    );
    world.deploy(&blog("web:2")).await;
    world.assert_serves("blog", &["web"]);
}
