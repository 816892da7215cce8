//! Makes the world look like the plan: observes, asks [`crate::plan`] what
//! comes first, and performs it, one journaled step at a time.
//!
//! - [`Reconciler::reconcile`] is one pass over one app. It ends when there is
//!   nothing to do, something has to be waited for, or it was interrupted.
//! - `observe` gathers a [`crate::plan::Snapshot`].
//! - `preflight` pins the wanted manifest to a revision, touching nothing;
//!   `preview` does what can be done of that without a pull.
//! - `run` is the sequencer; `journal` is what it writes, `history` what is kept of it; `traffic`, `retire`,
//!   `resources`, `networks`, `secrets`, `candidate` with its `claims`, `execution`,
//!   `publish` and `removal` are the effects of its steps.
//! - `images` makes images present and tells of pulls; `repair` brings back what ACTIVE
//!   names.
//! - `permission` asks the node's policy, and images go through it.
//! - `diagnostics` is what the journal keeps of a container that failed, and
//!   `redact` what it leaves out of that.
//! - `requests` answers what people ask for by key.
//! - `recover` reconciles an operation that was interrupted; `upkeep` performs those that
//!   aren't deployments.
//! - `failpoint` lets a test crash it anywhere.
//! - `damage` tells people of a record that can't be read.
//! - `siblings` looks after the other services while one is probed.
//! - `supersede` says whether somebody wants something newer.
//! - `pacing` remembers how often something failed, `ports` which host ports
//!   are claimed.
//!
//! An app is worked on by one pass at a time; its caller sees to that.

mod candidate;
mod claims;
mod damage;
mod diagnostics;
mod error;
mod execution;
mod failpoint;
mod history;
mod images;
mod journal;
mod names;
mod networks;
mod observe;
mod pacing;
mod permission;
mod ports;
mod preflight;
mod preview;
mod publish;
mod recover;
mod redact;
mod removal;
mod repair;
mod requests;
mod resources;
mod retire;
mod run;
mod secrets;
mod siblings;
mod status;
mod supersede;
mod traffic;
mod upkeep;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use error::ReconcileError;
pub use networks::SharedNetworks;
pub use ports::{Exhausted, Ports};
pub use preview::Preview;

use crate::clock::{Clock, Entropy};
use crate::manifest::{AppName, NodeName};
use crate::plan::{self, Next, Phase, Snapshot};
use crate::policy::HostPolicy;
use crate::probe::{Prober, Vitals};
use crate::runtime::Runtime;
use crate::state::{Active, Revision, Verb};
use crate::store::{Newest, NotLeading, Records};
use crate::traffic::Traffic;

use pacing::Pacing;

/// Steps of one pass, so that an app that never settles can't hold its place.
const ROUNDS: usize = 16;

/// Everything a reconciler reaches the world with.
#[derive(Debug, Clone)]
pub struct Context {
    /// This host.
    pub node: NodeName,
    /// The records.
    pub records: Records,
    /// What this host lets manifests have.
    pub policy: Arc<dyn HostPolicy>,
    /// The runtime.
    pub runtime: Arc<dyn Runtime>,
    /// The traffic graph.
    pub traffic: Arc<dyn Traffic>,
    /// The network part of probes.
    pub prober: Arc<dyn Prober>,
    /// The liveness of what is published.
    pub vitals: Vitals,
    /// The calendar.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub entropy: Arc<Entropy>,
    /// The claims on this host's ports.
    pub ports: Arc<Ports>,
    /// Who joins or leaves shared networks.
    pub networks: Arc<SharedNetworks>,
    /// The newest manifests that the watch saw.
    pub newest: Newest,
    /// Who is told what was done.
    pub observer: Arc<dyn Observer>,
}

impl Context {
    /// Whether an effect with this deadline may begin.
    fn permit(&self, deadline: Duration) -> Result<(), NotLeading> {
        self.records.authority().permit(deadline).map(|_| ())
    }

    /// Asks the liveness of what is published now, and of nothing else of the app.
    fn follow(&self, app: &AppName, active: &Active, revisions: &[Revision]) {
        self.vitals.follow(app, plan::watched(active, revisions));
    }
}

/// Told what was done, for metrics.
pub trait Observer: Send + Sync + std::fmt::Debug {
    /// A step ended.
    fn step(&self, app: &AppName, step: &crate::state::Step);
    /// An operation ended.
    fn operation(&self, app: &AppName, operation: &crate::state::Operation);
    /// A service was started again after it went down.
    fn restarted(&self, app: &AppName, service: &crate::manifest::ServiceName);
    /// The status as it is now; `None` once the app is gone.
    fn status(&self, app: &AppName, status: Option<&crate::state::Status>);
    /// How many inhibitions an app has, by reason.
    fn inhibitions(&self, app: &AppName, inhibitions: &[crate::state::Inhibition]);
}

/// An observer that nobody listens to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn step(&self, _: &AppName, _: &crate::state::Step) {}
    fn operation(&self, _: &AppName, _: &crate::state::Operation) {}
    fn restarted(&self, _: &AppName, _: &crate::manifest::ServiceName) {}
    fn status(&self, _: &AppName, _: Option<&crate::state::Status>) {}
    fn inhibitions(&self, _: &AppName, _: &[crate::state::Inhibition]) {}
}

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to do until something changes.
    Settled,
    /// Look again after this time.
    Again(Duration),
}

/// Makes apps look like their manifests.
#[derive(Debug)]
pub struct Reconciler {
    ctx: Context,
    pacing: Pacing,
}

impl Reconciler {
    /// A reconciler that reaches the world with this context.
    pub fn new(ctx: Context) -> Self {
        Self {
            ctx,
            pacing: Pacing::default(),
        }
    }

    /// Forgets what only holds within one term of leadership.
    pub async fn begin_term(&self) {
        self.ctx.ports.reset().await;
        self.pacing.forget();
        self.ctx.vitals.forget();
    }

    /// Ends what only goes on while this controller leads.
    pub fn end_term(&self) {
        self.ctx.vitals.forget();
    }

    /// The next app of which something published failed its liveness probe. One
    /// listener only.
    pub async fn unhealthy(&self) -> AppName {
        self.ctx.vitals.changed().await
    }

    /// One pass over one app. `cancel` ends it at the next safe point.
    ///
    /// # Errors
    /// When it was interrupted or something couldn't be observed. Nothing
    /// terminal was written then; another pass takes it up.
    pub async fn reconcile(
        &self,
        app: &AppName,
        cancel: &CancellationToken,
    ) -> Result<Verdict, ReconcileError> {
        for _ in 0..ROUNDS {
            if cancel.is_cancelled() {
                return Err(ReconcileError::Interrupted);
            }
            let snapshot = match self.observe(app).await {
                Ok(snapshot) => snapshot,
                Err(error) => {
                    self.tell_damage(app, &error).await;
                    return Err(error);
                }
            };
            self.ctx
                .follow(app, &snapshot.records.active, &snapshot.records.revisions);
            let step = plan::next(&snapshot);
            tracing::debug!(app = %app, next = ?step, "decided");
            match self.take(app, &snapshot, step, cancel).await {
                Ok(Some(verdict)) => return Ok(verdict),
                Ok(None) => {}
                Err(error) => {
                    // What was claimed may not be written: read it again.
                    self.ctx.ports.reset().await;
                    return Err(error);
                }
            }
        }
        Ok(Verdict::Again(Duration::from_secs(1)))
    }

    /// Does what comes first; a verdict ends the pass.
    async fn take(
        &self,
        app: &AppName,
        snapshot: &Snapshot,
        next: Next,
        cancel: &CancellationToken,
    ) -> Result<Option<Verdict>, ReconcileError> {
        match next {
            Next::Recover(id) => self.recover(snapshot, &id).await?,
            Next::Repair(actions) => {
                self.tell_unhealthy(snapshot, &actions).await;
                return Box::pin(self.repair(snapshot, &actions, cancel)).await;
            }
            Next::Sweep(actions) => {
                let none = BTreeMap::new();
                return self
                    .upkeep(snapshot, Verb::Recover, &actions, none, cancel)
                    .await;
            }
            Next::Remove(actions) => {
                let none = BTreeMap::new();
                return self
                    .upkeep(snapshot, Verb::Remove, &actions, none, cancel)
                    .await;
            }
            Next::Answer(pending, answer) => {
                self.answer(snapshot, &pending, answer, cancel).await?;
            }
            Next::RollBack(actions) => {
                let Some(failed) = self.fetch_for(snapshot, &actions, cancel).await? else {
                    return Ok(None);
                };
                return self
                    .upkeep(snapshot, Verb::Rollback, &actions, failed, cancel)
                    .await;
            }
            Next::Forget => self.forget(app).await?,
            Next::Deploy => self.deploy(snapshot, None, cancel).await?,
            Next::Hold {
                reason,
                message,
                again,
            } => {
                tracing::warn!(app = %app, reason, "held: {message}");
                return self
                    .rest(snapshot, Phase::Held { reason, message }, again)
                    .await;
            }
            Next::Wait(time) => {
                let phase = self.resting_phase(snapshot);
                return self.rest(snapshot, phase, Some(time)).await;
            }
            Next::Settled => {
                let phase = self.resting_phase(snapshot);
                return self.rest(snapshot, phase, None).await;
            }
        }
        Ok(None)
    }

    /// Ends the pass, and says when the next one is due.
    async fn rest(
        &self,
        snapshot: &Snapshot,
        phase: Phase,
        again: Option<Duration>,
    ) -> Result<Option<Verdict>, ReconcileError> {
        self.write_status(snapshot, &phase).await?;
        Ok(Some(again.map_or(Verdict::Settled, Verdict::Again)))
    }
}
