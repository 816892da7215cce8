//! A deleted manifest: the app goes, what it owns stays.

use std::time::Duration;

use podherd::runtime::Call;
use podherd::state::{ConditionType, InhibitionReason, Truth, Verb};

use crate::failing::refuses;
use crate::support::{World, blog};

async fn serving() -> World {
    let world = World::new().await.images(&["web:1", "db:1"]);
    let manifest = blog("web:1").volume("web", "data").service("db", "db:1");
    world.deploy(&manifest).await;
    world.effects();
    world
}

#[tokio::test(start_paused = true)]
async fn the_intent_and_the_inhibitions_are_durable_before_anything_is_done() {
    let world = serving().await;
    world.delete("blog").await;
    world.settle("blog").await;
    assert_eq!(
        world.effects(),
        [
            "intend-stopped",
            "inhibit db",
            "inhibit web",
            "withdraw web",
            "signal db SIGTERM",
            "remove db",
            "clear-inhibition db",
            "signal web SIGTERM",
            "remove web",
            "clear-inhibition web",
            "remove-network blog",
            "end",
        ]
    );
    world.assert_gone("blog");
}

#[tokio::test(start_paused = true)]
async fn volumes_and_images_are_retained_and_listed_under_the_old_incarnation() {
    let world = serving().await;
    let incarnation = world.ownership("blog").unwrap().incarnation;
    let volumes = world.runtime.volumes();
    world.delete("blog").await;
    world.settle("blog").await;
    assert_eq!(world.runtime.volumes(), volumes);
    let retained = world.retained();
    assert_eq!(retained.len(), 1);
    assert_eq!(retained[0].incarnation, incarnation);
    assert_eq!(
        Vec::from_iter(retained[0].resources.volumes.clone()),
        volumes
    );
    assert_eq!(retained[0].resources.images.len(), 2);
    assert!(retained[0].resources.networks.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_used_again_inherits_nothing() {
    let world = serving().await;
    let old = world.ownership("blog").unwrap().incarnation;
    world.delete("blog").await;
    world.settle("blog").await;
    world.deploy(&blog("web:1").volume("web", "data")).await;
    assert_ne!(world.ownership("blog").unwrap().incarnation, old);
    assert_eq!(world.runtime.volumes().len(), 2, "a volume of its own");
    assert_eq!(world.active_revision("blog", "web"), 1);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_comes_back_during_the_removal_begins_another_incarnation() {
    let world = serving().await;
    let old = world.ownership("blog").unwrap().incarnation;
    world.runtime.fail_when(Call::Remove, |_| Some(refuses()));
    world.delete("blog").await;
    world.pass("blog").await.unwrap();
    let inhibited = world.inhibitions("blog");
    assert_eq!(inhibited.len(), 2);
    assert!(
        inhibited
            .iter()
            .all(|it| it.reason == InhibitionReason::Removed)
    );
    world.put(&blog("web:1")).await;
    world.run_for("blog", Duration::from_secs(60)).await;
    assert_eq!(world.ownership("blog").unwrap().incarnation, old);
    assert!(!world.effects().contains(&"start web".to_owned()));
    world.runtime.clear_faults();
    world.settle("blog").await;
    assert_ne!(world.ownership("blog").unwrap().incarnation, old);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_can_not_be_confirmed_is_tried_again_ever_more_slowly() {
    let world = serving().await;
    world.runtime.fail_when(Call::Remove, |_| Some(refuses()));
    world.delete("blog").await;
    world.run_for("blog", Duration::from_secs(3600)).await;
    let tries = world.operations("blog").len();
    assert!((5..=20).contains(&tries), "{tries} tries in an hour");
    world.runtime.clear_faults();
    world.settle("blog").await;
    world.assert_gone("blog");
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_that_is_not_confirmed_removes_nothing() {
    let world = serving().await;
    world.traffic.set_stuck(true);
    world.delete("blog").await;
    world.pass("blog").await.unwrap();
    assert_eq!(world.runtime.containers().len(), 2);
    assert!(
        !world
            .effects()
            .iter()
            .any(|effect| effect.starts_with("signal"))
    );
    world.traffic.set_stuck(false);
    world.settle("blog").await;
    world.assert_gone("blog");
}

#[tokio::test(start_paused = true)]
async fn a_protected_app_goes_on_without_its_manifest() {
    let world = World::new().await.images(&["web:1"]);
    world
        .deploy(&blog("web:1").spec("deletionProtection: true"))
        .await;
    world.effects();
    world.delete("blog").await;
    world.settle("blog").await;
    assert_eq!(world.effects(), Vec::<String>::new());
    let held = world.condition("blog", ConditionType::Progressing);
    assert_eq!(
        (held.status, held.reason.as_str()),
        (Truth::False, "DeletionProtected")
    );
    // It is still looked after.
    world.runtime.crash(world.container("web").id.as_str(), 1);
    world.settle("blog").await;
    assert_eq!(
        world.serving("blog", "web").verified,
        world.container("web").started_at
    );
    // Without the protection it goes.
    world.deploy(&blog("web:1")).await;
    world.delete("blog").await;
    world.settle("blog").await;
    world.assert_gone("blog");
}

#[tokio::test(start_paused = true)]
async fn an_app_that_never_owned_anything_leaves_no_status() {
    let world = World::new().await;
    world.put_text("blog", "kind: Nonsense").await;
    world.settle("blog").await;
    assert_eq!(
        world.condition("blog", ConditionType::Accepted).status,
        Truth::False
    );
    world.delete("blog").await;
    world.settle("blog").await;
    assert_eq!(world.status("blog"), None);
    assert_eq!(world.effects(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_app_whose_first_deployment_failed_is_removed_whole() {
    let world = World::new()
        .await
        .image("web:1", podherd::runtime::Behaviour::NeverReady);
    world.put(&blog("web:1")).await;
    world.pass("blog").await.unwrap();
    world.delete("blog").await;
    world.settle("blog").await;
    world.assert_gone("blog");
}

/// However many names come and go, each leaves one operation and one retained record.
#[tokio::test(start_paused = true)]
async fn a_removed_app_leaves_no_journal_but_the_removal() {
    let world = serving().await;
    world.deploy(&blog("db:1")).await;
    assert!(world.operations("blog").len() > 1);
    world.delete("blog").await;
    world.settle("blog").await;
    let verbs: Vec<Verb> = world
        .operations("blog")
        .iter()
        .map(|operation| operation.request.verb)
        .collect();
    assert_eq!(verbs, [Verb::Remove]);
}
