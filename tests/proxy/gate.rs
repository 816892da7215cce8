//! A store that can be lost, that can lose replies, and that can be swapped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use podherd::store::{Commit, LeaseId, MemoryStore, Range, Store, StoreError, Txn, View, Watch};
use tokio::sync::watch;

/// One client's way to a store.
#[derive(Debug)]
pub struct Gate {
    store: std::sync::Mutex<MemoryStore>,
    /// How often it was closed and opened; odd while the store can't be reached.
    turns: watch::Sender<u64>,
    /// The next transaction is applied and its reply lost.
    lose_reply: AtomicBool,
    /// Counts renewed leases.
    pub renewals: AtomicU64,
}

impl Gate {
    pub fn new(store: MemoryStore) -> Arc<Self> {
        Arc::new(Self {
            store: std::sync::Mutex::new(store),
            turns: watch::Sender::new(0),
            lose_reply: AtomicBool::new(false),
            renewals: AtomicU64::new(0),
        })
    }

    /// Every call fails and every watch breaks from now on.
    pub fn close(&self) {
        self.turn(true);
    }

    /// It works again.
    pub fn open(&self) {
        self.turn(false);
    }

    fn turn(&self, close: bool) {
        self.turns.send_if_modified(|turns| {
            let turn = (*turns % 2 == 1) != close;
            *turns += u64::from(turn);
            turn
        });
    }

    /// Another store is behind it from now on.
    pub fn lead_to(&self, store: MemoryStore) {
        *self.store.lock().unwrap() = store;
    }

    pub fn lose_next_reply(&self) {
        self.lose_reply.store(true, Ordering::SeqCst);
    }

    fn pass(&self) -> Result<MemoryStore, StoreError> {
        if *self.turns.borrow() % 2 == 1 {
            Err(lost())
        } else {
            Ok(self.store.lock().unwrap().clone())
        }
    }
}

fn lost() -> StoreError {
    StoreError::Unavailable {
        call: "test",
        message: "closed".to_owned(),
    }
}

#[async_trait]
impl Store for Gate {
    async fn identity(&self) -> Result<(u64, i64), StoreError> {
        self.pass()?.identity().await
    }

    async fn read(&self, ranges: &[Range]) -> Result<View, StoreError> {
        self.pass()?.read(ranges).await
    }

    async fn commit(&self, txn: Txn) -> Result<Commit, StoreError> {
        let committed = self.pass()?.commit(txn).await;
        if self.lose_reply.swap(false, Ordering::SeqCst) {
            return Err(lost());
        }
        committed
    }

    async fn watch(&self, prefix: &str, from: i64) -> Result<Watch, StoreError> {
        let events = self.pass()?.watch(prefix, from).await?;
        // Also one that was closed and opened again meanwhile has broken it.
        let mut turns = self.turns.subscribe();
        let broken = async move {
            let _ = turns.changed().await;
        };
        Ok(events
            .take_until(broken)
            .chain(futures::stream::once(async { Err(lost()) }))
            .boxed())
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.pass()?.grant(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        let renewed = self.pass()?.keep_alive(lease).await;
        if renewed.is_ok() {
            self.renewals.fetch_add(1, Ordering::SeqCst);
        }
        renewed
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.pass()?.revoke(lease).await
    }
}
