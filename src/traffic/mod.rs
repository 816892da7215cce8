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

pub use graph::{AppRoutes, Backend, DataPlane, HttpRule, StreamRule};
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

    /// Whether another app holds something that these routes claim.
    async fn check(&self, app: &AppName, routes: &AppRoutes) -> Result<(), TrafficError>;

    /// Publishes the app's routes and returns when that is confirmed. Routes
    /// that are published already are only confirmed again.
    async fn apply(&self, app: &AppName, routes: &AppRoutes)
    -> Result<GraphRevision, TrafficError>;

    /// Takes the app out of the graph and returns when that is confirmed.
    async fn remove(&self, app: &AppName) -> Result<(), TrafficError>;

    /// Waits until no data plane has a request of this container in flight. Call
    /// it after a confirmed [`Traffic::apply`] without the container.
    async fn drain(&self, container: &ContainerId, within: Duration)
    -> Result<Drain, TrafficError>;
}
