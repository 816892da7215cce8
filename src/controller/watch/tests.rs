//! The watch of the manifests on a store that comes and goes.

use super::super::host::KnownStore;
use super::super::testing::{Rejected, World, app, pulse};
use super::*;

struct Watched {
    world: World,
    newest: Newest,
    rejected: Arc<Rejected>,
}

/// A watch over these keys, once it has listed them.
async fn watch(keys: &[&str]) -> Watched {
    let world = World::start();
    for key in keys {
        world.store.put(key).await;
    }
    let newest = Newest::default();
    let rejected = Arc::new(Rejected::default());
    let state = tempfile::tempdir().unwrap();
    let known = KnownStore::open(state.path()).unwrap();
    let watch = ManifestWatch::new(
        world.catalog.clone(),
        world.queue.clone(),
        newest.clone(),
        rejected.clone(),
        Rewind::new(Arc::new(known), world.stop.clone()),
        world.entropy.clone(),
        world.metrics.controller.clone(),
    );
    tokio::spawn(watch.run(world.stop.clone(), pulse()));
    Watched {
        world,
        newest,
        rejected,
    }
}

const LONG: Duration = Duration::from_secs(20);

#[tokio::test(start_paused = true)]
async fn at_the_beginning_every_known_app_is_looked_at() {
    let watched = watch(&[
        "apps/blog",
        "apps/shop",
        "state/active/gone",
        "state/ownership/lost",
    ])
    .await;

    assert_eq!(
        watched.world.worked_on().await,
        ["blog", "gone", "lost", "shop"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_puts_its_app_in_and_nothing_else() {
    let watched = watch(&["apps/blog", "apps/shop"]).await;
    watched.world.worked_on().await;

    let written = watched.world.store.put("apps/blog").await;
    assert_eq!(watched.world.worked_on().await, ["blog"]);
    assert_eq!(watched.newest.newest(&app("blog")), written);

    let deleted = watched.world.store.delete("apps/blog").await;
    assert_eq!(watched.world.worked_on().await, ["blog"]);
    assert_eq!(watched.newest.newest(&app("blog")), deleted);
}

#[tokio::test(start_paused = true)]
async fn what_happened_while_the_store_was_away_is_found() {
    let watched = watch(&["apps/blog", "apps/old", "apps/shop"]).await;
    let world = &watched.world;
    world.worked_on().await;

    world.store.down();
    world.store.put("apps/blog").await;
    world.store.put("apps/new").await;
    let before_delete = world.store.memory.revision();
    world.store.delete("apps/old").await;
    assert!(world.worked_on_within(LONG).await.is_empty());
    world.store.up();

    assert_eq!(world.worked_on_within(LONG).await, ["blog", "new", "old"]);
    assert!(watched.newest.newest(&app("old")) > before_delete);
}

#[tokio::test(start_paused = true)]
async fn a_compacted_watch_lists_again() {
    let watched = watch(&["apps/blog", "apps/shop"]).await;
    let world = &watched.world;
    world.worked_on().await;

    world.store.down();
    world.store.delete("apps/shop").await;
    let newest = world.store.put("apps/blog").await;
    world.store.memory.compact(newest);
    world.store.up();

    assert_eq!(world.worked_on_within(LONG).await, ["blog", "shop"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_costs_no_work_when_nothing_changed() {
    let watched = watch(&["apps/blog", "apps/shop", "state/ownership/blog"]).await;
    watched.world.worked_on().await;

    watched.world.store.cut();

    assert!(watched.world.worked_on_within(LONG).await.is_empty());
    let written = watched.world.store.put("apps/shop").await;
    assert_eq!(watched.world.worked_on().await, ["shop"]);
    assert_eq!(watched.newest.newest(&app("shop")), written);
}

#[tokio::test(start_paused = true)]
async fn apps_that_failed_are_tried_again_once_the_store_is_back() {
    let watched = watch(&["apps/blog"]).await;
    let world = &watched.world;
    world.work.fail(true);
    world.store.put("apps/blog").await;
    world.worked_on_within(Duration::from_secs(40)).await;
    world.work.fail(false);

    world.store.cut();

    assert_eq!(
        world.worked_on_within(Duration::from_secs(1)).await,
        ["blog"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_that_names_no_app_is_refused_once_and_crashes_nothing() {
    let watched = watch(&["apps/Blog", "apps/a/b", "apps/blog"]).await;
    assert_eq!(watched.world.worked_on().await, ["blog"]);
    assert_eq!(watched.rejected.take(), ["reject Blog", "reject a/b"]);

    watched.world.store.cut();
    watched.world.worked_on_within(LONG).await;
    assert!(watched.rejected.take().is_empty());

    watched.world.store.put("apps/Shop").await;
    watched.world.store.delete("apps/a/b").await;
    assert!(watched.world.worked_on().await.is_empty());
    assert_eq!(watched.rejected.take(), ["reject Shop", "withdraw a/b"]);

    watched.world.store.down();
    watched.world.store.delete("apps/Blog").await;
    watched.world.store.up();
    watched.world.worked_on_within(LONG).await;
    assert_eq!(watched.rejected.take(), ["withdraw Blog"]);
}

#[tokio::test(start_paused = true)]
async fn the_lag_grows_while_the_store_is_away() {
    let watched = watch(&["apps/blog"]).await;
    let fresh = watched.world.metrics.controller.watch.clone();
    watched
        .world
        .worked_on_within(Duration::from_secs(60))
        .await;
    assert!(fresh.lag() < Duration::from_secs(10));

    watched.world.store.down();
    watched
        .world
        .worked_on_within(Duration::from_secs(60))
        .await;
    assert!(fresh.lag() >= Duration::from_secs(60));

    watched.world.stop.cancel();
    watched.world.worked_on().await;
    assert_eq!(fresh.lag(), Duration::ZERO);
}
