//! What an inspection tells. The environment isn't even read: it may hold secrets.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use jiff::Timestamp;
use serde::Deserialize;

use super::super::{Applied, Container, ContainerState, Labels, PortMapping};
use super::fault::{Fault, unreadable};
use crate::manifest::{BindMount, Bytes, Cpus, Protocol, Resources};
use crate::state::ContainerId;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Inspected {
    id: String,
    name: String,
    state: State,
    config: Config,
    network_settings: Option<Ports>,
    host_config: Option<HostConfig>,
    bounding_caps: Option<Vec<String>>,
    mounts: Option<Vec<Mount>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Mount {
    r#type: String,
    source: String,
    destination: String,
    #[serde(rename = "RW")]
    writable: bool,
}

impl Mount {
    fn bind(self) -> Option<BindMount> {
        (self.r#type == "bind").then_some(BindMount {
            source: self.source,
            path: self.destination,
            read_only: !self.writable,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct State {
    status: String,
    started_at: String,
    finished_at: String,
    #[serde(default)]
    exit_code: i32,
    #[serde(default, rename = "OOMKilled")]
    oom_killed: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    labels: Option<Labels>,
}

/// By `8080/tcp`; a declared port that isn't published has no bindings.
type Bindings = BTreeMap<String, Option<Vec<Binding>>>;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Ports {
    ports: Option<Bindings>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HostConfig {
    port_bindings: Option<Bindings>,
    #[serde(default)]
    cpu_quota: i64,
    #[serde(default)]
    cpu_period: u64,
    #[serde(default)]
    memory: i64,
    #[serde(default)]
    pids_limit: i64,
    #[serde(default)]
    readonly_rootfs: bool,
    security_opt: Option<Vec<String>>,
    #[serde(default)]
    userns_mode: String,
}

impl HostConfig {
    fn limits(&self) -> Resources {
        let millis = u64::try_from(self.cpu_quota).ok().and_then(|quota| {
            let millis = quota.checked_mul(1_000)?.checked_div(self.cpu_period)?;
            u32::try_from(millis).ok()
        });
        let memory = u64::try_from(self.memory).ok();
        Resources {
            cpus: millis.filter(|it| *it > 0).map(Cpus::from_millis),
            memory: memory.filter(|it| *it > 0).map(Bytes::new),
            pids: u32::try_from(self.pids_limit).ok().filter(|it| *it > 0),
        }
    }

    fn applied(&self, capabilities: Vec<String>) -> Applied {
        let options = self.security_opt.as_deref().unwrap_or_default();
        Applied {
            limits: self.limits(),
            read_only_root: self.readonly_rootfs,
            no_new_privileges: options
                .iter()
                .any(|option| option.starts_with("no-new-privileges")),
            own_users: !matches!(self.userns_mode.as_str(), "" | "host"),
            capabilities,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Binding {
    host_ip: String,
    host_port: String,
}

impl Inspected {
    /// Whether this is what was asked for: Podman also answers to the first digits of an ID.
    pub(super) fn is(&self, id_or_name: &str) -> bool {
        self.id == id_or_name || self.name == id_or_name
    }

    /// Start of the newest execution.
    pub(super) fn started_at(&self) -> Result<Option<Timestamp>, Fault> {
        moment(&self.state.started_at)
    }

    /// End of the newest execution that has ended.
    pub(super) fn finished_at(&self) -> Result<Option<Timestamp>, Fault> {
        moment(&self.state.finished_at)
    }

    pub(super) fn into_container(self) -> Result<Container, Fault> {
        let state = state(&self.state.status);
        let started_at = self.started_at()?;
        let applied = self
            .host_config
            .as_ref()
            .map(|config| config.applied(self.bounding_caps.unwrap_or_default()));
        let ports = self.network_settings.and_then(|settings| settings.ports);
        let ports = ports
            .filter(|ports| !ports.is_empty())
            .or_else(|| self.host_config.and_then(|config| config.port_bindings))
            .unwrap_or_default();
        Ok(Container {
            id: ContainerId::new(self.id),
            name: self.name,
            labels: self.config.labels.unwrap_or_default(),
            state,
            started_at,
            exit_code: (state == ContainerState::Exited).then_some(self.state.exit_code),
            oom_killed: self.state.oom_killed,
            ports: published(&ports)?,
            binds: self
                .mounts
                .into_iter()
                .flatten()
                .filter_map(Mount::bind)
                .collect(),
            applied: applied.unwrap_or_default(),
        })
    }
}

/// Podman's states, by its names for them.
pub(super) fn state(name: &str) -> ContainerState {
    match name {
        "created" | "configured" | "initialized" => ContainerState::Created,
        "running" => ContainerState::Running,
        "paused" => ContainerState::Paused,
        "stopping" => ContainerState::Stopping,
        // Stopped: the process is gone, and Podman has yet to clean up after it.
        "exited" | "stopped" => ContainerState::Exited,
        "removing" => ContainerState::Removing,
        _ => ContainerState::Unknown,
    }
}

/// The year 1 stands for never.
fn moment(text: &str) -> Result<Option<Timestamp>, Fault> {
    if text.starts_with("0001-") {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| unreadable())
}

fn published(ports: &Bindings) -> Result<Vec<PortMapping>, Fault> {
    let mut result = Vec::new();
    for (key, bindings) in ports {
        let (container, protocol) = key.split_once('/').ok_or_else(unreadable)?;
        let protocol = match protocol {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            // SCTP: nothing of ours.
            _ => continue,
        };
        for binding in bindings.iter().flatten() {
            let host_ip = if binding.host_ip.is_empty() {
                IpAddr::V4(Ipv4Addr::UNSPECIFIED)
            } else {
                binding.host_ip.parse().map_err(|_| unreadable())?
            };
            result.push(PortMapping {
                container: container.parse().map_err(|_| unreadable())?,
                protocol,
                host_ip,
                host: binding.host_port.parse().map_err(|_| unreadable())?,
            });
        }
    }
    Ok(result)
}
