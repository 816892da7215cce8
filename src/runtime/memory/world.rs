//! The state behind the in-memory runtime and how it moves. No waiting in here:
//! whoever looks calls [`World::settle`] first, which lets happen what is due.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::manifest::Protocol;
use crate::state::ContainerId;

use super::super::{
    Applied, Container, ContainerSpec, ContainerState, ContainerSummary, Labels, Network,
    PortMapping, RuntimeEvent, RuntimeEventKind,
};
use super::images::{Behaviour, Images};
use super::secrets::{Secrets, Seen};

/// Exit code of a process that SIGKILL ended.
const KILLED: i32 = 137;
/// Where host ports begin that nobody asked for by number.
const FIRST_EPHEMERAL: u16 = 40_000;

#[derive(Debug)]
pub(super) struct Record {
    pub(super) id: ContainerId,
    pub(super) spec: ContainerSpec,
    pub(super) behaves: Behaviour,
    pub(super) prints: Vec<String>,
    pub(super) state: ContainerState,
    pub(super) started_at: Option<Timestamp>,
    started: Option<Instant>,
    leaves: Option<Instant>,
    /// The signal that reaches it when it goes on: it is paused.
    waiting: Option<String>,
    exit_code: Option<i32>,
    oom_killed: bool,
    pub(super) ports: Vec<PortMapping>,
    pub(super) applied: Applied,
    /// Each line with the start of the execution that wrote it.
    log: Vec<(Option<Timestamp>, String)>,
    pub(super) exec_code: Option<i64>,
    /// What it sees of its secrets.
    pub(super) seen: Seen,
    /// Start of the execution whose probes fail.
    pub(super) sick: Option<Timestamp>,
    /// Whether its image declares a health check.
    pub(super) has_healthcheck: bool,
    /// Whether a probe of this execution was seen already.
    pub(super) probed: bool,
}

impl Record {
    pub(super) fn shown(&self) -> Container {
        Container {
            id: self.id.clone(),
            name: self.spec.name.clone(),
            labels: self.spec.labels.clone(),
            state: self.state,
            started_at: self.started_at,
            exit_code: self.exit_code,
            oom_killed: self.oom_killed,
            ports: self.ports.clone(),
            binds: self.spec.binds.clone(),
            applied: self.applied.clone(),
        }
    }

    pub(super) fn summary(&self) -> ContainerSummary {
        ContainerSummary {
            id: self.id.clone(),
            name: self.spec.name.clone(),
            labels: self.spec.labels.clone(),
            state: self.state,
        }
    }

    /// Whether its process may still write.
    pub(super) fn is_up(&self) -> bool {
        self.state.may_run()
    }

    /// Whether nothing ends its process.
    pub(super) fn never_leaves(&self) -> bool {
        self.behaves == Behaviour::NeverLeaves
    }

    /// Whether a probe of it would pass now.
    pub(super) fn is_ready(&self) -> bool {
        let up_for = self.started.map(|started| started.elapsed());
        self.state == ContainerState::Running
            && !self.is_sick()
            && match self.behaves {
                Behaviour::NeverReady => false,
                Behaviour::SlowReady(after) => up_for.is_some_and(|up| up >= after),
                _ => true,
            }
    }

    fn is_sick(&self) -> bool {
        self.sick.is_some() && self.sick == self.started_at
    }

    /// Whether anything listens on its ports.
    pub(super) fn listens(&self) -> bool {
        self.state == ContainerState::Running
            && (self.is_ready() || self.is_sick() || self.behaves == Behaviour::NeverReady)
    }

    pub(super) fn print(&mut self, line: &str) {
        self.log.push((self.started_at, line.to_owned()));
    }

    /// The last lines, oldest first; of one execution where one is asked for.
    pub(super) fn log_tail(&self, lines: usize, execution: Option<Timestamp>) -> Vec<String> {
        let wanted: Vec<_> = self
            .log
            .iter()
            .filter(|(by, _)| execution.is_none() || *by == execution)
            .map(|(_, line)| line.clone())
            .collect();
        let skipped = wanted.len().saturating_sub(lines);
        wanted[skipped..].to_vec()
    }

    fn writes(&self) -> impl Iterator<Item = &str> {
        let volumes = self.spec.volumes.iter();
        let volumes = volumes.filter(|volume| !volume.read_only);
        let binds = self.spec.binds.iter().filter(|bind| !bind.read_only);
        volumes
            .map(|volume| volume.name.as_str())
            .chain(binds.map(|bind| bind.source.as_str()))
    }
}

/// Why a container couldn't be started.
pub(super) enum Start {
    Started,
    WasRunning,
    PortTaken(PortMapping),
}

#[derive(Debug, Default)]
pub(super) struct World {
    /// By number of creation: the order of lists.
    containers: BTreeMap<u64, Record>,
    created: u64,
    ephemeral: u16,
    last_start: Option<Timestamp>,
    pub(super) images: Images,
    pub(super) volumes: BTreeMap<String, Labels>,
    pub(super) networks: BTreeMap<String, Network>,
    pub(super) secrets: Secrets,
    /// Host ports that processes outside of all containers hold.
    pub(super) occupied: BTreeSet<(Protocol, u16)>,
    /// Whether new containers get none of the limits and restrictions asked for.
    pub(super) ignores_limits: bool,
    pub(super) violations: Vec<String>,
    /// What happened since the events were last handed out.
    pub(super) news: Vec<RuntimeEvent>,
}

impl World {
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.containers.values()
    }

    pub(super) fn find(&self, id_or_name: &str) -> Option<&Record> {
        self.records().find(|record| is(record, id_or_name))
    }

    pub(super) fn find_mut(&mut self, id_or_name: &str) -> Option<&mut Record> {
        self.containers
            .values_mut()
            .find(|record| is(record, id_or_name))
    }

    /// The running container that is reached at a host address, through one of its ports.
    pub(super) fn at(&mut self, address: SocketAddr, protocol: Protocol) -> Option<&mut Record> {
        self.containers.values_mut().find(|record| {
            record.is_up()
                && record.ports.iter().any(|port| {
                    port.protocol == protocol
                        && port.host == address.port()
                        && (port.host_ip == address.ip() || port.host_ip.is_unspecified())
                })
        })
    }

    /// Lets happen what is due by now.
    pub(super) fn settle(&mut self) {
        let now = Instant::now();
        let due: Vec<_> = self
            .records()
            .filter(|record| record.leaves.is_some_and(|at| at <= now))
            .map(|record| record.id.clone())
            .collect();
        for id in due {
            self.end(id.as_str(), 0, false);
        }
    }

    /// When something is due next for this container.
    pub(super) fn next_change(&self, id: &str) -> Option<Instant> {
        self.find(id)?.leaves
    }

    /// Adds a container that doesn't run; its image must be local.
    pub(super) fn create(&mut self, spec: &ContainerSpec) -> ContainerId {
        self.created += 1;
        let id = ContainerId::new(format!("{:064x}", self.created));
        let image = self.images.by_id(&spec.image_id);
        let behaves = image.map(|image| image.behaves).unwrap_or_default();
        let has_healthcheck = image.is_some_and(|image| image.healthcheck);
        let prints = image.map(|image| image.prints.clone()).unwrap_or_default();
        for volume in &spec.volumes {
            self.volumes.entry(volume.name.clone()).or_default();
        }
        let mut ports = spec.ports.clone();
        for port in &mut ports {
            if port.host == 0 {
                port.host = FIRST_EPHEMERAL + self.ephemeral;
                self.ephemeral += 1;
            }
        }
        let record = Record {
            id: id.clone(),
            spec: spec.clone(),
            behaves,
            prints,
            state: ContainerState::Created,
            started_at: None,
            started: None,
            leaves: None,
            waiting: None,
            exit_code: None,
            oom_killed: false,
            ports,
            applied: if self.ignores_limits {
                Applied::default()
            } else {
                Applied::wholly(&spec.resources, &spec.security)
            },
            log: Vec::new(),
            exec_code: None,
            seen: self.secrets.at_create(spec),
            sick: None,
            has_healthcheck,
            probed: false,
        };
        self.containers.insert(self.created, record);
        id
    }

    fn port_conflict(&self, id: &str) -> Option<PortMapping> {
        let wanted = &self.find(id)?.ports;
        wanted
            .iter()
            .find(|port| {
                let others = self
                    .records()
                    .filter(|other| other.is_up() && !is(other, id));
                self.occupied.contains(&(port.protocol, port.host))
                    || others
                        .flat_map(|other| &other.ports)
                        .any(|other| collide(port, other))
            })
            .cloned()
    }

    /// Whether neither a container nor another process holds the host port.
    pub(super) fn is_free(&self, protocol: Protocol, port: u16) -> bool {
        let up = self.records().filter(|record| record.is_up());
        let published = up.flat_map(|record| &record.ports);
        !self.occupied.contains(&(protocol, port))
            && !published
                .into_iter()
                .any(|its| its.protocol == protocol && its.host == port)
    }

    pub(super) fn start(&mut self, id: &str, now: Timestamp) -> Start {
        if self.find(id).is_some_and(Record::is_up) {
            return Start::WasRunning;
        }
        if let Some(port) = self.port_conflict(id) {
            return Start::PortTaken(port);
        }
        // Two executions never have the same start, even when the clock stands still.
        let started_at = match self.last_start {
            Some(last) if last >= now => last
                .checked_add(Duration::from_micros(1))
                .unwrap_or(Timestamp::MAX),
            _ => now,
        };
        self.last_start = Some(started_at);
        let env = self
            .find(id)
            .map(|record| self.secrets.at_start(&record.spec));
        let Some(record) = self.find_mut(id) else {
            return Start::WasRunning;
        };
        record.seen.env = env.unwrap_or_default();
        record.state = ContainerState::Running;
        record.started_at = Some(started_at);
        record.started = Some(Instant::now());
        record.leaves = None;
        record.exit_code = None;
        record.oom_killed = false;
        record.probed = false;
        for line in record.prints.clone() {
            record.print(&line);
        }
        let behaves = record.behaves;
        self.tell(id, RuntimeEventKind::Started);
        self.watch_writers(id);
        if let Behaviour::ExitsAtOnce(code) = behaves {
            self.end(id, code, false);
        }
        Start::Started
    }

    /// Records every volume that this running container and another both write.
    fn watch_writers(&mut self, id: &str) {
        let Some(new) = self.find(id) else { return };
        let others = self
            .records()
            .filter(|other| other.is_up() && !is(other, id));
        let found: Vec<_> = others
            .flat_map(|other| {
                let shared = new
                    .writes()
                    .filter(|name| other.writes().any(|its| its == *name));
                shared.map(|name| {
                    format!(
                        "{} and {} both write the volume {name}",
                        other.spec.name, new.spec.name
                    )
                })
            })
            .collect();
        self.violations.extend(found);
    }

    pub(super) fn end(&mut self, id: &str, code: i32, oom_killed: bool) {
        let Some(record) = self.find_mut(id).filter(|record| record.is_up()) else {
            return;
        };
        record.state = ContainerState::Exited;
        record.leaves = None;
        record.waiting = None;
        record.exit_code = Some(code);
        record.oom_killed = oom_killed;
        self.tell(id, RuntimeEventKind::Died);
    }

    /// Pauses a running container, or lets a paused one go on.
    pub(super) fn freeze(&mut self, id: &str, frozen: bool) {
        let (from, to) = if frozen {
            (ContainerState::Running, ContainerState::Paused)
        } else {
            (ContainerState::Paused, ContainerState::Running)
        };
        let Some(record) = self.find_mut(id).filter(|record| record.state == from) else {
            return;
        };
        record.state = to;
        let waiting = record.waiting.take();
        self.tell(id, RuntimeEventKind::Paused);
        if let Some(signal) = waiting {
            self.signal(id, &signal);
        }
    }

    pub(super) fn signal(&mut self, id: &str, signal: &str) {
        let Some(record) = self.find_mut(id).filter(|record| record.is_up()) else {
            return;
        };
        let kills = signal.trim_start_matches("SIG") == "KILL";
        if kills && record.behaves != Behaviour::NeverLeaves {
            return self.end(id, KILLED, false);
        }
        if record.state == ContainerState::Paused {
            record.waiting = Some(signal.to_owned());
            return;
        }
        match record.behaves {
            Behaviour::IgnoresTerm | Behaviour::NeverLeaves => {}
            Behaviour::SlowToLeave(after) => {
                record.leaves.get_or_insert(Instant::now() + after);
            }
            _ => self.end(id, 0, false),
        }
    }

    pub(super) fn remove(&mut self, id: &str) {
        if self.find(id).is_some_and(Record::is_up) {
            self.end(id, KILLED, false);
        }
        self.tell(id, RuntimeEventKind::Removed);
        self.containers.retain(|_, record| !is(record, id));
    }

    /// Whether a container, running or not, mounts this volume.
    pub(super) fn volume_used(&self, name: &str) -> bool {
        self.records()
            .flat_map(|record| &record.spec.volumes)
            .any(|volume| volume.name == name)
    }

    /// Whether a container, running or not, is in this network.
    pub(super) fn network_used(&self, name: &str) -> bool {
        self.records()
            .flat_map(|record| &record.spec.networks)
            .any(|network| network.name == name)
    }

    fn tell(&mut self, id: &str, kind: RuntimeEventKind) {
        if let Some(record) = self.find(id) {
            let event = RuntimeEvent {
                container: record.id.clone(),
                labels: record.spec.labels.clone(),
                kind,
            };
            self.news.push(event);
        }
    }
}

fn is(record: &Record, id_or_name: &str) -> bool {
    record.id.as_str() == id_or_name || record.spec.name == id_or_name
}

fn collide(one: &PortMapping, other: &PortMapping) -> bool {
    let overlap = |a: IpAddr, b: IpAddr| a == b || a.is_unspecified() || b.is_unspecified();
    one.protocol == other.protocol && one.host == other.host && overlap(one.host_ip, other.host_ip)
}
