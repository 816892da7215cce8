//! The in-memory store and a real etcd give the same answers.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Client, CompactionOptions};
use podherd::store::{EtcdOptions, EtcdStore, LeaseId, MemoryStore, Store};
use tokio::runtime::{Builder, Runtime};

use crate::model::store::{self, Backend, Call, TooSlow, When, Which, Write};
use crate::model::{Played, agree, agree_on, seeds};
use crate::support::{Etcd, Net, Sandbox};

/// Sequences of an ordinary run.
const USUAL: u64 = 120;
/// How often a sequence may be too slow for its leases.
const TRIES: usize = 10;

#[test]
fn random_calls_are_answered_alike() {
    agree_on(seeds(USUAL), store::sequence, play);
}

#[test]
fn a_key_without_a_name_is_refused() {
    agree(
        &[
            Call::Read(vec![Which::Prefix("a"), Which::Key("")]),
            Call::Commit(Vec::new(), vec![Write::Delete("")]),
            Call::Commit(vec![When::Absent("")], Vec::new()),
        ],
        play,
    );
}

#[test]
fn a_put_and_a_delete_of_everything_are_no_duplicates() {
    agree(
        &[
            Call::Commit(
                Vec::new(),
                vec![Write::Put("a0", 1), Write::DeletePrefix("")],
            ),
            Call::Commit(
                Vec::new(),
                vec![Write::DeletePrefix(""), Write::Put("a0", 2)],
            ),
            Call::Commit(
                Vec::new(),
                vec![Write::DeletePrefix("a"), Write::Put("a0", 3)],
            ),
            Call::Read(vec![Which::Prefix("")]),
        ],
        play,
    );
}

#[test]
fn a_lease_that_was_granted_for_no_time_lives_for_a_second() {
    agree(
        &[
            Call::Grant(store::SHORT, 0),
            Call::Commit(Vec::new(), vec![Write::PutLeased("a", store::SHORT)]),
            Call::KeepAlive(store::SHORT),
            Call::Read(vec![Which::Key("a")]),
            Call::Outlive,
            Call::Read(vec![Which::Key("a")]),
        ],
        play,
    );
}

/// etcd itself would begin at that revision, and leave out what was deleted there.
#[test]
fn a_watch_from_the_very_revision_that_was_compacted_is_told_so() {
    agree(
        &[
            Call::Commit(Vec::new(), vec![Write::Put("a", 1)]),
            Call::Commit(Vec::new(), vec![Write::Delete("a")]),
            Call::Compact(0),
            Call::Watch(0, "a", 1),
            Call::Watch(1, "a", 0),
            Call::Drain(0),
            Call::Drain(1),
        ],
        play,
    );
}

fn play(calls: &[Call]) -> Played {
    let real = REAL.lock().unwrap_or_else(PoisonError::into_inner);
    let real = (0..TRIES).find_map(|_| real.play(calls).ok());
    Played {
        double: on_the_double(calls),
        real: real.expect("a machine that makes the calls before a lease ends"),
    }
}

/// One etcd for all tests here; one sequence at a time.
static REAL: LazyLock<Mutex<Real>> = LazyLock::new(|| Mutex::new(Real::start()));

struct Real {
    tokio: Runtime,
    etcd: RealEtcd,
    _process: (Etcd, Sandbox),
}

impl Real {
    fn start() -> Self {
        let tokio = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let tokio = tokio.unwrap();
        let sandbox = Sandbox::new(Net::Host);
        let process = Etcd::start(&sandbox, "model");
        let etcd = tokio.block_on(RealEtcd::connect(&process.url()));
        Self {
            tokio,
            etcd,
            _process: (process, sandbox),
        }
    }

    fn play(&self, calls: &[Call]) -> Result<Vec<String>, TooSlow> {
        self.tokio.block_on(store::play(&self.etcd, calls))
    }
}

struct RealEtcd {
    store: EtcdStore,
    client: Client,
}

impl RealEtcd {
    async fn connect(url: &str) -> Self {
        let options = EtcdOptions::new(vec![url.to_owned()], "/podherd");
        Self {
            store: EtcdStore::connect(&options).await.unwrap(),
            client: Client::connect([url], None).await.unwrap(),
        }
    }
}

#[async_trait]
impl Backend for RealEtcd {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn compact(&self, revision: i64) {
        let mut kv = self.client.kv_client();
        let physical = CompactionOptions::new().with_physical();
        kv.compact(revision, Some(physical)).await.unwrap();
    }

    async fn outlive(&self, lease: LeaseId) {
        let mut client = self.client.lease_client();
        while client.time_to_live(lease.0, None).await.unwrap().ttl() >= 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// In a time of its own, which moves only when there is nothing else to do.
fn on_the_double(calls: &[Call]) -> Vec<String> {
    let tokio = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let double = Double(MemoryStore::new());
    let answers = store::play(&double, calls);
    tokio.unwrap().block_on(answers).unwrap()
}

struct Double(MemoryStore);

#[async_trait]
impl Backend for Double {
    fn store(&self) -> &dyn Store {
        &self.0
    }

    async fn compact(&self, revision: i64) {
        self.0.compact(revision);
    }

    async fn outlive(&self, _lease: LeaseId) {
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}
