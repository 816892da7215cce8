//! Does this very execution of a container do what its manifest says?
//!
//! [`wait_started`] and then [`wait_ready`] try a check until it passes often enough,
//! the time is over, or the container ends. They act on nothing: dropping one stops
//! the probing. [`Vitals`] goes on asking what is published, and remembers which
//! executions have failed.
//!
//! - `attempt`: one try, and whose fault it is when there is no answer.
//! - [`Prober`]: the part that goes over the network, so that a test can answer.
//! - [`NetworkProber`]: real connections, one a try, nothing pooled or followed.
//! - [`MemoryProber`]: asks the in-memory runtime who would answer.
//! - `failure`: what is told when a probe fails. Never a word of a container's log.

mod attempt;
mod failure;
mod memory;
mod network;
mod vitals;
mod wait;

use std::fmt;
use std::net::SocketAddr;

use async_trait::async_trait;

pub use attempt::Subject;
pub use failure::{ProbeFailure, ProbeFailureKind};
pub use memory::MemoryProber;
pub use network::NetworkProber;
pub use vitals::{Unhealthy, Vitals, Watched};
pub use wait::{wait_ready, wait_started};

/// Why there was no answer, in a few words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// Who was asked refused, broke off, or said something else.
    #[error("{0}")]
    Theirs(String),
    /// This host couldn't even ask: it says nothing about the other side.
    #[error("{0}")]
    Ours(String),
}

/// One try over the network. The caller bounds its time by dropping it.
#[async_trait]
pub trait Prober: Send + Sync + fmt::Debug {
    /// The status code that GET on this path answers. No redirect is followed.
    async fn http(&self, address: SocketAddr, path: &str) -> Result<u16, NoAnswer>;

    /// Whether a TCP connection is accepted.
    async fn tcp(&self, address: SocketAddr) -> Result<(), NoAnswer>;
}

#[cfg(test)]
mod tests;
