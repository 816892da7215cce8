//! The lines from a controller's process to the store and to containers: they may be
//! down or slow, and go nowhere once the process is dead.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use podherd::probe::{NoAnswer, Prober};
use podherd::store::{
    Commit, LeaseId, MemoryStore, Range, Store, StoreError, Txn, View, Watch as Changes,
};
use tokio_util::sync::CancellationToken;

use crate::doubles::cut::Gate;
use crate::doubles::store::RecordingStore;

/// How the way to the store is.
#[derive(Debug, Clone, Default)]
pub struct Weather(Arc<Mutex<Conditions>>);

#[derive(Debug, Default)]
struct Conditions {
    away: bool,
    slow: Duration,
    /// Whether another store is at its end.
    foreign: bool,
    /// Ends every watch that is open.
    cut: CancellationToken,
}

impl Weather {
    pub fn set_away(&self, away: bool) {
        self.0.lock().unwrap().away = away;
        if away {
            self.end_watches();
        }
    }

    pub fn set_slow(&self, slow: Duration) {
        self.0.lock().unwrap().slow = slow;
    }

    /// From now on another cluster answers.
    pub fn set_foreign(&self) {
        self.0.lock().unwrap().foreign = true;
    }

    pub fn end_watches(&self) {
        std::mem::take(&mut self.0.lock().unwrap().cut).cancel();
    }

    async fn reach(&self) -> Result<(), StoreError> {
        let slow = self.0.lock().unwrap().slow;
        if !slow.is_zero() {
            tokio::time::sleep(slow).await;
        }
        if self.0.lock().unwrap().away {
            return Err(unavailable("call"));
        }
        Ok(())
    }
}

fn unavailable(call: &'static str) -> StoreError {
    StoreError::Unavailable {
        call,
        message: "the line is down".to_owned(),
    }
}

/// The store as a process reaches it.
#[derive(Debug)]
pub struct StoreLine {
    pub store: MemoryStore,
    pub recording: RecordingStore,
    pub gate: Gate,
    pub weather: Weather,
}

impl StoreLine {
    async fn reach(&self) -> Result<&MemoryStore, StoreError> {
        self.gate.alive().await;
        self.weather.reach().await?;
        self.gate.alive().await;
        Ok(&self.store)
    }
}

#[async_trait]
impl Store for StoreLine {
    async fn identity(&self) -> Result<(u64, i64), StoreError> {
        let (cluster, revision) = self.reach().await?.identity().await?;
        let foreign = self.weather.0.lock().unwrap().foreign;
        Ok((cluster + u64::from(foreign), revision))
    }

    async fn read(&self, ranges: &[Range]) -> Result<View, StoreError> {
        self.reach().await?.read(ranges).await
    }

    async fn commit(&self, txn: Txn) -> Result<Commit, StoreError> {
        self.reach().await?;
        self.recording.commit(txn).await
    }

    async fn watch(&self, prefix: &str, from: i64) -> Result<Changes, StoreError> {
        let changes = self.reach().await?.watch(prefix, from).await?;
        let cut = self.weather.0.lock().unwrap().cut.clone();
        let ended = futures::stream::once(async { Err(unavailable("watch")) });
        let changes = changes.take_until(cut.cancelled_owned());
        Ok(changes.chain(ended).boxed())
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.reach().await?.grant(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.reach().await?.keep_alive(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.reach().await?.revoke(lease).await
    }
}

/// Probes of a process.
#[derive(Debug)]
pub struct ProbeLine {
    pub inner: podherd::probe::MemoryProber,
    pub gate: Gate,
}

#[async_trait]
impl Prober for ProbeLine {
    async fn http(&self, address: SocketAddr, path: &str) -> Result<u16, NoAnswer> {
        self.gate.alive().await;
        self.inner.http(address, path).await
    }

    async fn tcp(&self, address: SocketAddr) -> Result<(), NoAnswer> {
        self.gate.alive().await;
        self.inner.tcp(address).await
    }
}
