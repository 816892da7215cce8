//! The table that serves, how it is swapped, and what is left of the one before.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;

use super::metrics::{Metrics, RouteMetrics};
use super::records::Records;
use super::table::Table;
use super::upstream::{InFlight, Upstream};
use crate::manifest::{AppName, AppProtocol};
use crate::state::ContainerId;
use crate::traffic::{Backend, HttpRule};

/// What a rule leads to.
#[derive(Debug)]
pub(super) struct Route {
    /// Counters of the app and service.
    pub metrics: RouteMetrics,
    upstreams: Vec<Arc<Upstream>>,
    /// Where the search for the least busy backend starts, so that equals take
    /// turns.
    turn: AtomicUsize,
}

/// Whether a route could take a request.
#[derive(Debug)]
pub(super) enum Admission {
    /// It went in here.
    Entered(InFlight),
    /// Nobody answers for the service (besides the one left out).
    NoBackend,
    /// The table is older than a withdrawal: look the route up again.
    Withdrawn,
}

impl Route {
    /// Counts a request in at the least busy backend other than `except`.
    pub fn enter(&self, except: Option<&Backend>) -> Admission {
        let start = self.turn.fetch_add(1, Ordering::Relaxed);
        let count = self.upstreams.len();
        let least = (0..count)
            .filter_map(|step| self.upstreams.get(start.wrapping_add(step) % count))
            .filter(|upstream| except != Some(&upstream.backend))
            .min_by_key(|upstream| upstream.in_flight());
        match least {
            None => Admission::NoBackend,
            Some(upstream) => upstream
                .enter()
                .map_or(Admission::Withdrawn, Admission::Entered),
        }
    }
}

type Backends = HashMap<(Backend, Speaks), Arc<Upstream>>;

/// [`AppProtocol`] as a part of a backend's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Speaks {
    Http,
    H2c,
}

impl From<AppProtocol> for Speaks {
    fn from(protocol: AppProtocol) -> Self {
        match protocol {
            AppProtocol::Http => Self::Http,
            AppProtocol::H2c => Self::H2c,
        }
    }
}

#[derive(Debug, Default)]
struct Behind {
    /// The backends of the table that serves.
    serving: Backends,
    /// Withdrawn ones with requests in flight.
    draining: Vec<Arc<Upstream>>,
}

/// The table that serves.
#[derive(Debug)]
pub(super) struct Switch {
    table: ArcSwapOption<Table<Arc<Route>>>,
    behind: Mutex<Behind>,
    emptied: Arc<Notify>,
    metrics: Metrics,
}

impl Switch {
    /// A switch that serves nothing yet.
    pub fn new(metrics: Metrics) -> Self {
        Self {
            table: ArcSwapOption::empty(),
            behind: Mutex::default(),
            emptied: Arc::default(),
            metrics,
        }
    }

    /// What a request leads to; `Err` while there is no table at all.
    pub fn find(&self, host: &str, path: &str) -> Result<Option<Arc<Route>>, NotReady> {
        let table = self.table.load();
        let table = table.as_ref().ok_or(NotReady)?;
        Ok(table.find(host, path).cloned())
    }

    /// Serves these records from here on. When it returns, no request enters a
    /// backend that they don't name, and [`Switch::draining`] counts the last ones.
    pub fn install(&self, records: &Records) {
        let mut behind = self.lock();
        let mut serving = Backends::new();
        let mut table = Table::default();
        for (app, routes) in records.in_order() {
            for rule in &routes.http {
                let route = self.route(app, rule, &behind.serving, &mut serving);
                if table.insert(&rule.host, &rule.path, route).is_err() {
                    tracing::warn!(%app, rule.host, rule.path, "already routed: this rule is left out");
                }
            }
        }
        // A rule that was left out must not keep its backends in service.
        let named: HashSet<*const Upstream> = table
            .targets()
            .flat_map(|route| route.upstreams.iter().map(Arc::as_ptr))
            .collect();
        serving.retain(|_, upstream| named.contains(&Arc::as_ptr(upstream)));

        self.table.store(Some(Arc::new(table)));
        // Only now: a request that finds its backend withdrawn looks again, and
        // must find the new table.
        let before = std::mem::replace(&mut behind.serving, serving);
        for (identity, upstream) in before {
            if !behind.serving.contains_key(&identity) {
                upstream.withdraw();
                behind.draining.push(upstream);
            }
        }
    }

    fn route(
        &self,
        app: &AppName,
        rule: &HttpRule,
        before: &Backends,
        serving: &mut Backends,
    ) -> Arc<Route> {
        let upstreams = rule.backends.iter().map(|backend| {
            let identity = (backend.clone(), Speaks::from(rule.protocol));
            let kept = serving.get(&identity).or_else(|| before.get(&identity));
            let upstream = kept.cloned().unwrap_or_else(|| {
                let emptied = Arc::clone(&self.emptied);
                Arc::new(Upstream::new(backend.clone(), rule.protocol, emptied))
            });
            serving.insert(identity, Arc::clone(&upstream));
            upstream
        });
        Arc::new(Route {
            upstreams: upstreams.collect(),
            metrics: self.metrics.route(app, &rule.service),
            turn: AtomicUsize::new(0),
        })
    }

    /// Requests in flight of each container that isn't routed to any more.
    pub fn draining(&self) -> BTreeMap<ContainerId, u64> {
        let mut behind = self.lock();
        behind.draining.retain(|upstream| upstream.in_flight() > 0);
        let routed: HashSet<&ContainerId> = behind
            .serving
            .keys()
            .map(|(backend, _)| &backend.container)
            .collect();
        let mut counts = BTreeMap::new();
        for upstream in &behind.draining {
            if !routed.contains(&upstream.backend.container) {
                *counts
                    .entry(upstream.backend.container.clone())
                    .or_default() += upstream.in_flight();
            }
        }
        counts
    }

    /// Returns when a withdrawn backend has nothing in flight any more.
    pub async fn emptied(&self) {
        self.emptied.notified().await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Behind> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There is no table yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotReady;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::manifest::Tls;
    use crate::state::{Incarnation, encode};
    use crate::store::Entry;
    use crate::traffic::AppRoutes;

    fn switch() -> Switch {
        Switch::new(Metrics::register(&prometheus::Registry::new()).unwrap())
    }

    /// Routes of one app for `a.test` to containers of these names.
    fn records(containers: &[&str]) -> Records {
        let backends = containers.iter().map(|container| Backend {
            container: ContainerId::new(*container),
            started_at: jiff::Timestamp::UNIX_EPOCH,
            node: "host-a".parse().unwrap(),
            address: "127.0.0.1:1".parse().unwrap(),
        });
        let routes = AppRoutes {
            incarnation: Incarnation(uuid::Uuid::nil()),
            http: vec![HttpRule {
                host: "a.test".to_owned(),
                path: "/".to_owned(),
                service: "web".parse().unwrap(),
                tls: Tls::Off,
                protocol: AppProtocol::Http,
                backends: backends.collect(),
            }],
            tcp: Vec::new(),
            udp: Vec::new(),
        };
        let entry = Entry {
            key: "/r/a".to_owned(),
            value: encode(&routes).unwrap(),
            create_revision: 1,
            mod_revision: 1,
        };
        let mut records = Records::default();
        records.replace("/r/", &[entry]);
        records
    }

    fn found(switch: &Switch) -> Arc<Route> {
        switch.find("a.test", "/").unwrap().unwrap()
    }

    #[test]
    fn there_is_nothing_to_find_before_the_first_table() {
        assert_eq!(switch().find("a.test", "/").err(), Some(NotReady));
    }

    #[test]
    fn a_request_that_found_its_route_before_a_swap_does_not_enter_what_was_withdrawn() {
        let switch = switch();
        switch.install(&records(&["old"]));
        let late = found(&switch);
        switch.install(&records(&["new"]));
        assert!(matches!(late.enter(None), Admission::Withdrawn));
        assert!(switch.draining().is_empty());
        assert!(matches!(found(&switch).enter(None), Admission::Entered(_)));
    }

    #[test]
    fn what_entered_before_the_swap_drains_and_what_stays_routed_does_not() {
        let switch = switch();
        switch.install(&records(&["old", "kept"]));
        let Admission::Entered(one) = found(&switch).enter(None) else {
            panic!("nothing is withdrawn");
        };
        let other = found(&switch).enter(Some(&one.upstream().backend));
        switch.install(&records(&["kept"]));
        let counts = switch.draining();
        assert_eq!(counts, BTreeMap::from([(ContainerId::new("old"), 1)]));
        drop((one, other));
        assert!(switch.draining().is_empty());
    }

    #[test]
    fn a_drained_backend_is_never_entered_again_however_the_threads_run() {
        let switch = switch();
        let rounds = 5000;
        let stopped: Vec<AtomicBool> = (0..rounds).map(|_| AtomicBool::new(false)).collect();
        let over = AtomicBool::new(false);
        let nothing = records(&[]);
        switch.install(&nothing);
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    while !over.load(Ordering::SeqCst) {
                        let route = found(&switch);
                        std::thread::yield_now();
                        if let Admission::Entered(entered) = route.enter(None) {
                            let name = entered.upstream().backend.container.as_str();
                            let round: usize = name.parse().unwrap();
                            assert!(!stopped[round].load(Ordering::SeqCst), "{round}");
                        }
                    }
                });
            }
            for (round, stopped) in stopped.iter().enumerate() {
                switch.install(&records(&[&round.to_string()]));
                std::thread::yield_now();
                switch.install(&nothing);
                while !switch.draining().is_empty() {
                    std::thread::yield_now();
                }
                stopped.store(true, Ordering::SeqCst);
            }
            over.store(true, Ordering::SeqCst);
        });
    }
}
