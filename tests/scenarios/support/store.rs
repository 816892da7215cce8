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

    /// What the transaction does, as effects; checked on the way.
    fn effects(&self, txn: &Txn) -> Vec<String> {
        let fence = self.watch.keys.leader();
        if !txn.compares.iter().any(|compare| compare.key == fence) {
            self.watch.note("a write without a fence".to_owned());
        }
        let mut effects = Vec::new();
        for write in &txn.writes {
            match write {
                Write::Put { key, value, .. } => self.put(key, value, &mut effects),
                Write::Delete(key) => self.delete(key, &mut effects),
                Write::DeletePrefix(prefix) => {
                    for entry in self.watch.store.entries() {
                        if entry.key.starts_with(prefix) {
                            self.delete(&entry.key, &mut effects);
                        }
                    }
                }
            }
        }
        effects
    }

    fn put(&self, key: &str, value: &[u8], effects: &mut Vec<String>) {
        let before = self.before(key).map(|entry| entry.value);
        if let Some(service) = self.inhibited(key) {
            effects.push(format!("inhibit {service}"));
        } else if self.is(key, "active") {
            let before: Active = before.map(|value| decode(&value).unwrap()).unwrap_or_default();
            if self.watch.publishes(&before, &decode(value).unwrap()) {
                effects.push("publish-active".to_owned());
            }
        } else if self.is(key, "intent") {
            effects.push("intend-stopped".to_owned());
        } else if self.is(key, "retained") {
            effects.push("end".to_owned());
        } else if self.is(key, "operations") {
            self.journals(before.as_deref(), &decode(value).unwrap());
        }
    }

    /// A success has only steps that succeeded, and an outcome is final (invariant 9).
    fn journals(&self, before: Option<&[u8]>, after: &Operation) {
        let succeeded = |step: &podherd::state::Step| step.state == StepState::Succeeded;
        let success = after
            .outcome
            .as_ref()
            .is_some_and(|outcome| outcome.result == OutcomeKind::Success);
        if success && !after.steps.iter().all(succeeded) {
            self.watch.note("a success whose steps didn't all succeed".to_owned());
        }
        let before: Option<Operation> = before.map(|value| decode(value).unwrap());
        if before.is_some_and(|before| !before.in_flight()) {
            self.watch.note("an operation that ended is written again".to_owned());
        }
    }

    fn delete(&self, key: &str, effects: &mut Vec<String>) {
        if let Some(service) = self.inhibited(key)
            && self.before(key).is_some()
        {
            effects.push(format!("clear-inhibition {service}"));
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
            let effects = self.effects(&txn);
            let commit = self.watch.store.commit(txn).await?;
            if matches!(commit, Commit::Applied(_)) {
                self.writes.fetch_add(1, Ordering::Relaxed);
                effects
                    .into_iter()
                    .for_each(|effect| self.watch.effects.push(effect));
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
