//! Liveness: does what is published go on doing what its manifest says?
//!
//! Each published execution that has a liveness probe is asked by a task of its own,
//! which ends with the publication: once the execution failed often enough in a row,
//! or isn't followed any more. What failed is remembered until another execution of
//! the service is followed: a dead one is never taken for healthy again. Nothing of
//! this is durable; a restarted controller asks anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::Prober;
use super::attempt::{Answer, Attempt, Subject};
use super::failure::{Account, Purpose};
use crate::clock::Entropy;
use crate::manifest::{AppName, Liveness, ServiceName};
use crate::runtime::Runtime;
use crate::state::{Bind, ContainerId};

/// A try that took so much longer than it may says that this process didn't get its
/// turn, and nothing about the container.
const STARVED: Duration = Duration::from_secs(1);

/// One published execution, and how it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// The container.
    pub container: ContainerId,
    /// The execution that was verified.
    pub started_at: Timestamp,
    /// Its verified binds.
    pub binds: Vec<Bind>,
    /// What it must go on doing.
    pub liveness: Liveness,
}

/// An execution that failed its liveness probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unhealthy {
    /// The container.
    pub container: ContainerId,
    /// The execution.
    pub started_at: Timestamp,
    /// The probe and its last answer; fit for everybody's eyes.
    pub message: String,
    /// The last answers, oldest first.
    pub answers: Vec<String>,
}

/// Follows what is published; clones share it. Its tasks end with the last of them.
#[derive(Debug, Clone)]
pub struct Vitals(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    prober: Arc<dyn Prober>,
    runtime: Arc<dyn Runtime>,
    entropy: Arc<Entropy>,
    apps: Mutex<Apps>,
    /// Wakes whoever waits for news.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Apps {
    services: BTreeMap<AppName, BTreeMap<ServiceName, Vital>>,
    /// Apps of which something was found dead since the last look.
    news: BTreeSet<AppName>,
}

/// What is known of the effective generation of a service.
#[derive(Debug)]
enum Vital {
    /// It is asked, until the task is dropped.
    Followed(Watched, #[allow(dead_code)] AbortOnDropHandle<()>),
    /// It failed, and isn't asked any more.
    Dead(Unhealthy),
}

impl Vitals {
    /// Follows nothing yet.
    pub fn new(prober: Arc<dyn Prober>, runtime: Arc<dyn Runtime>, entropy: Arc<Entropy>) -> Self {
        Self(Arc::new(Shared {
            prober,
            runtime,
            entropy,
            apps: Mutex::default(),
            changed: Notify::new(),
        }))
    }

    /// From now on follows exactly these executions of the app. A service without one
    /// isn't published, or has no probe.
    pub fn follow(&self, app: &AppName, services: BTreeMap<ServiceName, Option<Watched>>) {
        let mut apps = self.0.apps();
        let mut before = apps.services.remove(app).unwrap_or_default();
        let mut now = BTreeMap::new();
        for (name, watched) in services {
            let vital = match (watched, before.remove(&name)) {
                (Some(watched), Some(vital)) if vital.is_of(&watched) => vital,
                (Some(watched), _) => {
                    let task = self.0.ask_on(app, &name, &watched);
                    Vital::Followed(watched, task)
                }
                (None, Some(vital @ Vital::Dead(_))) => vital,
                (None, Some(Vital::Followed(..)) | None) => continue,
            };
            now.insert(name, vital);
        }
        if !now.is_empty() {
            apps.services.insert(app.clone(), now);
        }
    }

    /// Follows nothing any more, and forgets what it found.
    pub fn forget(&self) {
        *self.0.apps() = Apps::default();
    }

    /// The executions of the app that failed.
    pub fn unhealthy(&self, app: &AppName) -> Vec<Unhealthy> {
        let apps = self.0.apps();
        let vitals = apps.services.get(app).into_iter().flatten();
        let dead = vitals.filter_map(|(_, vital)| match vital {
            Vital::Dead(unhealthy) => Some(unhealthy.clone()),
            Vital::Followed(..) => None,
        });
        dead.collect()
    }

    /// How many executions are asked now.
    pub fn followed(&self) -> usize {
        let apps = self.0.apps();
        let vitals = apps.services.values().flat_map(BTreeMap::values);
        vitals
            .filter(|vital| matches!(vital, Vital::Followed(..)))
            .count()
    }

    /// The next app of which something was found dead. One listener only.
    pub async fn changed(&self) -> AppName {
        loop {
            let changed = self.0.changed.notified();
            if let Some(app) = self.0.apps().news.pop_first() {
                return app;
            }
            changed.await;
        }
    }
}

impl Vital {
    fn is_of(&self, watched: &Watched) -> bool {
        match self {
            Self::Followed(known, _) => known == watched,
            Self::Dead(dead) => {
                dead.container == watched.container && dead.started_at == watched.started_at
            }
        }
    }
}

impl Shared {
    fn apps(&self) -> MutexGuard<'_, Apps> {
        self.apps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask_on(
        self: &Arc<Self>,
        app: &AppName,
        service: &ServiceName,
        watched: &Watched,
    ) -> AbortOnDropHandle<()> {
        let asking = Asking {
            shared: Arc::downgrade(self),
            prober: Arc::clone(&self.prober),
            runtime: Arc::clone(&self.runtime),
            watched: watched.clone(),
            account: Account::of(Purpose::Liveness, &watched.liveness.check),
        };
        // So that what was published together isn't asked together for ever.
        let first = watched.liveness.interval.get();
        let first = first.mul_f64(self.entropy.fraction());
        let (app, service) = (app.clone(), service.clone());
        let task = async move {
            let shared = asking.shared.clone();
            let dead = asking.until_dead(first).await;
            if let Some(shared) = shared.upgrade() {
                shared.report(&app, &service, dead);
            }
        };
        AbortOnDropHandle::new(tokio::spawn(task))
    }

    /// Takes down that an execution failed, if it is still the one that is followed.
    fn report(&self, app: &AppName, service: &ServiceName, dead: Unhealthy) {
        let mut apps = self.apps();
        let vital = apps
            .services
            .get_mut(app)
            .and_then(|services| services.get_mut(service));
        let Some(vital) = vital else { return };
        let followed = matches!(
            vital,
            Vital::Followed(watched, _)
                if watched.container == dead.container && watched.started_at == dead.started_at
        );
        if followed {
            tracing::warn!(%app, %service, "{}", dead.message);
            *vital = Vital::Dead(dead);
            apps.news.insert(app.clone());
            drop(apps);
            self.changed.notify_one();
        }
    }
}

/// The asking of one execution.
struct Asking {
    shared: Weak<Shared>,
    prober: Arc<dyn Prober>,
    runtime: Arc<dyn Runtime>,
    watched: Watched,
    account: Account,
}

impl Asking {
    /// Asks once an interval, until it failed often enough in a row.
    async fn until_dead(mut self, first: Duration) -> Unhealthy {
        let liveness = self.watched.liveness.clone();
        let mut failed = 0;
        sleep(first).await;
        while failed < liveness.failures {
            let began = Instant::now();
            match self.ask(&liveness).await {
                Answer::Passed => failed = 0,
                Answer::Failed(_) | Answer::Unknown(_)
                    if began.elapsed() > liveness.timeout.get() + STARVED => {}
                Answer::Failed(why) => {
                    failed += 1;
                    self.account.note(why);
                }
                Answer::Unknown(why) => tracing::debug!(container = %self.watched.container, why),
            }
            if failed < liveness.failures {
                sleep_until(began + liveness.interval.get()).await;
            }
        }
        Unhealthy {
            message: self.account.dead(failed),
            answers: self.account.answers(),
            container: self.watched.container,
            started_at: self.watched.started_at,
        }
    }

    async fn ask(&self, liveness: &Liveness) -> Answer {
        let watched = &self.watched;
        let subject = Subject {
            prober: self.prober.as_ref(),
            runtime: self.runtime.as_ref(),
            container: &watched.container,
            started_at: Some(watched.started_at),
            binds: &watched.binds,
        };
        match Attempt::of(&liveness.check, &watched.binds) {
            Ok(attempt) => subject.ask(attempt, liveness.timeout.get()).await,
            Err(_) => Answer::Unknown("the port isn't published".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
