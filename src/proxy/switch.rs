//! The table that serves, how it is swapped, and what is left of the one before.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;

use super::metrics::Metrics;
use super::pool::Pool;
use super::records::Records;
use super::route::{HttpRoute, StreamRoute};
use super::serving::Serving;
use super::stream::Cutoff;
use super::table::Table;
use super::upstream::{Draining, Upstream};
use crate::manifest::{AppName, AppProtocol, Protocol};
use crate::state::ContainerId;
use crate::traffic::{HttpRule, Listener, StreamRule};

/// Everything that is routed.
#[derive(Debug, Default)]
struct Tables {
    http: Table<Arc<HttpRoute>>,
    streams: HashMap<Listener, Arc<StreamRoute>>,
}

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

type HttpServing = Serving<Speaks, Pool>;
type StreamServing = Serving<Protocol, Cutoff>;

#[derive(Debug, Default)]
struct Behind {
    /// The backends of the table that serves.
    http: HttpServing,
    streams: StreamServing,
    /// Withdrawn ones with something in flight.
    draining: Vec<Arc<dyn Draining>>,
}

/// The table that serves.
#[derive(Debug)]
pub(super) struct Switch {
    tables: ArcSwapOption<Tables>,
    behind: Mutex<Behind>,
    emptied: Arc<Notify>,
    metrics: Metrics,
}

impl Switch {
    /// A switch that serves nothing yet.
    pub fn new(metrics: Metrics) -> Self {
        Self {
            tables: ArcSwapOption::empty(),
            behind: Mutex::default(),
            emptied: Arc::default(),
            metrics,
        }
    }

    /// What a request leads to; `Err` while there is no table at all.
    pub fn find(&self, host: &str, path: &str) -> Result<Option<Arc<HttpRoute>>, NotReady> {
        let tables = self.tables.load();
        let tables = tables.as_ref().ok_or(NotReady)?;
        Ok(tables.http.find(host, path).cloned())
    }

    /// What a connection or datagram to a listener leads to.
    pub fn stream(&self, listener: Listener) -> Option<Arc<StreamRoute>> {
        let tables = self.tables.load();
        tables.as_ref()?.streams.get(&listener).cloned()
    }

    /// The listeners that are to be open.
    pub fn listeners(&self) -> BTreeSet<Listener> {
        let tables = self.tables.load();
        let tables = tables.as_ref();
        tables.map_or_else(BTreeSet::new, |tables| {
            tables.streams.keys().copied().collect()
        })
    }

    /// Serves these records from here on. When it returns, no request enters a
    /// backend that they don't name, and [`Switch::draining`] counts the last ones.
    pub fn install(&self, records: &Records) {
        let mut behind = self.lock();
        let (mut http, mut streams) = (HttpServing::default(), StreamServing::default());
        let mut tables = Tables::default();
        for (app, routes) in records.in_order() {
            for rule in &routes.http {
                let route = self.http_route(app, rule, &behind.http, &mut http);
                if tables.http.insert(&rule.host, &rule.path, route).is_err() {
                    tracing::warn!(%app, rule.host, rule.path, "already routed: this rule is left out");
                }
            }
            for (listener, rule) in routes.listeners() {
                if tables.streams.contains_key(&listener) {
                    tracing::warn!(%app, %listener, "already routed: this rule is left out");
                    continue;
                }
                let route = self.stream_route(app, listener, rule, &behind.streams, &mut streams);
                tables.streams.insert(listener, route);
            }
        }
        // A rule that was left out must not keep its backends in service.
        http.retain(tables.http.targets().flat_map(|route| route.upstreams()));

        self.tables.store(Some(Arc::new(tables)));
        // Only now: a request that finds its backend withdrawn looks again, and
        // must find the new table.
        let behind = &mut *behind;
        for upstream in behind.http.give_way(http) {
            behind.draining.push(upstream);
        }
        for upstream in behind.streams.give_way(streams) {
            behind.draining.push(upstream);
        }
    }

    fn http_route(
        &self,
        app: &AppName,
        rule: &HttpRule,
        before: &HttpServing,
        serving: &mut HttpServing,
    ) -> Arc<HttpRoute> {
        let upstreams = rule.backends.iter().map(|backend| {
            serving.keep(before, backend, rule.protocol.into(), || {
                let pool = Pool::new(backend.address, rule.protocol);
                Upstream::new(backend.clone(), pool, Arc::clone(&self.emptied))
            })
        });
        let metrics = self.metrics.route(app, &rule.service);
        Arc::new(HttpRoute::new(metrics, upstreams.collect()))
    }

    fn stream_route(
        &self,
        app: &AppName,
        listener: Listener,
        rule: &StreamRule,
        before: &StreamServing,
        serving: &mut StreamServing,
    ) -> Arc<StreamRoute> {
        let drain = rule.drain.get();
        let upstreams = rule.backends.iter().map(|backend| {
            let upstream = serving.keep(before, backend, listener.protocol, || {
                let cutoff = Cutoff::new(drain);
                Upstream::new(backend.clone(), cutoff, Arc::clone(&self.emptied))
            });
            upstream.link.set_drain(drain);
            upstream
        });
        let metrics = self.metrics.stream(app, &rule.service, listener.protocol);
        Arc::new(StreamRoute::new(metrics, upstreams.collect()))
    }

    /// What is in flight of each container that isn't routed to any more.
    pub fn draining(&self) -> BTreeMap<ContainerId, u64> {
        let mut behind = self.lock();
        behind.draining.retain(|upstream| upstream.in_flight() > 0);
        let http = behind.http.containers();
        let routed: HashSet<&ContainerId> = http.chain(behind.streams.containers()).collect();
        let mut counts = BTreeMap::new();
        for upstream in &behind.draining {
            let container = &upstream.backend().container;
            if !routed.contains(container) {
                *counts.entry(container.clone()).or_default() += upstream.in_flight();
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
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::manifest::Tls;
    use crate::proxy::route::Admission;
    use crate::state::{Incarnation, encode};
    use crate::store::Entry;
    use crate::traffic::{AppRoutes, Backend};

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

    fn found(switch: &Switch) -> Arc<HttpRoute> {
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
