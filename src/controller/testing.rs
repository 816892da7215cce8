//! What the controller's unit tests share: a store that fails when told, and a
//! worker that only remembers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use super::{Catalog, Next, Queue, Rejections, Work};
use crate::clock::{Entropy, SystemClock};
use crate::manifest::AppName;
use crate::runtime::{EffectLog, MemoryRuntime};
use crate::state::Keys;
use crate::store::{Commit, LeaseId, MemoryStore, Range, Store, StoreError, Txn, View, Watch};
use crate::telemetry::{Health, Metrics, Pulse};

pub(super) fn app(name: &str) -> AppName {
    name.parse().unwrap()
}

pub(super) fn pulse() -> Pulse {
    Health::default().pulse("test", Duration::from_secs(60))
}

/// A store that is down when told, and whose watches end when told.
#[derive(Debug, Clone, Default)]
pub(super) struct Flaky {
    pub memory: MemoryStore,
    pub down: Arc<AtomicBool>,
    pub cut: Arc<Mutex<CancellationToken>>,
}

impl Flaky {
    /// Ends every watch, and fails every call until [`Flaky::up`].
    pub(super) fn down(&self) {
        self.down.store(true, Ordering::SeqCst);
        self.cut();
    }

    pub(super) fn up(&self) {
        self.down.store(false, Ordering::SeqCst);
    }

    /// Ends every watch.
    pub(super) fn cut(&self) {
        let mut cut = self.cut.lock().unwrap();
        cut.cancel();
        *cut = CancellationToken::new();
    }

    pub(super) async fn put(&self, key: &str) -> i64 {
        let txn = Txn::default().put(format!("/podherd/{key}"), b"{}".to_vec());
        self.applied(txn).await
    }

    pub(super) async fn delete(&self, key: &str) -> i64 {
        self.applied(Txn::default().delete(format!("/podherd/{key}")))
            .await
    }

    /// Writes as somebody who reaches the store while the controller may not.
    async fn applied(&self, txn: Txn) -> i64 {
        match self.memory.commit(txn).await.unwrap() {
            Commit::Applied(revision) => revision,
            Commit::Refused(keys) => panic!("refused: {keys:?}"),
        }
    }

    fn reach(&self) -> Result<(), StoreError> {
        if self.down.load(Ordering::SeqCst) {
            return Err(gone());
        }
        Ok(())
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable {
        call: "any",
        message: "the test took it down".to_owned(),
    }
}

#[async_trait]
impl Store for Flaky {
    async fn identity(&self) -> Result<(u64, i64), StoreError> {
        self.reach()?;
        self.memory.identity().await
    }

    async fn read(&self, ranges: &[Range]) -> Result<View, StoreError> {
        self.reach()?;
        self.memory.read(ranges).await
    }

    async fn commit(&self, txn: Txn) -> Result<Commit, StoreError> {
        self.reach()?;
        self.memory.commit(txn).await
    }

    async fn watch(&self, prefix: &str, from: i64) -> Result<Watch, StoreError> {
        self.reach()?;
        let watch = self.memory.watch(prefix, from).await?;
        let cut = self.cut.lock().unwrap().clone().cancelled_owned();
        let end = futures::stream::once(async { Err(gone()) });
        Ok(watch.take_until(cut).chain(end).boxed())
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.reach()?;
        self.memory.grant(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.reach()?;
        self.memory.keep_alive(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.reach()?;
        self.memory.revoke(lease).await
    }
}

/// Remembers for which apps it was called; fails while told to, and takes its
/// time when told to, until it is cancelled.
#[derive(Debug, Default)]
pub(super) struct Remember {
    runs: Mutex<Vec<String>>,
    failing: AtomicBool,
    slow: AtomicBool,
    cancelled: AtomicUsize,
}

impl Remember {
    /// The apps worked on since the last call, in order of names, each once.
    pub(super) fn take(&self) -> Vec<String> {
        let mut runs = std::mem::take(&mut *self.runs.lock().unwrap());
        runs.sort();
        runs.dedup();
        runs
    }

    pub(super) fn fail(&self, failing: bool) {
        self.failing.store(failing, Ordering::SeqCst);
    }

    pub(super) fn slow(&self, slow: bool) {
        self.slow.store(slow, Ordering::SeqCst);
    }

    /// How often work was told to stop and needed a moment for it.
    pub(super) fn cancelled(&self) -> usize {
        self.cancelled.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Work for Remember {
    async fn run(&self, app: &AppName, cancel: CancellationToken) -> Next {
        self.runs.lock().unwrap().push(app.to_string());
        if self.slow.load(Ordering::SeqCst) {
            cancel.cancelled().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            _ = self.cancelled.fetch_add(1, Ordering::SeqCst);
        }
        if self.failing.load(Ordering::SeqCst) {
            return Next::Failed;
        }
        Next::Done
    }
}

/// Remembers what was said about keys that name no app.
#[derive(Debug, Default)]
pub(super) struct Rejected(Mutex<Vec<String>>);

impl Rejected {
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[async_trait]
impl Rejections for Rejected {
    async fn reject(&self, tail: &str, _: i64, _: &str) {
        self.0.lock().unwrap().push(format!("reject {tail}"));
    }

    async fn withdraw(&self, tail: &str) {
        self.0.lock().unwrap().push(format!("withdraw {tail}"));
    }
}

/// A queue at work on a store and a host of its own.
#[derive(Debug)]
pub(super) struct World {
    pub store: Flaky,
    pub host: Arc<MemoryRuntime>,
    pub catalog: Catalog,
    pub queue: Queue,
    pub work: Arc<Remember>,
    pub entropy: Arc<Entropy>,
    pub metrics: Metrics,
    pub stop: CancellationToken,
}

impl World {
    pub(super) fn start() -> Self {
        let store = Flaky::default();
        let host = Arc::new(MemoryRuntime::new(Arc::new(SystemClock), EffectLog::new()));
        let catalog = Catalog::new(Arc::new(store.clone()), host.clone(), Keys::new("/podherd"));
        let entropy = Arc::new(Entropy::from_seed(1));
        let metrics = Metrics::new().unwrap();
        let queue = Queue::new(4, entropy.clone(), metrics.queue.clone());
        let work = Arc::new(Remember::default());
        let stop = CancellationToken::new();
        let (running, worker, token) = (queue.clone(), work.clone(), stop.clone());
        tokio::spawn(async move { running.run(worker, token, pulse()).await });
        Self {
            store,
            host,
            catalog,
            queue,
            work,
            entropy,
            metrics,
            stop,
        }
    }

    /// The apps worked on within the next moment.
    pub(super) async fn worked_on(&self) -> Vec<String> {
        self.worked_on_within(Duration::from_millis(50)).await
    }

    pub(super) async fn worked_on_within(&self, time: Duration) -> Vec<String> {
        tokio::time::sleep(time).await;
        self.work.take()
    }
}
