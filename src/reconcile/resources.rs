//! The private network and the volumes: checked in the preflight, created in the
//! provision step.

use crate::manifest::{AppName, ServiceName, ServiceSpec};
use crate::plan;
use crate::runtime::{Labels, RuntimeError, deadline};
use crate::state::{Incarnation, RevisionNumber};
use crate::store::Changes;

use super::Context;
use super::error::{Failure, StepError, runtime_failure};
use super::names;
use super::run::Run;

/// What a service needs in the runtime before its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Network,
    Volume,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Volume => "volume",
        }
    }

    async fn look(self, ctx: &Context, name: &str) -> Result<Option<Labels>, Failure> {
        let found = match self {
            Self::Network => ctx.runtime.network(name).await,
            Self::Volume => ctx.runtime.volume(name).await,
        };
        found.map_err(|error| runtime_failure(&error))
    }

    async fn create(self, ctx: &Context, name: &str, labels: &Labels) -> Result<(), RuntimeError> {
        match self {
            Self::Network => ctx.runtime.create_network(name, labels).await,
            Self::Volume => ctx.runtime.create_volume(name, labels).await,
        }
    }
}

/// The volumes of a service, as the host calls them.
fn volumes<'s>(
    app: &'s AppName,
    incarnation: Incarnation,
    spec: &'s ServiceSpec,
) -> impl Iterator<Item = String> + 's {
    let volumes = spec.volumes.iter();
    volumes.map(move |volume| names::volume(app, incarnation, volume.name.as_str()))
}

impl Context {
    /// Whether everything that a service needs is free to be created, or is this
    /// incarnation's already.
    pub(super) async fn check_provisionable(
        &self,
        app: &AppName,
        incarnation: Incarnation,
        spec: &ServiceSpec,
    ) -> Result<(), Failure> {
        let network = (Kind::Network, names::network(app, incarnation));
        let volumes = volumes(app, incarnation, spec).map(|name| (Kind::Volume, name));
        for (kind, name) in std::iter::once(network).chain(volumes) {
            if let Some(found) = kind.look(self, &name).await? {
                names::check_owner(kind.name(), &name, incarnation, &found)?;
            }
        }
        Ok(())
    }
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
        let incarnation = self.ownership.incarnation;
        let network = names::network(self.app, incarnation);
        let spec = &self.pinned_at(service, revision)?.spec;
        if let Some(holder) = self.holder(service, spec) {
            return Err(still_held(holder).into());
        }
        let volumes: Vec<String> = volumes(self.app, incarnation, spec).collect();
        let owned = &mut self.ownership.resources;
        owned.networks.insert(network.clone());
        owned.volumes.extend(volumes.iter().cloned());
        let mut changes = Changes::default();
        changes.put(self.ctx.records.keys().ownership(self.app), &self.ownership)?;
        self.journal.begin(index, changes).await?;
        self.ensure(Kind::Network, &network).await?;
        for volume in &volumes {
            self.ensure(Kind::Volume, volume).await?;
        }
        Ok(())
    }

    /// Another service whose container is there and holds what only one can have. Records
    /// of different revisions may say so after a deployment that ended half way.
    fn holder(&self, service: &ServiceName, spec: &ServiceSpec) -> Option<&ServiceName> {
        let others = self.active.services.iter();
        let mut holders = others.filter(|(name, other)| {
            *name != service
                && self.names.contains_key(&other.container)
                && self
                    .pinned(name)
                    .is_none_or(|held| plan::contend(&held.spec, spec))
        });
        holders.next().map(|(name, _)| name)
    }

    async fn ensure(&self, kind: Kind, name: &str) -> Result<(), StepError> {
        let incarnation = self.ownership.incarnation;
        let mut found = kind.look(self.ctx, name).await?;
        if found.is_none() {
            self.ctx.permit(deadline::CREATE)?;
            let labels = names::labels(self.app, incarnation, None);
            let created = kind.create(self.ctx, name, &labels).await;
            // Whatever the answer was, what is there now decides.
            found = kind.look(self.ctx, name).await?;
            if let (None, Err(error)) = (&found, created) {
                return Err(runtime_failure(&error).into());
            }
        }
        let found = found.unwrap_or_default();
        Ok(names::check_owner(kind.name(), name, incarnation, &found)?)
    }
}

fn still_held(holder: &ServiceName) -> Failure {
    let why = format!(
        "service {holder} still holds a volume or a host port that this one is to get: deploy"
    );
    Failure::passing("StillHeld", why)
}
