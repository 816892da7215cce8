//! The traffic graph: which host, path or listener leads to which container.
//!
//! The graph is data in the store, one key an app. Data planes watch it, serve
//! it, and write back which revision they have applied and what they still
//! drain. *Confirmed* means that every live registered data plane has applied
//! at least the revision in question; one whose lease ended without a farewell is
//! given some time to come back, since it may still serve.

mod claims;
mod graph;
mod memory;
mod publisher;
mod registry;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

pub use graph::{AppRoutes, Backend, DataPlane, FailedListener, HttpRule, Listener, StreamRule};
pub use memory::MemoryTraffic;
pub use publisher::{CONFIRM_TIMEOUT, Publisher, RETURN_WITHIN, Waits};

pub(crate) use claims::{normal_host, normal_path};
pub(crate) use registry::LEFT;

use crate::manifest::AppName;
use crate::state::{ContainerId, RecordError};
use crate::store::{NotLeading, StoreError};

/// A confirmed revision of the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GraphRevision(pub i64);

/// A confirmed change of the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The revision that every live data plane has applied.
    pub revision: GraphRevision,
    /// Listeners with backends that a host doesn't serve all the same. Withdrawals
    /// are complete whatever this says.
    pub unserved: Vec<Unserved>,
}

/// A listener that none of a host's data planes could open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{plane} can't serve {listener}: {why}; free the port on that host or choose another")]
pub struct Unserved {
    /// `node/name` of a data plane there.
    pub plane: String,
    /// The listener.
    pub listener: Listener,
    /// What the data plane says.
    pub why: String,
}

/// How a drain ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drain {
    /// Every live data plane reports no request in flight.
    Empty,
    /// Time was over first.
    Expired {
        /// Requests still in flight, as far as they are known.
        in_flight: u64,
    },
}

/// Why the graph couldn't be changed.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// It is written, but these data planes haven't said that they applied it.
    #[error(
        "{planes} didn't confirm the traffic graph in time: check that the data plane runs and reaches etcd"
    )]
    Unconfirmed {
        /// `node/name` of each.
        planes: String,
    },
    /// Another app holds a host and path, or a listener.
    #[error("{claim} is held by app {holder}: choose another, or remove it there first")]
    Conflict {
        /// What both want.
        claim: String,
        /// Who holds it.
        holder: AppName,
    },
    /// A data plane's host has the port for Podherd itself.
    #[error("{listener} is a port of Podherd's own on the host of {plane}: choose another")]
    Reserved {
        /// What was claimed.
        listener: Listener,
        /// `node/name` of the data plane.
        plane: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record couldn't be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Not the leader.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
}

/// Changes the graph and waits for the data planes.
#[async_trait]
pub trait Traffic: Send + Sync + fmt::Debug {
    /// What is published for the app.
    async fn current(&self, app: &AppName) -> Result<Option<AppRoutes>, TrafficError>;

    /// Whether another app, or Podherd itself, holds something that these routes
    /// claim.
    async fn check(&self, app: &AppName, routes: &AppRoutes) -> Result<(), TrafficError>;

    /// Publishes the app's routes and returns when that is confirmed. Routes
    /// that are published already are only confirmed again.
    async fn apply(&self, app: &AppName, routes: &AppRoutes) -> Result<Applied, TrafficError>;

    /// Takes the app out of the graph and returns when that is confirmed.
    async fn remove(&self, app: &AppName) -> Result<(), TrafficError>;

    /// Waits until no data plane has a request of this container in flight. Call
    /// it after a confirmed [`Traffic::apply`] without the container.
    async fn drain(&self, container: &ContainerId, within: Duration)
    -> Result<Drain, TrafficError>;
}
