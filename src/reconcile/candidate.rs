//! The create step, and what this operation made.

use jiff::Timestamp;

use crate::manifest::{AppName, ServiceName};
use crate::runtime::{
    Container, ContainerSpec, Image, Labels, NetworkAttachment, PortMapping, TmpfsMount,
    VolumeAttachment, Wanted, deadline,
};
use crate::sabotage::{self, Defect};
use crate::state::{
    Bind, BindClaim, ContainerId, Incarnation, PinnedService, RevisionNumber, TakenSecrets,
    Warning, labels,
};

use super::error::{Failure, ReconcileError, StepError, runtime_failure};
use super::images::Pulls;
use super::names;
use super::run::Run;

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
    /// The versions of its secrets that it took.
    pub secrets: TakenSecrets,
    pub binds: Vec<Bind>,
}

/// The private network, where services find each other by name, and the shared ones,
/// where the name says whose it is.
fn attachments(
    app: &AppName,
    incarnation: Incarnation,
    service: &ServiceName,
    pinned: &PinnedService,
) -> Vec<NetworkAttachment> {
    let private = NetworkAttachment {
        name: names::network(app, incarnation),
        aliases: vec![service.to_string()],
    };
    let shared = pinned.networks.iter().map(|network| NetworkAttachment {
        name: network.name.to_string(),
        aliases: vec![names::shared_alias(app, service)],
    });
    std::iter::once(private).chain(shared).collect()
}

impl Run<'_> {
    /// Creates the candidate; its ports are claimed before, its ID is journaled
    /// with the next step.
    pub(super) async fn create(
        &mut self,
        index: usize,
        service: &ServiceName,
        revision: RevisionNumber,
    ) -> Result<(), StepError> {
        let candidate = Candidate {
            revision,
            step: index,
            ..Candidate::default()
        };
        self.candidates.insert(service.clone(), candidate);
        if let Some(failure) = self.unfetched.remove(service) {
            return Err(failure.into());
        }
        self.make(index, service, 1).await
    }

    pub(super) async fn make(
        &mut self,
        index: usize,
        service: &ServiceName,
        attempt: u32,
    ) -> Result<(), StepError> {
        let candidate = self.candidate(service)?.clone();
        let pinned = self.pinned_at(service, candidate.revision)?.clone();
        let operation = &self.journal.operation().id;
        let name = names::container(self.app, service, operation, attempt);
        let ports = self.claim_ports(index, service, &pinned, &name).await?;
        self.candidate_mut(service)?.made = Some(name.clone());
        let image = self.pinned_image(service, &pinned).await?;
        self.note_files(service).await?;
        let spec = self.container_spec(service, &candidate, &pinned, name.clone(), ports, image.id);
        // Last, so that as little as can be happens between the look and the create.
        let granted = self.ctx.grant(self.app, service, &pinned.spec).await?;
        let spec = ContainerSpec {
            binds: granted.binds,
            devices: granted.devices,
            ..spec
        };
        self.ctx.permit(deadline::CREATE)?;
        let id = match self.ctx.runtime.create(&spec).await {
            Ok(id) => id,
            // A lost reply isn't a failure: the name says whether it was created.
            Err(_) if sabotage::has(Defect::CreateRepeatedBlindly) => {
                let again = ContainerSpec {
                    name: format!("{name}-again"),
                    ..spec
                };
                let again = self.ctx.runtime.create(&again).await;
                again.map_err(|error| runtime_failure(&error))?
            }
            Err(error) => self
                .find_made(service, &name)
                .await?
                .ok_or_else(|| runtime_failure(&error))?,
        };
        self.candidate_mut(service)?.container = Some(id.clone());
        self.journal.made(index, &id);
        self.names.insert(id, name);
        Ok(())
    }

    /// The image, which mostly is here since before the operation began.
    async fn pinned_image(
        &self,
        service: &ServiceName,
        pinned: &PinnedService,
    ) -> Result<Image, StepError> {
        let pulls = Pulls::default();
        let wanted = Wanted::Exactly(&pinned.digest);
        let image = self
            .ctx
            .image(self.app, service, &pinned.spec.image, wanted, &pulls);
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(ReconcileError::Interrupted.into()),
            image = image => Ok(image?),
            () = self.supersession() => Err(StepError::Superseded),
        }
    }

    /// The container of this name, when this operation made it for the service.
    async fn find_made(
        &self,
        service: &ServiceName,
        name: &str,
    ) -> Result<Option<ContainerId>, Failure> {
        let found = self
            .ctx
            .runtime
            .inspect(name)
            .await
            .map_err(|e| runtime_failure(&e))?;
        let ours = self.made_labels(service);
        let made = |container: &Container| {
            let carried = |(key, value)| container.labels.get(key) == Some(value);
            ours.iter().all(carried)
        };
        Ok(found.filter(made).map(|container| container.id))
    }

    /// By these labels it is known what this operation made for a service.
    fn made_labels(&self, service: &ServiceName) -> Labels {
        let mut labels = names::labels(self.app, self.ownership.incarnation, Some(service));
        let operation = self.journal.operation().id.to_string();
        labels.insert(labels::OPERATION.to_owned(), operation);
        labels
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
        let incarnation = self.ownership.incarnation;
        let mut labels = self.made_labels(service);
        labels.insert(labels::REVISION.to_owned(), candidate.revision.to_string());
        if let Some(revision) = self.revision(candidate.revision) {
            for (key, value) in &revision.labels {
                labels.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        let (secret_env, secret_files) = self.secrets_for(spec);
        ContainerSpec {
            name,
            hostname: names::hostname(self.app, service, pinned),
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
                    name: names::volume(self.app, incarnation, volume.name.as_str()),
                    path: volume.path.clone(),
                    read_only: volume.read_only,
                })
                .collect(),
            secret_env,
            secret_files,
            tmpfs: spec
                .tmpfs
                .iter()
                .map(|tmpfs| TmpfsMount {
                    path: tmpfs.path.clone(),
                    size: tmpfs.size.map(crate::manifest::Bytes::get),
                })
                .collect(),
            networks: attachments(self.app, incarnation, service, pinned),
            stop_signal: spec.stop_signal.clone(),
            stop_timeout: spec.stop_grace.get(),
            resources: spec.resources.clone(),
            security: spec.security.clone(),
            logging: spec.logging.clone(),
            ..ContainerSpec::default()
        }
    }

    /// Removes what this operation made for a service whose step failed. What
    /// can't be removed is a warning that names it, and keeps its claims.
    pub(super) async fn discard_candidate(
        &mut self,
        service: &ServiceName,
    ) -> Result<(), ReconcileError> {
        let candidate = self.candidates.get(service).cloned().unwrap_or_default();
        let Some(name) = candidate.made else {
            return Ok(());
        };
        let effective = self.active.services.get(service);
        let effective = effective.map(|active| &active.container);
        if candidate.container.is_some() && effective == candidate.container.as_ref() {
            return Ok(());
        }
        let leftover = candidate.container.as_ref().map(ToString::to_string);
        match self
            .remove_made(service, &name, candidate.container)
            .await?
        {
            Ok(()) => {
                self.names.retain(|_, made| *made != name);
                let of_it = |claim: &BindClaim| claim.container_name == name;
                self.release_binds(of_it).await?;
            }
            Err(why) => self.journal.warn(Warning {
                service: Some(service.clone()),
                leftover: leftover.unwrap_or(name),
                detail: format!("the candidate could not be removed: {why}"),
            }),
        }
        Ok(())
    }

    /// Removes a container that this operation made; when the create failed, only
    /// an unknown result may have left one. The inner error says why it may be there.
    async fn remove_made(
        &self,
        service: &ServiceName,
        name: &str,
        container: Option<ContainerId>,
    ) -> Result<Result<(), String>, ReconcileError> {
        let container = match container {
            Some(container) => Some(container),
            None => match self.find_made(service, name).await {
                Ok(found) => found,
                Err(failure) => return Ok(Err(failure.message)),
            },
        };
        match container {
            Some(container) => {
                let removed = self.ctx.remove(&container).await?;
                Ok(removed.map_err(|error| error.to_string()))
            }
            None => Ok(Ok(())),
        }
    }

    pub(super) fn candidate(&self, service: &ServiceName) -> Result<&Candidate, StepError> {
        let candidate = self.candidates.get(service);
        Ok(candidate.ok_or_else(|| Failure::passing("Changed", "nothing was created yet"))?)
    }

    pub(super) fn candidate_mut(
        &mut self,
        service: &ServiceName,
    ) -> Result<&mut Candidate, StepError> {
        let candidate = self.candidates.get_mut(service);
        Ok(candidate.ok_or_else(|| Failure::passing("Changed", "nothing was created yet"))?)
    }

    pub(super) fn container_of(&self, service: &ServiceName) -> Result<ContainerId, StepError> {
        let container = self.candidate(service)?.container.clone();
        Ok(container.ok_or_else(|| Failure::passing("Changed", "nothing was created yet"))?)
    }
}
