//! What a rule leads to: the choice among its backends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::metrics::{RouteMetrics, StreamMetrics};
use super::pool::Pool;
use super::stream::Cutoff;
use super::upstream::{InFlight, Link, Upstream};
use crate::traffic::Backend;

/// Where a rule's requests go, reached by `L` and counted by `M`.
#[derive(Debug)]
pub(super) struct Route<M, L> {
    /// Counters of the app and service.
    pub metrics: M,
    upstreams: Vec<Arc<Upstream<L>>>,
    /// Where the search for the least busy backend starts, so that equals take
    /// turns.
    turn: AtomicUsize,
}

/// Of an HTTP rule.
pub(super) type HttpRoute = Route<RouteMetrics, Pool>;
/// Of a listener.
pub(super) type StreamRoute = Route<StreamMetrics, Cutoff>;

/// Whether a route could take a request.
#[derive(Debug)]
pub(super) enum Admission<L> {
    /// It went in here.
    Entered(InFlight<L>),
    /// Nobody answers for the service (besides the one left out).
    NoBackend,
    /// The table is older than a withdrawal: look the route up again.
    Withdrawn,
}

impl<M, L: Link> Route<M, L> {
    /// A route to these backends.
    pub fn new(metrics: M, upstreams: Vec<Arc<Upstream<L>>>) -> Self {
        Self {
            metrics,
            upstreams,
            turn: AtomicUsize::new(0),
        }
    }

    /// Its backends.
    pub fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstream<L>>> {
        self.upstreams.iter()
    }

    /// Counts a request in at the least busy backend other than `except`.
    pub fn enter(&self, except: Option<&Backend>) -> Admission<L> {
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
