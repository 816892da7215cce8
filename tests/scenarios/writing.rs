//! A service with a volume is replaced: two generations never write it.

use std::time::Duration;

use podherd::runtime::{Behaviour, Call};
use podherd::state::{ConditionType, InhibitionReason, Truth};
use tokio_util::sync::CancellationToken;

use crate::failing::refuses;
use crate::support::{World, app, blog};

async fn stateful(behaves: Behaviour) -> World {
    let world = World::new()
        .await
        .images(&["web:1"])
        .image("web:2", behaves);
    world.deploy(&blog("web:1").volume("web", "data")).await;
    world.effects();
    world.put(&blog("web:2").volume("web", "data")).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_writer_is_inhibited_durably_before_it_is_stopped() {
    let world = stateful(Behaviour::Ready).await;
    world.settle("blog").await;
    assert_eq!(
        world.effects(),
        [
            "withdraw web",
            "inhibit web",
            "signal web SIGTERM",
            "remove web",
            "create web",
            "start web",
            "probe web",
            "publish-active",
            "clear-inhibition web",
            "traffic web",
        ]
    );
    world.assert_serves("blog", &["web"]);
    assert_eq!(world.runtime.volumes().len(), 1, "the volume is kept");
}

#[tokio::test(start_paused = true)]
async fn a_failed_replacement_of_a_writer_keeps_its_inhibition_over_the_next_boot() {
    let mut world = stateful(Behaviour::NeverReady).await;
    let old = world.serving("blog", "web").container;
    world.pass("blog").await.unwrap();
    let kept = world.inhibitions("blog");
    assert_eq!(kept.len(), 1);
    assert_eq!(
        (&kept[0].container, kept[0].reason),
        (&old, InhibitionReason::ReplacementPending)
    );
    let inhibited = world.condition("blog", ConditionType::Inhibited);
    assert_eq!(
        (inhibited.status, inhibited.reason.as_str()),
        (Truth::True, "ReplacementPending")
    );
    world.restart().await;
    world.runtime.set_registry_down(true);
    world.pass("blog").await.unwrap();
    assert_eq!(world.inhibitions("blog"), kept);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_writer_that_can_not_be_removed_is_never_started_again() {
    let mut world = stateful(Behaviour::Ready).await;
    let old = world.container("web").id;
    world.runtime.fail_when(Call::Remove, |_| Some(refuses()));
    world.pass("blog").await.unwrap();
    assert_eq!(
        world.effects(),
        ["withdraw web", "inhibit web", "signal web SIGTERM"]
    );
    world.restart().await;
    world.run_for("blog", Duration::from_secs(3600)).await;
    assert_eq!(world.container("web").id, old);
    assert!(!world.effects().contains(&"start web".to_owned()));
    let outcome = world.last("blog").outcome.unwrap();
    assert!(
        outcome.message.contains(old.as_str()),
        "{}",
        outcome.message
    );
    world.runtime.clear_faults();
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_candidate_of_a_writer_that_can_not_be_removed_stops_everything_else() {
    let mut world = stateful(Behaviour::NeverReady).await;
    let mut removals = 0;
    world.runtime.fail_when(Call::Remove, move |_| {
        removals += 1;
        (removals > 1).then(refuses)
    });
    world.pass("blog").await.unwrap();
    let (candidate, kept) = (world.container("web").id, world.inhibitions("blog"));
    assert_eq!(kept.len(), 1);
    world.restart().await;
    world.effects();
    world.put(&blog("web:1").volume("web", "data")).await;
    world.run_for("blog", Duration::from_secs(600)).await;
    assert_eq!(world.effects(), Vec::<String>::new());
    assert_eq!(world.inhibitions("blog"), kept);
    assert!(
        world
            .last("blog")
            .outcome
            .unwrap()
            .message
            .contains(candidate.as_str())
    );
    world.runtime.clear_faults();
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_candidate_that_can_not_be_removed_fails_closed_and_is_named() {
    let mut world = stateful(Behaviour::SlowReady(Duration::from_secs(20))).await;
    let cancel = CancellationToken::new();
    let cancels = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cancel.cancel();
    };
    let (ended, ()) = tokio::join!(world.pass_until("blog", &cancel), cancels);
    ended.unwrap_err();
    let candidate = world.container("web");
    world.restart().await;
    world.runtime.fail_when(Call::Remove, |_| Some(refuses()));
    let error = world.pass("blog").await.unwrap_err();
    assert!(error.to_string().contains(&candidate.name), "{error}");
    assert!(world.last("blog").in_flight());
    assert_eq!(world.inhibitions("blog").len(), 1);
    let held = world.condition("blog", ConditionType::Progressing);
    assert_eq!(
        (held.status, held.reason.as_str()),
        (Truth::False, "CandidateStays")
    );
    world.runtime.clear_faults();
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_and_a_fixed_port_move_to_another_service_with_one_holder_at_any_time() {
    let fixed = "ports: [{name: http, container: 8080, host: 9000}]";
    for held in ["volumes: [{name: data, path: /data}]", fixed] {
        let world = World::new().await.images(&["web:1", "web:2"]);
        let two = app("blog").service("a", "web:1").service("z", "web:1");
        world.deploy(&two.clone().with("z", held)).await;
        world.deploy(&two.with("a", held)).await;
        world.assert_serves("blog", &["a", "z"]);
    }
}

/// A deployment ended between the two: both records name what only one can hold.
#[tokio::test(start_paused = true)]
async fn a_start_after_a_half_done_move_makes_no_second_holder() {
    let volume = "volumes: [{name: data, path: /data}]";
    let port = "ports: [{name: http, container: 8080, host: 9000}]";
    for (held, refusal) in [(volume, "Inhibited"), (port, "StillHeld")] {
        let world = World::new()
            .await
            .images(&["web:1"])
            .image("web:sick", Behaviour::NeverReady);
        let two = app("blog").service("a", "web:1").service("z", "web:1");
        world.deploy(&two.with("z", held)).await;
        let moved = app("blog").service("a", "web:1").service("z", "web:sick");
        world.put(&moved.with("a", held)).await;
        world.pass("blog").await.unwrap();
        assert_eq!(world.containers("a").len(), 1);
        assert!(world.containers("z").is_empty());
        world.request("blog", "r-1", "verb: start").await;
        let _ = world.pass("blog").await;
        world.check();
        let operations = world.operations("blog");
        let start = operations
            .iter()
            .find(|it| it.id.as_str() == "r-1")
            .unwrap();
        assert_eq!(start.outcome.as_ref().unwrap().reason, refusal);
    }
}
