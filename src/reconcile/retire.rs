//! Steps that end containers: inhibit, retire, sweep.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::manifest::ServiceName;
use crate::probe::Unhealthy;
use crate::runtime::{RuntimeError, deadline};
use crate::sabotage::{self, Defect};
use crate::state::{BindClaim, ContainerId, Inhibition, InhibitionReason};
use crate::store::Changes;

use super::Context;
use super::error::{Failure, ReconcileError, StepError};
use super::run::Run;

/// How long a killed process may take to be gone.
const KILLED: Duration = Duration::from_secs(10);
/// Grace of a container whose spec isn't known any more.
const UNKNOWN_GRACE: Duration = Duration::from_secs(10);

/// How a container is asked to leave.
pub(super) struct Farewell {
    pub signal: String,
    pub grace: Duration,
}

impl Run<'_> {
    /// Writes the inhibition; it is durable before the next step begins.
    pub(super) async fn inhibit(
        &mut self,
        index: usize,
        service: &ServiceName,
        container: &ContainerId,
        reason: InhibitionReason,
    ) -> Result<(), StepError> {
        let mut changes = Changes::default();
        let dropped = match reason {
            InhibitionReason::RetirementPending => Defect::RetirementMarkerDropped,
            _ => Defect::InhibitionSkipped,
        };
        if !sabotage::has(dropped) {
            self.put_inhibition(&mut changes, service, container, reason)?;
        }
        Ok(self.journal.begin(index, changes).await?)
    }

    /// Deletes the inhibition, in the write that says so.
    pub(super) async fn permit_again(
        &mut self,
        index: usize,
        service: &ServiceName,
        container: &ContainerId,
    ) -> Result<(), StepError> {
        self.clear_inhibition(service, container);
        Ok(self.journal.begin(index, Changes::default()).await?)
    }

    pub(super) fn put_inhibition(
        &mut self,
        changes: &mut Changes,
        service: &ServiceName,
        container: &ContainerId,
        reason: InhibitionReason,
    ) -> Result<(), StepError> {
        let spec = self.pinned(service).map(|pinned| &pinned.spec);
        let grace = spec.map_or(UNKNOWN_GRACE, |spec| spec.stop_grace.get());
        let inhibition = Inhibition {
            service: service.clone(),
            container: container.clone(),
            reason,
            operation: self.journal.operation().id.clone(),
            at: self.ctx.clock.now(),
            stop_grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
            stop_signal: spec.and_then(|spec| spec.stop_signal.clone()),
        };
        let key = self
            .ctx
            .records
            .keys()
            .inhibition(self.app, service, container);
        changes.put(key, &inhibition)?;
        self.inhibitions.push(inhibition);
        Ok(())
    }

    /// Stops with grace, removes, confirms that the exact container is gone,
    /// then releases its binds.
    pub(super) async fn retire(
        &mut self,
        index: usize,
        service: &ServiceName,
        container: &ContainerId,
        forget: bool,
    ) -> Result<(), StepError> {
        if sabotage::has(Defect::InhibitionClearedEarly) {
            self.clear_inhibition(service, container);
        }
        if sabotage::has(Defect::BindsReleasedEarly) {
            let name = self.names.get(container).cloned();
            let of_it = |claim: &BindClaim| Some(&claim.container_name) == name.as_ref();
            self.release_binds(of_it).await?;
        }
        self.journal.begin(index, Changes::default()).await?;
        let farewell = self.farewell(service, container);
        if let Err(error) = self.ctx.dismiss(container, &farewell, self.cancel).await?
            && !sabotage::has(Defect::RetirementNotConfirmed)
        {
            let why = format!("container {container} isn't confirmed gone: {error}");
            return Err(Failure::passing("RetireFailed", why).into());
        }
        // The claims of one that was gone before went when the operation began.
        if let Some(name) = self.names.remove(container)
            && !sabotage::has(Defect::BindsNotReleased)
        {
            let of_it = |claim: &BindClaim| claim.container_name == name;
            self.release_binds(of_it).await?;
        }
        if forget {
            self.active.services.remove(service);
        }
        if forget || self.has_marker(container) {
            self.clear_inhibition(service, container);
        }
        self.stage_active()
    }

    /// Whether the container was superseded while it ran.
    fn has_marker(&self, container: &ContainerId) -> bool {
        self.inhibition(container)
            .is_some_and(|inhibition| inhibition.reason == InhibitionReason::RetirementPending)
    }

    /// What forbids to start the container.
    pub(super) fn inhibition(&self, container: &ContainerId) -> Option<&Inhibition> {
        let mut inhibitions = self.inhibitions.iter();
        inhibitions.find(|inhibition| &inhibition.container == container)
    }

    /// The inhibition goes with the next write.
    pub(super) fn clear_inhibition(&mut self, service: &ServiceName, container: &ContainerId) {
        let keys = self.ctx.records.keys();
        let key = keys.inhibition(self.app, service, container);
        self.journal.stage().delete(key);
        self.inhibitions
            .retain(|inhibition| &inhibition.container != container);
    }

    /// Stops the container that ACTIVE names, with grace; it stays.
    pub(super) async fn stop(
        &mut self,
        index: usize,
        service: &ServiceName,
        container: &ContainerId,
    ) -> Result<(), StepError> {
        self.journal.begin(index, Changes::default()).await?;
        let failed = |failed: &&Unhealthy| &failed.container == container;
        if let Some(failed) = self.unhealthy.iter().find(failed) {
            let answers = failed.answers.clone();
            let diagnostics = self.diagnostics(service, container, answers).await;
            self.journal.diagnose(index, diagnostics);
        }
        let farewell = self.farewell(service, container);
        let ended = self
            .ctx
            .end_process(container, &farewell, self.cancel)
            .await?;
        let why = match ended {
            Ok(true) => return Ok(()),
            Ok(false) => "no signal ends it; look whether it is paused".to_owned(),
            Err(error) => error.to_string(),
        };
        let why = format!("container {container} isn't confirmed stopped: {why}");
        Err(Failure::passing("StopFailed", why).into())
    }

    /// Removes by force a container that no record names, and releases its binds.
    pub(super) async fn sweep(
        &mut self,
        index: usize,
        container: &ContainerId,
        name: &str,
    ) -> Result<(), StepError> {
        self.journal.begin(index, Changes::default()).await?;
        if let Err(error) = self.ctx.remove(container).await? {
            let why = format!("leftover container {container} could not be removed: {error}");
            return Err(Failure::passing("CleanupFailed", why).into());
        }
        let of_it = |claim: &BindClaim| claim.container_name == name;
        Ok(self.release_binds(of_it).await?)
    }

    /// As the inhibition says, which remembers a superseded generation's ways; else
    /// as ACTIVE's spec does.
    fn farewell(&self, service: &ServiceName, container: &ContainerId) -> Farewell {
        if let Some(inhibition) = self.inhibition(container) {
            let signal = inhibition.stop_signal.clone();
            return Farewell {
                signal: signal.unwrap_or_else(|| "SIGTERM".to_owned()),
                grace: Duration::from_millis(inhibition.stop_grace_ms),
            };
        }
        let spec = self.pinned(service).map(|pinned| &pinned.spec);
        Farewell {
            signal: spec
                .and_then(|spec| spec.stop_signal.clone())
                .unwrap_or_else(|| "SIGTERM".to_owned()),
            grace: spec.map_or(UNKNOWN_GRACE, |spec| spec.stop_grace.get()),
        }
    }
}

impl Context {
    /// Asks the container to leave, ends it when it doesn't, and removes it; by force
    /// when no signal reaches it, as when it is paused. The inner error says why it
    /// isn't confirmed gone. Each effect is short, so that leadership need not outlast
    /// the grace.
    pub(super) async fn dismiss(
        &self,
        container: &ContainerId,
        farewell: &Farewell,
        cancel: &CancellationToken,
    ) -> Result<Result<(), RuntimeError>, ReconcileError> {
        match self.end_process(container, farewell, cancel).await? {
            Ok(ended) => self.remove_confirmed(container, !ended).await,
            Err(error) => Ok(Err(error)),
        }
    }

    /// Asks the container to leave, and ends it when it doesn't; whether its process
    /// has ended.
    async fn end_process(
        &self,
        container: &ContainerId,
        farewell: &Farewell,
        cancel: &CancellationToken,
    ) -> Result<Result<bool, RuntimeError>, ReconcileError> {
        for (signal, within) in [
            (farewell.signal.as_str(), farewell.grace),
            ("SIGKILL", KILLED),
        ] {
            self.permit(deadline::SIGNAL)?;
            match self.runtime.signal(container, signal).await {
                Err(error) if error.is_not_found() => return Ok(Ok(true)),
                // A reply was lost: the wait says whether the signal came through.
                Err(error) if !error.is_ambiguous() => return Ok(Err(error)),
                Ok(()) | Err(_) => {}
            }
            let stopped = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(ReconcileError::Interrupted),
                stopped = self.runtime.wait_stopped(container, within) => stopped,
            };
            match stopped {
                Ok(true) => return Ok(Ok(true)),
                Ok(false) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(false))
    }

    /// Removes a container by force, and confirms that it is gone.
    pub(super) async fn remove(
        &self,
        container: &ContainerId,
    ) -> Result<Result<(), RuntimeError>, ReconcileError> {
        self.remove_confirmed(container, true).await
    }

    /// Whatever the removal answers: that the container isn't there any more decides.
    async fn remove_confirmed(
        &self,
        container: &ContainerId,
        force: bool,
    ) -> Result<Result<(), RuntimeError>, ReconcileError> {
        self.permit(deadline::REMOVE)?;
        let removed = self.runtime.remove(container, force).await;
        let left = self.runtime.inspect(container.as_str()).await;
        Ok(match (left, removed) {
            (Ok(None), _) => Ok(()),
            (_, Err(error)) | (Err(error), Ok(())) => Err(error),
            (Ok(Some(left)), Ok(())) => Err(RuntimeError::Refused {
                call: "remove",
                message: format!("it is still there, as {:?}", left.state).to_lowercase(),
            }),
        })
    }
}
