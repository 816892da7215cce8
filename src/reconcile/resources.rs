//! The provision step: the private network and the volumes of a service.

use crate::manifest::ServiceName;
use crate::runtime::{Labels, deadline};
use crate::state::{RevisionNumber, labels};
use crate::store::Changes;

use super::error::{Failure, StepError, runtime_failure};
use super::run::Run;

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
        self.ownership
            .resources
            .volumes
            .extend(volumes.iter().cloned());
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

    fn check_owner(&self, what: &str, name: &str, found: Option<&Labels>) -> Result<(), StepError> {
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
}
