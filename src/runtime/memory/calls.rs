//! The [`Runtime`] trait on the in-memory world.

use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use jiff::Timestamp;
use tokio::time::Instant;
use tokio_stream::wrappers::BroadcastStream;

use super::super::{
    Container, ContainerSpec, ContainerState, ContainerSummary, Image, Labels, Network,
    PullProgress, PullReport, Runtime, RuntimeError, RuntimeEvents, Secret, SecretValue, Volume,
    Wanted,
};
use super::MemoryRuntime;
use super::faults::{Call, unavailable};
use super::world::{Record, Start};
use crate::manifest::{Protocol, signal_number};
use crate::state::ContainerId;

/// Largest answer of a log.
const LOG_BYTES: usize = 64 * 1024;

impl MemoryRuntime {
    /// Runs a call through the scripted faults.
    fn call<T>(
        &self,
        call: Call,
        target: &str,
        act: impl FnOnce() -> Result<T, RuntimeError>,
    ) -> Result<T, RuntimeError> {
        let loses_reply = self.with_faults(|faults| faults.strike(call, target))?;
        let result = act();
        if loses_reply {
            return Err(unavailable(call));
        }
        result
    }

    fn pulled(
        &self,
        reference: &str,
        (image, pulled): (Image, bool),
        report: &PullReport,
    ) -> Image {
        if pulled {
            report.pulling(PullProgress::default());
            self.effects.push(format!("pull {reference}"));
        }
        image
    }
}

fn no_container(id: &ContainerId) -> RuntimeError {
    RuntimeError::NotFound {
        what: "container",
        name: id.to_string(),
    }
}

#[async_trait]
impl Runtime for MemoryRuntime {
    async fn ping(&self) -> Result<(), RuntimeError> {
        self.call(Call::Ping, "", || Ok(()))
    }

    async fn port_is_free(&self, protocol: Protocol, port: u16) -> Result<bool, RuntimeError> {
        self.call(Call::PortIsFree, &port.to_string(), || {
            Ok(self.with(|world| world.is_free(protocol, port)))
        })
    }

    async fn image(
        &self,
        reference: &str,
        wanted: Wanted<'_>,
        report: &PullReport,
    ) -> Result<Image, RuntimeError> {
        let call = match wanted {
            Wanted::ByPolicy(_) => Call::EnsureImage,
            Wanted::Exactly(_) => Call::EnsurePinned,
            Wanted::Present(_) => Call::FindImage,
        };
        self.call(call, reference, || {
            let image = self.with(|world| world.images.obtain(reference, wanted))?;
            Ok(self.pulled(reference, image, report))
        })
    }

    async fn list(&self, labels: &Labels) -> Result<Vec<ContainerSummary>, RuntimeError> {
        self.call(Call::List, "", || {
            Ok(self.with(|world| {
                let carries = |record: &&Record| {
                    let own = &record.spec.labels;
                    labels
                        .iter()
                        .all(|(key, value)| own.get(key) == Some(value))
                };
                world
                    .records()
                    .filter(carries)
                    .map(Record::summary)
                    .collect()
            }))
        })
    }

    async fn inspect(&self, id_or_name: &str) -> Result<Option<Container>, RuntimeError> {
        let name = self.name_of(id_or_name);
        self.call(Call::Inspect, &name, || Ok(self.container(id_or_name)))
    }

    async fn check_user_ids(&self) -> Result<(), RuntimeError> {
        self.call(Call::CheckUserIds, "", || Ok(()))
    }

    async fn create(&self, spec: &ContainerSpec) -> Result<ContainerId, RuntimeError> {
        let name = self.effect_name(spec);
        self.call(Call::Create, &name, || {
            let id = self.with(|world| {
                let missing = |what, name: &str| RuntimeError::NotFound {
                    what,
                    name: name.to_owned(),
                };
                if world.images.by_id(&spec.image_id).is_none() {
                    return Err(missing("image", &spec.image_id));
                }
                if let Some(secret) = world.secrets.missing(spec) {
                    return Err(missing("secret", &secret));
                }
                let mut networks = spec.networks.iter();
                if let Some(network) = networks.find(|it| !world.networks.contains_key(&it.name)) {
                    return Err(missing("network", &network.name));
                }
                if world.find(&spec.name).is_some() {
                    return Err(RuntimeError::NameInUse {
                        what: "container",
                        name: spec.name.clone(),
                    });
                }
                Ok(world.create(spec))
            })?;
            self.effects.push(format!("create {name}"));
            Ok(id)
        })
    }

    async fn start(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let name = self.name_of(id.as_str());
        let now = self.clock.now();
        self.call(Call::Start, &name, || {
            let started = self.with(|world| {
                let record = world.find(id.as_str()).ok_or_else(|| no_container(id))?;
                match record.state {
                    ContainerState::Running => return Ok(Start::WasRunning),
                    ContainerState::Paused => {
                        return Err(RuntimeError::Refused {
                            call: Call::Start.name(),
                            message: "the container is paused".to_owned(),
                        });
                    }
                    _ => {}
                }
                if let Some(secret) = world.secrets.missing_env(&record.spec) {
                    return Err(RuntimeError::NotFound {
                        what: "secret",
                        name: secret,
                    });
                }
                Ok(world.start(id.as_str(), now))
            })?;
            match started {
                Start::WasRunning => Ok(()),
                Start::Started => {
                    self.effects.push(format!("start {name}"));
                    Ok(())
                }
                Start::PortTaken(port) => Err(RuntimeError::PortInUse {
                    message: format!(
                        "listen {} {}:{}: address already in use",
                        port.protocol.as_str(),
                        port.host_ip,
                        port.host
                    ),
                }),
            }
        })
    }

    async fn signal(&self, id: &ContainerId, signal: &str) -> Result<(), RuntimeError> {
        let name = self.name_of(id.as_str());
        self.call(Call::Signal, &name, || {
            let hit = self.with(|world| {
                let up = world.find(id.as_str()).is_some_and(Record::is_up);
                if up && signal_number(signal).is_none() {
                    return Err(RuntimeError::Refused {
                        call: Call::Signal.name(),
                        message: format!("{signal:?} is no signal"),
                    });
                }
                world.signal(id.as_str(), signal);
                Ok(up)
            })?;
            if hit {
                self.effects.push(format!("signal {name} {signal}"));
            }
            Ok(())
        })
    }

    async fn wait_stopped(&self, id: &ContainerId, within: Duration) -> Result<bool, RuntimeError> {
        let name = self.name_of(id.as_str());
        self.call(Call::WaitStopped, &name, || Ok(()))?;
        let end = Instant::now() + within;
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let (up, due) = self.with(|world| {
                let up = world.find(id.as_str()).is_some_and(Record::is_up);
                (up, world.next_change(id.as_str()))
            });
            if !up {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            let until = due.map_or(end, |due| due.min(end));
            tokio::select! {
                biased;
                // The sender lives as long as `self`.
                _ = changed.changed() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    async fn remove(&self, id: &ContainerId, force: bool) -> Result<(), RuntimeError> {
        let name = self.name_of(id.as_str());
        self.call(Call::Remove, &name, || {
            let removed = self.with(|world| match world.find(id.as_str()) {
                None => Ok(false),
                Some(record) if record.is_up() && (!force || record.never_leaves()) => {
                    Err(RuntimeError::Refused {
                        call: Call::Remove.name(),
                        message: format!("{} is running", record.spec.name),
                    })
                }
                Some(_) => {
                    world.remove(id.as_str());
                    Ok(true)
                }
            })?;
            if removed {
                self.effects.push(format!("remove {name}"));
            }
            Ok(())
        })
    }

    async fn logs(
        &self,
        id: &ContainerId,
        lines: usize,
        execution: Option<Timestamp>,
    ) -> Result<Vec<String>, RuntimeError> {
        let name = self.name_of(id.as_str());
        self.call(Call::Logs, &name, || {
            let tail = |record: &Record| record.log_tail(lines, execution);
            let mut found = self
                .with(|world| world.find(id.as_str()).map(tail))
                .ok_or_else(|| no_container(id))?;
            while found.iter().map(String::len).sum::<usize>() > LOG_BYTES {
                found.remove(0);
            }
            Ok(found)
        })
    }

    async fn exec(
        &self,
        id: &ContainerId,
        _command: &[String],
        _within: Duration,
    ) -> Result<i64, RuntimeError> {
        let name = self.name_of(id.as_str());
        self.call(Call::Exec, &name, || {
            self.with(|world| {
                let record = world.find(id.as_str()).ok_or_else(|| no_container(id))?;
                if record.state != ContainerState::Running {
                    return Err(RuntimeError::Refused {
                        call: Call::Exec.name(),
                        message: "the container doesn't run".to_owned(),
                    });
                }
                let by_readiness = i64::from(!record.is_ready());
                Ok(record.exec_code.unwrap_or(by_readiness))
            })
        })
    }

    async fn healthcheck(&self, id: &ContainerId, _within: Duration) -> Result<bool, RuntimeError> {
        let name = self.name_of(id.as_str());
        self.call(Call::Healthcheck, &name, || {
            self.with(|world| {
                let record = world.find(id.as_str()).ok_or_else(|| no_container(id))?;
                let refused = |why: &str| RuntimeError::Refused {
                    call: Call::Healthcheck.name(),
                    message: why.to_owned(),
                };
                if !record.has_healthcheck {
                    return Err(refused("the container has no health check"));
                }
                if record.state != ContainerState::Running {
                    return Err(refused("the container doesn't run"));
                }
                Ok(record.is_ready())
            })
        })
    }

    async fn volume(&self, name: &str) -> Result<Option<Labels>, RuntimeError> {
        self.call(Call::Volume, name, || {
            Ok(self.with(|world| world.volumes.get(name).cloned()))
        })
    }

    async fn create_volume(&self, name: &str, labels: &Labels) -> Result<(), RuntimeError> {
        self.call(Call::CreateVolume, name, || {
            self.with(|world| {
                if world.volumes.contains_key(name) {
                    return Err(RuntimeError::NameInUse {
                        what: "volume",
                        name: name.to_owned(),
                    });
                }
                world.volumes.insert(name.to_owned(), labels.clone());
                Ok(())
            })?;
            self.effects.push(format!("create-volume {name}"));
            Ok(())
        })
    }

    async fn volumes(&self) -> Result<Vec<Volume>, RuntimeError> {
        self.call(Call::Volumes, "", || {
            Ok(self.with(|world| {
                let shown = |(name, labels): (&String, &Labels)| Volume {
                    name: name.clone(),
                    labels: labels.clone(),
                    in_use: world.volume_used(name),
                };
                world.volumes.iter().map(shown).collect()
            }))
        })
    }

    async fn remove_volume(&self, name: &str) -> Result<(), RuntimeError> {
        self.call(Call::RemoveVolume, name, || {
            let removed = self.with(|world| {
                if world.volume_used(name) {
                    return Err(RuntimeError::InUse {
                        what: "volume",
                        name: name.to_owned(),
                    });
                }
                Ok(world.volumes.remove(name).is_some())
            })?;
            if removed {
                self.effects.push(format!("remove-volume {name}"));
            }
            Ok(())
        })
    }

    async fn secrets(&self) -> Result<Vec<Secret>, RuntimeError> {
        self.call(Call::Secrets, "", || {
            Ok(self.with(|world| world.secrets.list()))
        })
    }

    async fn secret(&self, name: &str) -> Result<Option<Labels>, RuntimeError> {
        self.call(Call::Secret, name, || {
            Ok(self.with(|world| world.secrets.labels(name)))
        })
    }

    async fn create_secret(
        &self,
        name: &str,
        value: &SecretValue,
        labels: &Labels,
    ) -> Result<(), RuntimeError> {
        let now = self.clock.now();
        self.call(Call::CreateSecret, name, || {
            let made = self.with(|world| world.secrets.create(name, value.reveal(), labels, now));
            if !made {
                return Err(RuntimeError::NameInUse {
                    what: "secret",
                    name: name.to_owned(),
                });
            }
            self.effects.push(format!("create-secret {name}"));
            Ok(())
        })
    }

    async fn remove_secret(&self, name: &str) -> Result<(), RuntimeError> {
        self.call(Call::RemoveSecret, name, || {
            if self.with(|world| world.secrets.remove(name)) {
                self.effects.push(format!("remove-secret {name}"));
            }
            Ok(())
        })
    }

    async fn network(&self, name: &str) -> Result<Option<Network>, RuntimeError> {
        self.call(Call::Network, name, || {
            Ok(self.with(|world| world.networks.get(name).cloned()))
        })
    }

    async fn create_network(&self, name: &str, network: &Network) -> Result<(), RuntimeError> {
        self.call(Call::CreateNetwork, name, || {
            self.with(|world| {
                if world.networks.contains_key(name) {
                    return Err(RuntimeError::NameInUse {
                        what: "network",
                        name: name.to_owned(),
                    });
                }
                world.networks.insert(name.to_owned(), network.clone());
                Ok(())
            })?;
            self.effects.push(format!("create-network {name}"));
            Ok(())
        })
    }

    async fn remove_network(&self, name: &str) -> Result<(), RuntimeError> {
        self.call(Call::RemoveNetwork, name, || {
            let removed = self.with(|world| {
                if world.network_used(name) {
                    return Err(RuntimeError::InUse {
                        what: "network",
                        name: name.to_owned(),
                    });
                }
                Ok(world.networks.remove(name).is_some())
            })?;
            if removed {
                self.effects.push(format!("remove-network {name}"));
            }
            Ok(())
        })
    }

    async fn events(&self, label: &str) -> Result<RuntimeEvents, RuntimeError> {
        self.call(Call::Events, "", || {
            let label = label.to_owned();
            let receiver = {
                let events = self.events.lock();
                events
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .subscribe()
            };
            let ended = || RuntimeError::Unavailable {
                call: Call::Events.name(),
                message: "the event stream ended".to_owned(),
            };
            let events = BroadcastStream::new(receiver)
                // A reader that lags has lost events: its stream ends.
                .take_while(|event| std::future::ready(event.is_ok()))
                .filter_map(|event| std::future::ready(event.ok()))
                .filter(move |event| std::future::ready(event.labels.contains_key(&label)))
                .map(Ok)
                .chain(futures::stream::once(async move { Err(ended()) }));
            Ok(events.boxed())
        })
    }
}
