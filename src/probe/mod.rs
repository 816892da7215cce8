//! Readiness: does this very execution of a container do what its manifest says?
//!
//! [`wait_ready`] tries the check until it passes often enough, the time is over,
//! or the container ends. It acts on nothing: dropping it stops the probing.
//!
//! - [`Prober`]: the part that goes over the network, so that a test can answer.
//! - [`NetworkProber`]: real connections, one a try, nothing pooled or followed.
//! - [`MemoryProber`]: asks the in-memory runtime who would answer.
//! - `failure`: what is told when a probe fails. Never a word of a container's log.

mod failure;
mod memory;
mod network;
mod wait;

use std::fmt;
use std::net::SocketAddr;

use async_trait::async_trait;

pub use failure::{ProbeFailure, ProbeFailureKind};
pub use memory::MemoryProber;
pub use network::NetworkProber;
pub use wait::wait_ready;

/// One try over the network. The caller bounds its time by dropping it.
#[async_trait]
pub trait Prober: Send + Sync + fmt::Debug {
    /// The status code that GET on this path answers. No redirect is followed.
    /// An error says in a few words why there was no answer.
    async fn http(&self, address: SocketAddr, path: &str) -> Result<u16, String>;

    /// Whether a TCP connection is accepted.
    async fn tcp(&self, address: SocketAddr) -> Result<(), String>;
}

#[cfg(test)]
mod tests;
