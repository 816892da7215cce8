//! A heartbeat on a store in memory and with held time.

use jiff::Timestamp;

use crate::store::MemoryStore;

use super::*;

const KEY: &str = "/podherd/nodes/host-a";
const TTL: Duration = Duration::from_secs(30);

fn start(store: &MemoryStore) -> (CancellationToken, tokio::task::JoinHandle<()>) {
    let cancel = CancellationToken::new();
    let heartbeat = Heartbeat {
        store: Arc::new(store.clone()),
        key: KEY.to_owned(),
        node: Node {
            node: "host-a".parse().unwrap(),
            version: "1".to_owned(),
            since: Timestamp::UNIX_EPOCH,
        },
        ttl: TTL,
        entropy: Arc::new(Entropy::from_seed(1)),
    };
    (cancel.clone(), tokio::spawn(heartbeat.run(cancel)))
}

fn is_there(store: &MemoryStore) -> bool {
    store.entries().iter().any(|entry| entry.key == KEY)
}

#[tokio::test(start_paused = true)]
async fn the_record_lives_as_long_as_the_process() {
    let store = MemoryStore::new();
    let (_cancel, task) = start(&store);
    sleep(TTL * 10).await;
    assert!(is_there(&store));
    task.abort();
    sleep(TTL + Duration::from_secs(1)).await;
    assert!(!is_there(&store));
}

#[tokio::test(start_paused = true)]
async fn the_record_goes_at_once_when_the_process_ends_in_order() {
    let store = MemoryStore::new();
    let (cancel, task) = start(&store);
    sleep(Duration::from_secs(1)).await;
    cancel.cancel();
    task.await.unwrap();
    assert!(!is_there(&store));
}

#[tokio::test(start_paused = true)]
async fn a_record_or_a_lease_that_was_taken_away_comes_back() {
    let store = MemoryStore::new();
    let (_cancel, _task) = start(&store);
    sleep(Duration::from_secs(1)).await;
    store.commit(Txn::default().delete(KEY)).await.unwrap();
    sleep(TTL).await;
    assert!(is_there(&store));
    store.revoke(LeaseId(1)).await.unwrap();
    sleep(TTL).await;
    assert!(is_there(&store));
}
