//! Bringing back what ACTIVE names, where an image may have gone too.

use std::collections::BTreeMap;

use tokio_util::sync::CancellationToken;

use crate::manifest::{AppName, ServiceName};
use crate::plan::{self, Action, Next, Snapshot};
use crate::state::{PinnedService, Verb};

use super::error::ReconcileError;
use super::images::Fetched;
use super::preflight::LOOK;
use super::{Reconciler, Verdict};

impl Reconciler {
    /// Brings back at once whatever can be. Only then is pulled what has lost its image
    /// as well, with nothing begun, so that a slow registry holds up nobody else.
    pub(super) async fn repair(
        &self,
        snapshot: &Snapshot,
        actions: &[Action],
        cancel: &CancellationToken,
    ) -> Result<Option<Verdict>, ReconcileError> {
        let missing = self.without_image(snapshot, actions).await;
        let (late, now): (Vec<Action>, Vec<Action>) = actions
            .iter()
            .cloned()
            .partition(|action| waits(action, &missing));
        if late.is_empty() || !now.is_empty() {
            let none = BTreeMap::new();
            return self
                .upkeep(snapshot, Verb::Recover, &now, none, cancel)
                .await;
        }
        let disturbance = self.other_work(&snapshot.app, &missing);
        match self
            .fetch(snapshot, &missing, true, disturbance, cancel)
            .await?
        {
            Fetched::Without(failed) if !failed.is_empty() => {
                self.upkeep(snapshot, Verb::Recover, &late, failed, cancel)
                    .await
            }
            // Look again: what was decided before the pull may be old.
            Fetched::Without(_) | Fetched::Disturbed => Ok(None),
        }
    }

    /// Returns when there is something to do that doesn't wait for these images.
    async fn other_work(&self, app: &AppName, missing: &BTreeMap<ServiceName, PinnedService>) {
        loop {
            tokio::time::sleep(LOOK).await;
            // What can't be observed changes nothing.
            let Ok(snapshot) = self.observe(app).await else {
                continue;
            };
            match plan::next(&snapshot) {
                Next::Repair(actions) if actions.iter().all(|action| waits(action, missing)) => {}
                _ => return,
            }
        }
    }
}

/// Whether the action is of a service that waits for its image. A withdrawal waits for
/// nothing.
fn waits(action: &Action, missing: &BTreeMap<ServiceName, PinnedService>) -> bool {
    let service = action.service();
    let withdraws = matches!(action, Action::Withdraw { .. });
    !withdraws && service.is_some_and(|service| missing.contains_key(service))
}
