//! Records that are damaged, deleted by hand, or older than what runs: nothing is
//! stopped, and the status says what to do.

use podherd::runtime::Container;
use podherd::state::{ConditionType, Truth};
use podherd::store::{Entry, Store, Txn};

use crate::strange::restore;
use crate::support::{World, blog, name};

async fn serving() -> World {
    let world = World::new().await.images(&["web:1", "web:2", "db:1"]);
    world.deploy(&blog("web:1")).await;
    world.effects();
    world
}

async fn write(world: &World, txn: Txn) {
    world.store.commit(txn).await.unwrap();
}

fn entry(world: &World, key: &str) -> Entry {
    let entries = world.store.entries().into_iter();
    entries.into_iter().find(|entry| entry.key == key).unwrap()
}

/// Nothing is done however often it is looked at, and people are told why.
async fn assert_held(world: &World, reason: &str, untouched: &[Container]) {
    world.effects();
    for _ in 0..5 {
        let _ = world.pass("blog").await;
    }
    let mut effects = world.effects();
    // Nobody is sent to what is gone.
    effects.retain(|effect| !effect.starts_with("withdraw"));
    assert_eq!(effects, Vec::<String>::new());
    assert_eq!(world.runtime.containers(), untouched);
    let told = world.condition("blog", ConditionType::Progressing);
    assert_eq!((told.status, told.reason.as_str()), (Truth::False, reason));
    assert!(
        told.message.contains("backup of etcd") || told.message.contains("older backup"),
        "{}",
        told.message
    );
}

#[tokio::test(start_paused = true)]
async fn a_damaged_record_is_told_and_mended_by_putting_it_back() {
    let world = serving().await;
    for key in [
        world.keys.active(&name("blog")),
        world.keys.ownership(&name("blog")),
        world.keys.revisions(&name("blog")) + "garbage",
    ] {
        let good = world.store.entries().into_iter().find(|it| it.key == key);
        write(&world, Txn::default().put(key.clone(), b"{".to_vec())).await;
        world.put(&blog("web:2")).await;
        assert_held(&world, "RecordDamaged", &world.runtime.containers()).await;
        let ready = world.condition("blog", ConditionType::Ready);
        assert_eq!(ready.status, Truth::Unknown);
        let writes = world.writes();
        let _ = world.pass("blog").await;
        assert_eq!(world.writes(), writes, "it is said once");

        let mend = match good {
            Some(good) => Txn::default().put(key, good.value),
            None => Txn::default().delete(key),
        };
        write(&world, mend).await;
        world.settle("blog").await;
        world.assert_serves("blog", &["web"]);
        world.deploy(&blog("web:1")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_status_is_written_anew() {
    let world = serving().await;
    let key = world.keys.status(&name("blog"));
    write(&world, Txn::default().put(key, b"{".to_vec())).await;
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
    assert_eq!(world.effects(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn without_active_what_was_published_is_held() {
    let world = serving().await;
    let key = world.keys.active(&name("blog"));
    let kept = entry(&world, &key);
    write(&world, Txn::default().delete(key.clone())).await;
    assert_held(&world, "ActiveMissing", &world.runtime.containers()).await;

    write(&world, Txn::default().put(key, kept.value)).await;
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn without_its_incarnation_an_app_is_held() {
    let world = serving().await;
    let key = world.keys.ownership(&name("blog"));
    let kept = entry(&world, &key);
    write(&world, Txn::default().delete(key.clone())).await;
    world.put(&blog("web:2")).await;
    assert_held(&world, "OwnershipMissing", &world.runtime.containers()).await;

    write(&world, Txn::default().put(key, kept.value)).await;
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_the_restored_backup_does_not_know_is_held() {
    let mut world = serving().await;
    let backup = world.store.entries();
    world.deploy(&blog("web:1").service("db", "db:1")).await;
    restore(&world, &backup).await;
    world.restart().await;
    assert_held(&world, "NewerGenerationRuns", &world.runtime.containers()).await;
}

#[tokio::test(start_paused = true)]
async fn a_generation_of_an_older_revision_is_held_when_active_names_what_is_gone() {
    let mut world = serving().await;
    world.deploy(&blog("web:2")).await;
    let backup = world.store.entries();
    world
        .request("blog", "r-1", "{verb: rollback, revision: 1}")
        .await;
    world.settle("blog").await;
    restore(&world, &backup).await;
    world.restart().await;
    assert_held(&world, "NewerGenerationRuns", &world.runtime.containers()).await;
}
