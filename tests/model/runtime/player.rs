//! Makes the calls on a runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use podherd::manifest::{Protocol, PullPolicy};
use podherd::runtime::{
    Container, ContainerSpec, ContainerState, Image, Labels, Network, NetworkAttachment,
    PortMapping, Runtime, RuntimeError, SecretEnv, SecretMount, SecretValue, VolumeAttachment,
};
use podherd::state::{ContainerId, Digest};
use tokio::time::{Instant, sleep};

use super::answer::{Executions, LABEL, label, told};
use super::calls::{Call, FOREIGN, Hand, Kind, Made, NETWORKS, SECRETS, VOLUMES};

/// How long something may take that will surely come.
const SOON: Duration = Duration::from_secs(20);
/// How long it is looked whether a process leaves that should stay.
const LINGERS: Duration = Duration::from_millis(300);

/// A runtime, and what the trait can't ask of it.
#[async_trait]
pub trait Backend: Send + Sync {
    fn runtime(&self) -> &dyn Runtime;
    /// Whether it comes about is seen afterwards.
    async fn by_hand(&self, hand: Hand, name: &str);
    fn occupy(&self, protocol: Protocol, port: u16);
    fn leave(&self, protocol: Protocol, port: u16);
    async fn tag(&self, reference: &str, name: &str);
    async fn untag(&self, name: &str);
}

/// Makes the calls on an empty host, and answers what it said.
pub async fn play(backend: &dyn Backend, calls: &[Call]) -> Vec<String> {
    let mut player = Player::begin(backend).await;
    let mut answers = Vec::new();
    for call in calls {
        answers.push(player.make(call).await);
    }
    player.clear().await;
    answers
}

struct Player<'b> {
    backend: &'b dyn Backend,
    runtime: &'b dyn Runtime,
    images: BTreeMap<&'static str, Image>,
    /// The container last made under each name.
    made: BTreeMap<&'static str, (ContainerId, Kind)>,
    executions: Executions,
    /// The paused ones that leave when they go on.
    awaited: BTreeSet<&'static str>,
    /// The versions of secrets, in the order in which they were seen.
    versions: Vec<String>,
}

impl<'b> Player<'b> {
    async fn begin(backend: &'b dyn Backend) -> Self {
        let runtime = backend.runtime();
        let mut images = BTreeMap::new();
        for kind in Kind::ALL {
            let image = runtime.ensure_image(kind.reference(), PullPolicy::Never);
            images.insert(kind.reference(), image.await.unwrap());
        }
        Self {
            backend,
            runtime,
            images,
            made: BTreeMap::new(),
            executions: Executions::default(),
            awaited: BTreeSet::new(),
            versions: Vec::new(),
        }
    }

    /// Leaves an empty host.
    async fn clear(&self) {
        for found in self.runtime.list(&Labels::new()).await.unwrap() {
            if found.state == ContainerState::Paused {
                self.backend.by_hand(Hand::Unpause, &found.name).await;
            }
            self.runtime.remove(&found.id, true).await.unwrap();
        }
        for name in VOLUMES {
            self.runtime.remove_volume(name).await.unwrap();
        }
        for name in NETWORKS {
            self.runtime.remove_network(name).await.unwrap();
        }
        for name in SECRETS {
            self.runtime.remove_secret(name).await.unwrap();
        }
        self.backend.untag(FOREIGN).await;
    }

    async fn make(&mut self, call: &Call) -> String {
        match call {
            Call::Create(name, made) => self.create(name, made).await,
            Call::Start(name) => {
                let started = told(self.runtime.start(&self.id(name)).await);
                self.settle(name).await;
                self.with_look(name, started).await
            }
            Call::Signal(name, signal) => self.signal(name, signal).await,
            Call::WaitStopped(name) => {
                let waited = self.runtime.wait_stopped(&self.id(name), LINGERS).await;
                self.with_look(name, told(waited)).await
            }
            Call::Remove(name, force) => {
                let removed = told(self.runtime.remove(&self.id(name), *force).await);
                self.with_look(name, removed).await
            }
            Call::Inspect(name) => {
                let found = self.runtime.inspect(name).await;
                told(found.map(|found| found.map(|found| self.executions.container(&found))))
            }
            Call::List(wanted) => self.list(*wanted).await,
            Call::Logs(name, lines) => told(self.runtime.logs(&self.id(name), *lines, None).await),
            Call::Exec(name) => {
                let command = ["/bin/test", "-e", "/bin/sh"].map(str::to_owned);
                told(self.runtime.exec(&self.id(name), &command, SOON).await)
            }
            Call::Healthcheck(name) => self.healthcheck(name).await,
            Call::ByHand(hand, name) => self.by_hand(*hand, name).await,
            call => self.make_without_container(call).await,
        }
    }

    async fn make_without_container(&mut self, call: &Call) -> String {
        let runtime = self.runtime;
        match *call {
            Call::CreateVolume(name) => told(runtime.create_volume(name, &labels("x")).await),
            Call::Volume(name) => {
                let found = runtime.volume(name).await;
                told(found.map(|found| found.map(|own| label(&own).map(str::to_owned))))
            }
            Call::Volumes => {
                let found = runtime.volumes().await;
                told(found.map(|found| {
                    let mut found: Vec<_> = found
                        .into_iter()
                        .map(|it| {
                            format!("{} {:?} in use {}", it.name, label(&it.labels), it.in_use)
                        })
                        .collect();
                    found.sort();
                    found
                }))
            }
            Call::RemoveVolume(name) => told(runtime.remove_volume(name).await),
            Call::CreateSecret(name) => {
                let value = SecretValue::new(b"value".to_vec()).unwrap();
                told(runtime.create_secret(name, &value, &labels("x")).await)
            }
            Call::Secret(name) => {
                let found = runtime.secret(name).await;
                told(found.map(|found| found.map(|own| label(&own).map(str::to_owned))))
            }
            Call::Secrets => self.secrets().await,
            Call::RemoveSecret(name) => told(runtime.remove_secret(name).await),
            Call::CreateNetwork(name, internal) => {
                let network = Network {
                    labels: labels("x"),
                    internal,
                };
                told(runtime.create_network(name, &network).await)
            }
            Call::Network(name) => told(runtime.network(name).await),
            Call::RemoveNetwork(name) => told(runtime.remove_network(name).await),
            Call::PortIsFree(protocol, port) => told(runtime.port_is_free(protocol, port).await),
            Call::Image(reference, policy) => {
                self.image(runtime.ensure_image(reference, policy).await)
            }
            Call::Pinned(reference, ours) => {
                let digest = if ours {
                    self.images[Kind::Web.reference()].digest.clone()
                } else {
                    Digest::new(format!("sha256:{:064}", 7))
                };
                self.image(runtime.ensure_pinned(reference, &digest).await)
            }
            Call::Occupy(protocol, port) => {
                self.backend.occupy(protocol, port);
                String::new()
            }
            Call::Leave(protocol, port) => {
                self.backend.leave(protocol, port);
                String::new()
            }
            Call::Tag => {
                self.backend.tag(Kind::Web.reference(), FOREIGN).await;
                String::new()
            }
            Call::Untag => {
                self.backend.untag(FOREIGN).await;
                String::new()
            }
            ref call => unreachable!("{call:?} is about a container"),
        }
    }

    async fn create(&mut self, name: &'static str, made: &Made) -> String {
        let created = self.runtime.create(&self.spec(name, made)).await;
        let answer = told(created.map(|id| {
            self.made.insert(name, (id, made.image));
        }));
        self.with_look(name, answer).await
    }

    fn spec(&self, name: &str, made: &Made) -> ContainerSpec {
        let image = self.images.get(made.image.reference());
        let nobody = || "0123456789abcdef".repeat(4);
        ContainerSpec {
            name: name.to_owned(),
            hostname: "web".to_owned(),
            image_id: image.map_or_else(nobody, |image| image.id.clone()),
            labels: labels(made.label),
            volumes: made.volume.into_iter().map(volume).collect(),
            networks: made.networks.iter().map(|name| network(name)).collect(),
            ports: made
                .ports
                .iter()
                .map(|(protocol, host_ip, host)| PortMapping {
                    container: 8080,
                    protocol: *protocol,
                    host_ip: *host_ip,
                    host: *host,
                })
                .collect(),
            secret_env: made.secret_env.into_iter().map(secret_env).collect(),
            secret_files: made.secret_file.into_iter().map(secret_file).collect(),
            stop_timeout: Duration::from_secs(1),
            ..ContainerSpec::default()
        }
    }

    async fn signal(&mut self, name: &'static str, signal: &str) -> String {
        let id = self.id(name);
        let within = self.time_to_leave(name, signal).await;
        let sent = told(self.runtime.signal(&id, signal).await);
        let stopped = told(self.runtime.wait_stopped(&id, within).await);
        self.with_look(name, format!("{sent}, stopped {stopped}"))
            .await
    }

    /// How long to wait for the end that this signal may bring.
    async fn time_to_leave(&mut self, name: &'static str, signal: &str) -> Duration {
        let kills = signal.ends_with("KILL");
        let ends = kills || signal == "SIGTERM" && self.kind(name) != Kind::Stubborn;
        match self.look(name).await.map(|found| found.state) {
            Some(ContainerState::Paused) if ends && !kills => {
                self.awaited.insert(name);
                LINGERS
            }
            Some(state) if ends && state.may_run() => SOON,
            _ => LINGERS,
        }
    }

    async fn by_hand(&mut self, hand: Hand, name: &'static str) -> String {
        let within = match hand {
            Hand::Kill => Some(self.time_to_leave(name, "KILL").await),
            // What came while it was paused has its effect now.
            Hand::Unpause => Some(if self.awaited.remove(name) {
                SOON
            } else {
                LINGERS
            }),
            _ => None,
        };
        self.backend.by_hand(hand, name).await;
        if let Some(within) = within {
            let _ = self.runtime.wait_stopped(&self.id(name), within).await;
        }
        if matches!(hand, Hand::Start | Hand::Restart) {
            self.settle(name).await;
        }
        self.with_look(name, String::new()).await
    }

    /// Waits until a container that was just started does what it always does.
    async fn settle(&self, name: &str) {
        let id = self.id(name);
        if self.kind(name) == Kind::Exits {
            let _ = self.runtime.wait_stopped(&id, SOON).await;
        }
        let Some(found) = self
            .look(name)
            .await
            .filter(|found| found.started_at.is_some())
        else {
            return;
        };
        if found.state == ContainerState::Paused {
            return;
        }
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            let lines = self.runtime.logs(&id, 1, found.started_at).await;
            if !lines.is_ok_and(|lines| lines.is_empty()) {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn healthcheck(&self, name: &str) -> String {
        let id = self.id(name);
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let checked = self.runtime.healthcheck(&id, SOON).await;
            // Its server may be about to listen.
            if matches!(checked, Ok(false)) && Instant::now() < end {
                sleep(Duration::from_millis(50)).await;
                continue;
            }
            return told(checked);
        }
    }

    async fn list(&self, wanted: Option<&str>) -> String {
        let wanted = wanted.map(labels).unwrap_or_default();
        let found = self.runtime.list(&wanted).await;
        told(found.map(|found| {
            let mut found: Vec<_> = found
                .iter()
                .map(|it| format!("{} {:?} {:?}", it.name, label(&it.labels), it.state))
                .collect();
            found.sort();
            found
        }))
    }

    async fn secrets(&mut self) -> String {
        let found = self.runtime.secrets().await;
        told(found.map(|mut found| {
            found.sort_by(|one, other| one.name.cmp(&other.name));
            let numbered = found.iter().map(|secret| {
                let id = &secret.version.id;
                let seen = self.versions.iter().position(|it| it == id);
                let number = seen.unwrap_or_else(|| {
                    self.versions.push(id.clone());
                    self.versions.len() - 1
                });
                format!("{} version {number}", secret.name)
            });
            numbered.collect::<Vec<_>>()
        }))
    }

    fn image(&self, answer: Result<Image, RuntimeError>) -> String {
        told(answer.map(|image| {
            let of_kind =
                |(_, known): &(&&str, &Image)| known.id == image.id && known.digest == image.digest;
            let known = self.images.iter().find(of_kind).map(|(name, _)| *name);
            (known, image.volumes, image.healthcheck)
        }))
    }

    fn id(&self, name: &str) -> ContainerId {
        let made = self.made.get(name);
        made.map_or_else(|| ContainerId::new("f".repeat(64)), |(id, _)| id.clone())
    }

    fn kind(&self, name: &str) -> Kind {
        self.made.get(name).map_or(Kind::None, |(_, kind)| *kind)
    }

    async fn look(&self, name: &str) -> Option<Container> {
        self.runtime.inspect(self.id(name).as_str()).await.unwrap()
    }

    async fn with_look(&mut self, name: &str, answer: String) -> String {
        let found = self.look(name).await;
        let found = found.map(|found| self.executions.container(&found));
        format!("{answer}; {}", found.unwrap_or_else(|| "none".to_owned()))
    }
}

fn labels(value: &str) -> Labels {
    Labels::from([(LABEL.to_owned(), value.to_owned())])
}

fn volume(name: &str) -> VolumeAttachment {
    VolumeAttachment {
        name: name.to_owned(),
        path: "/data".to_owned(),
        read_only: false,
    }
}

fn network(name: &str) -> NetworkAttachment {
    NetworkAttachment {
        name: name.to_owned(),
        aliases: vec!["web".to_owned()],
    }
}

fn secret_env(name: &str) -> SecretEnv {
    SecretEnv {
        variable: "SECRET".to_owned(),
        secret: name.to_owned(),
    }
}

fn secret_file(name: &str) -> SecretMount {
    SecretMount {
        secret: name.to_owned(),
        path: "/etc/secret".to_owned(),
        mode: 0o400,
        uid: 0,
        gid: 0,
    }
}
