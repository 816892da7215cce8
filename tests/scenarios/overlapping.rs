//! Updates in which both generations run for a while.

use podherd::runtime::{Behaviour, Call};
use podherd::state::{InhibitionReason, OutcomeKind};

use crate::failing::refuses;
use crate::support::{Cut, Manifest, World, blog};

fn overlapping(image: &str) -> Manifest {
    blog(image).with("web", "update: {strategy: overlap}")
}

async fn serving() -> World {
    let world = World::new()
        .await
        .images(&["web:1", "web:2"])
        .image("web:sick", Behaviour::NeverReady)
        .image(
            "web:slow",
            Behaviour::SlowReady(std::time::Duration::from_secs(5)),
        );
    world.deploy(&overlapping("web:1")).await;
    world.effects();
    world
}

#[tokio::test(start_paused = true)]
async fn the_new_generation_serves_before_the_old_one_is_touched() {
    let world = serving().await;
    world.deploy(&overlapping("web:2")).await;
    assert_eq!(
        world.effects(),
        [
            "create web",
            "start web",
            "probe web",
            "inhibit web",
            "publish-active",
            // One change of the graph: at no moment nobody serves.
            "withdraw web",
            "traffic web",
            "signal web SIGTERM",
            "remove web",
            "clear-inhibition web",
        ]
    );
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_is_not_ready_goes_and_the_old_one_never_notices() {
    let world = serving().await;
    let before = world.serving("blog", "web");
    world.put(&overlapping("web:sick")).await;
    world.pass("blog").await.unwrap();
    assert_eq!(
        world.effects(),
        ["create web", "start web", "probe web", "remove web"]
    );
    assert_eq!(world.serving("blog", "web"), before);
    assert_eq!(world.container("web").id, before.container);
    assert!(world.inhibitions("blog").is_empty());
    assert!(world.traffic.may_reach(&before.container));
}

#[tokio::test(start_paused = true)]
async fn a_generation_with_a_volume_is_replaced_in_order_all_the_same() {
    let world = World::new().await.images(&["web:1", "web:2"]);
    world.deploy(&blog("web:1").volume("web", "data")).await;
    world.effects();
    world.deploy(&overlapping("web:2")).await;
    assert_eq!(
        world.effects()[..4],
        [
            "withdraw web",
            "inhibit web",
            "signal web SIGTERM",
            "remove web"
        ]
    );
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn an_old_generation_that_can_not_be_retired_keeps_its_marker_and_is_tried_again() {
    let world = serving().await;
    let old = world.serving("blog", "web").container;
    world.runtime.fail_when(Call::Remove, |_| Some(refuses()));
    world.put(&overlapping("web:2")).await;
    world.pass("blog").await.unwrap();
    let [marker] = &world.inhibitions("blog")[..] else {
        panic!("{:?}", world.inhibitions("blog"))
    };
    assert_eq!(
        (&marker.container, marker.reason),
        (&old, InhibitionReason::RetirementPending)
    );
    let outcome = world.last_deploy("blog").outcome.unwrap();
    assert_eq!(
        (outcome.result, outcome.reason.as_str()),
        (OutcomeKind::Partial, "RetireFailed")
    );
    world.runtime.clear_faults();
    world.settle("blog").await;
    assert!(world.runtime.container(old.as_str()).is_none());
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_marker_whose_container_somebody_removed_is_cleared() {
    let world = serving().await;
    let old = world.serving("blog", "web").container;
    world.runtime.fail_when(Call::Remove, |_| Some(refuses()));
    world.put(&overlapping("web:2")).await;
    world.pass("blog").await.unwrap();
    world.runtime.clear_faults();
    world.runtime.remove_by_hand(old.as_str());
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

/// Some data plane may still send requests to the old one.
#[tokio::test(start_paused = true)]
async fn an_old_generation_is_not_stopped_before_the_graph_without_it_is_confirmed() {
    let world = serving().await;
    let old = world.serving("blog", "web").container;
    world.traffic.set_stuck(true);
    world.put(&overlapping("web:2")).await;
    world
        .run_for("blog", std::time::Duration::from_secs(30))
        .await;
    let stopped = |effect: &String| effect.starts_with("signal") || effect.starts_with("remove");
    assert!(!world.effects().iter().any(stopped));
    assert!(world.runtime.container(old.as_str()).is_some());
    world.traffic.set_stuck(false);
    world.settle("blog").await;
    assert!(world.runtime.container(old.as_str()).is_none());
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_takes_a_predecessor_with_it_and_fails_when_it_stays() {
    let world = serving().await;
    let old = world.serving("blog", "web").container;
    let stays = old.clone();
    world.runtime.fail_when(Call::Remove, |_| Some(refuses()));
    world.put(&overlapping("web:2")).await;
    world.pass("blog").await.unwrap();
    world.runtime.clear_faults();
    // Only the predecessor can't be removed: it is the second one to go.
    world.runtime.fail_when(Call::Remove, {
        let mut removals = 0;
        move |_| {
            removals += 1;
            (removals > 1).then(refuses)
        }
    });
    world.request("blog", "stop-1", "verb: stop").await;
    let _ = world.pass("blog").await;
    let operations = world.operations("blog");
    let stop = operations
        .iter()
        .find(|it| it.id.as_str() == "stop-1")
        .unwrap();
    assert_eq!(stop.outcome.as_ref().unwrap().reason, "RetireFailed");
    assert_eq!(world.containers("web").len(), 1);
    assert_eq!(world.inhibitions("blog")[0].container, stays);
    world.runtime.clear_faults();
    world.settle("blog").await;
    assert!(world.containers("web").is_empty());
    assert!(world.inhibitions("blog").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_overlapping_update_cut_anywhere_is_brought_to_its_end() {
    for cut in [Cut::Before, Cut::After, Cut::LosesReply, Cut::Fails] {
        for number in 0.. {
            let mut world = serving().await;
            world.put(&overlapping("web:2")).await;
            let reached = world.pass_cut("blog", number, cut).await;
            world.restart().await;
            world.settle("blog").await;
            assert_eq!(world.serving("blog", "web").image, "registry.test/web:2");
            world.assert_serves("blog", &["web"]);
            if !reached {
                assert!(number > 8, "{number} effects");
                break;
            }
        }
    }
}

/// Between the marker and ACTIVE: the old generation is the one that serves, and it
/// must not be taken out.
#[tokio::test(start_paused = true)]
async fn a_crash_before_the_publication_costs_no_request() {
    for number in 0.. {
        let mut world = serving().await;
        let old = world.serving("blog", "web").container;
        world.put(&overlapping("web:2")).await;
        let reached = world.pass_cut("blog", number, Cut::After).await;
        assert!(reached, "the marker is written at some point");
        let published = world.serving("blog", "web").container != old;
        assert!(!published, "the marker comes before ACTIVE");
        if world.inhibitions("blog").is_empty() {
            continue;
        }
        world.effects();
        world.restart().await;
        world.settle("blog").await;
        let effects = world.effects();
        // The candidate goes; the old one serves on until another takes its place.
        assert_eq!(effects[0], "remove web", "{effects:?}");
        let publish = effects.iter().position(|it| it == "publish-active");
        let withdraw = effects.iter().position(|it| it == "withdraw web");
        assert!(publish < withdraw, "{effects:?}");
        world.assert_serves("blog", &["web"]);
        return;
    }
}

/// The new graph can't be published, for another app has the route by now.
#[tokio::test(start_paused = true)]
async fn an_old_generation_goes_although_the_new_graph_can_not_be_published() {
    let world = serving().await;
    let taken = "http: [{host: taken.test, path: /, port: http}]";
    world.put(&overlapping("web:slow").with("web", taken)).await;
    let faster = async || {
        let other = crate::support::app("other").service("site", "web:1");
        world.deploy(&other.with("site", taken)).await;
    };
    Box::pin(world.pass_while("blog", std::time::Duration::from_secs(1), faster)).await;
    assert_eq!(
        world.last_deploy("blog").outcome.unwrap().reason,
        "RouteConflict"
    );
    // A mended manifest is taken up.
    world.deploy(&overlapping("web:2")).await;
    assert_eq!(world.serving("blog", "web").image, "registry.test/web:2");
    assert_eq!(world.containers("web").len(), 1);
    world.check();
    assert!(world.inhibitions("blog").is_empty());
    assert!(world.traffic.may_reach(&world.container("web").id));
}
