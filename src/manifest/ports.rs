//! Ports that a service declares, and what the traffic graph routes to them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names::PortName;

/// A declared container port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Port {
    /// The port's name within the service.
    pub name: PortName,
    /// Port number in the container.
    pub container: u16,
    /// Transport. Default tcp.
    #[serde(default)]
    pub protocol: Protocol,
    /// Fixed host port on all addresses; without it a loopback port of Podherd's range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<u16>,
    /// What is spoken on it, for the proxy. Default http.
    #[serde(default)]
    pub app_protocol: AppProtocol,
}

/// Transport protocol of a port.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// `tcp` or `udp`, as Podman and the etcd keys write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// What the proxy speaks to a backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AppProtocol {
    /// HTTP/1.1.
    #[default]
    Http,
    /// HTTP/2 without TLS, prior knowledge (gRPC).
    H2c,
}

/// One host and path that the traffic graph routes to a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpRoute {
    /// Host name, lower case, without a port.
    pub host: String,
    /// Path prefix, matched by whole segments. Default `/`.
    #[serde(default = "default_path")]
    pub path: String,
    /// Declared port of the service.
    pub port: PortName,
    /// TLS for this host. Default off.
    #[serde(default)]
    pub tls: Tls,
}

fn default_path() -> String {
    "/".to_owned()
}

/// TLS termination for a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tls {
    /// Plain HTTP.
    #[default]
    Off,
    /// A certificate that the data plane obtains.
    Auto,
}

/// One TCP or UDP listener that the traffic graph routes to a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StreamRoute {
    /// Port on which the data plane listens.
    pub listen: u16,
    /// Declared port of the service.
    pub port: PortName,
}
