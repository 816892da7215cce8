//! Whether this process is alive, and whether it is ready.
//!
//! Alive: each loop that must go round has gone round lately. Ready: each
//! [`Check`] passes. A controller that stands by is as ready as one that leads.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

/// Longest wait for one check.
const CHECK_WITHIN: Duration = Duration::from_secs(3);

/// Something without which this process can't do its work.
#[async_trait]
pub trait Check: Send + Sync + fmt::Debug {
    /// Its name, one word.
    fn name(&self) -> &'static str;

    /// What state it is in, or what is missing and what to do about it.
    async fn check(&self) -> Result<String, String>;
}

/// The loops and checks of this process.
#[derive(Debug, Clone, Default)]
pub struct Health {
    loops: Arc<Mutex<BTreeMap<&'static str, Beat>>>,
    checks: Arc<Mutex<Vec<Arc<dyn Check>>>>,
    /// What the start waits for; nothing once it is done.
    waits_for: Arc<Mutex<Option<&'static str>>>,
}

#[derive(Debug, Clone, Copy)]
struct Beat {
    last: Instant,
    within: Duration,
}

/// The sign of life of one loop. Dropped when the loop ends in order.
#[derive(Debug)]
pub struct Pulse {
    name: &'static str,
    health: Health,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Whether all is well.
    pub well: bool,
    /// One line each.
    pub lines: Vec<String>,
}

impl Health {
    /// Follows a loop that goes round at least every `within`.
    pub fn pulse(&self, name: &'static str, within: Duration) -> Pulse {
        let last = Instant::now();
        self.with_loops(|loops| loops.insert(name, Beat { last, within }));
        Pulse {
            name,
            health: self.clone(),
        }
    }

    /// Adds something without which this process isn't ready.
    pub fn require(&self, check: Arc<dyn Check>) {
        self.checks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(check);
    }

    /// The start waits for this; until [`Health::started`] nothing is ready.
    pub fn waits_for(&self, what: &'static str) {
        *self.start() = Some(what);
    }

    /// The start is done: from now on the checks say whether all is ready.
    pub fn started(&self) {
        *self.start() = None;
    }

    fn start(&self) -> MutexGuard<'_, Option<&'static str>> {
        self.waits_for
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether each loop has gone round lately.
    pub fn alive(&self) -> Report {
        let stuck: Vec<String> = self.with_loops(|loops| {
            loops
                .iter()
                .filter(|(_, beat)| beat.last.elapsed() > beat.within)
                .map(|(name, beat)| {
                    let silent = beat.last.elapsed().as_secs();
                    format!("{name}: no sign of life for {silent} s")
                })
                .collect()
        });
        Report {
            well: stuck.is_empty(),
            lines: stuck,
        }
    }

    /// Whether every check passes.
    pub async fn ready(&self) -> Report {
        let checks = self
            .checks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut report = Report {
            well: true,
            lines: Vec::new(),
        };
        if let Some(what) = *self.start() {
            report.well = false;
            report.lines.push(format!("start: waits for {what}"));
        }
        for check in checks {
            let result = tokio::time::timeout(CHECK_WITHIN, check.check()).await;
            let said = match result {
                Ok(Ok(state)) => state,
                Ok(Err(missing)) => {
                    report.well = false;
                    missing
                }
                Err(_) => {
                    report.well = false;
                    format!("no answer within {} s", CHECK_WITHIN.as_secs())
                }
            };
            report.lines.push(format!("{}: {said}", check.name()));
        }
        report
    }

    fn with_loops<T>(&self, look: impl FnOnce(&mut BTreeMap<&'static str, Beat>) -> T) -> T {
        look(&mut self.loops.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Pulse {
    /// The loop has gone round.
    pub fn beat(&self) {
        let now = Instant::now();
        self.health.with_loops(|loops| {
            if let Some(beat) = loops.get_mut(self.name) {
                beat.last = now;
            }
        });
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.health.with_loops(|loops| loops.remove(self.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Podman(Result<String, String>);

    #[async_trait]
    impl Check for Podman {
        fn name(&self) -> &'static str {
            "podman"
        }

        async fn check(&self) -> Result<String, String> {
            self.0.clone()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_is_silent_too_long_is_named() {
        let health = Health::default();
        let queue = health.pulse("queue", Duration::from_secs(10));
        let _watch = health.pulse("watch", Duration::from_secs(60));

        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(health.alive().lines, ["queue: no sign of life for 20 s"]);

        queue.beat();
        assert!(health.alive().well);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_ended_in_order_is_not_missed() {
        let health = Health::default();
        drop(health.pulse("queue", Duration::from_secs(10)));

        tokio::time::advance(Duration::from_secs(20)).await;

        assert!(health.alive().well);
    }

    #[tokio::test]
    async fn a_start_that_waits_is_not_ready_and_says_for_what() {
        let health = Health::default();
        health.waits_for("etcd");
        assert_eq!(health.ready().await.lines, ["start: waits for etcd"]);

        health.started();
        assert!(health.ready().await.well);
    }

    #[tokio::test]
    async fn not_ready_says_what_is_missing() {
        let health = Health::default();
        assert!(health.ready().await.well);

        health.require(Arc::new(Podman(Err("can't be reached".to_owned()))));

        let report = health.ready().await;
        assert!(!report.well);
        assert_eq!(report.lines, ["podman: can't be reached"]);
    }
}
