//! ACTIVE: what serves now.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::manifest::{NodeName, PortName, Protocol, ServiceName};

use super::ids::{ContainerId, Digest, RevisionNumber};
use super::record::Record;
use super::revision::{PinnedService, Revision};
use super::secrets::TakenSecrets;

/// The durable record of what serves now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Active {
    /// `mod_revision` of the manifest that is served whole; 0 while none is.
    pub source: i64,
    /// The effective generation of each service.
    pub services: BTreeMap<ServiceName, ActiveService>,
}

/// The effective generation of one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveService {
    /// The revision it was made from.
    pub revision: RevisionNumber,
    /// The image as the manifest names it.
    pub image: String,
    /// The image's digest.
    pub digest: Digest,
    /// The exact container.
    pub container: ContainerId,
    /// The host it runs on.
    pub node: NodeName,
    /// Inspected host ports; empty while it isn't verified.
    pub binds: Vec<Bind>,
    /// Start of the execution that passed readiness, with the binds above. Any
    /// other execution is unverified and not routed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<Timestamp>,
    /// The versions of its secrets that it took.
    #[serde(default, skip_serializing_if = "TakenSecrets::is_empty")]
    pub secrets: TakenSecrets,
}

/// A host port that the runtime gave to one container port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bind {
    /// The declared port.
    pub port: PortName,
    /// Port number in the container.
    pub container: u16,
    /// Transport.
    pub protocol: Protocol,
    /// Host address on which it is published.
    pub host_ip: IpAddr,
    /// Host port on which it is published.
    pub host: u16,
}

impl Bind {
    /// Where this host reaches the container port: loopback when it is
    /// published on all addresses.
    pub fn address(&self) -> SocketAddr {
        let ip = match self.host_ip {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        SocketAddr::new(ip, self.host)
    }
}

impl Active {
    /// What the effective generation of a service was made from.
    pub fn pinned<'r>(
        &self,
        service: &ServiceName,
        revisions: &'r [Revision],
    ) -> Option<&'r PinnedService> {
        let number = self.services.get(service)?.revision;
        Revision::numbered(revisions, number)?.services.get(service)
    }
}

impl Record for Active {
    const SCHEMA: u32 = 1;
    const KIND: &'static str = "active";
}
