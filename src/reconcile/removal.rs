//! Steps that end an app: the stopped intent, its networks, its incarnation.

use crate::manifest::{AppName, ServiceName};
use crate::runtime::Network;
use crate::state::{ContainerId, InhibitionReason, Intent, Retained, Warning, Wish, labels};
use crate::store::Changes;

use super::Reconciler;
use super::error::{ReconcileError, StepError, runtime_failure};
use super::run::Run;

impl Run<'_> {
    /// Writes the intent and the inhibitions before any effect, so that nothing that
    /// is being stopped or removed is ever started again.
    pub(super) async fn intend(
        &mut self,
        index: usize,
        wish: Wish,
        inhibited: &[(ServiceName, ContainerId)],
    ) -> Result<(), StepError> {
        let intent = Intent {
            state: wish,
            operation: self.journal.operation().id.clone(),
            at: self.ctx.clock.now(),
        };
        let mut changes = Changes::default();
        changes.put(self.ctx.records.keys().intent(self.app), &intent)?;
        for (service, container) in inhibited {
            let reason = InhibitionReason::Removed;
            self.put_inhibition(&mut changes, service, container, reason)?;
        }
        Ok(self.journal.begin(index, changes).await?)
    }

    /// Leaves the shared networks, and removes the private ones whose labels say that
    /// they are this incarnation's. One that somebody else uses is a warning.
    pub(super) async fn reclaim(&mut self, index: usize) -> Result<(), StepError> {
        let shared = self.ownership.shared_networks.keys().cloned().collect();
        self.leave(index, &shared).await?;
        let own = self.ownership.incarnation.to_string();
        let ours = |found: &Network| found.labels.get(labels::INCARNATION) == Some(&own);
        for name in self.ownership.resources.networks.clone() {
            let Err(left) = self.ctx.remove_network(&name, ours).await? else {
                continue;
            };
            self.journal.warn(Warning {
                service: None,
                leftover: format!("network {name}"),
                detail: left,
            });
        }
        Ok(())
    }

    /// Ends the incarnation, in the transaction that writes the outcome: what is
    /// retained is listed, everything live is forgotten, the name is free.
    pub(super) async fn end_incarnation(&mut self, manifest: Option<i64>) -> Result<(), StepError> {
        let secrets = self.ctx.own_secrets(self.app, self.ownership.incarnation);
        let secrets = secrets.await.map_err(|error| runtime_failure(&error))?;
        let keys = self.ctx.records.keys();
        let mut resources = self.ownership.resources.clone();
        resources.networks.clear();
        resources.secrets = secrets;
        let retained = Retained {
            app: self.app.clone(),
            incarnation: self.ownership.incarnation,
            since: self.ownership.since,
            ended_at: self.ctx.clock.now(),
            resources,
        };
        let changes = self.journal.stage();
        changes.put(keys.retained(retained.incarnation), &retained)?;
        changes.delete(keys.ownership(self.app));
        changes.delete(keys.active(self.app));
        changes.delete(keys.intent(self.app));
        changes.delete(keys.status(self.app));
        changes.delete_prefix(keys.inhibitions(self.app));
        changes.delete_prefix(keys.revisions(self.app));
        if let Some(known) = manifest {
            changes.delete_known(keys.app(self.app), known);
        }
        Ok(())
    }
}

impl Reconciler {
    /// Forgets what is said of an app that never came to own anything.
    pub(super) async fn forget(&self, app: &AppName) -> Result<(), ReconcileError> {
        self.ctx.records.forget_app(app).await?;
        self.ctx.observer.status(app, None);
        Ok(())
    }
}
