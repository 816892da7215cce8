//! The store, recorded: what a write means is an effect, and every write is
//! checked against what may be written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use podherd::state::{Active, Operation, OutcomeKind, Step, StepKind, StepState, decode};
use podherd::store::{
    Commit, Entry, LeaseId, Range, Store, StoreError, Txn, View, Watch as Changes, Write,
};

use super::cut::{Broken, Gate, Site};
use super::watch::Watch;

#[derive(Debug, Default)]
struct Meaning {
    effects: Vec<String>,
    violations: Vec<String>,
    journaled: Option<(String, Operation)>,
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
        let mut found = self.watch.store.look(&Range::Key(key.to_owned()));
        found.pop()
    }

    /// Where in an operation the write is.
    fn site(&self, txn: &Txn) -> Site {
        let prefix = format!("{}/state/operations/", self.watch.keys.prefix());
        let journal = txn.writes.iter().find_map(|write| match write {
            Write::Put { key, value, .. } => {
                let app = key.strip_prefix(&prefix)?.split('/').next()?;
                Some((app.to_owned(), step_of(&decode(value).unwrap())))
            }
            _ => None,
        });
        let (app, step) = journal.unzip();
        Site {
            call: "commit",
            app,
            step,
            deadline: Duration::from_secs(5),
        }
    }

    /// What the transaction does, as effects, and what is wrong with it; both
    /// count only once it is applied.
    fn meaning(&self, txn: &Txn) -> Meaning {
        let fence = self.watch.keys.leader();
        let mut meaning = Meaning::default();
        let fenced = txn.compares.iter().any(|compare| compare.key == fence);
        if !fenced && !txn.writes.iter().all(|write| self.needs_no_fence(write)) {
            meaning
                .violations
                .push("13: a write without a fence".to_owned());
        }
        for write in &txn.writes {
            match write {
                Write::Put { key, value, .. } => self.put(key, value, &mut meaning),
                Write::Delete(key) => self.delete(key, &mut meaning),
                Write::DeletePrefix(prefix) => {
                    for entry in self.watch.store.look(&Range::Prefix(prefix.clone())) {
                        self.delete(&entry.key, &mut meaning);
                    }
                }
            }
        }
        meaning
    }

    /// What a controller writes before it leads: who leads, and which hosts there are.
    fn needs_no_fence(&self, write: &Write) -> bool {
        let keys = &self.watch.keys;
        match write {
            Write::Put { key, .. } | Write::Delete(key) => {
                *key == keys.leader() || key.starts_with(&keys.nodes())
            }
            Write::DeletePrefix(_) => false,
        }
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
            let operation = decode(value).unwrap();
            let wrong = journals(before.as_deref(), &operation);
            meaning.violations.extend(wrong);
            meaning.violations.extend(self.falsely_retired(&operation));
            let app = key.rsplit('/').nth(1).unwrap().to_owned();
            meaning.journaled = Some((app, operation));
        }
    }

    /// A retirement that succeeded left nothing (invariant 9).
    fn falsely_retired(&self, operation: &Operation) -> Option<String> {
        let there = |step: &&Step| {
            let container = step.before.as_ref();
            step.kind == StepKind::Retire
                && step.state == StepState::Succeeded
                && container.is_some_and(|id| self.watch.runtime.container(id.as_str()).is_some())
        };
        let step = operation.steps.iter().find(there)?;
        Some(format!("9: {:?} is retired, and still there", step.before))
    }

    fn delete(&self, key: &str, meaning: &mut Meaning) {
        if self.is(key, "binds")
            && let Some(entry) = self.before(key)
        {
            let claim = decode(&entry.value).unwrap();
            meaning.violations.extend(self.watch.releases(&claim));
        }
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
        let site = self.site(&txn);
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
                if let Some((app, operation)) = meaning.journaled {
                    self.watch.journaled(app, operation);
                }
            }
            Ok(commit)
        };
        let broken = |why| match why {
            Broken::Refused => StoreError::NoSpace,
            Broken::Connection | Broken::Deadline(_) => StoreError::Unavailable {
                call: "commit",
                message: "the connection broke".to_owned(),
            },
        };
        self.gate.pass(site, apply, broken).await
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
        return Some("9: a success whose steps didn't all succeed".to_owned());
    }
    let before: Operation = decode(before?).unwrap();
    let same = before.in_flight() || *after == before.shortened();
    (!same).then(|| "9: an operation that ended is written again".to_owned())
}

/// The step that begins with this write, or the outcome.
fn step_of(operation: &Operation) -> String {
    let mut steps = operation.steps.iter();
    let running = steps.find(|step| step.state == StepState::Running);
    let step = match (operation.in_flight(), running) {
        (true, Some(step)) => step.kind.as_str(),
        (true, None) => "between",
        (false, _) => "outcome",
    };
    format!("{}/{step}", operation.request.verb.as_str())
}
