//! The work queue: which app is worked on next.
//!
//! - An app that is put in twice is worked on once; one that is put in while it
//!   is worked on is worked on once more afterwards.
//! - Nobody works on one app twice at the same time; different apps are worked
//!   on side by side, up to a limit, first come first served. An app that comes
//!   again goes to the end of the line, so that none holds up another.
//! - An app whose work failed comes again after a pause that grows. Hints, such
//!   as events and resyncs, may bring it back sooner but never at once: its own
//!   failed tries cause events too. A change by a person begins anew.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff::Pauses;
use crate::clock::Entropy;
use crate::manifest::AppName;
use crate::telemetry::{Pulse, QueueMetrics};

/// Pauses after failures.
const PAUSES: Pauses = Pauses {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(5 * 60),
};
/// How soon hints may bring back an app that failed.
const SOONEST: Duration = Duration::from_secs(1);
/// Longest time that an app can be put in for. Looking a day later is harmless,
/// and keeps the arithmetic of instants in range.
const FARTHEST: Duration = Duration::from_secs(24 * 60 * 60);
/// How often the loop shows that it is alive while there is nothing to do.
const BEAT: Duration = Duration::from_secs(5);

/// What is done for an app.
#[async_trait]
pub trait Work: Send + Sync + fmt::Debug {
    /// A term of leadership begins: forgets what held only in the one before.
    async fn begin_term(&self) {}

    /// The term is over: ends what only goes on while this controller leads.
    fn end_term(&self) {}

    /// The next app that has to be looked at because of what this work itself keeps
    /// watching. Never returns where it watches nothing.
    async fn noticed(&self) -> AppName {
        std::future::pending().await
    }

    /// Works on the app. Returns soon after `cancel`, at a point where it is
    /// safe to stop.
    async fn run(&self, app: &AppName, cancel: CancellationToken) -> Next;
}

/// When an app is worked on again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// When something happens to it.
    Done,
    /// After this time, or when something happens to it.
    After(Duration),
    /// It failed for a reason that time may mend: after a pause that grows.
    Failed,
}

/// Why an app is put in. Later ones weigh more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It is time to look again.
    Due,
    /// All apps are looked at now and then, whatever is known.
    Resync,
    /// Something happened to one of its containers.
    Runtime,
    /// This controller has just begun to lead.
    Boot,
    /// etcd or Podman can be reached again.
    Reconnected,
    /// The node's policy changed.
    Policy,
    /// Its manifest changed.
    Manifest,
    /// Somebody asked for it.
    Request,
}

impl Why {
    /// Whether earlier failures say nothing about the next try.
    fn begins_anew(self) -> bool {
        match self {
            Self::Due | Self::Resync | Self::Runtime => false,
            Self::Boot | Self::Reconnected | Self::Policy | Self::Manifest | Self::Request => true,
        }
    }
}

/// The work queue; clones share it.
#[derive(Debug, Clone)]
pub struct Queue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    line: Mutex<Line>,
    /// Wakes the loop after the line changed.
    changed: Notify,
    /// How many apps are worked on side by side.
    workers: usize,
    entropy: Arc<Entropy>,
    metrics: QueueMetrics,
}

/// Who waits, who is worked on, and who comes again when.
#[derive(Debug, Default)]
struct Line {
    /// Every app that waits, runs, or comes again; the others need no memory.
    apps: BTreeMap<AppName, Slot>,
    /// Apps whose phase is `Waiting`, longest wait first.
    waiting: VecDeque<AppName>,
    /// Apps with a `due`, in order of time.
    timers: BTreeSet<(Instant, AppName)>,
}

#[derive(Debug, Default)]
struct Slot {
    phase: Phase,
    /// When the app comes again by itself.
    due: Option<Instant>,
    /// After a failure: hints don't bring it back before.
    not_before: Option<Instant>,
    /// Failures in a row.
    failures: u32,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Idle,
    Waiting {
        since: Instant,
    },
    Running {
        again: Option<Why>,
    },
}

impl Queue {
    /// A queue that works on up to `workers` apps side by side.
    pub fn new(workers: usize, entropy: Arc<Entropy>, metrics: QueueMetrics) -> Self {
        Self(Arc::new(Shared {
            line: Mutex::default(),
            changed: Notify::new(),
            workers: workers.max(1),
            entropy,
            metrics,
        }))
    }

    /// Puts an app in, now.
    pub fn enqueue(&self, app: &AppName, why: Why) {
        tracing::debug!(%app, ?why, "enqueued");
        self.line().enqueue(app, why, Instant::now());
        self.0.changed.notify_one();
    }

    /// Puts an app in after a time; the earliest such time counts.
    pub fn enqueue_after(&self, app: &AppName, delay: Duration) {
        self.line().enqueue_at(app, from_now(delay));
        self.0.changed.notify_one();
    }

    /// Puts in every app that waits out a pause after a failure.
    pub fn retry_failed(&self) {
        let mut line = self.line();
        let failed: Vec<AppName> = line
            .apps
            .iter()
            .filter(|(_, slot)| slot.not_before.is_some())
            .map(|(app, _)| app.clone())
            .collect();
        for app in failed {
            line.enqueue(&app, Why::Reconnected, Instant::now());
        }
        drop(line);
        self.0.changed.notify_one();
    }

    /// Works on apps until `cancel`, then waits for those that are worked on.
    /// Only one such loop may run at a time.
    pub async fn run(&self, work: Arc<dyn Work>, cancel: CancellationToken, pulse: Pulse) {
        let mut tasks: JoinSet<(AppName, Next)> = JoinSet::new();
        loop {
            pulse.beat();
            self.hand_out(&work, &cancel, &mut tasks);
            let wake = self.next_wake();
            // In this order, so that a paused clock gives the same run each time.
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                Some(ended) = tasks.join_next() => self.finish(ended),
                () = self.0.changed.notified() => {}
                () = tokio::time::sleep_until(wake) => {}
            }
        }
        while let Some(ended) = tasks.join_next().await {
            pulse.beat();
            self.finish(ended);
        }
        self.0.metrics.depth.set(0);
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_out(
        &self,
        work: &Arc<dyn Work>,
        cancel: &CancellationToken,
        tasks: &mut JoinSet<(AppName, Next)>,
    ) {
        let now = Instant::now();
        let mut line = self.line();
        line.promote(now);
        while tasks.len() < self.0.workers
            && let Some((app, waited)) = line.take(now)
        {
            self.0.metrics.wait_seconds.observe(waited.as_secs_f64());
            let (work, cancel) = (Arc::clone(work), cancel.child_token());
            tasks.spawn(async move {
                // A panic is a defect in the work on one app; the others go on.
                let next = AssertUnwindSafe(work.run(&app, cancel)).catch_unwind();
                let next = next.await.unwrap_or_else(|_| {
                    tracing::error!(%app, "the work on this app panicked; please report it");
                    Next::Failed
                });
                (app, next)
            });
        }
        self.show(&line, tasks.len());
    }

    fn finish(&self, ended: Result<(AppName, Next), tokio::task::JoinError>) {
        match ended {
            Ok((app, next)) => self
                .line()
                .finish(&app, next, Instant::now(), &self.0.entropy),
            // Only possible while the whole runtime is torn down.
            Err(error) => tracing::error!(%error, "a task of the queue was lost"),
        }
        self.0.metrics.running.dec();
    }

    fn next_wake(&self) -> Instant {
        let beat = Instant::now() + BEAT;
        let due = self.line().timers.first().map(|(due, _)| *due);
        due.map_or(beat, |due| due.min(beat))
    }

    fn show(&self, line: &Line, running: usize) {
        let number = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
        self.0.metrics.depth.set(number(line.waiting.len()));
        self.0.metrics.running.set(number(running));
    }
}

impl Line {
    fn enqueue(&mut self, app: &AppName, why: Why, now: Instant) {
        let slot = self.slot(app);
        if why.begins_anew() {
            slot.failures = 0;
            slot.not_before = None;
        }
        match &mut slot.phase {
            Phase::Waiting { .. } => {}
            Phase::Running { again } => *again = (*again).max(Some(why)),
            Phase::Idle => match slot.not_before {
                Some(earliest) if earliest > now => self.enqueue_at(app, earliest),
                _ => {
                    slot.phase = Phase::Waiting { since: now };
                    self.waiting.push_back(app.clone());
                }
            },
        }
    }

    fn enqueue_at(&mut self, app: &AppName, at: Instant) {
        let slot = self.slot(app);
        let at = slot.not_before.map_or(at, |earliest| earliest.max(at));
        let earlier = slot.due.filter(|due| *due <= at);
        if earlier.is_none() {
            if let Some(later) = slot.due.replace(at) {
                self.timers.remove(&(later, app.clone()));
            }
            self.timers.insert((at, app.clone()));
        }
    }

    /// Puts in each app whose time has come.
    fn promote(&mut self, now: Instant) {
        while let Some((due, app)) = self.timers.first().cloned() {
            if due > now {
                break;
            }
            self.timers.pop_first();
            self.slot(&app).due = None;
            self.enqueue(&app, Why::Due, now);
        }
    }

    /// Takes the app that has waited longest, and says how long.
    fn take(&mut self, now: Instant) -> Option<(AppName, Duration)> {
        let app = self.waiting.pop_front()?;
        let slot = self.slot(&app);
        let waited = match slot.phase {
            Phase::Waiting { since } => now - since,
            Phase::Idle | Phase::Running { .. } => Duration::ZERO,
        };
        slot.phase = Phase::Running { again: None };
        slot.not_before = None;
        // What it was put in for later is looked at now.
        if let Some(due) = slot.due.take() {
            self.timers.remove(&(due, app.clone()));
        }
        Some((app, waited))
    }

    fn finish(&mut self, app: &AppName, next: Next, now: Instant, entropy: &Entropy) {
        let slot = self.slot(app);
        let again = match std::mem::replace(&mut slot.phase, Phase::Idle) {
            Phase::Running { again } => again,
            Phase::Idle | Phase::Waiting { .. } => None,
        };
        match next {
            Next::Done => slot.failures = 0,
            Next::After(delay) => {
                slot.failures = 0;
                self.enqueue_at(app, from_now(delay));
            }
            Next::Failed => {
                slot.failures = slot.failures.saturating_add(1);
                let failures = slot.failures;
                let pause = PAUSES.after(failures, entropy);
                slot.not_before = Some(now + pause.min(SOONEST));
                tracing::debug!(%app, failures, ?pause, "comes again after a pause");
                self.enqueue_at(app, now + pause);
            }
        }
        if let Some(why) = again {
            self.enqueue(app, why, now);
        }
        if let Some(slot) = self.apps.get(app)
            && matches!(slot.phase, Phase::Idle)
            && slot.due.is_none()
        {
            self.apps.remove(app);
        }
    }

    fn slot(&mut self, app: &AppName) -> &mut Slot {
        self.apps.entry(app.clone()).or_default()
    }
}

fn from_now(delay: Duration) -> Instant {
    Instant::now() + delay.min(FARTHEST)
}

#[cfg(test)]
mod tests;
