//! One backend as this data plane sees it: its requests in flight, whether it is
//! withdrawn, and its connections, which end with it.
//!
//! The order in [`Upstream::enter`] is what a confirmed withdrawal rests on: a
//! request is counted in *before* it looks whether the backend is withdrawn. The
//! withdrawal sets the mark before it reads the count. So either the request sees
//! the mark and leaves, or the withdrawal sees the request and waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

use super::pool::Pool;
use crate::manifest::AppProtocol;
use crate::traffic::Backend;

/// A backend with what it is busy with.
#[derive(Debug)]
pub(super) struct Upstream {
    /// The container and its address.
    pub backend: Backend,
    /// Its connections.
    pub pool: Pool,
    in_flight: AtomicU64,
    withdrawn: AtomicBool,
    /// Told when a withdrawn backend has nothing in flight any more.
    emptied: Arc<Notify>,
}

impl Upstream {
    /// A backend that nothing was sent to yet.
    pub fn new(backend: Backend, protocol: AppProtocol, emptied: Arc<Notify>) -> Self {
        Self {
            pool: Pool::new(backend.address, protocol),
            backend,
            in_flight: AtomicU64::new(0),
            withdrawn: AtomicBool::new(false),
            emptied,
        }
    }

    /// Counts a request in; `None` when the backend is withdrawn, and the route
    /// must be looked up again.
    pub fn enter(self: &Arc<Self>) -> Option<InFlight> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let entered = InFlight(Arc::clone(self));
        (!self.withdrawn.load(Ordering::SeqCst)).then_some(entered)
    }

    /// From here on no request enters. Connections without a request are closed.
    pub fn withdraw(&self) {
        self.withdrawn.store(true, Ordering::SeqCst);
        self.pool.close_idle();
    }

    /// Requests whose response, or upgraded connection, hasn't ended.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::SeqCst)
    }
}

/// A request that is counted in until this is dropped.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Upstream>);

impl InFlight {
    /// Where the request went.
    pub fn upstream(&self) -> &Arc<Upstream> {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let before = self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
        if before == 1 && self.0.withdrawn.load(Ordering::SeqCst) {
            // Stored for a later listener when nobody listens just now.
            self.0.emptied.notify_one();
        }
    }
}
