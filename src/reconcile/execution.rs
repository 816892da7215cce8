//! Steps on a container's execution: start, inspect, probe.

use std::collections::BTreeSet;

use crate::manifest::{Port, Security, ServiceName};
use crate::probe::{ProbeFailure, ProbeFailureKind, Subject, wait_ready, wait_started};
use crate::runtime::{Container, ContainerState, RuntimeError, deadline};
use crate::state::{Bind, BindClaim, ContainerId};
use crate::store::Changes;

use super::candidate::Candidate;
use super::error::{Failure, ReconcileError, StepError, runtime_failure};
use super::run::Run;

/// How often a candidate is made again because its port turned out taken.
const PORT_TRIES: u32 = 3;

impl Run<'_> {
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
            if self.inhibition(container).is_some() {
                return Err(Failure::lasting(
                    "Inhibited",
                    format!("container {container} may never be started again: deploy"),
                )
                .into());
            }
            self.adopt(service, container)?;
            self.ctx.observer.restarted(self.app, service);
        }
        let mut attempt = 1;
        loop {
            let container = self.container_of(service)?;
            let revision = self.candidate(service)?.revision;
            self.permit_start(service, revision, &container).await?;
            self.note_env(service).await?;
            self.ctx.permit(deadline::START)?;
            match self.ctx.runtime.start(&container).await {
                Ok(()) => break,
                Err(RuntimeError::PortInUse { .. }) if self.may_move(service, attempt)? => {
                    attempt += 1;
                    self.move_candidate(index, service, attempt).await?;
                }
                Err(error) if error.is_ambiguous() && self.runs(&container).await => break,
                Err(error) => {
                    let mut failure = runtime_failure(&error);
                    let diagnostics = self.diagnostics(service, &container, Vec::new());
                    failure.diagnostics = Some(diagnostics.await);
                    return Err(failure.into());
                }
            }
        }
        self.observe_execution(index, service).await.map(drop)
    }

    /// Whether another container on another port can help.
    fn may_move(&self, service: &ServiceName, attempt: u32) -> Result<bool, StepError> {
        let candidate = self.candidate(service)?;
        let pinned = self.pinned_at(service, candidate.revision)?;
        let moves = pinned.spec.ports.iter().any(|port| port.host.is_none());
        Ok(moves && attempt < PORT_TRIES)
    }

    /// Makes the container again on other ports. The one that doesn't run is gone
    /// before, be it this operation's or the one that ACTIVE names.
    async fn move_candidate(
        &mut self,
        index: usize,
        service: &ServiceName,
        attempt: u32,
    ) -> Result<(), StepError> {
        let candidate = self.candidate(service)?.clone();
        let step = if candidate.made.is_some() {
            self.discard_candidate(service).await?;
            candidate.step
        } else {
            let container = self.container_of(service)?;
            let pinned = self.pinned_at(service, candidate.revision)?;
            self.ctx.permit_making(self.app, service, pinned).await?;
            if let Err(error) = self.ctx.remove(&container).await? {
                return Err(runtime_failure(&error).into());
            }
            let name = self.names.get(&container).cloned();
            let of_it = |claim: &BindClaim| Some(&claim.container_name) == name.as_ref();
            self.release_binds(of_it).await?;
            index
        };
        // The release of its ports is written before they are claimed again.
        self.journal.write(Changes::default()).await?;
        self.make(step, service, attempt).await?;
        self.journal.succeed(step);
        Ok(self.journal.begin(index, Changes::default()).await?)
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
        let container = self.observe_execution(index, service).await?;
        self.note_env_since(service, &container).await
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
            secrets: active.secrets.clone(),
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
    ) -> Result<Container, StepError> {
        let id = self.container_of(service)?;
        let container = self.inspect_existing(&id).await?;
        let revision = self.candidate(service)?.revision;
        let spec = &self.pinned_at(service, revision)?.spec;
        check_restrictions(&spec.security, &container)?;
        let binds = binds(&spec.ports, &container)?;
        let candidate = self.candidate_mut(service)?;
        candidate.started_at = container.started_at;
        candidate.binds = binds;
        self.journal.made(index, &id);
        Ok(container)
    }

    async fn inspect_existing(&self, id: &ContainerId) -> Result<Container, StepError> {
        let found = self
            .ctx
            .runtime
            .inspect(id.as_str())
            .await
            .map_err(|e| runtime_failure(&e))?;
        Ok(found
            .ok_or_else(|| Failure::passing("ContainerGone", format!("container {id} is gone")))?)
    }

    /// Waits for readiness on the fresh binds. It passes only for the execution on
    /// which these were inspected, so nothing can have moved meanwhile.
    pub(super) async fn probe(
        &mut self,
        index: usize,
        service: &ServiceName,
    ) -> Result<(), StepError> {
        self.journal.begin(index, Changes::default()).await?;
        let candidate = self.candidate(service)?.clone();
        let container = self.container_of(service)?;
        let spec = &self.pinned_at(service, candidate.revision)?.spec;
        let (startup, readiness) = (spec.startup.clone(), spec.effective_readiness());
        let subject = Subject {
            prober: self.ctx.prober.as_ref(),
            runtime: self.ctx.runtime.as_ref(),
            container: &container,
            started_at: candidate.started_at,
            binds: &candidate.binds,
        };
        let probing = async {
            // Its time doesn't count as the readiness'.
            if let Some(startup) = &startup {
                wait_started(subject, startup).await?;
            }
            wait_ready(subject, &readiness).await
        };
        let mut dead = BTreeSet::new();
        let answer = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(ReconcileError::Interrupted.into()),
            () = self.supersession() => return Err(StepError::Superseded),
            answer = probing => answer,
            never = self.watch_siblings(service, &mut dead) => match never {},
        };
        self.forget_binds(&dead);
        if let Err(failure) = answer {
            return Err(self.unready(service, &container, failure).await.into());
        }
        self.journal.made(index, &container);
        Ok(())
    }

    async fn unready(
        &self,
        service: &ServiceName,
        container: &ContainerId,
        failure: ProbeFailure,
    ) -> Failure {
        let reason = match failure.kind {
            ProbeFailureKind::TimedOut => "NotReady",
            ProbeFailureKind::NotStarted => "NotStarted",
            ProbeFailureKind::Exited => "ContainerExited",
            ProbeFailureKind::Restarted | ProbeFailureKind::Gone => "ContainerMoved",
            ProbeFailureKind::Impossible => "ProbeImpossible",
        };
        let message = failure.message.clone();
        let diagnostics = self.diagnostics(service, container, failure.answers);
        let diagnostics = Some(diagnostics.await);
        Failure {
            diagnostics,
            ..Failure::passing(reason, message)
        }
    }
}

/// Refuses a container that has more privileges than it was asked to have.
fn check_restrictions(asked: &Security, container: &Container) -> Result<(), Failure> {
    let missing = container.applied.missing_restrictions(asked);
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::lasting(
        "SecurityIgnored",
        format!(
            "Podman started the container without security.{}: this host can't do it, or its \
             Podman doesn't know it",
            missing.join(", security.")
        ),
    ))
}

/// The host port of each declared port, as the runtime gave it.
fn binds(ports: &[Port], container: &Container) -> Result<Vec<Bind>, Failure> {
    ports
        .iter()
        .map(|port| {
            let given = container
                .ports
                .iter()
                .find(|given| given.container == port.container && given.protocol == port.protocol);
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
