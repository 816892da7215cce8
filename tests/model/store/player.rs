//! Makes the calls on a store.

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use podherd::store::{
    Change, Commit, Entry, LeaseId, Range, Store, StoreError, Target, Txn, Watch, WatchEvent,
};
use tokio::time::{Instant, timeout};

use super::calls::{At, Call, SHORT, When, Which, Write};

/// How long the short one surely lives, whatever time it was granted for.
const SURELY: Duration = Duration::from_millis(800);
/// How long a watch may take to deliver what is there.
const SOON: Duration = Duration::from_secs(20);

/// A store, and what the trait can't ask of it.
#[async_trait]
pub trait Backend: Sync {
    fn store(&self) -> &dyn Store;
    /// Forgets what is older than this revision, at once.
    async fn compact(&self, revision: i64);
    /// Waits until the lease is over.
    async fn outlive(&self, lease: LeaseId);
}

/// The sequence can't be judged: a lease may have ended in the middle of it.
#[derive(Debug)]
pub struct TooSlow;

/// Makes the calls on a store that holds nothing but history, and answers what it said.
pub async fn play(backend: &dyn Backend, calls: &[Call]) -> Result<Vec<String>, TooSlow> {
    let mut player = Player::begin(backend).await;
    let mut answers = Vec::new();
    for call in calls {
        if player
            .short_until
            .is_some_and(|until| Instant::now() >= until)
        {
            player.end().await;
            return Err(TooSlow);
        }
        answers.push(player.make(call).await);
    }
    player.end().await;
    Ok(answers)
}

struct Player<'b> {
    backend: &'b dyn Backend,
    /// The revision at which the sequence began.
    base: i64,
    compacted: i64,
    leases: BTreeMap<usize, LeaseId>,
    /// Until when the short lease surely lives.
    short_until: Option<Instant>,
    watches: BTreeMap<usize, Watching>,
}

struct Watching {
    watch: Watch,
    prefix: &'static str,
    from: i64,
    ended: bool,
    /// What was delivered and not told yet.
    seen: Vec<Change>,
}

impl<'b> Player<'b> {
    async fn begin(backend: &'b dyn Backend) -> Self {
        let store = backend.store();
        store
            .commit(Txn::default().put("a", Vec::new()))
            .await
            .unwrap();
        let empty = store.commit(Txn::default().delete_prefix("")).await;
        let Ok(Commit::Applied(base)) = empty else {
            panic!("the store wasn't emptied: {empty:?}");
        };
        backend.compact(base).await;
        Self {
            backend,
            base,
            compacted: base,
            leases: BTreeMap::new(),
            short_until: None,
            watches: BTreeMap::new(),
        }
    }

    async fn end(&mut self) {
        for lease in self.leases.values() {
            // It may have ended already.
            let _ = self.backend.store().revoke(*lease).await;
        }
    }

    async fn make(&mut self, call: &Call) -> String {
        let store = self.backend.store();
        match call {
            Call::Identity => self.told(store.identity().await.map(|(_, it)| self.after(it))),
            Call::Read(ranges) => {
                let ranges: Vec<Range> = ranges.iter().map(Which::range).collect();
                let view = store.read(&ranges).await;
                self.told(view.map(|view| {
                    let entries = view.ranges.iter();
                    let entries = entries.map(|range| range.iter().map(|it| self.entry(it)));
                    let entries: Vec<Vec<_>> = entries.map(Iterator::collect).collect();
                    format!("at {}: {entries:?}", self.after(view.revision))
                }))
            }
            Call::Commit(compares, writes) => {
                let txn = self.txn(compares, writes).await;
                let commit = store.commit(txn).await;
                self.told(commit.map(|commit| match commit {
                    Commit::Applied(revision) => format!("applied at {}", self.after(revision)),
                    Commit::Refused(keys) => format!("refused: {keys:?}"),
                }))
            }
            Call::Watch(slot, prefix, back) => self.watch(*slot, prefix, *back).await,
            Call::Drain(slot) => self.drain(*slot).await,
            Call::Compact(back) => self.compact(*back).await,
            Call::Grant(slot, millis) => self.grant(*slot, *millis).await,
            Call::KeepAlive(slot) => {
                let kept = store.keep_alive(self.lease(*slot)).await;
                if *slot == SHORT && kept.is_ok() {
                    self.short_until = Some(Instant::now() + SURELY);
                }
                self.told(kept)
            }
            Call::Revoke(slot) => {
                let revoked = store.revoke(self.lease(*slot)).await;
                if *slot == SHORT {
                    self.short_until = None;
                }
                self.told(revoked)
            }
            Call::Outlive => {
                if self.short_until.take().is_some() {
                    self.backend.outlive(self.lease(SHORT)).await;
                }
                String::new()
            }
        }
    }

    async fn txn(&self, compares: &[When], writes: &[Write]) -> Txn {
        let mut txn = Txn::default();
        for when in compares {
            txn = match *when {
                When::Absent(key) => txn.when(key, Target::Absent),
                When::Created(key, at) => {
                    let revision = self.at(key, at, |entry| entry.create_revision).await;
                    txn.when(key, Target::CreateRevision(revision))
                }
                When::Modified(key, at) => {
                    let revision = self.at(key, at, |entry| entry.mod_revision).await;
                    txn.when(key, Target::ModRevision(revision))
                }
            };
        }
        for write in writes {
            txn = match *write {
                Write::Put(key, value) => txn.put(key, vec![value]),
                Write::PutLeased(key, slot) => txn.put_leased(key, Vec::new(), self.lease(slot)),
                Write::Delete(key) => txn.delete(key),
                Write::DeletePrefix(prefix) => txn.delete_prefix(prefix),
            };
        }
        txn
    }

    async fn at(&self, key: &str, at: At, own: impl Fn(&Entry) -> i64) -> i64 {
        match at {
            At::Zero => 0,
            At::Later(count) => self.base + count,
            At::Own => {
                let ranges = [Range::Key(key.to_owned())];
                let view = self.backend.store().read(&ranges).await;
                view.map_or(0, |view| view.ranges[0].first().map_or(0, own))
            }
        }
    }

    async fn newest(&self) -> i64 {
        self.backend.store().identity().await.unwrap().1
    }

    async fn watch(&mut self, slot: usize, prefix: &'static str, back: i64) -> String {
        let from = self.newest().await + 1 - back;
        match self.backend.store().watch(prefix, from).await {
            Ok(watch) => {
                let watching = Watching {
                    watch,
                    prefix,
                    from,
                    ended: false,
                    seen: Vec::new(),
                };
                self.watches.insert(slot, watching);
                "watching".to_owned()
            }
            Err(error) => self.kind(&error),
        }
    }

    /// Puts a last change into the watch, so that it is known when everything was told.
    async fn drain(&mut self, slot: usize) -> String {
        let Some(watching) = self.watches.get(&slot).filter(|it| !it.ended) else {
            return "no watch".to_owned();
        };
        let last = format!("{}~", watching.prefix);
        let from = watching.from;
        let last = loop {
            let put = Txn::default().put(&last, Vec::new());
            match self.backend.store().commit(put).await {
                Ok(Commit::Applied(revision)) if revision < from => {}
                Ok(Commit::Applied(revision)) => break revision,
                other => panic!("the last change wasn't put: {other:?}"),
            }
        };
        let Some(watching) = self.watches.get_mut(&slot) else {
            return String::new();
        };
        let told = watching.until(last).await;
        let (changes, error) = told;
        let changes: Vec<_> = changes.iter().map(|change| self.change(change)).collect();
        format!(
            "{changes:?} {}",
            error.map_or(String::new(), |it| self.kind(&it))
        )
    }

    async fn compact(&mut self, back: i64) -> String {
        let slots: Vec<_> = self.watches.keys().copied().collect();
        let mut told = Vec::new();
        for slot in slots {
            told.push(self.drain(slot).await);
        }
        // The changes that end one watch's drain are news to the others.
        for watching in self.watches.values_mut() {
            watching.glance();
        }
        let revision = self.newest().await - back;
        if revision > self.compacted {
            self.backend.compact(revision).await;
            self.compacted = revision;
        }
        format!("{told:?}")
    }

    async fn grant(&mut self, slot: usize, millis: u64) -> String {
        let store = self.backend.store();
        if let Some(former) = self.leases.remove(&slot) {
            let _ = store.revoke(former).await;
        }
        let ttl = if slot == SHORT {
            self.short_until = Some(Instant::now() + SURELY);
            Duration::from_millis(millis)
        } else {
            Duration::from_secs(600)
        };
        let granted = store.grant(ttl).await;
        if let Ok(lease) = &granted {
            self.leases.insert(slot, *lease);
        }
        self.told(granted.map(drop))
    }

    /// The slot's lease, or one that nobody was granted.
    fn lease(&self, slot: usize) -> LeaseId {
        let granted = self.leases.get(&slot).copied();
        granted.unwrap_or(LeaseId(1_234_567))
    }

    fn after(&self, revision: i64) -> i64 {
        revision - self.base
    }

    fn entry(&self, entry: &Entry) -> String {
        let (created, modified) = (entry.create_revision, entry.mod_revision);
        let (created, modified) = (self.after(created), self.after(modified));
        format!("{}={:?} {created}/{modified}", entry.key, entry.value)
    }

    fn change(&self, change: &Change) -> String {
        match change {
            Change::Put(entry) => self.entry(entry),
            Change::Delete { key, mod_revision } => {
                format!("{key} gone {}", self.after(*mod_revision))
            }
        }
    }

    fn told<T: std::fmt::Debug>(&self, answer: Result<T, StoreError>) -> String {
        answer.map_or_else(|error| self.kind(&error), |answer| format!("{answer:?}"))
    }

    fn kind(&self, error: &StoreError) -> String {
        match error {
            StoreError::Unavailable { call, .. } => format!("unavailable: {call}"),
            StoreError::NoSpace => "no space".to_owned(),
            StoreError::Compacted { compacted } => {
                format!("compacted up to {}", self.after(*compacted))
            }
            StoreError::LeaseExpired => "lease expired".to_owned(),
            StoreError::Denied { call } => format!("denied: {call}"),
            StoreError::Refused { call, .. } => format!("refused: {call}"),
        }
    }
}

impl Watching {
    /// All changes up to this one's revision, or until the watch ends.
    async fn until(&mut self, last: i64) -> (Vec<Change>, Option<StoreError>) {
        while self
            .seen
            .last()
            .is_none_or(|change| change.revision() < last)
        {
            let next = timeout(SOON, self.watch.next()).await;
            let next = next.expect("a watch that says something");
            if let Err(error) = self.see(next.expect("an error before the end")) {
                self.ended = true;
                let after = self.watch.next().await;
                assert!(after.is_none(), "an ended watch goes on: {after:?}");
                return (mem::take(&mut self.seen), Some(error));
            }
        }
        (mem::take(&mut self.seen), None)
    }

    /// Takes what is there already, as a reader does that is always at it.
    fn glance(&mut self) {
        while !self.ended
            && let Some(Some(event)) = self.watch.next().now_or_never()
        {
            self.see(event).expect("a watch that goes on");
        }
    }

    fn see(&mut self, event: Result<WatchEvent, StoreError>) -> Result<(), StoreError> {
        if let WatchEvent::Changes { revision, changes } = event? {
            let before = self.seen.last().map_or(0, Change::revision);
            let last = changes.last().map(Change::revision);
            assert!(last == Some(revision) && revision > before, "{changes:?}");
            self.seen.extend(changes);
        }
        Ok(())
    }
}
