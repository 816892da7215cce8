//! The [`Runtime`] trait on Podman.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use podman_api::opts::{
    ContainerDeleteOpts, ContainerListFilter, ContainerListOpts, NetworkCreateOpts,
    VolumeCreateOpts,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::super::{
    Container, ContainerSpec, ContainerState, ContainerSummary, Image, Labels, Network, PullReport,
    Runtime, RuntimeError, RuntimeEvents, Secret, SecretValue, Volume, Wanted,
};
use super::fault::{Fault, unreadable};
use super::inspect::state;
use super::ports;
use super::socket::Repeat;
use super::streams::no_container;
use super::{Podman, bounded, create, faulty};
use crate::manifest::Protocol;
use crate::state::ContainerId;

/// Longest single wait; between two of them the container is looked at.
const WAIT: Duration = Duration::from_secs(5);
/// How long the clean-up after an end is waited for.
const CLEAN_UP: Duration = Duration::from_secs(5);
/// How long the forwarding of ports may outlive the clean-up without root.
const FORWARDING: Duration = Duration::from_secs(1);
/// How long a wait survives a service that can't be reached.
const AWAY: Duration = Duration::from_secs(10);
/// Pause before such a service is asked again.
const AGAIN: Duration = Duration::from_millis(50);
/// Lists that a container's removal may spoil before one is believed to fail.
const LISTS: usize = 3;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Created {
    id: String,
}

fn name_in_use(what: &'static str, name: &str) -> RuntimeError {
    RuntimeError::NameInUse {
        what,
        name: name.to_owned(),
    }
}

fn missing(what: &'static str, name: &str) -> RuntimeError {
    RuntimeError::NotFound {
        what,
        name: name.to_owned(),
    }
}

/// Podman's message names it: `no secret with name or id "NAME": no such secret`.
fn no_secret(fault: &Fault) -> RuntimeError {
    let named = match fault {
        Fault::Said { message, .. } => message.split('"').nth(1),
        Fault::Lost(_) => None,
    };
    missing("secret", named.unwrap_or("one that the container needs"))
}

impl Podman {
    async fn list_once(&self, labels: &Labels) -> Result<Vec<ContainerSummary>, Fault> {
        let label = |(key, value): (&String, &String)| {
            ContainerListFilter::LabelKeyVal(key.clone(), value.clone())
        };
        let mut options = ContainerListOpts::builder().all(true);
        if !labels.is_empty() {
            options = options.filter(labels.iter().map(label));
        }
        let found = faulty(self.api.containers().list(&options.build()).await)?;
        let summaries = found.into_iter().map(|container| {
            let id = container.id.ok_or_else(unreadable)?;
            let name = container.names.and_then(|names| names.into_iter().next());
            Ok(ContainerSummary {
                id: ContainerId::new(id),
                name: name.unwrap_or_default(),
                labels: container.labels.unwrap_or_default().into_iter().collect(),
                state: state(container.state.as_deref().unwrap_or_default()),
            })
        });
        // Not every Podman filters by everything that it is asked for.
        let carries = |found: &ContainerSummary| {
            let own = &found.labels;
            labels
                .iter()
                .all(|(key, value)| own.get(key) == Some(value))
        };
        summaries
            .filter(|found| found.as_ref().map_or(true, carries))
            .collect()
    }

    /// Gives Podman a moment to clean up after a process that ended. A container that is
    /// started before keeps its network, but without root not the forwarding of its ports,
    /// which ends with the process.
    async fn cleaned_up(&self, id: &ContainerId) {
        if rustix::process::geteuid().is_root() {
            return;
        }
        let found = self.look(id.as_str()).await;
        if !matches!(found, Ok(Some(now)) if now.state == ContainerState::Exited) {
            return;
        }
        let path =
            format!("/containers/{id}/wait?condition=exited&condition=configured&interval=20ms");
        let wait = self.socket.post::<Value>(&path, None, Repeat::Safe);
        // Should that never come, the start shows what follows.
        let _ = timeout(CLEAN_UP, wait).await;
        // Podman says so a moment before the forwarding has really ended.
        sleep(FORWARDING).await;
    }

    /// One wait for the end, until it comes or the time is over.
    async fn wait_once(&self, id: &ContainerId, within: Duration) -> Result<(), Fault> {
        let path =
            format!("/containers/{id}/wait?condition=stopped&condition=exited&interval=20ms");
        let wait = self.socket.post::<Value>(&path, None, Repeat::Safe);
        // Time over: the caller looks.
        timeout(within, wait)
            .await
            .map_or(Ok(()), |ended| ended.map(drop))
    }
}

#[async_trait]
impl Runtime for Podman {
    async fn ping(&self) -> Result<(), RuntimeError> {
        let answer = bounded("ping", self.deadlines.look, self.api.ping()).await?;
        faulty(answer)
            .map(drop)
            .map_err(|fault| fault.of_call("ping"))
    }

    async fn port_is_free(&self, protocol: Protocol, port: u16) -> Result<bool, RuntimeError> {
        Ok(ports::is_free(protocol, port))
    }

    async fn image(
        &self,
        reference: &str,
        wanted: Wanted<'_>,
        report: &PullReport,
    ) -> Result<Image, RuntimeError> {
        match wanted {
            Wanted::ByPolicy(policy) => self.image_by_policy(reference, policy, report).await,
            Wanted::Exactly(digest) => self.image_by_digest(reference, digest, report).await,
            Wanted::Present(digest) => self.image_present(reference, digest).await,
        }
    }

    async fn list(&self, labels: &Labels) -> Result<Vec<ContainerSummary>, RuntimeError> {
        let mut tries = LISTS;
        loop {
            let list = bounded("list", self.deadlines.look, self.list_once(labels)).await?;
            tries -= 1;
            match list {
                // One was removed while Podman went through them.
                Err(fault) if tries > 0 && fault.says(&["no such container"]) => {}
                list => return list.map_err(|fault| fault.of_call("list")),
            }
        }
    }

    async fn inspect(&self, id_or_name: &str) -> Result<Option<Container>, RuntimeError> {
        self.look(id_or_name).await
    }

    async fn check_user_ids(&self) -> Result<(), RuntimeError> {
        bounded(
            "check user IDs",
            self.deadlines.look,
            self.look_for_user_ids(),
        )
        .await?
    }

    async fn create(&self, spec: &ContainerSpec) -> Result<ContainerId, RuntimeError> {
        let body = create::body(spec).map_err(|message| RuntimeError::Refused {
            call: "create",
            message,
        })?;
        let created = bounded(
            "create",
            self.deadlines.create,
            self.socket
                .post::<Created>("/containers/create", Some(&body), Repeat::Never),
        );
        let fault = match created.await? {
            Ok(created) => return Ok(ContainerId::new(created.id)),
            Err(fault) => fault,
        };
        // Podman answers 500 to most of these.
        if fault.says(&["already in use"]) && fault.says(&["name"]) {
            return Err(name_in_use("container", &spec.name));
        }
        if fault.says(&["image not known", "no such image"]) {
            return Err(missing("image", &spec.image_id));
        }
        if fault.says(&["network not found", "unable to find network"]) {
            let names: Vec<_> = spec.networks.iter().map(|network| &*network.name).collect();
            return Err(missing("network", &names.join(" or ")));
        }
        if fault.says(&["no such secret"]) {
            return Err(no_secret(&fault));
        }
        if fault.says(&["enough available ids", "enough unused ids"]) {
            return Err(RuntimeError::NoUserIds);
        }
        if fault.says(&["address already in use"])
            && let Fault::Said { message, .. } = fault
        {
            return Err(RuntimeError::PortInUse { message });
        }
        Err(fault.of_call("create"))
    }

    async fn start(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let container = self.api.containers().get(id.as_str());
        let start = async {
            self.cleaned_up(id).await;
            container.start(None).await
        };
        let started = bounded("start", self.deadlines.start, start).await?;
        let fault = match faulty(started) {
            Ok(()) => return Ok(()),
            Err(fault @ Fault::Lost(_)) => return Err(fault.of_call("start")),
            Err(fault) => fault,
        };
        let Some(now) = self.look(id.as_str()).await? else {
            return Err(no_container(id));
        };
        if now.state == ContainerState::Running {
            return Ok(());
        }
        if fault.says(&["no such secret"]) {
            return Err(no_secret(&fault));
        }
        if fault.says(&["address already in use", "port is already allocated"])
            && let Fault::Said { message, .. } = fault
        {
            return Err(RuntimeError::PortInUse { message });
        }
        Err(fault.of_call("start"))
    }

    async fn signal(&self, id: &ContainerId, signal: &str) -> Result<(), RuntimeError> {
        let container = self.api.containers().get(id.as_str());
        let sent = container.send_signal(signal);
        let sent = bounded("signal", self.deadlines.signal, sent).await?;
        let fault = match faulty(sent) {
            Ok(()) => return Ok(()),
            Err(fault @ Fault::Lost(_)) => return Err(fault.of_call("signal")),
            Err(fault) => fault,
        };
        match self.look(id.as_str()).await? {
            Some(now) if now.state.may_run() => Err(fault.of_call("signal")),
            _ => Ok(()),
        }
    }

    async fn wait_stopped(&self, id: &ContainerId, within: Duration) -> Result<bool, RuntimeError> {
        let end = Instant::now() + within;
        // A service that is being restarted doesn't end the wait.
        let mut reached = Instant::now();
        loop {
            match self.look(id.as_str()).await {
                Ok(None) => return Ok(true),
                Ok(Some(now)) if !now.state.may_run() => return Ok(true),
                Ok(Some(_)) => reached = Instant::now(),
                Err(error) if reached.elapsed() >= AWAY || !error.is_ambiguous() => {
                    return Err(error);
                }
                Err(error) => {
                    if Instant::now() >= end {
                        return Err(error);
                    }
                    sleep(AGAIN).await;
                    continue;
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            if self.wait_once(id, left.min(WAIT)).await.is_err() {
                sleep(AGAIN.min(left)).await;
            }
        }
    }

    async fn remove(&self, id: &ContainerId, force: bool) -> Result<(), RuntimeError> {
        let container = self.api.containers().get(id.as_str());
        // Both said expressly; `v` takes anonymous volumes only.
        let mut options = ContainerDeleteOpts::builder().force(force).volumes(true);
        if force {
            // Whoever asks for force has given the grace already.
            options = options.timeout(0);
        }
        let options = options.build();
        let removed = container.delete(&options);
        let removed = bounded("remove", self.deadlines.remove, removed).await?;
        let fault = match faulty(removed) {
            Err(fault @ Fault::Lost(_)) => return Err(fault.of_call("remove")),
            Err(fault) => fault,
            // A report may carry an error in spite of its 200.
            Ok(()) => Fault::said(
                500,
                "Podman reported success, but the container is still there",
            ),
        };
        match self.look(id.as_str()).await? {
            None => Ok(()),
            Some(_) => Err(fault.of_call("remove")),
        }
    }

    async fn logs(
        &self,
        id: &ContainerId,
        lines: usize,
        execution: Option<Timestamp>,
    ) -> Result<Vec<String>, RuntimeError> {
        self.log_tail(id, lines, execution).await
    }

    async fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        within: Duration,
    ) -> Result<i64, RuntimeError> {
        self.run_in(id, command, within).await
    }

    async fn healthcheck(&self, id: &ContainerId, within: Duration) -> Result<bool, RuntimeError> {
        self.check_health(id, within).await
    }

    async fn volume(&self, name: &str) -> Result<Option<Labels>, RuntimeError> {
        let volume = self.api.volumes().get(name);
        let found = bounded("inspect volume", self.deadlines.look, volume.inspect()).await?;
        match faulty(found) {
            Ok(found) if found.name != name => Ok(None),
            Ok(found) => Ok(Some(found.labels.into_iter().collect())),
            Err(fault) if fault.is_missing() => Ok(None),
            Err(fault) => Err(fault.of_call("inspect volume")),
        }
    }

    async fn create_volume(&self, name: &str, labels: &Labels) -> Result<(), RuntimeError> {
        let options = VolumeCreateOpts::builder()
            .name(name)
            .labels(labels)
            .build();
        let volumes = self.api.volumes();
        let created = volumes.create(&options);
        let created = bounded("create volume", self.deadlines.create, created).await?;
        match faulty(created) {
            Ok(_) => Ok(()),
            Err(fault) if fault.says(&["already exists"]) => Err(name_in_use("volume", name)),
            Err(fault) => Err(fault.of_call("create volume")),
        }
    }

    async fn volumes(&self) -> Result<Vec<Volume>, RuntimeError> {
        Box::pin(self.list_volumes()).await
    }

    async fn remove_volume(&self, name: &str) -> Result<(), RuntimeError> {
        self.delete_volume(name).await
    }

    async fn secrets(&self) -> Result<Vec<Secret>, RuntimeError> {
        self.list_secrets().await
    }

    async fn secret(&self, name: &str) -> Result<Option<Labels>, RuntimeError> {
        self.look_at_secret(name).await
    }

    async fn create_secret(
        &self,
        name: &str,
        value: &SecretValue,
        labels: &Labels,
    ) -> Result<(), RuntimeError> {
        self.make_secret(name, value, labels).await
    }

    async fn remove_secret(&self, name: &str) -> Result<(), RuntimeError> {
        self.delete_secret(name).await
    }

    async fn network(&self, name: &str) -> Result<Option<Network>, RuntimeError> {
        let network = self.api.networks().get(name);
        let found = bounded("inspect network", self.deadlines.look, network.inspect()).await?;
        match faulty(found) {
            // Podman also answers to the first digits of an ID.
            Ok(found) if found.name.as_deref() != Some(name) => Ok(None),
            Ok(found) => Ok(Some(Network {
                labels: found.labels.unwrap_or_default().into_iter().collect(),
                internal: found.internal.unwrap_or_default(),
            })),
            Err(fault) if fault.is_missing() => Ok(None),
            Err(fault) => Err(fault.of_call("inspect network")),
        }
    }

    async fn create_network(&self, name: &str, network: &Network) -> Result<(), RuntimeError> {
        let options = NetworkCreateOpts::builder()
            .name(name)
            .driver("bridge")
            .dns_enabled(true)
            .internal(network.internal)
            .labels(&network.labels)
            .build();
        let networks = self.api.networks();
        let created = networks.create(&options);
        let created = bounded("create network", self.deadlines.create, created).await?;
        match faulty(created) {
            Ok(_) => Ok(()),
            Err(fault) if fault.says(&["already used", "already exists"]) => {
                Err(name_in_use("network", name))
            }
            Err(fault) => Err(fault.of_call("create network")),
        }
    }

    async fn remove_network(&self, name: &str) -> Result<(), RuntimeError> {
        // Exactly this one: Podman also takes the first digits of an ID.
        if self.network(name).await?.is_none() {
            return Ok(());
        }
        // `delete` isn't forced; `remove` is, and takes the containers along.
        let network = self.api.networks().get(name);
        let removed = bounded("remove network", self.deadlines.remove, network.delete()).await?;
        let fault = match faulty(removed) {
            Err(fault @ Fault::Lost(_)) => return Err(fault.of_call("remove network")),
            Err(fault) => fault,
            Ok(reports) => {
                let error = reports.into_iter().find_map(|report| report.err);
                Fault::said(500, error.as_deref().unwrap_or("it is still there"))
            }
        };
        if self.network(name).await?.is_none() {
            return Ok(());
        }
        if fault.says(&["being used", "associated containers"]) {
            return Err(RuntimeError::InUse {
                what: "network",
                name: name.to_owned(),
            });
        }
        Err(fault.of_call("remove network"))
    }

    async fn events(&self, label: &str) -> Result<RuntimeEvents, RuntimeError> {
        self.event_stream(label).await
    }
}
