//! What the publisher writes, and whom it waits for. Data planes are written by hand.

use std::time::Duration;

use podherd::state::{ContainerId, decode};
use podherd::traffic::{AppRoutes, Drain, RETURN_WITHIN, Traffic, TrafficError};
use tokio::time::Instant;

use crate::world::{World, app, node, nothing, routes};

impl World {
    fn published(&self, name: &str) -> Option<(AppRoutes, i64)> {
        let key = self.keys.route(&app(name));
        let entry = self.store.entries().into_iter().find(|e| e.key == key)?;
        Some((decode(&entry.value).unwrap(), entry.mod_revision))
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_data_plane_a_write_is_confirmed_at_once() {
    let world = World::new().await;
    let wanted = routes("blog.test", &[]);
    let applied = world.publisher.apply(&app("blog"), &wanted).await.unwrap();
    let revision = applied.revision.0;
    assert_eq!(world.published("blog"), Some((wanted.clone(), revision)));
    let current = world.publisher.current(&app("blog")).await.unwrap();
    assert_eq!(current, Some(wanted));
}

#[tokio::test(start_paused = true)]
async fn the_same_routes_are_confirmed_again_and_not_written_again() {
    let world = World::new().await;
    let wanted = routes("blog.test", &[]);
    let first = world.publisher.apply(&app("blog"), &wanted).await.unwrap();
    let before = world.store.revision();
    let again = world.publisher.apply(&app("blog"), &wanted).await.unwrap();
    assert_eq!((again, world.store.revision()), (first, before));
}

#[tokio::test(start_paused = true)]
async fn who_has_not_confirmed_in_time_is_named() {
    let world = World::new().await;
    world.register("slow", 0, &[]).await;
    world.register("quick", i64::MAX, &[]).await;
    let applied = world.publisher.apply(&app("blog"), &nothing()).await;
    let Err(TrafficError::Unconfirmed { planes }) = applied else {
        panic!("{applied:?}");
    };
    assert_eq!(planes, "host-a/slow");
    assert!(
        world.published("blog").is_some(),
        "it is written all the same"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_data_plane_confirms_nothing() {
    let world = World::new().await;
    let key = world.keys.proxy(&node(), "newer");
    world.put(key, br#"{"schema":999}"#.to_vec()).await;
    let applied = world.publisher.apply(&app("blog"), &nothing()).await;
    assert!(matches!(
        applied,
        Err(TrafficError::Unconfirmed { planes }) if planes == "host-a/newer"
    ));
}

#[tokio::test(start_paused = true)]
async fn every_registered_data_plane_is_waited_for_until_it_confirms_or_is_gone() {
    let world = World::new().await;
    world.register("one", 0, &[]).await;
    world.register("two", 0, &[]).await;
    let (blog, wanted) = (app("blog"), nothing());
    let apply = world.publisher.apply(&blog, &wanted);
    tokio::pin!(apply);
    let second = Duration::from_secs(1);
    assert!(tokio::time::timeout(second, &mut apply).await.is_err());
    world.register("one", world.store.revision(), &[]).await;
    assert!(tokio::time::timeout(second, &mut apply).await.is_err());
    world.register("two", world.store.revision(), &[]).await;
    apply.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_data_plane_whose_lease_ended_is_expected_back_before_it_is_given_up() {
    let world = World::new().await;
    world.register("cut-off", 0, &[("old", 1)]).await;
    world.register("stopped", i64::MAX, &[]).await;
    let blog = app("blog");
    let early = world.publisher.apply(&blog, &nothing()).await;
    assert!(early.is_err(), "now it surely knows both");
    for name in ["cut-off", "stopped"] {
        world.delete(world.keys.proxy(&node(), name)).await;
    }
    let begun = Instant::now();
    world.publisher.apply(&blog, &nothing()).await.unwrap();
    assert!(begun.elapsed() >= RETURN_WITHIN, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_data_plane_that_comes_back_in_time_is_waited_for_as_before() {
    let world = World::new().await;
    world.register("cut-off", 1, &[]).await;
    let blog = app("blog");
    assert!(world.publisher.apply(&blog, &nothing()).await.is_err());
    world.delete(world.keys.proxy(&node(), "cut-off")).await;
    let wanted = nothing();
    let apply = world.publisher.apply(&blog, &wanted);
    tokio::pin!(apply);
    let soon = RETURN_WITHIN / 2;
    assert!(tokio::time::timeout(soon, &mut apply).await.is_err());
    world.register("cut-off", 0, &[]).await;
    assert!(tokio::time::timeout(2 * soon, &mut apply).await.is_err());
    world.register("cut-off", world.store.revision(), &[]).await;
    apply.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_data_plane_that_said_farewell_is_not_missed() {
    let world = World::new().await;
    world.register("stopped", i64::MAX, &[]).await;
    world.publisher.apply(&app("a"), &nothing()).await.unwrap();
    world.delete(world.keys.proxy(&node(), "stopped")).await;
    let begun = Instant::now();
    world.publisher.apply(&app("b"), &nothing()).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_data_plane_that_vanished_while_nobody_watched_is_missed_too() {
    let world = World::new().await;
    world.register("cut-off", 0, &[]).await;
    assert!(world.publisher.apply(&app("a"), &nothing()).await.is_err());
    world.gate.close();
    world.delete(world.keys.proxy(&node(), "cut-off")).await;
    world.gate.open();
    let begun = Instant::now();
    world.publisher.apply(&app("b"), &nothing()).await.unwrap();
    assert!(begun.elapsed() >= RETURN_WITHIN, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_data_plane_that_registers_before_the_write_is_waited_for_however_late_it_is_seen() {
    let world = World::new().await;
    // The watch breaks, so that the publisher learns of nothing until it lists again.
    world.publisher.apply(&app("a"), &nothing()).await.unwrap();
    world.gate.close();
    world.register("late", 0, &[]).await;
    world.gate.open();
    let applied = world.publisher.apply(&app("b"), &nothing()).await;
    assert!(
        matches!(applied, Err(TrafficError::Unconfirmed { planes }) if planes == "host-a/late")
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_fresh_list_nothing_is_confirmed() {
    let world = World::new().await;
    let wanted = nothing();
    world.publisher.apply(&app("blog"), &wanted).await.unwrap();
    world.gate.close();
    let applied = world.publisher.apply(&app("blog"), &wanted).await;
    assert!(
        matches!(applied, Err(TrafficError::Store(_))),
        "{applied:?}"
    );
    world.gate.open();
    world.publisher.apply(&app("blog"), &wanted).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_list_survives_a_compaction() {
    let world = World::new().await;
    world.register("one", i64::MAX, &[]).await;
    world.publisher.apply(&app("a"), &nothing()).await.unwrap();
    world.gate.close();
    world.delete(world.keys.proxy(&node(), "one")).await;
    world.register("two", 0, &[]).await;
    world.store.compact(world.store.revision());
    world.gate.open();
    let applied = world.publisher.apply(&app("b"), &nothing()).await;
    assert!(matches!(applied, Err(TrafficError::Unconfirmed { planes }) if planes == "host-a/two"));
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_reply_was_lost_is_found_and_not_repeated() {
    let world = World::new().await;
    world.gate.lose_next_reply();
    let before = world.store.revision();
    let wanted = routes("blog.test", &[]);
    let applied = world.publisher.apply(&app("blog"), &wanted).await.unwrap();
    let revision = applied.revision.0;
    assert_eq!(world.store.revision(), before + 1);
    assert_eq!(world.published("blog"), Some((wanted, revision)));
}

#[tokio::test(start_paused = true)]
async fn what_was_published_first_keeps_its_host_and_path() {
    let world = World::new().await;
    let wanted = routes("blog.test", &[]);
    world.publisher.apply(&app("zoo"), &wanted).await.unwrap();
    let before = world.store.revision();
    for refused in [
        world.publisher.check(&app("blog"), &wanted).await,
        world.publisher.apply(&app("blog"), &wanted).await.map(drop),
    ] {
        let Err(TrafficError::Conflict { claim, holder }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((claim.as_str(), holder), ("blog.test/", app("zoo")));
    }
    assert_eq!(world.store.revision(), before);
    world.publisher.check(&app("zoo"), &wanted).await.unwrap();
    world.publisher.remove(&app("zoo")).await.unwrap();
    world.publisher.apply(&app("blog"), &wanted).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn of_two_apps_that_race_for_a_host_one_gets_it() {
    let world = World::new().await;
    let (one, two) = (app("one"), app("two"));
    for round in 0..20 {
        let wanted = routes(&format!("host-{round}.test"), &[]);
        let (first, second) = tokio::join!(
            world.publisher.apply(&one, &wanted),
            world.publisher.apply(&two, &wanted),
        );
        assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_record_of_one_app_holds_up_no_other_and_is_replaced() {
    let world = World::new().await;
    world
        .put(world.keys.route(&app("bad")), b"{".to_vec())
        .await;
    world
        .publisher
        .apply(&app("good"), &nothing())
        .await
        .unwrap();
    let current = world.publisher.current(&app("bad")).await;
    assert!(matches!(current, Err(TrafficError::Record(_))));
    world
        .publisher
        .apply(&app("bad"), &nothing())
        .await
        .unwrap();
    assert!(world.published("bad").is_some());
}

#[tokio::test(start_paused = true)]
async fn without_leadership_nothing_is_written() {
    let world = World::new().await;
    let before = world.store.revision();
    world.keeper.release();
    let applied = world.publisher.apply(&app("blog"), &nothing()).await;
    assert!(matches!(applied, Err(TrafficError::NotLeading(_))));
    assert_eq!(world.store.revision(), before);
}

#[tokio::test(start_paused = true)]
async fn a_term_that_ended_unnoticed_is_fenced_off() {
    let world = World::new().await;
    world.delete(world.keys.leader()).await;
    let applied = world.publisher.apply(&app("blog"), &nothing()).await;
    assert!(matches!(applied, Err(TrafficError::NotLeading(_))));
    assert_eq!(world.published("blog"), None);
}

#[tokio::test(start_paused = true)]
async fn a_removal_is_confirmed_before_the_key_goes() {
    let world = World::new().await;
    let blog = app("blog");
    let wanted = routes("blog.test", &[]);
    world.publisher.apply(&blog, &wanted).await.unwrap();
    world.register("plane", 0, &[]).await;

    let removed = world.publisher.remove(&blog).await;
    assert!(matches!(removed, Err(TrafficError::Unconfirmed { .. })));
    let (left, revision) = world.published("blog").unwrap();
    assert!(left.http.is_empty());

    world.register("plane", revision, &[]).await;
    world.publisher.remove(&blog).await.unwrap();
    assert_eq!(world.published("blog"), None);
    world.publisher.remove(&blog).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_every_data_plane_and_no_longer_than_told() {
    let world = World::new().await;
    let old = ContainerId::new("old");
    let limit = Duration::from_secs(5);
    world.register("one", 1, &[("old", 2), ("other", 9)]).await;
    world.register("two", 1, &[("old", 1)]).await;
    let drained = world.publisher.drain(&old, limit).await.unwrap();
    assert_eq!(drained, Drain::Expired { in_flight: 3 });

    let drain = world.publisher.drain(&old, limit);
    tokio::pin!(drain);
    let second = Duration::from_secs(1);
    world.register("one", 1, &[("other", 9)]).await;
    assert!(tokio::time::timeout(second, &mut drain).await.is_err());
    world.delete(world.keys.proxy(&node(), "two")).await;
    assert_eq!(drain.await.unwrap(), Drain::Empty);
    let gone = world
        .publisher
        .drain(&ContainerId::new("none"), limit)
        .await;
    assert_eq!(gone.unwrap(), Drain::Empty);
}
