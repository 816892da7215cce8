//! The publish step, and what steps ask the revisions.

use crate::manifest::ServiceName;
use crate::sabotage::{self, Defect};
use crate::state::{
    ActiveService, ContainerId, Inhibition, InhibitionReason, OutcomeKind, PinnedService, Revision,
    RevisionNumber,
};
use crate::store::Changes;

use super::error::{Failure, StepError};
use super::run::Run;

/// Revisions that are kept beside those in use, to roll back to.
const KEPT: usize = 10;

impl Run<'_> {
    /// Makes ACTIVE name what passed readiness, and clears the inhibitions of
    /// the service's superseded containers. Durable before the next step begins.
    pub(super) async fn publish(
        &mut self,
        index: usize,
        service: &ServiceName,
    ) -> Result<(), StepError> {
        let candidate = self.candidate(service)?.clone();
        let pinned = self.pinned_at(service, candidate.revision)?.clone();
        let Some(container) = candidate.container else {
            return Err(Failure::passing("Changed", "nothing was created yet").into());
        };
        self.journal.made(index, &container);
        self.ownership
            .resources
            .images
            .insert(pinned.spec.image.clone());
        self.active.services.insert(
            service.clone(),
            ActiveService {
                revision: candidate.revision,
                image: pinned.spec.image,
                digest: pinned.digest,
                container,
                node: self.ctx.node.clone(),
                binds: candidate.binds,
                verified: candidate.started_at,
                secrets: candidate.secrets,
            },
        );
        let keys = self.ctx.records.keys();
        let mut changes = Changes::default();
        changes.put(keys.active(self.app), &self.active)?;
        changes.put(keys.ownership(self.app), &self.ownership)?;
        for superseded in self.superseded_of(service) {
            changes.delete(keys.inhibition(self.app, service, &superseded));
        }
        self.journal.succeed(index);
        if sabotage::has(Defect::RoutesBeforeActive) {
            self.apply_traffic(index).await?;
        }
        // One write for both: what follows ACTIVE is the graph.
        self.journal.enter_traffic(index + 1);
        self.journal.write(changes).await?;
        self.ctx.follow(self.app, &self.active, &self.revisions);
        Ok(())
    }

    /// The containers of the service whose inhibition ends here. One with a
    /// retirement marker still runs: its marker ends with it.
    fn superseded_of(&mut self, service: &ServiceName) -> Vec<ContainerId> {
        let ends = |inhibition: &Inhibition| {
            &inhibition.service == service
                && inhibition.reason != InhibitionReason::RetirementPending
        };
        let ended = self
            .inhibitions
            .extract_if(.., |inhibition| ends(inhibition));
        ended.map(|inhibition| inhibition.container).collect()
    }

    /// ACTIVE goes with the next write.
    pub(super) fn stage_active(&mut self) -> Result<(), StepError> {
        let key = self.ctx.records.keys().active(self.app);
        Ok(self.journal.stage().put(key, &self.active)?)
    }

    /// What the effective generation of a service was made from.
    pub(super) fn pinned(&self, service: &ServiceName) -> Option<&PinnedService> {
        self.active.pinned(service, &self.revisions)
    }

    /// What a revision says of a service.
    pub(super) fn pinned_at(
        &self,
        service: &ServiceName,
        number: RevisionNumber,
    ) -> Result<&PinnedService, StepError> {
        let pinned = self
            .revision(number)
            .and_then(|revision| revision.services.get(service));
        Ok(pinned.ok_or_else(|| {
            Failure::lasting(
                "RevisionMissing",
                format!(
                    "revision {number} of service {service} isn't recorded: change the manifest"
                ),
            )
        })?)
    }

    pub(super) fn revision(&self, number: RevisionNumber) -> Option<&Revision> {
        Revision::numbered(&self.revisions, number)
    }

    /// Deletes the oldest revisions that nothing names.
    pub(super) fn forget_revisions(&self, changes: &mut Changes) {
        let mut unused: Vec<RevisionNumber> = self
            .revisions
            .iter()
            .map(|revision| revision.number)
            .filter(|number| {
                !self
                    .active
                    .services
                    .values()
                    .any(|active| active.revision == *number)
            })
            .collect();
        unused.sort_unstable();
        let surplus = unused.len().saturating_sub(KEPT);
        for number in &unused[..surplus] {
            changes.delete(self.ctx.records.keys().revision(self.app, *number));
        }
    }
}

/// Whether an outcome is worth a warning event.
pub(super) fn is_failure(outcome: OutcomeKind) -> bool {
    !matches!(outcome, OutcomeKind::Success)
}
