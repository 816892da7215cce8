//! The networks and the volumes: checked in the preflight, created in the provision
//! step.

use std::collections::BTreeSet;

use crate::manifest::{AppName, SecretRef, ServiceName, ServiceSpec, SharedNetwork};
use crate::plan;
use crate::runtime::{Network, RuntimeError, deadline};
use crate::state::{Incarnation, PinnedService, RevisionNumber, Stake, podman_name, references};
use crate::store::Changes;

use super::error::{Failure, StepError, runtime_failure};
use super::run::Run;
use super::{Context, names, networks};

/// What a service needs in the runtime before its container.
#[derive(Debug)]
enum Needed<'s> {
    /// The incarnation's private network, as the host calls it.
    Private(String),
    /// A network of several apps.
    Shared(&'s SharedNetwork),
    /// A volume of the incarnation, as the host calls it.
    Volume(String),
}

/// All that a service needs.
fn needed<'s>(
    app: &AppName,
    incarnation: Incarnation,
    pinned: &'s PinnedService,
) -> Vec<Needed<'s>> {
    let mut needed = vec![Needed::Private(names::network(app, incarnation))];
    needed.extend(pinned.networks.iter().map(Needed::Shared));
    needed.extend(pinned.spec.volumes.iter().map(|volume| {
        let name = names::volume(app, incarnation, volume.name.as_str());
        Needed::Volume(name)
    }));
    needed
}

/// The secrets of the app's own that a service refers to, as the host calls them.
fn own_secrets(app: &AppName, incarnation: Incarnation, spec: &ServiceSpec) -> BTreeSet<String> {
    let own = references(spec).filter(|secret| matches!(secret, SecretRef::App(_)));
    own.map(|secret| podman_name(app, incarnation, secret))
        .collect()
}

impl Context {
    /// Whether everything that a service needs is free to be created, or is this
    /// incarnation's already, or a shared network of the same kind.
    pub(super) async fn check_provisionable(
        &self,
        app: &AppName,
        incarnation: Incarnation,
        pinned: &PinnedService,
    ) -> Result<(), Failure> {
        for needed in needed(app, incarnation, pinned) {
            self.has(&needed, incarnation).await?;
        }
        Ok(())
    }

    /// Whether it is there; an error when something else has its name.
    async fn has(&self, needed: &Needed<'_>, incarnation: Incarnation) -> Result<bool, Failure> {
        let failed = |error| runtime_failure(&error);
        match needed {
            Needed::Private(name) => {
                let found = self.runtime.network(name).await.map_err(failed)?;
                let owned = |found: &Network| {
                    names::check_owner("network", name, incarnation, &found.labels)
                };
                found.as_ref().map(owned).transpose()
            }
            Needed::Shared(shared) => {
                let found = self.runtime.network(shared.name.as_str()).await;
                let found = found.map_err(failed)?;
                let checked = |found: &Network| networks::check(shared, found);
                found.as_ref().map(checked).transpose()
            }
            Needed::Volume(name) => {
                let found = self.runtime.volume(name).await.map_err(failed)?;
                let owned = |found| names::check_owner("volume", name, incarnation, &found);
                found.map(owned).transpose()
            }
        }
        .map(|found| found.is_some())
    }

    async fn add(
        &self,
        needed: &Needed<'_>,
        app: &AppName,
        incarnation: Incarnation,
        service: &ServiceName,
    ) -> Result<(), RuntimeError> {
        match needed {
            Needed::Private(name) => {
                let private = Network {
                    labels: names::labels(app, incarnation, None),
                    internal: false,
                };
                self.runtime.create_network(name, &private).await
            }
            Needed::Shared(shared) => {
                let network = networks::network(shared);
                let name = shared.name.as_str();
                self.runtime.create_network(name, &network).await
            }
            Needed::Volume(name) => {
                let labels = names::labels(app, incarnation, Some(service));
                self.runtime.create_volume(name, &labels).await
            }
        }
    }
}

impl Run<'_> {
    /// Creates the service's networks and volumes; never takes over one that isn't
    /// this incarnation's, or shared.
    pub(super) async fn provision(
        &mut self,
        index: usize,
        service: &ServiceName,
        revision: RevisionNumber,
    ) -> Result<(), StepError> {
        let pinned = self.pinned_at(service, revision)?.clone();
        if let Some(holder) = self.holder(service, &pinned.spec) {
            return Err(still_held(holder).into());
        }
        let needed = needed(self.app, self.ownership.incarnation, &pinned);
        let _alone = match pinned.networks.as_slice() {
            [] => None,
            _ => Some(self.ctx.networks.lock().await),
        };
        self.own(&needed, &pinned.spec);
        let mut changes = Changes::default();
        changes.put(self.ctx.records.keys().ownership(self.app), &self.ownership)?;
        self.journal.begin(index, changes).await?;
        for needed in &needed {
            self.ensure(needed, service).await?;
        }
        Ok(())
    }

    fn own(&mut self, needed: &[Needed<'_>], spec: &ServiceSpec) {
        let incarnation = self.ownership.incarnation;
        let owned = &mut self.ownership.resources;
        owned
            .secrets
            .extend(own_secrets(self.app, incarnation, spec));
        for needed in needed {
            match needed {
                Needed::Private(name) => _ = owned.networks.insert(name.clone()),
                Needed::Volume(name) => _ = owned.volumes.insert(name.clone()),
                Needed::Shared(shared) => {
                    let stakes = &mut self.ownership.shared_networks;
                    stakes.insert(shared.name.clone(), Stake::Held);
                }
            }
        }
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

    async fn ensure(&self, needed: &Needed<'_>, service: &ServiceName) -> Result<(), StepError> {
        let incarnation = self.ownership.incarnation;
        if self.ctx.has(needed, incarnation).await? {
            return Ok(());
        }
        self.ctx.permit(deadline::CREATE)?;
        let created = self.ctx.add(needed, self.app, incarnation, service).await;
        // Whatever the answer was, what is there now decides.
        if self.ctx.has(needed, incarnation).await? {
            return Ok(());
        }
        let failure = match created {
            Err(error) => runtime_failure(&error),
            Ok(()) => Failure::passing("Changed", format!("{needed:?} was removed at once")),
        };
        Err(failure.into())
    }
}

fn still_held(holder: &ServiceName) -> Failure {
    let why = format!(
        "service {holder} still holds a volume or a host port that this one is to get: deploy"
    );
    Failure::passing("StillHeld", why)
}
