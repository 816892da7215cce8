//! Answers what people ask for by `requests/<app>/<id>`.
//!
//! The ID of the request becomes the operation's, so the outcome is found at
//! `state/operations/<app>/<id>`; the request's key goes with the outcome.

use tokio_util::sync::CancellationToken;

use crate::plan::{self, Answer, Pending, Snapshot};
use crate::state::{Event, EventType, Revision, RevisionNumber};

use super::Reconciler;
use super::error::{Failure, ReconcileError, StepError};
use super::images::Fetched;
use super::preflight::named;
use super::run::{Begin, Claimed};
use super::upkeep::source;

impl Reconciler {
    /// Does what the request leads to.
    pub(super) async fn answer(
        &self,
        snapshot: &Snapshot,
        pending: &Pending,
        answer: Answer,
        cancel: &CancellationToken,
    ) -> Result<(), ReconcileError> {
        let claimed = match (&pending.asked, &answer) {
            (_, Answer::Dropped(why)) => {
                self.tell_dropped(snapshot, why).await;
                return Ok(self.ctx.records.forget(pending.key.clone()).await?);
            }
            (_, Answer::Recorded) | (Err(_), _) => {
                return Ok(self.ctx.records.forget(pending.key.clone()).await?);
            }
            (Ok((id, asked)), _) => Claimed {
                id: id.clone(),
                request: asked.request(),
                key: pending.key.clone(),
            },
        };
        if matches!(answer, Answer::Deploy) {
            return self.deploy(snapshot, Some(claimed), cancel).await;
        }
        let Some(ownership) = snapshot.records.ownership.clone() else {
            return Ok(self.ctx.records.forget(pending.key.clone()).await?);
        };
        let verb = claimed.request.verb;
        let source = match &answer {
            // What is refused says nothing about the manifest.
            Answer::Refused { .. } => 0,
            Answer::Perform(actions) => source(snapshot, verb, actions),
            _ => source(snapshot, verb, &[]),
        };
        let mut begin = Begin {
            source,
            asked: Some(claimed),
            ..Begin::of(verb, ownership)
        };
        match answer {
            Answer::Refused { reason, message } => {
                self.refuse(snapshot, &begin, Failure::lasting(reason, message))
                    .await
            }
            Answer::RollBack(number) => self.roll_back(snapshot, begin, number, cancel).await,
            Answer::Perform(actions) => {
                match self.fetch_for(snapshot, &actions, cancel).await? {
                    Some(failed) => begin.unfetched = failed,
                    // The request is answered when that is done.
                    None => return Ok(()),
                }
                self.operate(snapshot, begin, &actions, cancel).await?;
                Ok(())
            }
            Answer::Dropped(_) | Answer::Recorded | Answer::Deploy => Ok(()),
        }
    }

    async fn tell_dropped(&self, snapshot: &Snapshot, why: &str) {
        tracing::warn!(app = %snapshot.app, "request dropped: {why}");
        // An app that doesn't exist gets nothing written about it.
        if !snapshot.has_status() {
            return;
        }
        let event = Event {
            r#type: EventType::Warning,
            reason: "RequestDropped".to_owned(),
            message: why.to_owned(),
            service: None,
            operation: None,
            at: self.ctx.clock.now(),
        };
        self.tell(&snapshot.app, &[event]).await;
    }

    /// Makes an older revision serve, by its pins.
    async fn roll_back(
        &self,
        snapshot: &Snapshot,
        mut begin: Begin,
        number: RevisionNumber,
        cancel: &CancellationToken,
    ) -> Result<(), ReconcileError> {
        let Some(revision) = snapshot.revision(number).cloned() else {
            return Ok(());
        };
        let actions = plan::deploy(snapshot, &revision);
        if actions.is_empty() && snapshot.records.active.source == snapshot.desired.source() {
            // It serves already, and the manifest is of it: nothing is turned away from.
            begin.source = 0;
        }
        match self.check_rollback(snapshot, &revision, cancel).await {
            Ok(()) => {
                begin.revision = Some(revision);
                self.operate(snapshot, begin, &actions, cancel).await?;
                Ok(())
            }
            Err(StepError::Interrupted(error)) => Err(error),
            Err(StepError::Superseded) => Ok(()),
            Err(StepError::Failed(failure)) => {
                // What is refused says nothing about the manifest.
                begin.source = 0;
                self.refuse(snapshot, &begin, failure).await
            }
        }
    }

    /// The preflight of a rollback: all is still allowed, the pinned images and the secrets
    /// are there, everything else is free.
    async fn check_rollback(
        &self,
        snapshot: &Snapshot,
        revision: &Revision,
        cancel: &CancellationToken,
    ) -> Result<(), StepError> {
        for (name, pinned) in &revision.services {
            let permitted = self.ctx.permit_making(&snapshot.app, name, pinned).await;
            permitted.map_err(|failure| named(name, failure))?;
        }
        let disturbance = self.disturbance(&snapshot.app);
        let fetched = self.fetch(snapshot, &revision.services, false, disturbance, cancel);
        match fetched.await? {
            Fetched::Disturbed => return Err(StepError::Superseded),
            Fetched::Without(failed) => {
                if let Some((service, failure)) = failed.into_iter().next() {
                    return Err(named(&service, failure).into());
                }
            }
        }
        self.check_revision(snapshot, revision).await
    }
}
