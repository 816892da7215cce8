//! The in-memory store: etcd's model without etcd, for tests and the simulation.
//!
//! It keeps what etcd promises and what it refuses: revisions, comparisons,
//! history until it is compacted, leases, limits of a transaction. Time is
//! tokio's, so a paused clock moves its leases; nothing runs in the background,
//! and everything happens in the order of the calls.
//!
//! - `kv`: keys, transactions, history;
//! - `lease`: leases and their ends;
//! - `watch`: the stream of changes.

mod kv;
mod lease;
mod watch;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch as signal;
use tokio::time::Instant;

use super::{Commit, Entry, LeaseId, Range, Store, StoreError, Txn, View, Watch};
use kv::State;

/// A store in memory. Clones share one content, as clients of one etcd do.
#[derive(Clone)]
pub struct MemoryStore {
    cluster: u64,
    shared: Arc<Shared>,
}

/// What [`MemoryStore::backup`] keeps.
#[derive(Debug, Clone)]
pub struct Backup(State);

struct Shared {
    state: Mutex<State>,
    /// Counts what could wake a watch: changes, and leases that end sooner.
    stirred: signal::Sender<u64>,
}

impl MemoryStore {
    /// An empty store, of a cluster with ID 1.
    pub fn new() -> Self {
        Self::with_cluster(1)
    }

    /// An empty store, of the cluster with this ID.
    pub fn with_cluster(cluster: u64) -> Self {
        Self {
            cluster,
            shared: Arc::new(Shared {
                state: Mutex::new(State::default()),
                stirred: signal::Sender::new(0),
            }),
        }
    }

    /// All there is now, leases and history too.
    pub fn backup(&self) -> Backup {
        Backup(self.with(|state| state.clone()))
    }

    /// Goes back to a backup, as etcd restored in place: same cluster, earlier revision.
    pub fn restore(&self, backup: &Backup) {
        *self.lock() = backup.0.clone();
        self.shared.stirred.send_modify(|count| *count += 1);
    }

    /// Forgets the history before `revision`.
    pub fn compact(&self, revision: i64) {
        self.with(|state| state.compact(revision));
    }

    /// Everything there is now, in order of keys.
    pub fn entries(&self) -> Vec<Entry> {
        self.with(|state| state.read(&Range::Prefix(String::new())))
    }

    /// What a range holds now.
    pub fn look(&self, range: &Range) -> Vec<Entry> {
        self.with(|state| state.read(range))
    }

    /// The newest revision.
    pub fn revision(&self) -> i64 {
        self.with(|state| state.revision())
    }

    /// Looks at or changes the state as it is now: with every lease ended whose time is over.
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let before = state.stir();
        state.expire(Instant::now());
        let answer = act(&mut state);
        let stirred = state.stir() != before;
        drop(state);
        if stirred {
            self.shared.stirred.send_modify(|count| *count += 1);
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete before anything in it can panic.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("cluster", &self.cluster)
            .field("revision", &self.revision())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn identity(&self) -> Result<(u64, i64), StoreError> {
        Ok((self.cluster, self.revision()))
    }

    async fn read(&self, ranges: &[Range]) -> Result<View, StoreError> {
        self.with(|state| state.view(ranges))
    }

    async fn commit(&self, txn: Txn) -> Result<Commit, StoreError> {
        self.with(|state| state.commit(&txn))
    }

    async fn watch(&self, prefix: &str, from: i64) -> Result<Watch, StoreError> {
        Ok(watch::open(self.clone(), prefix.to_owned(), from))
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        Ok(self.with(|state| state.grant(ttl, Instant::now())))
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.with(|state| state.keep_alive(lease, Instant::now()))
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.with(|state| state.revoke(lease))
    }
}
