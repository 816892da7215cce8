//! A controller's life on a store in memory.

use tokio::task::JoinHandle;

use super::super::TTL;
use super::super::testing::{Flaky, Rejected, Remember};
use super::*;
use crate::clock::SystemClock;
use crate::manifest::NodeName;
use crate::runtime::{EffectLog, MemoryRuntime};
use crate::state::{Keys, Leader, Node};
use crate::store::{MemoryStore, Store, authority};

/// A controller that runs.
struct Running {
    work: Arc<Remember>,
    role: SharedRole,
    metrics: Metrics,
    stop: CancellationToken,
    ended: JoinHandle<Result<(), HostError>>,
    /// The host's memory, kept for the next controller of this host.
    state: tempfile::TempDir,
}

impl Running {
    async fn end(self) -> tempfile::TempDir {
        self.stop.cancel();
        self.ended.await.unwrap().unwrap();
        self.state
    }
}

fn start(store: &Flaky, holder: &str) -> Running {
    start_on(store, holder, tempfile::tempdir().unwrap(), false)
}

fn start_on(store: &Flaky, holder: &str, state: tempfile::TempDir, adopt: bool) -> Running {
    let keys = Keys::new("/podherd");
    let node: NodeName = "host-a".parse().unwrap();
    let shared: Arc<dyn Store> = Arc::new(store.clone());
    let entropy = Arc::new(Entropy::from_seed(1));
    let host = MemoryRuntime::new(Arc::new(SystemClock), EffectLog::new());
    let (keeper, authority) = authority();
    let work = Arc::new(Remember::default());
    let role = SharedRole::default();
    let metrics = Metrics::new().unwrap();
    let stop = CancellationToken::new();
    let controller = Controller {
        catalog: Catalog::new(shared.clone(), Arc::new(host), keys.clone()),
        work: work.clone(),
        policy: Arc::new(crate::policy::MemoryPolicy::default()),
        rejections: Arc::new(Rejected::default()),
        heartbeat: Heartbeat {
            store: shared.clone(),
            key: keys.node(&node),
            node: Node {
                node: node.clone(),
                version: "1".to_owned(),
                since: jiff::Timestamp::UNIX_EPOCH,
            },
            ttl: TTL,
            entropy: entropy.clone(),
        },
        campaign: Campaign {
            store: shared,
            key: keys.leader(),
            me: Leader {
                node,
                holder: holder.to_owned(),
                process: None,
                since: jiff::Timestamp::UNIX_EPOCH,
            },
            ttl: TTL,
            clock: Arc::new(SystemClock),
            entropy: entropy.clone(),
        },
        keeper,
        authority,
        newest: Newest::default(),
        known: KnownStore::open(state.path()).unwrap(),
        adopt,
        pace: Pace {
            workers: 2,
            resync: Duration::from_secs(3600),
        },
        entropy,
        metrics: metrics.clone(),
        health: Health::default(),
        role: role.clone(),
    };
    Running {
        work,
        role,
        metrics,
        ended: tokio::spawn(controller.run(stop.clone())),
        stop,
        state,
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn the_leader_works_and_the_other_stands_by_until_it_leaves() {
    let store = Flaky::default();
    store.put("apps/blog").await;
    let first = start(&store, "first");
    pass(1).await;
    let second = start(&store, "second");
    pass(1).await;
    assert_eq!(first.role.get(), Role::Leading);
    assert_eq!(second.role.get(), Role::StandingBy);
    assert_eq!(first.work.take(), ["blog"]);
    assert!(second.work.take().is_empty());

    first.end().await;
    pass(1).await;

    assert_eq!(second.role.get(), Role::Leading);
    assert_eq!(second.work.take(), ["blog"]);
    assert_eq!(second.metrics.controller.leader.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn leadership_is_given_up_only_after_the_work_has_ended() {
    let store = Flaky::default();
    store.put("apps/blog").await;
    let first = start(&store, "first");
    first.work.slow(true);
    pass(1).await;
    let second = start(&store, "second");
    pass(1).await;

    first.stop.cancel();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(first.work.cancelled(), 0, "the work still ends");
    assert_eq!(second.role.get(), Role::StandingBy);
    pass(1).await;

    assert_eq!(first.work.cancelled(), 1);
    assert_eq!(second.role.get(), Role::Leading);
    first.ended.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_goes_away_ends_the_work_and_one_that_comes_back_resumes_it() {
    let store = Flaky::default();
    store.put("apps/blog").await;
    let running = start(&store, "first");
    running.work.slow(true);
    pass(1).await;
    assert_eq!(running.work.take(), ["blog"]);

    store.down();
    pass(60).await;
    assert_eq!(running.work.cancelled(), 1);
    assert_eq!(running.role.get(), Role::StandingBy);
    assert_eq!(running.metrics.controller.leader.get(), 0);

    running.work.slow(false);
    store.up();
    pass(40).await;
    assert_eq!(running.role.get(), Role::Leading);
    assert_eq!(running.work.take(), ["blog"]);
}

#[tokio::test(start_paused = true)]
async fn another_store_is_refused_and_not_written_to() {
    let at_home = start(&Flaky::default(), "first");
    pass(1).await;
    let state = at_home.end().await;
    let other = Flaky {
        memory: MemoryStore::with_cluster(99),
        ..Flaky::default()
    };
    let before = other.memory.revision();

    let refused = start_on(&other, "first", state, false);
    let error = refused.ended.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("--adopt"), "{error}");
    assert_eq!(other.memory.revision(), before);

    let adopted = start_on(&other, "first", refused.state, true);
    pass(1).await;
    assert_eq!(adopted.role.get(), Role::Leading);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_at_the_beginning_is_waited_for() {
    let store = Flaky::default();
    store.down();
    let running = start(&store, "first");
    pass(30).await;
    assert_eq!(running.role.get(), Role::AskingStore);

    store.up();
    pass(40).await;

    assert_eq!(running.role.get(), Role::Leading);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_waits_leaves_at_once() {
    let store = Flaky::default();
    store.down();
    let running = start(&store, "first");
    pass(1).await;

    let began = tokio::time::Instant::now();
    running.end().await;

    assert!(began.elapsed() < Duration::from_secs(1));
}

fn refuses_an_older_store(running: &Running) -> bool {
    matches!(running.role.get(), Role::Refusing(why) if why.contains("--adopt"))
}

/// So fast that the leadership, which the backup has too, never ended.
#[tokio::test(start_paused = true)]
async fn a_store_restored_in_place_within_a_term_ends_it_and_is_refused() {
    let store = Flaky::default();
    store.put("apps/blog").await;
    let running = start(&store, "first");
    pass(1).await;
    let backup = store.memory.backup();
    store.delete("apps/blog").await;
    pass(1).await;
    running.work.take();

    store.memory.restore(&backup);
    store.cut();
    pass(3).await;

    assert!(refuses_an_older_store(&running), "{:?}", running.role.get());
    assert_eq!(running.work.take(), Vec::<String>::new());
    assert_eq!(running.metrics.controller.leader.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_back_older_is_refused() {
    let store = Flaky::default();
    let running = start(&store, "first");
    pass(1).await;
    let backup = store.memory.backup();
    for _ in 0..20 {
        store.put("apps/blog").await;
    }
    // It is remembered now and then how far the store has come.
    pass(61).await;
    running.work.take();

    store.down();
    pass(60).await;
    store.memory.restore(&backup);
    store.up();
    pass(60).await;

    assert!(refuses_an_older_store(&running), "{:?}", running.role.get());
    assert_eq!(running.work.take(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_went_back_while_this_one_stood_by_is_refused() {
    let store = Flaky::default();
    let first = start(&store, "first");
    pass(1).await;
    let backup = store.memory.backup();
    for _ in 0..20 {
        store.put("apps/blog").await;
    }
    let second = start(&store, "second");
    pass(1).await;
    assert_eq!(second.role.get(), Role::StandingBy);

    store.memory.restore(&backup);
    store.cut();
    first.end().await;
    pass(60).await;

    assert!(refuses_an_older_store(&second), "{:?}", second.role.get());
    assert_eq!(second.work.take(), Vec::<String>::new());
}
