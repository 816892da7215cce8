//! The in-memory store keeps the contract that etcd keeps.

// A test says what went wrong by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod contract;

use std::sync::Arc;

use podherd::store::{MemoryStore, Store};

#[tokio::test(start_paused = true)]
async fn the_memory_store_keeps_the_contract() {
    contract::holds(Arc::new(MemoryStore::new())).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_before_a_compaction_is_told_so() {
    let store = MemoryStore::new();
    let first = contract::put(&store, "/compacted/a", b"1").await;
    let second = contract::put(&store, "/compacted/a", b"2").await;
    store.compact(second);
    contract::tells_what_was_compacted(&store, first, second).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_caught_up_survives_a_compaction() {
    let store = MemoryStore::new();
    let first = contract::put(&store, "/compacted/a", b"1").await;
    let mut watch = store.watch("/compacted/", first).await.unwrap();
    contract::changes(&mut watch, 1).await;
    store.compact(first);
    contract::put(&store, "/compacted/b", b"2").await;
    assert_eq!(contract::changes(&mut watch, 1).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn clones_share_one_content() {
    let store = MemoryStore::with_cluster(7);
    let other = store.clone();
    let revision = contract::put(&store, "/a", b"1").await;
    let identity = other.identity().await.unwrap();
    assert_eq!(identity, (7, revision));
    assert_eq!(other.entries()[0].value, b"1");
}
