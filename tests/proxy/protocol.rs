//! Registration, acknowledgement, and what is left when the store is lost.

use std::sync::atomic::Ordering;
use std::time::Duration;

use podherd::proxy::{Limits, ProxyError, ProxyOptions, serve};
use podherd::store::MemoryStore;
use podherd::traffic::{CONFIRM_TIMEOUT, Traffic, TrafficError, Waits};

use crate::backend::Backend;
use crate::client::get;
use crate::gate::Gate;
use crate::world::{Plane, World, app, eventually, node, nothing, routes};

/// Limits with a lease that ends within a test's patience.
fn short_lease() -> Limits {
    Limits {
        lease: Duration::from_millis(800),
        ..Limits::default()
    }
}

async fn text(plane: &Plane) -> String {
    get(plane.at(), "a.test", "/").await.text
}

#[tokio::test]
async fn a_data_plane_registers_serves_and_acknowledges() {
    let world = World::new().await;
    let backend = Backend::named("b").await;
    let wanted = routes("a.test", &[&backend]);
    let revision = world
        .publisher
        .apply(&app("a"), &wanted)
        .await
        .unwrap()
        .revision
        .0;
    let plane = world.plane("p").await;
    assert_eq!(text(&plane).await, "b");
    world
        .until("it acknowledges", |world| {
            world.planes()[0].applied >= revision
        })
        .await;
    let again = world
        .publisher
        .apply(&app("a"), &nothing())
        .await
        .unwrap()
        .revision
        .0;
    assert!(world.planes()[0].applied >= again);
}

#[tokio::test]
async fn a_data_plane_that_starts_between_write_and_wait_serves_no_older_table() {
    let world = World::new().await;
    for round in 0..20 {
        let (old, new) = (Backend::named("old").await, Backend::named("new").await);
        let blog = app("blog");
        let before = routes("a.test", &[&old]);
        world.publisher.apply(&blog, &before).await.unwrap();
        let wanted = routes("a.test", &[&new]);
        let name = format!("late-{round}");
        let (applied, plane) = tokio::join!(
            world.publisher.apply(&blog, &wanted),
            world.begin(&name, Limits::default()),
        );
        applied.unwrap();
        let answer = get(plane.at(), "a.test", "/").await;
        assert!(answer.status == 503 || answer.text == "new", "{answer:?}");
        plane.proxy.ready().await;
        assert_eq!(text(&plane).await, "new");
        plane.cancel.cancel();
        plane.proxy.stopped().await;
        assert!(world.planes().is_empty());
    }
}

#[tokio::test]
async fn a_data_plane_that_died_is_given_up_after_its_lease() {
    let world = World::waiting(Waits {
        confirm: CONFIRM_TIMEOUT,
        return_within: Duration::from_millis(200),
    })
    .await;
    let dead = world.begin("dead", short_lease()).await;
    let alive = world.plane("alive").await;
    dead.proxy.ready().await;
    dead.gate.close();
    let applied = world.publisher.apply(&app("a"), &nothing()).await;
    applied.unwrap();
    assert_eq!(world.planes().len(), 1);
    drop(alive);
}

#[tokio::test]
async fn without_the_store_the_last_table_serves_and_afterwards_the_newest() {
    let world = World::waiting(Waits {
        confirm: CONFIRM_TIMEOUT,
        return_within: Duration::from_millis(200),
    })
    .await;
    let plane = world.begin("p", short_lease()).await;
    plane.proxy.ready().await;
    let (old, new) = (Backend::named("old").await, Backend::named("new").await);
    let before = routes("a.test", &[&old]);
    world.publisher.apply(&app("a"), &before).await.unwrap();
    plane.gate.close();
    world
        .until("its lease ends", |world| world.planes().is_empty())
        .await;
    assert_eq!(text(&plane).await, "old");

    let wanted = routes("a.test", &[&new]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    assert_eq!(text(&plane).await, "old");
    plane.gate.open();
    let newest = world.store.revision();
    world
        .until("it is back", |world| {
            world
                .planes()
                .first()
                .is_some_and(|plane| plane.applied >= newest)
        })
        .await;
    assert_eq!(text(&plane).await, "new");
}

#[tokio::test]
async fn a_compaction_during_an_outage_is_survived() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let backend = Backend::named("b").await;
    plane.gate.close();
    world
        .put(world.keys.route(&app("junk")), b"{".to_vec())
        .await;
    world.delete(world.keys.route(&app("junk"))).await;
    world.store.compact(world.store.revision());
    plane.gate.open();
    let wanted = routes("a.test", &[&backend]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    assert_eq!(text(&plane).await, "b");
}

#[tokio::test]
async fn an_acknowledgement_whose_reply_was_lost_is_found() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    world.publisher.apply(&app("a"), &nothing()).await.unwrap();
    plane.gate.lose_next_reply();
    world.publisher.apply(&app("b"), &nothing()).await.unwrap();
    world.publisher.apply(&app("c"), &nothing()).await.unwrap();
    assert_eq!(world.planes().len(), 1);
}

#[tokio::test]
async fn nothing_is_written_while_nothing_changes() {
    let world = World::new().await;
    let plane = world.begin("p", short_lease()).await;
    plane.proxy.ready().await;
    world.publisher.apply(&app("a"), &nothing()).await.unwrap();
    let before = world.store.revision();
    let renewals = plane.gate.renewals.load(Ordering::SeqCst);
    eventually("the lease is renewed", || {
        plane.gate.renewals.load(Ordering::SeqCst) > renewals + 5
    })
    .await;
    assert_eq!(world.store.revision(), before);
    assert_eq!(world.planes().len(), 1);
}

#[tokio::test]
async fn an_empty_or_foreign_store_takes_no_route_away_and_gets_no_acknowledgement() {
    for other in [MemoryStore::new(), MemoryStore::with_cluster(2)] {
        let world = World::new().await;
        let plane = world.begin("p", short_lease()).await;
        plane.proxy.ready().await;
        let backend = Backend::named("b").await;
        let wanted = routes("a.test", &[&backend]);
        world.publisher.apply(&app("a"), &wanted).await.unwrap();
        plane.gate.close();
        plane.gate.lead_to(other.clone());
        plane.gate.open();
        let key = world.keys.proxies();
        eventually("it registers there", || {
            other
                .entries()
                .iter()
                .any(|entry| entry.key.starts_with(&key))
        })
        .await;
        let renewals = plane.gate.renewals.load(Ordering::SeqCst);
        eventually("it stays there", || {
            plane.gate.renewals.load(Ordering::SeqCst) > renewals + 2
        })
        .await;
        assert_eq!(text(&plane).await, "b");
        let entries = other.entries();
        let entry = entries.iter().find(|entry| entry.key.starts_with(&key));
        let record = String::from_utf8(entry.unwrap().value.clone()).unwrap();
        assert!(record.contains("\"applied\":0"), "{record}");
    }
}

#[tokio::test]
async fn a_record_of_a_newer_podherd_is_not_confirmed_and_its_app_keeps_its_routes() {
    let world = World::confirming_within(Duration::from_millis(500)).await;
    let plane = world.plane("p").await;
    let backend = Backend::named("b").await;
    let wanted = routes("a.test", &[&backend]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let newer = br#"{"schema":999}"#.to_vec();
    let revision = world.put(world.keys.route(&app("a")), newer).await;
    let other = world.publisher.apply(&app("other"), &nothing()).await;
    assert!(matches!(other, Err(TrafficError::Unconfirmed { .. })));
    assert_eq!(text(&plane).await, "b");
    assert!(world.planes()[0].applied < revision);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
}

#[tokio::test]
async fn a_damaged_record_leaves_every_app_as_it_was() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let backend = Backend::named("b").await;
    let wanted = routes("a.test", &[&backend]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    world.put(world.keys.route(&app("a")), b"{".to_vec()).await;
    world.publisher.apply(&app("c"), &nothing()).await.unwrap();
    assert_eq!(text(&plane).await, "b");
}

#[tokio::test]
async fn a_successor_takes_over_what_a_dead_data_plane_left() {
    let world = World::new().await;
    let dead = world.plane("p").await;
    dead.gate.close();
    let _successor = world.plane("p").await;
    let applied = world.publisher.apply(&app("a"), &nothing()).await;
    applied.unwrap();
    assert_eq!(world.planes().len(), 1);
}

#[tokio::test]
async fn of_two_living_data_planes_with_one_name_both_are_waited_for_in_the_end() {
    let world = World::new().await;
    let _first = world.plane("p").await;
    let _second = world.plane("p").await;
    // The first learns of it at its next acknowledgement.
    world.publisher.apply(&app("a"), &nothing()).await.unwrap();
    world
        .until("both are there", |world| world.planes().len() == 2)
        .await;
    world.publisher.apply(&app("b"), &nothing()).await.unwrap();
    let newest = world.store.revision();
    assert!(
        world.planes().iter().all(|plane| plane.applied > 0),
        "{newest}"
    );
}

#[tokio::test]
async fn a_data_plane_that_lives_and_does_not_confirm_is_named() {
    let world = World::confirming_within(Duration::from_millis(200)).await;
    let limits = Limits {
        lease: Duration::from_secs(600),
        ..Limits::default()
    };
    let plane = world.begin("stuck", limits).await;
    plane.proxy.ready().await;
    plane.gate.close();
    let applied = world.publisher.apply(&app("a"), &nothing()).await;
    assert!(matches!(
        applied,
        Err(TrafficError::Unconfirmed { planes }) if planes == "host-a/stuck"
    ));
}

#[tokio::test]
async fn a_taken_address_or_an_unusable_name_is_refused_before_anything_is_registered() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let options = |name: &str, listener| ProxyOptions {
        node: node(),
        name: name.to_owned(),
        listeners: vec![listener],
        l4_bind: crate::world::LOOPBACK,
        reserved: std::collections::BTreeSet::new(),
        limits: Limits::default(),
    };
    let free = "127.0.0.1:0".parse().unwrap();
    for (options, expected) in [
        (options("second", plane.at()), "can't listen"),
        (options("a/b", free), "no name"),
        (options("", free), "no name"),
    ] {
        let refused: Result<_, ProxyError> = serve(
            options,
            Gate::new(world.store.clone()),
            world.keys.clone(),
            std::sync::Arc::new(podherd::clock::SystemClock),
            &prometheus::Registry::new(),
            tokio_util::sync::CancellationToken::new(),
        )
        .await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(world.planes().len(), 1);
}
