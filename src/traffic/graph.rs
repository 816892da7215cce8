//! The records of the traffic graph.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::manifest::{AppProtocol, NodeName, Protocol, ServiceName, Timespan, Tls};
use crate::state::{ContainerId, Incarnation, Record};

/// Everything that is routed to one app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppRoutes {
    /// The incarnation that is routed to.
    pub incarnation: Incarnation,
    /// HTTP rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<HttpRule>,
    /// TCP listeners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tcp: Vec<StreamRule>,
    /// UDP listeners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub udp: Vec<StreamRule>,
}

/// Requests for one host and path prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRule {
    /// Host name, lower case.
    pub host: String,
    /// Path prefix, matched by whole segments.
    pub path: String,
    /// The service that answers.
    pub service: ServiceName,
    /// TLS for the host.
    pub tls: Tls,
    /// What the backends speak.
    pub protocol: AppProtocol,
    /// Who answers; nobody while the service is withdrawn (503).
    pub backends: Vec<Backend>,
}

/// Connections or datagrams to one listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamRule {
    /// Port on which the data plane listens.
    pub listen: u16,
    /// The service that answers.
    pub service: ServiceName,
    /// How long a withdrawn backend may finish what it has; then it is cut off.
    pub drain: Timespan,
    /// Who answers; nobody while the service is withdrawn.
    pub backends: Vec<Backend>,
}

/// A port on which data planes listen for one service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// The transport.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
        };
        write!(f, "{protocol} listener {}", self.port)
    }
}

/// One container that answers. Its address never changes: another address is
/// another backend.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backend {
    /// The container.
    pub container: ContainerId,
    /// Start of the verified execution: a restarted container is another backend.
    pub started_at: Timestamp,
    /// The host it runs on.
    pub node: NodeName,
    /// Where it is reached.
    pub address: SocketAddr,
}

impl AppRoutes {
    /// Who answers for which service.
    pub fn backends(&self) -> BTreeSet<(&ServiceName, &Backend)> {
        let http = self.http.iter().map(|rule| (&rule.service, &rule.backends));
        let streams = self.tcp.iter().chain(&self.udp);
        let streams = streams.map(|rule| (&rule.service, &rule.backends));
        http.chain(streams)
            .flat_map(|(service, backends)| backends.iter().map(move |backend| (service, backend)))
            .collect()
    }

    /// The listeners with their rules.
    pub fn listeners(&self) -> impl Iterator<Item = (Listener, &StreamRule)> {
        let tcp = self.tcp.iter().map(|rule| (Protocol::Tcp, rule));
        let udp = self.udp.iter().map(|rule| (Protocol::Udp, rule));
        tcp.chain(udp).map(|(protocol, rule)| {
            let port = rule.listen;
            (Listener { protocol, port }, rule)
        })
    }

    /// Whether nothing is routed to the app.
    pub fn is_empty(&self) -> bool {
        self.http.is_empty() && self.tcp.is_empty() && self.udp.is_empty()
    }

    /// The containers that are routed to.
    pub fn containers(&self) -> BTreeSet<&ContainerId> {
        let backends = self.backends().into_iter();
        backends.map(|(_, backend)| &backend.container).collect()
    }

    /// The same routes with only those backends that `kept` picks.
    #[must_use]
    pub fn only(mut self, kept: impl Fn(&ServiceName, &Backend) -> bool) -> Self {
        let http = self.http.iter_mut();
        let http = http.map(|rule| (&rule.service, &mut rule.backends));
        let streams = self.tcp.iter_mut().chain(&mut self.udp);
        let streams = streams.map(|rule| (&rule.service, &mut rule.backends));
        for (service, backends) in http.chain(streams) {
            backends.retain(|backend| kept(service, backend));
        }
        self
    }
}

/// A registered data plane, on its own lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataPlane {
    /// Its host.
    pub node: NodeName,
    /// Its name, unique on the host.
    pub name: String,
    /// Since when it runs.
    pub since: Timestamp,
    /// Revision of the graph that it serves; 0 before the first, and the largest
    /// number when it has stopped and serves nothing any more.
    pub applied: i64,
    /// Requests in flight of each container that it doesn't route to any more.
    /// One with none is left out.
    #[serde(default)]
    pub draining: BTreeMap<ContainerId, u64>,
    /// TCP ports that its host has for Podherd itself: no app can listen there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub reserved: BTreeSet<u16>,
    /// Listeners of the applied graph that it doesn't serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedListener>,
}

/// A listener that a data plane couldn't open. It goes on trying.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedListener {
    /// Which.
    pub listener: Listener,
    /// Why not.
    pub why: String,
}

impl Record for AppRoutes {
    const SCHEMA: u32 = 1;
    const KIND: &'static str = "routes";
}

impl Record for DataPlane {
    const SCHEMA: u32 = 1;
    const KIND: &'static str = "data plane";
}
