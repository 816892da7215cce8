//! A faithful double of Podman, in memory: for scenario tests and the simulation.
//!
//! Nothing depends on the machine's time or chance: IDs are counted, pauses are
//! tokio's, the calendar is the test's [`Clock`]. What a person or a crash could
//! do behind the controller's back has a method here, and so has every fault that
//! a call can have.
//!
//! - [`effects`]: the ordered record that all doubles of a test share.
//! - `faults`: calls that fail, replies that get lost.
//! - `images`: the registry, the local images, and how their containers behave.
//! - `secrets`: the secrets, and what containers see of them.
//! - `world`: containers, volumes, networks, and what moves them.
//! - `calls`: the [`Runtime`](super::Runtime) trait on top.

mod calls;
mod effects;
mod faults;
mod images;
mod secrets;
mod world;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{broadcast, watch};

use super::{
    Container, ContainerSpec, ContainerState, Labels, Network, RuntimeError, RuntimeEvent,
};
use crate::clock::Clock;
use crate::manifest::Protocol;
use crate::state::ContainerId;

pub use effects::EffectLog;
pub use faults::Call;
pub use images::{Behaviour, MemoryImage};

use faults::{Fault, Faults};
use world::{Record, World};

/// Events that a slow reader may be behind before its stream breaks.
const EVENTS_KEPT: usize = 1024;

/// What a client of a published port gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Nobody listens.
    Refused,
    /// A connection is accepted, and HTTP is answered with 503.
    Sick,
    /// A connection is accepted, and HTTP is answered with 200.
    Fine,
}

/// The in-memory runtime. See the module's documentation.
#[derive(Debug)]
pub struct MemoryRuntime {
    world: Mutex<World>,
    faults: Mutex<Faults>,
    clock: Arc<dyn Clock>,
    effects: EffectLog,
    /// The label by whose value effects name a container.
    named_by: Option<String>,
    events: Mutex<broadcast::Sender<RuntimeEvent>>,
    /// Touched whenever a container may have ended.
    changed: watch::Sender<()>,
}

impl MemoryRuntime {
    /// An empty host. Effects name a container by its name.
    pub fn new(clock: Arc<dyn Clock>, effects: EffectLog) -> Self {
        Self {
            world: Mutex::default(),
            faults: Mutex::default(),
            clock,
            effects,
            named_by: None,
            events: Mutex::new(broadcast::Sender::new(EVENTS_KEPT)),
            changed: watch::Sender::new(()),
        }
    }

    /// Makes effects and fault rules name a container by the value of this label,
    /// where it has one: `start web` instead of `start podherd-blog-web-3`.
    #[must_use]
    pub fn named_by(mut self, label: &str) -> Self {
        self.named_by = Some(label.to_owned());
        self
    }

    /// The record of effects.
    pub fn effects(&self) -> &EffectLog {
        &self.effects
    }

    /// Looks at the world, or changes it and spreads the news.
    fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        let (result, news) = {
            let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
            world.settle();
            let result = act(&mut world);
            (result, std::mem::take(&mut world.news))
        };
        if !news.is_empty() {
            let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
            for event in news {
                // Nobody may be listening.
                let _ = events.send(event);
            }
            self.changed.send_replace(());
        }
        result
    }

    fn with_faults<T>(&self, act: impl FnOnce(&mut Faults) -> T) -> T {
        act(&mut self.faults.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn effect_name(&self, spec: &ContainerSpec) -> String {
        let label = self.named_by.as_ref().and_then(|key| spec.labels.get(key));
        label.unwrap_or(&spec.name).clone()
    }

    fn name_of(&self, id_or_name: &str) -> String {
        let named = |record: &Record| self.effect_name(&record.spec);
        self.with(|world| world.find(id_or_name).map(named))
            .unwrap_or_else(|| id_or_name.to_owned())
    }

    // Images.

    /// Offers an image in the registry under this reference.
    pub fn push_image(&self, reference: &str, image: MemoryImage) {
        self.with(|world| world.images.push(reference, image));
    }

    /// Makes an image local without a registry.
    pub fn load_image(&self, reference: &str, image: MemoryImage) {
        self.with(|world| world.images.load(reference, image));
    }

    /// Takes a local image's name away, and with its last one the image, as `podman rmi`.
    pub fn prune_image(&self, reference: &str) {
        self.with(|world| world.images.forget_local(reference));
    }

    /// Whether the registry answers.
    pub fn set_registry_down(&self, down: bool) {
        self.with(|world| world.images.set_registry_down(down));
    }

    /// Makes the registry refuse this reference to us.
    pub fn deny_image(&self, reference: &str) {
        self.with(|world| world.images.deny(reference));
    }

    // What is there.

    /// All containers, in the order of their creation.
    pub fn containers(&self) -> Vec<Container> {
        self.with(|world| world.records().map(Record::shown).collect())
    }

    /// One container by ID or name, without a call of the trait.
    pub fn container(&self, id_or_name: &str) -> Option<Container> {
        self.with(|world| world.find(id_or_name).map(Record::shown))
    }

    /// What a container was created from.
    pub fn spec(&self, id_or_name: &str) -> Option<ContainerSpec> {
        self.with(|world| world.find(id_or_name).map(|record| record.spec.clone()))
    }

    /// Names of all volumes.
    pub fn volumes(&self) -> Vec<String> {
        self.with(|world| world.volumes.keys().cloned().collect())
    }

    /// Names of all networks.
    pub fn networks(&self) -> Vec<String> {
        self.with(|world| world.networks.keys().cloned().collect())
    }

    /// A network by name.
    pub fn network_of(&self, name: &str) -> Option<Network> {
        self.with(|world| world.networks.get(name).cloned())
    }

    /// Every moment at which two running containers held one volume read-write.
    pub fn violations(&self) -> Vec<String> {
        self.with(|world| world.violations.clone())
    }

    /// What a client of this host address gets, and who answers.
    pub fn reply_at(
        &self,
        address: SocketAddr,
        protocol: Protocol,
    ) -> (Reply, Option<ContainerId>) {
        self.with(|world| match world.at(address, protocol) {
            Some(record) if record.is_ready() => (Reply::Fine, Some(record.id.clone())),
            Some(record) if record.listens() => (Reply::Sick, Some(record.id.clone())),
            _ => (Reply::Refused, None),
        })
    }

    /// The same for a probe: the first one of an execution is an effect, `probe web`.
    pub(crate) fn probe_at(&self, address: SocketAddr) -> Reply {
        let new = self.with(|world| {
            let record = world
                .at(address, Protocol::Tcp)
                .filter(|record| !record.probed)?;
            record.probed = true;
            Some(self.effect_name(&record.spec))
        });
        if let Some(name) = new {
            self.effects.push(format!("probe {name}"));
        }
        self.reply_at(address, Protocol::Tcp).0
    }

    // What others do behind the controller's back. None of it is an effect.

    /// The process ends by itself.
    pub fn crash(&self, id_or_name: &str, code: i32) {
        self.with(|world| world.end(id_or_name, code, false));
    }

    /// The kernel ends the process for lack of memory.
    pub fn run_out_of_memory(&self, id_or_name: &str) {
        self.with(|world| world.end(id_or_name, 137, true));
    }

    /// Somebody removes the container.
    pub fn remove_by_hand(&self, id_or_name: &str) {
        self.with(|world| world.remove(id_or_name));
    }

    /// Somebody starts the container.
    pub fn start_by_hand(&self, id_or_name: &str) {
        let now = self.clock.now();
        self.with(|world| world.start(id_or_name, now));
    }

    /// Somebody restarts the container; its first port may have moved meanwhile. One that
    /// is paused can't be restarted.
    pub fn restart_by_hand(&self, id_or_name: &str, moved_to: Option<u16>) {
        let now = self.clock.now();
        self.with(|world| {
            let paused = |record: &Record| record.state == ContainerState::Paused;
            if world.find(id_or_name).is_some_and(paused) {
                return;
            }
            world.end(id_or_name, 0, false);
            if let (Some(host), Some(record)) = (moved_to, world.find_mut(id_or_name))
                && let Some(port) = record.ports.first_mut()
            {
                port.host = host;
            }
            world.start(id_or_name, now);
        });
    }

    /// Somebody pauses the container: no signal but SIGKILL reaches it until it goes on.
    pub fn pause_by_hand(&self, id_or_name: &str) {
        self.with(|world| world.freeze(id_or_name, true));
    }

    /// Somebody lets the paused container go on.
    pub fn unpause_by_hand(&self, id_or_name: &str) {
        self.with(|world| world.freeze(id_or_name, false));
    }

    /// Somebody creates and starts a container.
    pub fn run_by_hand(&self, spec: &ContainerSpec) -> ContainerId {
        let now = self.clock.now();
        self.with(|world| {
            let id = world.create(spec);
            world.start(id.as_str(), now);
            id
        })
    }

    /// Somebody creates a volume.
    pub fn add_volume(&self, name: &str, labels: &Labels) {
        self.with(|world| world.volumes.insert(name.to_owned(), labels.clone()));
    }

    /// Somebody creates a secret, or deletes it and creates it again.
    pub fn set_secret(&self, name: &str, value: &str) {
        let now = self.clock.now();
        self.with(|world| {
            world.secrets.remove(name);
            let none = Labels::new();
            world.secrets.create(name, value.as_bytes(), &none, now)
        });
    }

    /// Somebody deletes a secret.
    pub fn delete_secret(&self, name: &str) {
        self.with(|world| world.secrets.remove(name));
    }

    /// Names of all secrets.
    pub fn secret_names(&self) -> Vec<String> {
        let secrets = self.with(|world| world.secrets.list());
        secrets.into_iter().map(|secret| secret.name).collect()
    }

    /// What a process in the container sees in this environment variable, or in the
    /// file at this path, of a secret.
    pub fn seen(&self, id_or_name: &str, variable_or_path: &str) -> Option<String> {
        self.with(|world| world.find(id_or_name)?.seen.value(variable_or_path))
    }

    /// Somebody creates a network.
    pub fn add_network(&self, name: &str, network: &Network) {
        self.with(|world| world.networks.insert(name.to_owned(), network.clone()));
    }

    /// Somebody removes a network.
    pub fn remove_network_by_hand(&self, name: &str) {
        self.with(|world| world.networks.remove(name));
    }

    /// From now on containers get what they ask for in limits and privileges, or nothing
    /// of it, as on a host without the cgroups.
    pub fn set_ignores_limits(&self, ignores: bool) {
        self.with(|world| world.ignores_limits = ignores);
    }

    /// A process outside of all containers takes a host port, unless a container has it.
    pub fn occupy_port(&self, protocol: Protocol, host: u16) {
        self.with(|world| {
            if world.is_free(protocol, host) {
                world.occupied.insert((protocol, host));
            }
        });
    }

    /// That process leaves the port.
    pub fn free_port(&self, protocol: Protocol, host: u16) {
        self.with(|world| world.occupied.remove(&(protocol, host)));
    }

    /// The container prints a line.
    pub fn print(&self, id_or_name: &str, line: &str) {
        self.with(|world| {
            if let Some(record) = world.find_mut(id_or_name) {
                record.print(line);
            }
        });
    }

    /// From now on the container behaves like this.
    pub fn set_behaviour(&self, id_or_name: &str, behaves: Behaviour) {
        self.with(|world| {
            if let Some(record) = world.find_mut(id_or_name) {
                record.behaves = behaves;
            }
        });
    }

    /// Its probes fail until it is started again.
    pub fn sicken(&self, id_or_name: &str) {
        self.with(|world| {
            if let Some(record) = world.find_mut(id_or_name) {
                record.sick = record.started_at;
            }
        });
    }

    /// From now on commands run in the container end with this code. Before that,
    /// they end with 0 when the container is ready and with 1 when it isn't.
    pub fn set_exec_code(&self, id_or_name: &str, code: i64) {
        self.with(|world| {
            if let Some(record) = world.find_mut(id_or_name) {
                record.exec_code = Some(code);
            }
        });
    }

    // Faults.

    /// The next such call fails with this error and has no effect. Queued.
    pub fn fail_next(&self, call: Call, error: RuntimeError) {
        self.with_faults(|faults| faults.queue(call, Fault::Fails(error)));
    }

    /// The next such call takes effect, but the caller only learns that the
    /// connection broke. Queued.
    pub fn lose_reply_of_next(&self, call: Call) {
        self.with_faults(|faults| faults.queue(call, Fault::LosesReply));
    }

    /// Every such call asks this rule, which sees what the call is about as effects
    /// name it. An error makes the call fail without effect.
    pub fn fail_when(
        &self,
        call: Call,
        rule: impl FnMut(&str) -> Option<RuntimeError> + Send + 'static,
    ) {
        self.with_faults(|faults| faults.add_rule(call, Box::new(rule)));
    }

    /// Whether nothing can be reached.
    pub fn set_down(&self, down: bool) {
        self.with_faults(|faults| faults.set_down(down));
        if down {
            self.end_events();
        }
    }

    /// Forgets all scripted faults.
    pub fn clear_faults(&self) {
        self.with_faults(Faults::clear);
    }

    /// Ends every event stream, as a restart of the service does.
    pub fn end_events(&self) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        *events = broadcast::Sender::new(EVENTS_KEPT);
    }
}
