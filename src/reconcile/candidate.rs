//! Steps that make a new generation: provision, create, start, inspect, probe.

use std::net::{IpAddr, Ipv4Addr};

use jiff::Timestamp;

use crate::manifest::{Check, Port, ServiceName};
use crate::probe::{ProbeFailure, ProbeFailureKind, wait_ready};
use crate::runtime::{
    Container, ContainerSpec, ContainerState, Labels, NetworkAttachment, PortMapping,
    RuntimeError, TmpfsMount, VolumeAttachment, deadline,
};
use crate::state::{
    Bind, BindClaim, ContainerId, Diagnostics, PinnedService, RevisionNumber, Warning, labels,
};
use crate::store::{Changes, RecordsError};

use super::error::{Failure, ReconcileError, StepError, runtime_failure};
use super::ports::HostPort;
use super::run::Run;

/// How often a candidate is made again because its port turned out taken.
const PORT_TRIES: u32 = 3;
/// How often a refused claim is made again.
const CLAIM_TRIES: u32 = 5;
/// Lines of a failed container's log that the journal keeps.
const LOG_LINES: usize = 50;

/// What a step works on: a container that was made, or the one ACTIVE names.
#[derive(Debug, Clone, Default)]
pub(super) struct Candidate {
    pub revision: RevisionNumber,
    pub container: Option<ContainerId>,
    /// Name of a container that this operation made, and may remove again.
    pub made: Option<String>,
    /// The journal's step that names it.
    pub step: usize,
    pub started_at: Option<Timestamp>,
    pub binds: Vec<Bind>,
}

impl Run<'_> {
    /// Creates the private network and the service's volumes; never takes over
    /// one that isn't this incarnation's.
    pub(super) async fn provision(
        &mut self,
        index: usize,
        service: &ServiceName,
        revision: RevisionNumber,
    ) -> Result<(), StepError> {
        let network = self.network_name();
        let volumes: Vec<String> = self
            .pinned_at(service, revision)?
            .spec
            .volumes
            .iter()
            .map(|volume| self.volume_name(volume.name.as_str()))
            .collect();
        self.ownership.resources.networks.insert(network.clone());
        self.ownership.resources.volumes.extend(volumes.iter().cloned());
        let mut changes = Changes::default();
        changes.put(self.ctx.records.keys().ownership(self.app), &self.ownership)?;
        self.journal.begin(index, changes).await?;
        self.ensure_network(&network).await?;
        for volume in &volumes {
            self.ensure_volume(volume).await?;
        }
        Ok(())
    }

    async fn ensure_network(&self, name: &str) -> Result<(), StepError> {
        let runtime = &self.ctx.runtime;
        let look = |error| runtime_failure(&error);
        let mut found = runtime.network(name).await.map_err(look)?;
        if found.is_none() {
            self.ctx.permit(deadline::CREATE)?;
            let created = runtime.create_network(name, &self.labels(None)).await;
            // Whatever the answer was, what is there now decides.
            found = runtime.network(name).await.map_err(look)?;
            if found.is_none() {
                created.map_err(look)?;
            }
        }
        self.check_owner("network", name, found.as_ref())
    }

    async fn ensure_volume(&self, name: &str) -> Result<(), StepError> {
        let runtime = &self.ctx.runtime;
        let look = |error| runtime_failure(&error);
        let mut found = runtime.volume(name).await.map_err(look)?;
        if found.is_none() {
            self.ctx.permit(deadline::CREATE)?;
            let created = runtime.create_volume(name, &self.labels(None)).await;
            found = runtime.volume(name).await.map_err(look)?;
            if found.is_none() {
                created.map_err(look)?;
            }
        }
        self.check_owner("volume", name, found.as_ref())
    }

    fn check_owner(
        &self,
        what: &str,
        name: &str,
        found: Option<&Labels>,
    ) -> Result<(), StepError> {
        let ours = self.ownership.incarnation.to_string();
        match found.and_then(|labels| labels.get(labels::INCARNATION)) {
            Some(incarnation) if *incarnation == ours => Ok(()),
            _ => Err(Failure::lasting(
                "ForeignResource",
                format!(
                    "{what} {name} exists without this app's labels; it is never taken over: \
                     rename or remove it by hand"
                ),
            )
            .into()),
        }
    }

    /// Creates the candidate; its ports are claimed before, its ID is journaled
    /// with the next step.
    pub(super) async fn create(
        &mut self,
        index: usize,
        service: &ServiceName,
        revision: RevisionNumber,
    ) -> Result<(), StepError> {
        let candidate = Candidate { revision, step: index, ..Candidate::default() };
        self.candidates.insert(service.clone(), candidate);
        self.make(index, service, 1).await
    }

    async fn make(
        &mut self,
        index: usize,
        service: &ServiceName,
        attempt: u32,
    ) -> Result<(), StepError> {
        let candidate = self.candidate(service)?.clone();
        let pinned = self.pinned_at(service, candidate.revision)?.clone();
        let name = self.container_name(service, attempt);
        let ports = self.claim_ports(index, service, &pinned, &name).await?;
        self.candidate_mut(service)?.made = Some(name.clone());
        let image = self
            .ctx
            .runtime
            .ensure_pinned(&pinned.spec.image, &pinned.digest)
            .await
            .map_err(|error| runtime_failure(&error))?;
        let spec = self.container_spec(service, &candidate, &pinned, name.clone(), ports, image.id);
        self.ctx.permit(deadline::CREATE)?;
        let id = match self.ctx.runtime.create(&spec).await {
            Ok(id) => id,
            // A lost reply isn't a failure: the name says whether it was created.
            Err(error) => self.find_made(&name).await?.ok_or_else(|| runtime_failure(&error))?,
        };
        self.candidate_mut(service)?.container = Some(id.clone());
        self.journal.made(index, &id);
        Ok(())
    }

    /// The container of this name, when this operation made it.
    async fn find_made(&self, name: &str) -> Result<Option<ContainerId>, StepError> {
        let found = self.ctx.runtime.inspect(name).await.map_err(|e| runtime_failure(&e))?;
        let operation = self.journal.operation().id.as_str();
        let ours = found.filter(|container| {
            container.labels.get(labels::OPERATION).map(String::as_str) == Some(operation)
        });
        Ok(ours.map(|container| container.id))
    }

    /// Claims a host port for each declared port, in the journal's own write.
    async fn claim_ports(
        &mut self,
        index: usize,
        service: &ServiceName,
        pinned: &PinnedService,
        name: &str,
    ) -> Result<Vec<PortMapping>, StepError> {
        for _ in 0..CLAIM_TRIES {
            let claim = self.bind_claim(service, name);
            let mut changes = Changes::default();
            let mut mappings = Vec::new();
            for port in &pinned.spec.ports {
                let mapping = self.claim_port(port, &claim).await?;
                let key = self.ctx.records.keys().bind(
                    &self.ctx.node,
                    mapping.protocol,
                    mapping.host,
                );
                changes.create(key, &claim)?;
                mappings.push(mapping);
            }
            match self.journal.begin(index, changes).await {
                Ok(()) => return Ok(mappings),
                // Somebody's claim was missing in the index: read it again.
                Err(RecordsError::Conflict { .. }) => self.ctx.ports.reset().await,
                Err(error) => return Err(error.into()),
            }
        }
        Err(Failure::passing("PortInUse", "no host port could be claimed").into())
    }

    fn bind_claim(&self, service: &ServiceName, name: &str) -> BindClaim {
        BindClaim {
            app: self.app.clone(),
            incarnation: self.ownership.incarnation,
            service: service.clone(),
            container_name: name.to_owned(),
            operation: self.journal.operation().id.clone(),
        }
    }

    async fn claim_port(&self, port: &Port, claim: &BindClaim) -> Result<PortMapping, StepError> {
        let ctx = self.ctx;
        let (host_ip, host) = match port.host {
            Some(host) => {
                let fixed = (port.protocol, host);
                let holder = ctx.ports.claim_fixed(&ctx.records, fixed, claim).await?;
                if let Some(holder) = holder.filter(|holder| holder != claim) {
                    let why = format!("host port {host} is held by app {}", holder.app);
                    return Err(Failure::passing("PortInUse", why).into());
                }
                (Ipv4Addr::UNSPECIFIED, host)
            }
            None => {
                let free =
                    ctx.ports.claim_free(&ctx.records, port.protocol, claim, &ctx.entropy).await?;
                let host = free.map_err(|e| Failure::passing("PortsExhausted", e.to_string()))?;
                (Ipv4Addr::LOCALHOST, host)
            }
        };
        Ok(PortMapping {
            container: port.container,
            protocol: port.protocol,
            host_ip: IpAddr::V4(host_ip),
            host,
        })
    }

    fn container_spec(
        &self,
        service: &ServiceName,
        candidate: &Candidate,
        pinned: &PinnedService,
        name: String,
        ports: Vec<PortMapping>,
        image_id: String,
    ) -> ContainerSpec {
        let spec = &pinned.spec;
        let mut labels = self.labels(Some(service));
        labels.insert(labels::REVISION.to_owned(), candidate.revision.to_string());
        labels.insert(labels::OPERATION.to_owned(), self.journal.operation().id.to_string());
        if let Some(revision) = self.revision(candidate.revision) {
            for (key, value) in &revision.labels {
                labels.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        ContainerSpec {
            name,
            hostname: service.to_string(),
            image_id,
            entrypoint: spec.command.clone(),
            command: spec.args.clone(),
            working_dir: spec.working_dir.clone(),
            user: spec.user.clone(),
            env: spec.env.clone(),
            labels,
            ports,
            volumes: spec
                .volumes
                .iter()
                .map(|volume| VolumeAttachment {
                    name: self.volume_name(volume.name.as_str()),
                    path: volume.path.clone(),
                    read_only: volume.read_only,
                })
                .collect(),
            tmpfs: spec
                .tmpfs
                .iter()
                .map(|tmpfs| TmpfsMount {
                    path: tmpfs.path.clone(),
                    size: tmpfs.size.map(crate::manifest::Bytes::get),
                })
                .collect(),
            networks: vec![NetworkAttachment {
                name: self.network_name(),
                aliases: vec![service.to_string()],
            }],
            stop_signal: spec.stop_signal.clone(),
            stop_timeout: spec.stop_grace.get(),
            resources: spec.resources.clone(),
            security: spec.security.clone(),
        }
    }

    /// Starts the candidate, or the container that ACTIVE names, and inspects
    /// its binds. A port that turns out taken means a new claim and a new candidate.
    pub(super) async fn start(
        &mut self,
        index: usize,
        service: &ServiceName,
        existing: Option<&ContainerId>,
    ) -> Result<(), StepError> {
        self.journal.begin(index, Changes::default()).await?;
        if let Some(container) = existing {
            self.adopt(service, container)?;
            self.ctx.observer.restarted(self.app, service);
        }
        let mut attempt = 1;
        loop {
            let container = self.container_of(service)?;
            self.ctx.permit(deadline::START)?;
            match self.ctx.runtime.start(&container).await {
                Ok(()) => break,
                Err(RuntimeError::PortInUse { .. }) if self.may_move(service, attempt)? => {
                    attempt += 1;
                    self.discard_candidate(service).await?;
                    let step = self.candidate(service)?.step;
                    self.make(step, service, attempt).await?;
                    self.journal.succeed(step);
                    self.journal.begin(index, Changes::default()).await?;
                }
                Err(error) if error.is_ambiguous() && self.runs(&container).await => break,
                Err(error) => {
                    let mut failure = runtime_failure(&error);
                    failure.diagnostics = Some(self.diagnostics(&container, None).await);
                    return Err(failure.into());
                }
            }
        }
        self.observe_execution(index, service).await
    }

    /// Whether another candidate on another port can help.
    fn may_move(&self, service: &ServiceName, attempt: u32) -> Result<bool, StepError> {
        let candidate = self.candidate(service)?;
        let pinned = self.pinned_at(service, candidate.revision)?;
        let moves = pinned.spec.ports.iter().any(|port| port.host.is_none());
        Ok(candidate.made.is_some() && moves && attempt < PORT_TRIES)
    }

    async fn runs(&self, container: &ContainerId) -> bool {
        let found = self.ctx.runtime.inspect(container.as_str()).await;
        matches!(found, Ok(Some(found)) if found.state == ContainerState::Running)
    }

    /// Inspects the binds of the running container that ACTIVE names.
    pub(super) async fn inspect(
        &mut self,
        index: usize,
        service: &ServiceName,
        container: &ContainerId,
    ) -> Result<(), StepError> {
        self.journal.begin(index, Changes::default()).await?;
        self.adopt(service, container)?;
        self.observe_execution(index, service).await
    }

    /// Works on the container that ACTIVE names.
    fn adopt(&mut self, service: &ServiceName, container: &ContainerId) -> Result<(), StepError> {
        let active = self
            .active
            .services
            .get(service)
            .ok_or_else(|| Failure::passing("Changed", "ACTIVE doesn't name the service"))?;
        let candidate = Candidate {
            revision: active.revision,
            container: Some(container.clone()),
            ..Candidate::default()
        };
        self.candidates.insert(service.clone(), candidate);
        Ok(())
    }

    /// Takes down which execution runs, and on which binds.
    async fn observe_execution(
        &mut self,
        index: usize,
        service: &ServiceName,
    ) -> Result<(), StepError> {
        let id = self.container_of(service)?;
        let container = self.inspect_existing(&id).await?;
        let revision = self.candidate(service)?.revision;
        let ports = self.pinned_at(service, revision)?.spec.ports.clone();
        let binds = binds(&ports, &container)?;
        let candidate = self.candidate_mut(service)?;
        candidate.started_at = container.started_at;
        candidate.binds = binds;
        self.journal.made(index, &id);
        Ok(())
    }

    async fn inspect_existing(&self, id: &ContainerId) -> Result<Container, StepError> {
        let found =
            self.ctx.runtime.inspect(id.as_str()).await.map_err(|e| runtime_failure(&e))?;
        Ok(found.ok_or_else(|| {
            Failure::passing("ContainerGone", format!("container {id} is gone"))
        })?)
    }

    /// Waits for readiness on the fresh binds, and checks that nothing moved.
    pub(super) async fn probe(
        &mut self,
        index: usize,
        service: &ServiceName,
    ) -> Result<(), StepError> {
        self.journal.begin(index, Changes::default()).await?;
        let candidate = self.candidate(service)?.clone();
        let container = self.container_of(service)?;
        let readiness =
            self.pinned_at(service, candidate.revision)?.spec.effective_readiness();
        let ctx = self.ctx;
        let probing = wait_ready(
            ctx.prober.as_ref(),
            ctx.runtime.as_ref(),
            &container,
            candidate.started_at,
            &readiness,
            &candidate.binds,
        );
        let answer = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(ReconcileError::Interrupted.into()),
            () = self.supersession() => return Err(StepError::Superseded),
            answer = probing => answer,
        };
        if let Err(failure) = answer {
            return Err(self.unready(&container, failure).await.into());
        }
        self.check_unmoved(service, &candidate, &container, &readiness.check).await?;
        self.journal.made(index, &container);
        Ok(())
    }

    async fn unready(&self, container: &ContainerId, failure: ProbeFailure) -> Failure {
        let reason = match failure.kind {
            ProbeFailureKind::TimedOut => "NotReady",
            ProbeFailureKind::Exited => "ContainerExited",
            ProbeFailureKind::Restarted | ProbeFailureKind::Gone => "ContainerMoved",
            ProbeFailureKind::Impossible => "ProbeImpossible",
        };
        let message = failure.message.clone();
        let diagnostics = Some(self.diagnostics(container, Some(failure)).await);
        Failure { diagnostics, ..Failure::passing(reason, message) }
    }

    /// What passed readiness must be what is published.
    async fn check_unmoved(
        &self,
        service: &ServiceName,
        candidate: &Candidate,
        id: &ContainerId,
        check: &Check,
    ) -> Result<(), StepError> {
        let container = self.inspect_existing(id).await?;
        let ports = &self.pinned_at(service, candidate.revision)?.spec.ports;
        let unmoved = container.state == ContainerState::Running
            && container.started_at == candidate.started_at
            && binds(ports, &container)? == candidate.binds;
        if unmoved {
            return Ok(());
        }
        tracing::debug!(?check, "moved while it was probed");
        Err(Failure::passing(
            "ContainerMoved",
            "the container restarted or its ports moved while it was probed",
        )
        .into())
    }

    /// What the journal keeps about a container that failed.
    async fn diagnostics(
        &self,
        container: &ContainerId,
        probe: Option<ProbeFailure>,
    ) -> Diagnostics {
        let runtime = &self.ctx.runtime;
        let log_tail = runtime.logs(container, LOG_LINES).await.unwrap_or_default();
        let found = runtime.inspect(container.as_str()).await.ok().flatten();
        Diagnostics {
            log_tail,
            exit_code: found.as_ref().and_then(|found| found.exit_code),
            oom_killed: found.as_ref().is_some_and(|found| found.oom_killed),
            probe_answers: probe.map(|probe| probe.answers).unwrap_or_default(),
        }
    }

    /// Removes what this operation made for a service whose step failed. What
    /// can't be removed is a warning that names it, and keeps its claims.
    pub(super) async fn discard_candidate(
        &mut self,
        service: &ServiceName,
    ) -> Result<(), ReconcileError> {
        let Some(candidate) = self.candidates.get(service).cloned() else { return Ok(()) };
        let Some(name) = candidate.made else { return Ok(()) };
        let published = self.active.services.get(service).map(|active| &active.container);
        if candidate.container.is_some() && published == candidate.container.as_ref() {
            return Ok(());
        }
        let removed = match &candidate.container {
            Some(container) => self.ctx.remove(container).await?,
            // The create failed; only an unknown result may have left something.
            None => self.ctx.remove(&ContainerId::new(name.clone())).await?,
        };
        match removed {
            Ok(()) => {
                let release = |claim: &BindClaim| claim.container_name == name;
                match self.release_binds(release).await {
                    Ok(()) => {}
                    Err(StepError::Interrupted(error)) => return Err(error),
                    Err(_) => return Err(ReconcileError::Interrupted),
                }
            }
            Err(error) => self.journal.warn(Warning {
                service: Some(service.clone()),
                leftover: candidate.container.map_or(name, |id| id.to_string()),
                detail: format!("the candidate could not be removed: {error}"),
            }),
        }
        Ok(())
    }

    /// Stages the release of these claims of the app.
    pub(super) async fn release_binds(
        &mut self,
        which: impl Fn(&BindClaim) -> bool,
    ) -> Result<(), StepError> {
        let ctx = self.ctx;
        let held: Vec<HostPort> = ctx.ports.held(&ctx.records, self.app, which).await?;
        for (protocol, port) in &held {
            let key = ctx.records.keys().bind(&ctx.node, *protocol, *port);
            self.journal.stage().delete(key);
        }
        Ok(ctx.ports.released(&ctx.records, &held).await?)
    }

    pub(super) fn candidate(&self, service: &ServiceName) -> Result<&Candidate, StepError> {
        let candidate = self.candidates.get(service);
        Ok(candidate.ok_or_else(|| Failure::passing("Changed", "nothing was created yet"))?)
    }

    fn candidate_mut(&mut self, service: &ServiceName) -> Result<&mut Candidate, StepError> {
        let candidate = self.candidates.get_mut(service);
        Ok(candidate.ok_or_else(|| Failure::passing("Changed", "nothing was created yet"))?)
    }

    fn container_of(&self, service: &ServiceName) -> Result<ContainerId, StepError> {
        let container = self.candidate(service)?.container.clone();
        Ok(container.ok_or_else(|| Failure::passing("Changed", "nothing was created yet"))?)
    }
}

/// The host port of each declared port, as the runtime gave it.
fn binds(ports: &[Port], container: &Container) -> Result<Vec<Bind>, Failure> {
    ports
        .iter()
        .map(|port| {
            let given = container.ports.iter().find(|given| {
                given.container == port.container && given.protocol == port.protocol
            });
            given
                .map(|given| Bind {
                    port: port.name.clone(),
                    container: port.container,
                    protocol: port.protocol,
                    host_ip: given.host_ip,
                    host: given.host,
                })
                .ok_or_else(|| {
                    Failure::passing(
                        "PortNotPublished",
                        format!("Podman didn't publish port {}", port.name),
                    )
                })
        })
        .collect()
}
