//! Steps on the traffic graph: withdraw, apply.

use crate::manifest::ServiceName;
use crate::plan;
use crate::state::{Active, ContainerId, Warning};
use crate::store::Changes;
use crate::traffic::{Backend, Drain, Unserved};

use super::error::{Failure, ReconcileError, StepError, traffic_error};
use super::run::Run;

impl Run<'_> {
    /// Takes the service out of the graph, confirmed; waits for its requests in
    /// flight. Nothing else has happened to the service when this fails.
    pub(super) async fn withdraw(
        &mut self,
        index: usize,
        service: &ServiceName,
        drain: Option<&ContainerId>,
    ) -> Result<(), StepError> {
        self.journal.begin(index, Changes::default()).await?;
        self.narrow_graph(|of, _| of != service).await?;
        let effective = self.active.services.get(service);
        let routed = effective.is_none_or(|active| active.verified.is_some());
        if let Some(container) = drain.filter(|_| routed) {
            self.drain(service, container).await?;
        }
        // From here on its recorded binds are stale: nobody may serve them.
        if let Some(active) = self.active.services.get_mut(service) {
            active.verified = None;
            active.binds.clear();
        }
        // What is ended on purpose isn't found dead.
        self.ctx.follow(self.app, &self.active, &self.revisions);
        self.stage_active()
    }

    /// Publishes what is published with fewer backends, and nothing else: a graph that
    /// may not be published for another reason is no reason to go on serving these.
    pub(super) async fn narrow_graph(
        &self,
        kept: impl Fn(&ServiceName, &Backend) -> bool,
    ) -> Result<(), StepError> {
        let traffic = &self.ctx.traffic;
        let published = traffic
            .current(self.app)
            .await
            .map_err(ReconcileError::from)?;
        // No key means that its removal was confirmed.
        let Some(published) = published else {
            return Ok(());
        };
        let applied = traffic.apply(self.app, &published.only(kept)).await;
        applied
            .map(|_| ())
            .map_err(|error| traffic_error("withdraw", error))
    }

    /// Makes sure that nobody is sent to a container that was superseded, and waits for
    /// its requests in flight. Its successor is sent to instead, unless that can't be
    /// published: the container has to go all the same.
    pub(super) async fn drain_superseded(
        &mut self,
        index: usize,
        service: &ServiceName,
        container: &ContainerId,
    ) -> Result<(), StepError> {
        self.journal.begin(index, Changes::default()).await?;
        match self.publish_routes(&self.active.clone()).await {
            Ok(_) => {}
            Err(StepError::Failed(_)) => {
                let others = |_: &ServiceName, backend: &Backend| &backend.container != container;
                self.narrow_graph(others).await?;
            }
            Err(error) => return Err(error),
        }
        self.drain(service, container).await
    }

    async fn drain(
        &mut self,
        service: &ServiceName,
        container: &ContainerId,
    ) -> Result<(), StepError> {
        let within = self
            .pinned(service)
            .map_or(std::time::Duration::ZERO, |pinned| {
                pinned.spec.update.drain.get()
            });
        let drained = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(ReconcileError::Interrupted.into()),
            drained = self.ctx.traffic.drain(container, within) => drained,
        };
        if let Drain::Expired { in_flight } = drained.map_err(|e| traffic_error("drain", e))? {
            self.journal.warn(Warning {
                service: Some(service.clone()),
                leftover: format!("{in_flight} requests in flight"),
                detail: format!(
                    "not drained within {} s; they are cut off",
                    within.as_secs()
                ),
            });
        }
        Ok(())
    }

    /// Applies the graph that follows from ACTIVE, confirmed. A listener that isn't
    /// served fails the step.
    pub(super) async fn apply_traffic(&mut self, index: usize) -> Result<(), StepError> {
        // The write that published may have said already that this begins.
        if !self.journal.running(index) {
            self.journal.begin(index, Changes::default()).await?;
        }
        let active = self.active.clone();
        match self.publish_routes(&active).await?.first() {
            None => Ok(()),
            Some(unserved) => {
                Err(Failure::passing("ListenerUnavailable", unserved.to_string()).into())
            }
        }
    }

    /// Takes the whole app out of the graph, confirmed, and waits for the
    /// requests in flight of each of its containers.
    pub(super) async fn withdraw_app(&mut self, index: usize) -> Result<(), StepError> {
        self.journal.begin(index, Changes::default()).await?;
        self.ctx
            .traffic
            .remove(self.app)
            .await
            .map_err(|error| traffic_error("withdraw", error))?;
        let routed: Vec<(ServiceName, ContainerId)> = self
            .active
            .services
            .iter()
            .filter(|(_, active)| active.verified.is_some())
            .map(|(name, active)| (name.clone(), active.container.clone()))
            .collect();
        for (service, container) in &routed {
            self.drain(service, container).await?;
        }
        for active in self.active.services.values_mut() {
            active.verified = None;
            active.binds.clear();
        }
        self.ctx.follow(self.app, &self.active, &self.revisions);
        self.stage_active()
    }

    /// Publishes what follows from this ACTIVE, confirmed; gives what of it isn't
    /// served all the same.
    async fn publish_routes(&self, active: &Active) -> Result<Vec<Unserved>, StepError> {
        let routes = plan::routes(self.ownership.incarnation, active, &self.revisions);
        let traffic = &self.ctx.traffic;
        let applied = if routes.is_empty() {
            traffic.remove(self.app).await.map(|()| Vec::new())
        } else {
            let applied = traffic.apply(self.app, &routes).await;
            applied.map(|applied| applied.unserved)
        };
        applied.map_err(|error| traffic_error("publish", error))
    }
}
