//! TCP and UDP: what the graph's listeners lead to.
//!
//! - `listeners` opens and closes the sockets as the graph changes.
//! - `tcp` has one connection's way through, `udp` the sessions of one socket.
//!
//! A listener is open as long as a rule names it. While its service is withdrawn,
//! new TCP connections are accepted and reset at once, and datagrams are dropped:
//! the port stays this data plane's over a replacement.

mod listeners;
mod tcp;
mod udp;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Limits;
use super::metrics::Metrics;
use super::switch::Switch;
use super::upstream::Link;

pub(super) use self::listeners::Listeners;

/// How much later than the controller gives the drain up a connection is cut: so
/// that the controller counts what was still there.
const CUT_AFTER: Duration = Duration::from_millis(500);

/// What every listener needs.
#[derive(Debug)]
pub(super) struct Shared {
    /// Where it leads.
    pub switch: Arc<Switch>,
    /// What is counted.
    pub metrics: Metrics,
    /// Times and numbers.
    pub limits: Limits,
    /// Places for TCP connections.
    pub room: Arc<Semaphore>,
    /// The TCP connections, which outlive their listener.
    pub connections: TaskTracker,
    /// Ends them.
    pub hard_stop: CancellationToken,
}

/// Ends what a withdrawn backend still has, when its drain is over.
#[derive(Debug)]
pub(super) struct Cutoff {
    withdrawn: CancellationToken,
    drain_millis: AtomicU64,
}

impl Cutoff {
    /// Of a backend that serves.
    pub fn new(drain: Duration) -> Self {
        let cutoff = Self {
            withdrawn: CancellationToken::new(),
            drain_millis: AtomicU64::new(0),
        };
        cutoff.set_drain(drain);
        cutoff
    }

    /// How long a drain takes that begins from here on.
    pub fn set_drain(&self, drain: Duration) {
        let millis = u64::try_from(drain.as_millis()).unwrap_or(u64::MAX);
        self.drain_millis.store(millis, Ordering::Relaxed);
    }

    /// Returns when the backend is withdrawn.
    async fn withdrawal(&self) {
        self.withdrawn.cancelled().await;
    }

    /// Returns when the backend was withdrawn and its drain is over.
    async fn expired(&self) {
        self.withdrawal().await;
        let drain = Duration::from_millis(self.drain_millis.load(Ordering::Relaxed));
        tokio::time::sleep(drain.saturating_add(CUT_AFTER)).await;
    }
}

impl Link for Cutoff {
    fn withdrawn(&self) {
        self.withdrawn.cancel();
    }
}

/// Why a connection or a datagram didn't get through, or was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The service is withdrawn.
    NoBackend,
    /// The backend refused, or can't be reached.
    Refused,
    /// The backend didn't accept in time.
    ConnectTimeout,
    /// One side broke off.
    Broken,
    /// Cut at the end of the drain.
    Drained,
    /// Cut because the proxy stopped.
    Stopped,
    /// No room for another session.
    Sessions,
    /// A datagram for which there was no room in a socket.
    Dropped,
}

impl Failure {
    /// The metric's label.
    fn reason(self) -> &'static str {
        match self {
            Self::NoBackend => "no_backend",
            Self::Refused => "refused",
            Self::ConnectTimeout => "connect_timeout",
            Self::Broken => "broken",
            Self::Drained => "drain_deadline",
            Self::Stopped => "stopped",
            Self::Sessions => "session_limit",
            Self::Dropped => "dropped",
        }
    }
}
