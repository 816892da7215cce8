//! The controller's life: know the store, campaign, lead, stand by, leave.
//!
//! While it leads, a few tasks run side by side, a *term*: the queue with its
//! work and what that notices by itself, the watches of the manifests, of the requests
//! and of the policy, the runtime's events, the resync, and the memory of how far the
//! store has come. When leadership is lost or the process
//! is told to stop, all of them are cancelled, and what was being worked on is
//! waited for: it ends at the next safe point. Workloads go on, always.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::events::{EventWatch, resync};
use super::heartbeat::Heartbeat;
use super::host::{HostError, KnownStore};
use super::known::Catalog;
use super::leadership::Campaign;
use super::policy::policy_changes;
use super::queue::{Queue, Why, Work};
use super::rejections::Rejections;
use super::requests::RequestWatch;
use super::rewind::Rewind;
use super::role::{Role, SharedRole};
use super::watch::ManifestWatch;
use crate::backoff::Pauses;
use crate::clock::Entropy;
use crate::policy::HostPolicy;
use crate::store::{Authority, AuthorityKeeper, Newest};
use crate::telemetry::{Health, Metrics};

/// Pauses before the store is asked again who it is.
const PAUSES: Pauses = Pauses {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(30),
};
/// How often it is remembered how far the store has come.
const REMEMBER: Duration = Duration::from_secs(60);
/// Long enough for another task to have its turn.
const SHORT: Duration = Duration::from_millis(50);
/// After this long without a sign of life a loop is stuck: longer than any pause
/// and any call of it.
const STUCK: Duration = Duration::from_secs(120);

/// How much is done at once, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// How many apps are worked on side by side.
    pub workers: usize,
    /// How often every app is looked at.
    pub resync: Duration,
}

/// Everything the controller is put together from. Whoever makes it holds the
/// host's lock as long as it runs.
#[derive(Debug)]
pub struct Controller {
    /// Where apps are found.
    pub catalog: Catalog,
    /// What is done for each.
    pub work: Arc<dyn Work>,
    /// What this host lets manifests have.
    pub policy: Arc<dyn HostPolicy>,
    /// Told about keys that name no app.
    pub rejections: Arc<dyn Rejections>,
    /// The campaign for leadership.
    pub campaign: Campaign,
    /// This host's sign of life, leading or not.
    pub heartbeat: Heartbeat,
    /// What the campaign tells.
    pub keeper: AuthorityKeeper,
    /// What everybody asks.
    pub authority: Authority,
    /// The revisions of manifests, for the work to see that it is superseded.
    pub newest: Newest,
    /// The store that this host belongs to.
    pub known: KnownStore,
    /// Whether another store than the known one is taken over.
    pub adopt: bool,
    /// How much at once, how often.
    pub pace: Pace,
    /// Chance.
    pub entropy: Arc<Entropy>,
    /// What is shown.
    pub metrics: Metrics,
    /// Where the loops show that they are alive.
    pub health: Health,
    /// What this controller is to the others.
    pub role: SharedRole,
}

/// What a term needs, once the campaign has gone its own way.
#[derive(Debug)]
struct Terms {
    catalog: Catalog,
    work: Arc<dyn Work>,
    policy: Arc<dyn HostPolicy>,
    rejections: Arc<dyn Rejections>,
    authority: Authority,
    newest: Newest,
    known: Arc<KnownStore>,
    pace: Pace,
    entropy: Arc<Entropy>,
    metrics: Metrics,
    health: Health,
    role: SharedRole,
}

impl Controller {
    /// Runs until `stop`, then leaves: what is worked on ends at a safe point,
    /// leadership is given up.
    ///
    /// # Errors
    /// When this isn't the store that the host belongs to. Nothing was written
    /// to it, started or stopped.
    pub async fn run(self, stop: CancellationToken) -> Result<(), HostError> {
        let mut terms = Terms {
            catalog: self.catalog,
            work: self.work,
            policy: self.policy,
            rejections: self.rejections,
            authority: self.authority,
            newest: self.newest,
            known: Arc::new(self.known),
            pace: self.pace,
            entropy: self.entropy,
            metrics: self.metrics,
            health: self.health,
            role: self.role,
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            known = terms.recognise(self.adopt) => known?,
        }
        let leave = CancellationToken::new();
        let campaign = tokio::spawn(self.campaign.run(self.keeper, leave.clone()));
        let heartbeat = tokio::spawn(self.heartbeat.run(leave.clone()));
        terms.serve(&stop).await;
        // Last, so that nobody else leads while something is still worked on.
        leave.cancel();
        for (what, task) in [("campaign", campaign), ("heartbeat", heartbeat)] {
            if let Err(error) = task.await {
                tracing::error!(%error, what, "a task broke down; its lease ends by itself");
            }
        }
        Ok(())
    }
}

impl Terms {
    /// Asks until the store answers, and says whether it is the right one.
    async fn recognise(&self, adopt: bool) -> Result<(), HostError> {
        let store = self.catalog.store();
        let prefix = self.catalog.keys().prefix();
        let mut failures = 0;
        self.role.set(Role::AskingStore);
        loop {
            match self.known.check(store.as_ref(), prefix, adopt).await {
                Err(HostError::Store(error)) => {
                    failures += 1;
                    let pause = PAUSES.after(failures, &self.entropy);
                    tracing::warn!(%error, ?pause, "etcd can't be asked who it is; asking again");
                    tokio::time::sleep(pause).await;
                }
                known => return known,
            }
        }
    }

    /// Asks until it is the right store: this host has worked with it before,
    /// and what it serves goes on.
    async fn recognise_again(&self) {
        let mut failures = 0;
        while let Err(error) = self.recognise(false).await {
            failures += 1;
            let pause = PAUSES.after(failures, &self.entropy);
            tracing::error!(%error, ?pause, "nothing is started or stopped; asking again");
            self.role.set(Role::Refusing(error.to_string()));
            tokio::time::sleep(pause).await;
        }
    }

    /// Leads whenever it can, until `stop`.
    async fn serve(&mut self, stop: &CancellationToken) {
        loop {
            self.role.set(Role::StandingBy);
            let mut authority = self.authority.clone();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = authority.won() => {}
            }
            if !authority.holds() {
                // Its time is over and the campaign is about to say so.
                tokio::time::sleep(SHORT).await;
                continue;
            }
            // It may have come back from a backup since it was asked last.
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = authority.lost() => continue,
                () = self.recognise_again() => {}
            }
            self.term(authority, stop).await;
        }
    }

    /// One term of leadership, until it is lost or `stop`.
    async fn term(&self, mut authority: Authority, stop: &CancellationToken) {
        let over = stop.child_token();
        self.newest.forget();
        self.work.begin_term().await;
        self.role.set(Role::Leading);
        self.metrics.controller.leader.set(1);
        let end = async {
            tokio::select! {
                biased;
                () = over.cancelled() => {}
                () = authority.lost() => {
                    tracing::warn!("leadership is lost: what is worked on stops at the next safe point");
                    over.cancel();
                }
            }
            self.metrics.controller.leader.set(0);
        };
        tokio::join!(end, self.tasks(&over));
        self.work.end_term();
        self.metrics.apps.reset();
    }

    /// The tasks of a term. Returns when all have ended after `over`.
    async fn tasks(&self, over: &CancellationToken) {
        let queue = Queue::new(
            self.pace.workers,
            Arc::clone(&self.entropy),
            self.metrics.queue.clone(),
        );
        let (events, tried) = EventWatch::new(
            self.catalog.clone(),
            queue.clone(),
            Arc::clone(&self.entropy),
            self.metrics.controller.clone(),
        );
        let manifests = ManifestWatch::new(
            self.catalog.clone(),
            queue.clone(),
            self.newest.clone(),
            Arc::clone(&self.rejections),
            Rewind::new(Arc::clone(&self.known), over.clone()),
            Arc::clone(&self.entropy),
            self.metrics.controller.clone(),
        );
        let manifests = async {
            // Events first: what happens after the listing is then not missed.
            // An error means that the term is over already.
            _ = tried.await;
            let pulse = self.health.pulse("watch", STUCK);
            manifests.run(over.clone(), pulse).await;
        };
        let requests = RequestWatch::new(
            self.catalog.clone(),
            queue.clone(),
            self.newest.clone(),
            Arc::clone(&self.entropy),
        );
        tokio::join!(
            queue.run(
                Arc::clone(&self.work),
                over.clone(),
                self.health.pulse("queue", STUCK)
            ),
            events.run(over.clone(), self.health.pulse("events", STUCK)),
            manifests,
            requests.run(over.clone(), self.health.pulse("requests", STUCK)),
            resync(
                self.catalog.clone(),
                queue.clone(),
                self.pace.resync,
                Arc::clone(&self.entropy),
                over.clone()
            ),
            policy_changes(
                Arc::clone(&self.policy),
                self.catalog.clone(),
                queue.clone(),
                over.clone()
            ),
            self.notice(&queue, over),
            self.remember(over),
        );
    }

    /// Puts in each app of which the work itself notices something.
    async fn notice(&self, queue: &Queue, over: &CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = over.cancelled() => return,
                app = self.work.noticed() => queue.enqueue(&app, Why::Runtime),
            }
        }
    }

    /// Remembers how far the store has come, so that an older one is noticed.
    async fn remember(&self, over: &CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = over.cancelled() => return,
                () = tokio::time::sleep(REMEMBER) => {}
            }
            // A store that can't be asked now is asked again in a minute.
            let Ok((_, revision)) = self.catalog.store().identity().await else {
                continue;
            };
            if let Err(error) = self.known.raise(revision) {
                tracing::warn!(%error, "the store's revision can't be remembered");
            }
        }
    }
}

#[cfg(test)]
mod tests;
