//! Who leads, and that never two do, on a store in memory and with held time.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::store::{Authority, MemoryStore, View, Watch, authority, deadline};

use super::*;

/// A store that can be out of reach. What was asked of it then gets no answer,
/// or a connection that is refused at once.
#[derive(Debug, Clone)]
struct Reach {
    store: MemoryStore,
    out: Arc<AtomicBool>,
    refuses: Arc<AtomicBool>,
    failed: Arc<AtomicU32>,
}

impl Reach {
    fn of(store: &MemoryStore) -> Self {
        Self {
            store: store.clone(),
            out: Arc::default(),
            refuses: Arc::default(),
            failed: Arc::default(),
        }
    }

    fn lose(&self) {
        self.out.store(true, Ordering::Relaxed);
    }

    fn find(&self) {
        self.out.store(false, Ordering::Relaxed);
    }

    async fn check(&self, call: &'static str) -> Result<(), StoreError> {
        if self.out.load(Ordering::Relaxed) {
            self.failed.fetch_add(1, Ordering::Relaxed);
            if !self.refuses.load(Ordering::Relaxed) {
                sleep(deadline::LEASE).await;
            }
            return Err(StoreError::Unavailable {
                call,
                message: "out of reach".to_owned(),
            });
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Reach {
    async fn identity(&self) -> Result<(u64, i64), StoreError> {
        self.check("identity").await?;
        self.store.identity().await
    }
    async fn read(&self, ranges: &[Range]) -> Result<View, StoreError> {
        self.check("read").await?;
        self.store.read(ranges).await
    }
    async fn commit(&self, txn: Txn) -> Result<Commit, StoreError> {
        self.check("commit").await?;
        self.store.commit(txn).await
    }
    async fn watch(&self, prefix: &str, from: i64) -> Result<Watch, StoreError> {
        self.check("watch").await?;
        let reach = self.clone();
        let watch = self.store.watch(prefix, from).await?;
        Ok(watch
            .then(move |event| {
                let reach = reach.clone();
                async move { reach.check("watch").await.and(event) }
            })
            .boxed())
    }
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.check("grant").await?;
        self.store.grant(ttl).await
    }
    async fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.check("keep alive").await?;
        self.store.keep_alive(lease).await
    }
    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.check("revoke").await?;
        self.store.revoke(lease).await
    }
}

const KEY: &str = "/podherd/leader/controller";

#[derive(Debug)]
struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
}

struct Candidate {
    authority: Authority,
    cancel: CancellationToken,
    task: JoinHandle<()>,
    reach: Reach,
}

impl Candidate {
    fn stand(store: &MemoryStore, holder: &str) -> Self {
        let reach = Reach::of(store);
        let (keeper, authority) = authority();
        let cancel = CancellationToken::new();
        let campaign = Campaign {
            store: Arc::new(reach.clone()),
            key: KEY.to_owned(),
            me: Leader {
                node: "host-a".parse().unwrap(),
                holder: holder.to_owned(),
                process: None,
                since: Timestamp::UNIX_EPOCH,
            },
            ttl: TTL,
            clock: Arc::new(FixedClock),
            entropy: Arc::new(Entropy::from_seed(1)),
        };
        Self {
            task: tokio::spawn(campaign.run(keeper, cancel.clone())),
            authority,
            cancel,
            reach,
        }
    }

    fn leads(&self) -> bool {
        self.authority.holds()
    }

    async fn wins_within(&self, limit: Duration) {
        // `won` may tell of a term that is just over; the permit never does.
        timeout(limit, async {
            while !self.leads() {
                sleep(Duration::from_millis(50)).await;
            }
        })
        .await
        .expect("it never led");
    }

    /// Lets time go by, and checks all the while that not both lead.
    async fn never_both(&self, other: &Self, span: Duration) {
        let end = Instant::now() + span;
        while Instant::now() < end {
            assert!(!(self.leads() && other.leads()), "two leaders");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// A moment in which nothing but what is due at once happens.
const AT_ONCE: Duration = Duration::from_millis(100);

async fn two(store: &MemoryStore) -> (Candidate, Candidate) {
    let first = Candidate::stand(store, "first");
    first.wins_within(AT_ONCE).await;
    (first, Candidate::stand(store, "second"))
}

fn holder(store: &MemoryStore) -> Option<String> {
    let entry = store.entries().into_iter().find(|entry| entry.key == KEY)?;
    Some(decode::<Leader>(&entry.value).unwrap().holder)
}

#[tokio::test(start_paused = true)]
async fn one_of_two_leads_and_the_other_stands_by() {
    let store = MemoryStore::new();
    let (first, second) = two(&store).await;
    let before = store.revision();
    first.never_both(&second, Duration::from_secs(3600)).await;
    assert!(first.leads() && !second.leads());
    assert_eq!(holder(&store).as_deref(), Some("first"));
    assert_eq!(
        store.revision(),
        before,
        "leading and standing by write nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn while_etcd_answers_a_permit_for_the_longest_effect_is_always_given() {
    let store = MemoryStore::new();
    let (first, _second) = two(&store).await;
    for _ in 0..6000 {
        first.authority.permit(Duration::from_secs(20)).unwrap();
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_is_followed_when_its_lease_ends() {
    let store = MemoryStore::new();
    let (first, second) = two(&store).await;
    sleep(Duration::from_secs(7)).await;
    first.task.abort();
    first.never_both(&second, Duration::from_secs(20)).await;
    assert!(!second.leads());
    second.wins_within(TTL).await;
    assert_eq!(holder(&store).as_deref(), Some("second"));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cancelled_is_followed_at_once() {
    let store = MemoryStore::new();
    let (first, second) = two(&store).await;
    first.cancel.cancel();
    second.wins_within(AT_ONCE).await;
    assert!(!first.leads());
    first.task.await.unwrap();
    second.cancel.cancel();
    second.task.await.unwrap();
    assert!(store.entries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_leader_cut_off_stops_by_itself_before_another_begins() {
    let store = MemoryStore::new();
    let (first, second) = two(&store).await;
    first.reach.lose();
    first.never_both(&second, TTL * 2).await;
    assert!(!first.leads() && second.leads());
    first.reach.find();
    first.never_both(&second, Duration::from_secs(300)).await;
    assert!(!first.leads() && second.leads());
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_costs_nobody_the_leadership() {
    let store = MemoryStore::new();
    let (mut first, second) = two(&store).await;
    let term = first.authority.permit(Duration::ZERO).unwrap();
    for _ in 0..10 {
        first.reach.lose();
        second.reach.lose();
        for _ in 0..130 {
            sleep(Duration::from_millis(100)).await;
            assert!(first.leads(), "a false loss");
        }
        first.reach.find();
        second.reach.find();
        sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(first.authority.permit(Duration::ZERO).unwrap(), term);
    assert!(timeout(AT_ONCE, first.authority.lost()).await.is_err());
    assert!(!second.leads());
}

#[tokio::test(start_paused = true)]
async fn a_long_outage_ends_the_permit_and_the_same_term_goes_on_if_the_lease_survived() {
    let store = MemoryStore::new();
    // etcd extends leases when it comes back; a lease that is renewed stands in for that.
    let first = Candidate::stand(&store, "first");
    first.wins_within(AT_ONCE).await;
    let term = first.authority.permit(Duration::ZERO).unwrap();
    let lease = LeaseId(1);
    first.reach.lose();
    let extender = store.clone();
    let extending = tokio::spawn(async move {
        loop {
            extender.keep_alive(lease).await.unwrap();
            sleep(Duration::from_secs(5)).await;
        }
    });
    sleep(TTL + Duration::from_secs(1)).await;
    assert!(!first.leads());
    let mut waiting = first.authority.clone();
    assert!(
        timeout(AT_ONCE, waiting.won()).await.is_err(),
        "won without a term"
    );

    sleep(TTL).await;
    first.reach.find();
    first.wins_within(Duration::from_secs(15)).await;
    assert_eq!(first.authority.permit(Duration::ZERO).unwrap(), term);
    extending.abort();
}

#[tokio::test(start_paused = true)]
async fn a_key_deleted_by_hand_ends_the_term_and_another_is_elected() {
    let store = MemoryStore::new();
    let (first, second) = two(&store).await;
    let term = first.authority.permit(Duration::ZERO).unwrap();
    store.commit(Txn::default().delete(KEY)).await.unwrap();
    sleep(AT_ONCE).await;
    assert!(first.leads() != second.leads(), "one of them leads");
    let fenced = term.guard(Txn::default().put("/podherd/state", Vec::new()));
    assert_eq!(
        store.commit(fenced).await.unwrap(),
        Commit::Refused(vec![KEY.to_owned()])
    );
    first.never_both(&second, Duration::from_secs(300)).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_connections_is_asked_only_now_and_then() {
    let store = MemoryStore::new();
    let (first, second) = two(&store).await;
    for candidate in [&first, &second] {
        candidate.reach.refuses.store(true, Ordering::Relaxed);
        candidate.reach.lose();
    }
    sleep(Duration::from_secs(600)).await;
    for candidate in [&first, &second] {
        let failed = candidate.reach.failed.load(Ordering::Relaxed);
        assert!(failed < 600, "{failed} calls in 600 s");
    }
    first.reach.find();
    first.wins_within(Duration::from_secs(15)).await;
}

#[tokio::test(start_paused = true)]
async fn a_compacted_history_and_a_strange_value_do_not_confuse_anybody() {
    let store = MemoryStore::new();
    store
        .commit(Txn::default().put(KEY, b"?".to_vec()))
        .await
        .unwrap();
    let first = Candidate::stand(&store, "first");
    sleep(Duration::from_secs(60)).await;
    assert!(!first.leads());
    for round in 0..10 {
        store
            .commit(Txn::default().put("/other", vec![round]))
            .await
            .unwrap();
    }
    store.compact(store.revision());
    store.commit(Txn::default().delete(KEY)).await.unwrap();
    first.wins_within(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_of_this_machine_that_was_killed_is_succeeded_at_once() {
    let store = MemoryStore::new();
    let this = crate::controller::this_process().unwrap();
    let killed = Leader {
        node: "host-a".parse().unwrap(),
        holder: "killed".to_owned(),
        process: Some(crate::state::ProcessIdentity {
            started: this.started + 1,
            ..this
        }),
        since: Timestamp::UNIX_EPOCH,
    };
    let lease = store.grant(TTL).await.unwrap();
    let left = Txn::default().put_leased(KEY, encode(&killed).unwrap(), lease);
    store.commit(left).await.unwrap();

    let begun = Instant::now();
    let mut next = Candidate::stand(&store, "next");
    next.authority.won().await;
    assert!(begun.elapsed() < TTL / 2);
}

/// etcd came back with an older state: the key of a term is there, and whoever wrote it
/// doesn't lead any more.
#[tokio::test(start_paused = true)]
async fn a_term_of_its_own_that_was_left_behind_is_taken_down_at_once() {
    let store = MemoryStore::new();
    let first = Candidate::stand(&store, "first");
    first.wins_within(AT_ONCE).await;
    let backup = store.backup();
    first.cancel.cancel();
    first.task.await.unwrap();

    store.restore(&backup);
    let again = Candidate::stand(&store, "first");
    again.wins_within(AT_ONCE).await;

    let other = Candidate::stand(&store, "second");
    again.never_both(&other, TTL).await;
}
