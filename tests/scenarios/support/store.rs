//! The store, recorded: what a write means is an effect, and every write is
//! checked against what may be written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use podherd::state::{Active, Operation, OutcomeKind, StepState, decode};
use podherd::store::{
    Commit, Entry, LeaseId, Range, Store, StoreError, Txn, View, Watch as Changes, Write,
};

use super::cut::Gate;
use super::watch::Watch;

#[derive(Debug, Default)]
struct Meaning {
    effects: Vec<String>,
    violations: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct RecordingStore {
    watch: Watch,
    gate: Gate,
    writes: Arc<AtomicUsize>,
}

impl RecordingStore {
    pub fn new(watch: Watch, gate: Gate) -> Self {
        Self {
            watch,
            gate,
            writes: Arc::default(),
        }
    }

    /// How many transactions were applied.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }

    fn before(&self, key: &str) -> Option<Entry> {
        let entries = self.watch.store.entries();
        entries.into_iter().find(|entry| entry.key == key)
    }

    /// What the transaction does, as effects, and what is wrong with it; both
    /// count only once it is applied.
    fn meaning(&self, txn: &Txn) -> Meaning {
        let fence = self.watch.keys.leader();
        let mut meaning = Meaning::default();
        if !txn.compares.iter().any(|compare| compare.key == fence) {
            meaning
                .violations
                .push("a write without a fence".to_owned());
        }
        for write in &txn.writes {
            match write {
                Write::Put { key, value, .. } => self.put(key, value, &mut meaning),
                Write::Delete(key) => self.delete(key, &mut meaning),
                Write::DeletePrefix(prefix) => {
                    for entry in self.watch.store.entries() {
                        if entry.key.starts_with(prefix) {
                            self.delete(&entry.key, &mut meaning);
                        }
                    }
                }
            }
        }
        meaning
    }

    fn put(&self, key: &str, value: &[u8], meaning: &mut Meaning) {
        let before = self.before(key).map(|entry| entry.value);
        if let Some(service) = self.inhibited(key) {
            meaning.effects.push(format!("inhibit {service}"));
        } else if self.is(key, "active") {
            let before: Active = before
                .map(|value| decode(&value).unwrap())
                .unwrap_or_default();
            let (publishes, wrong) = self.watch.publishes(&before, &decode(value).unwrap());
            meaning.violations.extend(wrong);
            if publishes {
                meaning.effects.push("publish-active".to_owned());
            }
        } else if self.is(key, "intent") {
            meaning.effects.push("intend-stopped".to_owned());
        } else if self.is(key, "retained") {
            meaning.effects.push("end".to_owned());
        } else if self.is(key, "operations") {
            let wrong = journals(before.as_deref(), &decode(value).unwrap());
            meaning.violations.extend(wrong);
        }
    }

    fn delete(&self, key: &str, meaning: &mut Meaning) {
        if let Some(service) = self.inhibited(key)
            && self.before(key).is_some()
        {
            meaning.effects.push(format!("clear-inhibition {service}"));
        }
    }

    fn is(&self, key: &str, kind: &str) -> bool {
        let prefix = format!("{}/state/{kind}/", self.watch.keys.prefix());
        key.starts_with(&prefix)
    }

    fn inhibited(&self, key: &str) -> Option<String> {
        self.is(key, "inhibitions")
            .then(|| key.rsplit('/').nth(1).unwrap().to_owned())
    }
}

#[async_trait]
impl Store for RecordingStore {
    async fn identity(&self) -> Result<(u64, i64), StoreError> {
        self.watch.store.identity().await
    }

    async fn read(&self, ranges: &[Range]) -> Result<View, StoreError> {
        self.watch.store.read(ranges).await
    }

    async fn commit(&self, txn: Txn) -> Result<Commit, StoreError> {
        let apply = async {
            let meaning = self.meaning(&txn);
            let commit = self.watch.store.commit(txn).await?;
            if matches!(commit, Commit::Applied(_)) {
                self.writes.fetch_add(1, Ordering::Relaxed);
                for effect in meaning.effects {
                    self.watch.effects.push(effect);
                }
                for violation in meaning.violations {
                    self.watch.note(violation);
                }
            }
            Ok(commit)
        };
        let lost = || StoreError::Unavailable {
            call: "commit",
            message: "the connection broke".to_owned(),
        };
        self.gate.pass(apply, lost).await
    }

    async fn watch(&self, prefix: &str, from: i64) -> Result<Changes, StoreError> {
        self.watch.store.watch(prefix, from).await
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.watch.store.grant(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.watch.store.keep_alive(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.watch.store.revoke(lease).await
    }
}

/// A success has only steps that succeeded, and an outcome is final (invariant 9).
fn journals(before: Option<&[u8]>, after: &Operation) -> Option<String> {
    let succeeded = |step: &podherd::state::Step| step.state == StepState::Succeeded;
    let outcome = after.outcome.as_ref();
    let success = outcome.is_some_and(|outcome| outcome.result == OutcomeKind::Success);
    if success && !after.steps.iter().all(succeeded) {
        return Some("a success whose steps didn't all succeed".to_owned());
    }
    let before: Operation = decode(before?).unwrap();
    let same = before.in_flight() || *after == before.shortened();
    (!same).then(|| "an operation that ended is written again".to_owned())
}
