//! What a pass would do, touching nothing: for `podherd plan`.

use std::collections::BTreeMap;

use crate::manifest::{App, AppName, PullPolicy, ServiceName};
use crate::plan::{self, Action, Answer, Desired, Next, Snapshot};
use crate::state::{Digest, PinnedService};

use super::Reconciler;
use super::error::ReconcileError;

/// What a pass would begin with.
#[derive(Debug, Clone)]
pub struct Preview {
    /// What it decided from.
    pub snapshot: Snapshot,
    /// What comes first.
    pub next: Next,
    /// What would be done, in order.
    pub actions: Vec<Action>,
    /// What only the real run can find out.
    pub notes: Vec<String>,
}

impl Reconciler {
    /// Decides what a pass would do now. Nothing is pulled, so an image that
    /// isn't on this host counts as changed.
    ///
    /// # Errors
    /// When something couldn't be observed.
    pub async fn preview(&self, app: &AppName) -> Result<Preview, ReconcileError> {
        let snapshot = self.observe(app).await?;
        let next = plan::next(&snapshot);
        let mut notes = Vec::new();
        let actions = match (&next, &snapshot.desired) {
            (Next::Deploy, Desired::App { source, app }) => {
                let services = self.pin_locally(&snapshot, app, &mut notes).await?;
                let ownership = self.ownership(&snapshot, app);
                let specs = app.spec.services.iter();
                let secrets = self
                    .ctx
                    .check_secrets(&app.name, ownership.incarnation, specs);
                notes.extend(secrets.await.err().map(|failure| failure.message));
                let revision = self.revision(&snapshot, app, *source, &ownership, services);
                plan::deploy(&snapshot, &revision)
            }
            (
                Next::Sweep(actions)
                | Next::Remove(actions)
                | Next::Repair(actions)
                | Next::RollBack(actions)
                | Next::Answer(_, Answer::Perform(actions)),
                _,
            ) => actions.clone(),
            _ => Vec::new(),
        };
        Ok(Preview {
            snapshot,
            next,
            actions,
            notes,
        })
    }

    async fn pin_locally(
        &self,
        snapshot: &Snapshot,
        app: &App,
        notes: &mut Vec<String>,
    ) -> Result<BTreeMap<ServiceName, PinnedService>, ReconcileError> {
        let mut services = BTreeMap::new();
        for (name, spec) in &app.spec.services {
            let local = self
                .ctx
                .runtime
                .ensure_image(&spec.image, PullPolicy::Never)
                .await;
            let digest = match local {
                Ok(image) => super::preflight::pin_for(snapshot, name, spec, image),
                Err(error) if error.is_ambiguous() => return Err(error.into()),
                Err(_) => {
                    notes.push(format!(
                        "service {name}: image {} isn't on this host; it would be pulled",
                        spec.image
                    ));
                    Digest::new("")
                }
            };
            if matches!(
                spec.pull_policy,
                PullPolicy::Always | PullPolicy::IfTagChanged
            ) {
                notes.push(format!(
                    "service {name}: the registry would be asked whether {} changed",
                    spec.image
                ));
            }
            services.insert(
                name.clone(),
                super::preflight::pinned(app, spec.clone(), digest),
            );
        }
        Ok(services)
    }
}
