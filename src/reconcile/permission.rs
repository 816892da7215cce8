//! What the node's policy allows, asked right before it matters.

use std::collections::BTreeMap;

use crate::manifest::{AppName, ServiceName, ServiceSpec};
use crate::plan::{Action, Denied, Desired, Snapshot};
use crate::policy::{Denial, Grant, Site};
use crate::state::{ContainerId, PinnedService, RevisionNumber, Verb};

use super::error::{Failure, StepError, runtime_failure};
use super::run::Run;
use super::{Context, Reconciler};

impl Reconciler {
    /// Takes down what the policy says of the wanted manifest and of what serves.
    pub(super) async fn judge(&self, snapshot: &mut Snapshot) {
        let active = &snapshot.records.active.services;
        let serving: Vec<(&ServiceName, &ServiceSpec, &[_])> = active
            .iter()
            .filter_map(|(name, active)| {
                let spec = &snapshot.pinned(name)?.spec;
                let container = snapshot.container(&active.container);
                let mounted = container.map(|container| container.binds.as_slice());
                Some((name, spec, mounted.unwrap_or_default()))
            })
            .collect();
        let wanted = match &snapshot.desired {
            Desired::App { app, .. } => Some(&app.spec.services),
            Desired::Absent | Desired::Invalid { .. } => None,
        };
        let specs = serving.iter().map(|(_, spec, _)| *spec);
        let site = Site::look(
            self.ctx.policy.as_ref(),
            specs.chain(wanted.into_iter().flat_map(BTreeMap::values)),
            serving.iter().flat_map(|(_, _, mounted)| *mounted),
        )
        .await;
        let denied = site.deny(&snapshot.app, wanted.into_iter().flatten());
        let denied = denied.map(|(service, denial)| Denied {
            service: service.clone(),
            denial,
        });
        let verdicts = serving.into_iter().map(|(name, spec, mounted)| {
            let verdict = site.judge(&snapshot.app, name, spec, mounted);
            (name.clone(), verdict)
        });
        let verdicts = verdicts.collect();
        snapshot.verdicts = verdicts;
        snapshot.denied = denied;
    }
}

impl Context {
    /// What the service gets of the host.
    pub(super) async fn grant(
        &self,
        app: &AppName,
        service: &ServiceName,
        spec: &ServiceSpec,
    ) -> Result<Grant, Failure> {
        let site = Site::look(self.policy.as_ref(), [spec], []).await;
        site.grant(app, service, spec)
            .map_err(|denial| refused(&denial))
    }

    /// Whether a generation may be made from this.
    pub(super) async fn permit_making(
        &self,
        app: &AppName,
        service: &ServiceName,
        pinned: &PinnedService,
    ) -> Result<(), Failure> {
        let rules = self.policy.rules().await;
        rules
            .permit_pinned(&pinned.spec.image)
            .map_err(|denial| refused(&denial))?;
        self.grant(app, service, &pinned.spec).await.map(|_| ())
    }
}

impl Run<'_> {
    /// Whether all that follows on a withdrawal would be allowed by now. When it isn't,
    /// the service isn't even withdrawn: it may make room for another. What went down by itself is withdrawn all the same.
    pub(super) async fn permit_ahead(
        &self,
        action: &Action,
        rest: &[Action],
    ) -> Result<(), StepError> {
        let verb = self.journal.operation().request.verb;
        let chosen = matches!(verb, Verb::Deploy | Verb::Rollback | Verb::Restart);
        if !chosen || !matches!(action, Action::Withdraw { .. }) {
            return Ok(());
        }
        for action in rest {
            match action {
                Action::Create { service, revision } => {
                    let pinned = self.pinned_at(service, *revision)?;
                    self.ctx.permit_making(self.app, service, pinned).await?;
                }
                Action::Start {
                    service,
                    container: Some(container),
                } => {
                    if let Some(active) = self.active.services.get(service) {
                        let revision = active.revision;
                        self.permit_start(service, revision, container).await?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a container made from this revision may be started.
    pub(super) async fn permit_start(
        &self,
        service: &ServiceName,
        revision: RevisionNumber,
        container: &ContainerId,
    ) -> Result<(), StepError> {
        let spec = &self.pinned_at(service, revision)?.spec;
        let mut mounted = Vec::new();
        if !spec.binds.is_empty() {
            let found = self.ctx.runtime.inspect(container.as_str()).await;
            let found = found.map_err(|error| runtime_failure(&error))?;
            mounted.extend(found.into_iter().flat_map(|found| found.binds));
        }
        let site = Site::look(self.ctx.policy.as_ref(), [spec], &mounted).await;
        let verdict = site.judge(self.app, service, spec, &mounted);
        match verdict.start {
            Some(denial) => Err(refused(&denial).into()),
            None => Ok(()),
        }
    }
}

/// A policy that changes mends it without a changed manifest.
pub(super) fn refused(denial: &Denial) -> Failure {
    Failure::passing(denial.reason(), denial.to_string())
}
