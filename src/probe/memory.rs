//! Probes of the in-memory runtime's containers.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;

use super::{NoAnswer, Prober};
use crate::runtime::{MemoryRuntime, Reply};

/// Asks the in-memory runtime who would answer at an address.
#[derive(Debug, Clone)]
pub struct MemoryProber(Arc<MemoryRuntime>);

impl MemoryProber {
    /// A prober on that host.
    pub fn new(runtime: Arc<MemoryRuntime>) -> Self {
        Self(runtime)
    }
}

#[async_trait]
impl Prober for MemoryProber {
    async fn http(&self, address: SocketAddr, _path: &str) -> Result<u16, NoAnswer> {
        match self.0.probe_at(address) {
            Reply::Fine => Ok(200),
            Reply::Sick => Ok(503),
            Reply::Refused => Err(refused()),
        }
    }

    async fn tcp(&self, address: SocketAddr) -> Result<(), NoAnswer> {
        match self.0.probe_at(address) {
            Reply::Fine => Ok(()),
            // A container that never becomes ready doesn't do it by TCP either.
            Reply::Sick | Reply::Refused => Err(refused()),
        }
    }
}

fn refused() -> NoAnswer {
    NoAnswer::Theirs("connection refused".to_owned())
}
