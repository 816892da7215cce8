//! The traffic graph in memory, for scenario tests and the simulation.
//!
//! It keeps the [`Traffic`] contract: a change that isn't confirmed is written all
//! the same, and an older graph may then still be served. What a test scripts is
//! when data planes don't confirm, and which requests are in flight.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::claims::{Published, conflict};
use super::{
    AppRoutes, Applied, Backend, Drain, GraphRevision, Listener, Traffic, TrafficError, Unserved,
};
use crate::manifest::{AppName, Protocol, ServiceName};
use crate::runtime::EffectLog;
use crate::state::ContainerId;

/// A graph that one imaginary data plane serves.
pub struct MemoryTraffic {
    effects: EffectLog,
    graph: Mutex<Graph>,
}

#[derive(Debug, Default)]
struct Graph {
    revision: i64,
    apps: BTreeMap<AppName, Entry>,
    stuck: bool,
    /// For each next change of a kind, whether it is left unconfirmed.
    withdrawals: VecDeque<()>,
    applies: VecDeque<()>,
    in_flight: BTreeMap<ContainerId, u64>,
    /// Listeners that the data plane can't open.
    blocked: BTreeSet<Listener>,
    /// TCP ports that the data plane has for itself.
    reserved: BTreeSet<u16>,
}

const PLANE: &str = "host-a/proxy";

/// What is written for one app, and what may still be served of it.
#[derive(Debug, Default)]
struct Entry {
    /// Revision at which it was first published.
    created: i64,
    routes: Option<AppRoutes>,
    /// Graphs before the newest that a data plane may still serve.
    lingering: Vec<AppRoutes>,
}

impl MemoryTraffic {
    /// An empty graph that writes its changes into this log.
    pub fn new(effects: EffectLog) -> Self {
        Self {
            effects,
            graph: Mutex::default(),
        }
    }

    /// The next change that takes a backend away is written, but not confirmed. Queued.
    pub fn fail_next_withdraw(&self) {
        self.lock().withdrawals.push_back(());
    }

    /// The next change that takes no backend away is written, but not confirmed. Queued.
    pub fn fail_next_apply(&self) {
        self.lock().applies.push_back(());
    }

    /// Whether the data plane has stopped to confirm anything.
    pub fn set_stuck(&self, stuck: bool) {
        self.lock().stuck = stuck;
    }

    /// From now on a drain of this container finds so many requests in flight.
    pub fn set_in_flight(&self, container: &ContainerId, requests: u64) {
        self.lock().in_flight.insert(container.clone(), requests);
    }

    /// Whether something else on the data plane's host has this listener's port.
    pub fn set_blocked(&self, listener: Listener, blocked: bool) {
        let mut graph = self.lock();
        if blocked {
            graph.blocked.insert(listener);
        } else {
            graph.blocked.remove(&listener);
        }
    }

    /// The data plane has this TCP port for itself.
    pub fn reserve(&self, port: u16) {
        self.lock().reserved.insert(port);
    }

    /// What is written for the app.
    pub fn routes(&self, app: &AppName) -> Option<AppRoutes> {
        self.lock().apps.get(app)?.routes.clone()
    }

    /// Whom some data plane may still send requests to, by service.
    pub fn served(&self, app: &AppName) -> Vec<(ServiceName, Backend)> {
        let graph = self.lock();
        let entry = graph.apps.get(app).into_iter();
        let graphs = entry.flat_map(|entry| entry.routes.iter().chain(&entry.lingering));
        graphs
            .flat_map(AppRoutes::backends)
            .map(|(service, backend)| (service.clone(), backend.clone()))
            .collect()
    }

    /// Whether some data plane may still send requests to this container.
    pub fn may_reach(&self, container: &ContainerId) -> bool {
        self.lock().apps.values().any(|entry| {
            let graphs = entry.routes.iter().chain(&entry.lingering);
            graphs
                .flat_map(AppRoutes::containers)
                .any(|found| found == container)
        })
    }

    fn lock(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the routes, tells the log which services lost or gained backends,
    /// and confirms unless the script says otherwise.
    fn change(
        &self,
        app: &AppName,
        routes: Option<&AppRoutes>,
    ) -> Result<GraphRevision, TrafficError> {
        let mut graph = self.lock();
        let (lost, gained) = graph.write(app, routes);
        let confirmed = graph.confirms(!lost.is_empty());
        let entry = graph.apps.entry(app.clone()).or_default();
        if confirmed {
            entry.lingering.clear();
            if entry.routes.is_none() {
                graph.apps.remove(app);
            }
        }
        let mark = if confirmed { "" } else { " (unconfirmed)" };
        for service in &lost {
            self.effects.push(format!("withdraw {service}{mark}"));
        }
        for service in &gained {
            self.effects.push(format!("traffic {service}{mark}"));
        }
        if confirmed {
            Ok(GraphRevision(graph.revision))
        } else {
            Err(TrafficError::Unconfirmed {
                planes: PLANE.to_owned(),
            })
        }
    }
}

/// The services that lost a backend, and those that gained one.
type Difference = (BTreeSet<ServiceName>, BTreeSet<ServiceName>);

fn difference(before: Option<&AppRoutes>, after: Option<&AppRoutes>) -> Difference {
    let backends = |routes: Option<&'_ AppRoutes>| {
        routes.map(|routes| {
            let owned = routes.backends().into_iter();
            owned
                .map(|(service, backend)| (service.clone(), backend.clone()))
                .collect::<BTreeSet<_>>()
        })
    };
    let (before, after) = (
        backends(before).unwrap_or_default(),
        backends(after).unwrap_or_default(),
    );
    let services = |(service, _): &(ServiceName, super::Backend)| service.clone();
    (
        before.difference(&after).map(services).collect(),
        after.difference(&before).map(services).collect(),
    )
}

impl Graph {
    /// Which services lost and which gained a backend.
    fn write(&mut self, app: &AppName, routes: Option<&AppRoutes>) -> Difference {
        let next = self.revision + 1;
        let entry = self.apps.entry(app.clone()).or_default();
        if entry.routes.as_ref() == routes {
            return Difference::default();
        }
        if entry.routes.is_none() {
            entry.created = next;
        }
        let before = std::mem::replace(&mut entry.routes, routes.cloned());
        let (lost, gained) = difference(before.as_ref(), routes);
        entry.lingering.extend(before);
        self.revision = next;
        (lost, gained)
    }

    fn confirms(&mut self, withdraws: bool) -> bool {
        let script = if withdraws {
            &mut self.withdrawals
        } else {
            &mut self.applies
        };
        script.pop_front().is_none() && !self.stuck
    }

    fn unserved(&self, routes: &AppRoutes) -> Vec<Unserved> {
        let unserved = routes.listeners().filter(|(listener, rule)| {
            self.blocked.contains(listener) && !rule.backends.is_empty()
        });
        unserved
            .map(|(listener, _)| Unserved {
                plane: PLANE.to_owned(),
                listener,
                why: "address in use".to_owned(),
            })
            .collect()
    }

    fn claim(&self, app: &AppName, routes: &AppRoutes) -> Result<(), TrafficError> {
        match conflict(app, routes, &self.published()) {
            None => Ok(()),
            Some((claim, holder)) => Err(TrafficError::Conflict {
                claim: claim.to_string(),
                holder,
            }),
        }
    }

    fn published(&self) -> Vec<Published> {
        let published = self.apps.iter().filter_map(|(app, entry)| {
            Some(Published {
                app: app.clone(),
                create_revision: entry.created,
                routes: entry.routes.clone()?,
            })
        });
        published.collect()
    }
}

impl fmt::Debug for MemoryTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTraffic")
            .field("graph", &self.lock())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Traffic for MemoryTraffic {
    async fn current(&self, app: &AppName) -> Result<Option<AppRoutes>, TrafficError> {
        Ok(self.routes(app))
    }

    async fn check(&self, app: &AppName, routes: &AppRoutes) -> Result<(), TrafficError> {
        let graph = self.lock();
        let reserved = routes.listeners().find(|(listener, _)| {
            listener.protocol == Protocol::Tcp && graph.reserved.contains(&listener.port)
        });
        if let Some((listener, _)) = reserved {
            let plane = PLANE.to_owned();
            return Err(TrafficError::Reserved { listener, plane });
        }
        graph.claim(app, routes)
    }

    async fn apply(&self, app: &AppName, routes: &AppRoutes) -> Result<Applied, TrafficError> {
        self.lock().claim(app, routes)?;
        let revision = self.change(app, Some(routes))?;
        let unserved = self.lock().unserved(routes);
        Ok(Applied { revision, unserved })
    }

    async fn remove(&self, app: &AppName) -> Result<(), TrafficError> {
        self.change(app, None).map(|_| ())
    }

    async fn drain(
        &self,
        container: &ContainerId,
        within: Duration,
    ) -> Result<Drain, TrafficError> {
        let in_flight = self.lock().in_flight.get(container).copied().unwrap_or(0);
        if in_flight == 0 {
            return Ok(Drain::Empty);
        }
        self.effects.push("drain");
        tokio::time::sleep(within).await;
        Ok(Drain::Expired { in_flight })
    }
}
