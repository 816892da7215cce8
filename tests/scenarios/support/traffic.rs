//! The traffic graph, watched.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podherd::manifest::AppName;
use podherd::state::ContainerId;
use podherd::traffic::{AppRoutes, Applied, Drain, MemoryTraffic, Traffic, TrafficError};

use super::cut::Gate;
use super::watch::Watch;

#[derive(Debug)]
pub struct WatchedTraffic {
    pub inner: Arc<MemoryTraffic>,
    pub watch: Watch,
    pub gate: Gate,
}

fn lost() -> TrafficError {
    TrafficError::Unconfirmed {
        planes: "host-a/proxy".to_owned(),
    }
}

#[async_trait]
impl Traffic for WatchedTraffic {
    async fn current(&self, app: &AppName) -> Result<Option<AppRoutes>, TrafficError> {
        self.inner.current(app).await
    }

    async fn check(&self, app: &AppName, routes: &AppRoutes) -> Result<(), TrafficError> {
        self.inner.check(app, routes).await
    }

    async fn apply(&self, app: &AppName, routes: &AppRoutes) -> Result<Applied, TrafficError> {
        let apply = async {
            self.watch.acts("apply");
            self.watch.routes(app, routes);
            self.inner.apply(app, routes).await
        };
        self.gate.pass(apply, lost).await
    }

    async fn remove(&self, app: &AppName) -> Result<(), TrafficError> {
        let remove = async {
            self.watch.acts("remove");
            self.inner.remove(app).await
        };
        self.gate.pass(remove, lost).await
    }

    async fn drain(
        &self,
        container: &ContainerId,
        within: Duration,
    ) -> Result<Drain, TrafficError> {
        self.inner.drain(container, within).await
    }
}
