//! One backend as this data plane sees it: what it has in flight, whether it is
//! withdrawn, and its link, which learns of the withdrawal.
//!
//! The order in [`Upstream::enter`] is what a confirmed withdrawal rests on: a
//! request is counted in *before* it looks whether the backend is withdrawn. The
//! withdrawal sets the mark before it reads the count. So either the request sees
//! the mark and leaves, or the withdrawal sees the request and waits for it.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::traffic::Backend;

/// What leads to a backend.
pub(super) trait Link: Debug + Send + Sync + 'static {
    /// Nothing new will enter.
    fn withdrawn(&self);
}

/// A backend with what it is busy with.
#[derive(Debug)]
pub(super) struct Upstream<L> {
    /// The container and its address.
    pub backend: Backend,
    /// How it is reached.
    pub link: L,
    in_flight: AtomicU64,
    withdrawn: AtomicBool,
    /// Told when a withdrawn backend has nothing in flight any more.
    emptied: Arc<Notify>,
}

impl<L: Link> Upstream<L> {
    /// A backend that nothing was sent to yet.
    pub fn new(backend: Backend, link: L, emptied: Arc<Notify>) -> Self {
        Self {
            backend,
            link,
            in_flight: AtomicU64::new(0),
            withdrawn: AtomicBool::new(false),
            emptied,
        }
    }

    /// Counts a request in; `None` when the backend is withdrawn, and the route
    /// must be looked up again.
    pub fn enter(self: &Arc<Self>) -> Option<InFlight<L>> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let entered = InFlight(Arc::clone(self));
        (!self.is_withdrawn()).then_some(entered)
    }

    /// From here on no request enters.
    pub fn withdraw(&self) {
        self.withdrawn.store(true, Ordering::SeqCst);
        self.link.withdrawn();
    }
}

impl<L> Upstream<L> {
    /// Whether nothing new enters.
    pub fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::SeqCst)
    }

    /// Requests, connections and sessions that haven't ended.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::SeqCst)
    }
}

/// A withdrawn backend, whatever leads to it.
pub(super) trait Draining: Debug + Send + Sync {
    /// The container and its address.
    fn backend(&self) -> &Backend;
    /// What hasn't ended.
    fn in_flight(&self) -> u64;
}

impl<L: Link> Draining for Upstream<L> {
    fn backend(&self) -> &Backend {
        &self.backend
    }

    fn in_flight(&self) -> u64 {
        Self::in_flight(self)
    }
}

/// Something that is counted in until this is dropped.
#[derive(Debug)]
pub(super) struct InFlight<L>(Arc<Upstream<L>>);

impl<L> InFlight<L> {
    /// Where it went.
    pub fn upstream(&self) -> &Arc<Upstream<L>> {
        &self.0
    }
}

impl<L> Drop for InFlight<L> {
    fn drop(&mut self) {
        let before = self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
        if before == 1 && self.0.is_withdrawn() {
            // Stored for a later listener when nobody listens just now.
            self.0.emptied.notify_one();
        }
    }
}
