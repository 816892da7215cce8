//! Only who leads writes and acts, and only as long.

use std::time::Duration;

use podherd::reconcile::ReconcileError;
use podherd::runtime::Behaviour;
use podherd::store::RecordsError;
use tokio::time::Instant;

use crate::support::{Cut, World, blog};

fn not_leading(error: &ReconcileError) -> bool {
    matches!(error, ReconcileError::Records(RecordsError::NotLeading(_)))
}

#[tokio::test(start_paused = true)]
async fn whoever_loses_the_leadership_half_way_writes_and_starts_nothing_more() {
    let slow = Behaviour::SlowReady(Duration::from_secs(10));
    let mut world = World::new().await.images(&["web:1"]).image("web:2", slow);
    world.deploy(&blog("web:1")).await;
    world.put(&blog("web:2")).await;
    let mut writes = 0;
    let lose = async || {
        world.keeper.release();
        writes = world.writes();
        world.effects();
    };
    world.pass_while("blog", Duration::from_secs(1), lose).await;
    assert_eq!(world.writes(), writes);
    assert_eq!(world.effects(), Vec::<String>::new());
    assert!(world.last("blog").in_flight());
    let error = world.pass("blog").await.unwrap_err();
    assert!(not_leading(&error), "{error}");
    world.restart().await;
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_overtaken_is_refused_by_the_store() {
    let mut world = World::new().await.images(&["web:1"]);
    world.put(&blog("web:1")).await;
    world.overtake().await;
    let before = world.store.revision();
    let error = world.pass("blog").await.unwrap_err();
    assert!(not_leading(&error), "{error}");
    assert_eq!(world.store.revision(), before);
    assert_eq!(world.effects(), Vec::<String>::new());
    world.restart().await;
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_overtaken_in_a_probe_leaves_its_candidate_to_the_next() {
    let slow = Behaviour::SlowReady(Duration::from_secs(10));
    let mut world = World::new().await.image("web:1", slow);
    world.put(&blog("web:1")).await;
    let overtake = async || world.overtake().await;
    world
        .pass_while("blog", Duration::from_secs(1), overtake)
        .await;
    assert!(world.last("blog").in_flight());
    assert_eq!(world.active("blog").services.len(), 0);
    world.restart().await;
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn no_effect_begins_with_less_time_left_than_it_may_take() {
    let mut world = World::new().await.images(&["web:1"]);
    world.put(&blog("web:1")).await;
    // Enough for a write, not for a create.
    world.lead_for(Duration::from_secs(8));
    let began = Instant::now();
    let error = world.pass("blog").await.unwrap_err();
    assert!(not_leading(&error), "{error}");
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "it doesn't wait for the end"
    );
    assert_eq!(world.effects(), Vec::<String>::new());
    world.restart().await;
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_reply_was_lost_is_found_and_not_repeated() {
    let written = async |lost: Option<usize>| {
        let world = World::new().await.images(&["web:1"]);
        world.put(&blog("web:1")).await;
        match lost {
            Some(number) => assert!(world.pass_cut("blog", number, Cut::LosesReply).await),
            None => drop(world.pass("blog").await),
        }
        world.assert_serves("blog", &["web"]);
        assert_eq!(world.operations("blog").len(), 1);
        world.writes()
    };
    let writes = written(None).await;
    // The status, the claim of the operation, the claim of the port.
    for number in [0, 1, 3] {
        assert_eq!(written(Some(number)).await, writes, "write {number}");
    }
}
