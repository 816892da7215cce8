//! The traffic graph, watched.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podherd::manifest::AppName;
use podherd::state::ContainerId;
use podherd::traffic::{AppRoutes, Applied, Drain, MemoryTraffic, Traffic, TrafficError};

use super::cut::{Broken, Gate, Site};
use super::watch::Watch;

#[derive(Debug)]
pub struct WatchedTraffic {
    pub inner: Arc<MemoryTraffic>,
    pub watch: Watch,
    pub gate: Gate,
}

fn broken(_: Broken) -> TrafficError {
    TrafficError::Unconfirmed {
        planes: "host-a/proxy".to_owned(),
    }
}

impl WatchedTraffic {
    fn site(&self, call: &'static str, app: &AppName) -> Site {
        self.watch
            .site(call, Some(app.as_str()), podherd::traffic::CONFIRM_TIMEOUT)
    }
}

#[async_trait]
impl Traffic for WatchedTraffic {
    async fn current(&self, app: &AppName) -> Result<Option<AppRoutes>, TrafficError> {
        self.gate.alive().await;
        self.inner.current(app).await
    }

    async fn check(&self, app: &AppName, routes: &AppRoutes) -> Result<(), TrafficError> {
        self.gate.alive().await;
        self.inner.check(app, routes).await
    }

    async fn apply(&self, app: &AppName, routes: &AppRoutes) -> Result<Applied, TrafficError> {
        self.gate.alive().await;
        self.watch.acts("apply", Duration::ZERO);
        let apply = async {
            self.watch.routes(app, routes);
            self.inner.apply(app, routes).await
        };
        let site = self.site("apply", app);
        self.gate.pass(site, apply, broken).await
    }

    async fn remove(&self, app: &AppName) -> Result<(), TrafficError> {
        self.gate.alive().await;
        self.watch.acts("remove", Duration::ZERO);
        let remove = self.inner.remove(app);
        let site = self.site("withdraw-app", app);
        self.gate.pass(site, remove, broken).await
    }

    async fn drain(
        &self,
        container: &ContainerId,
        within: Duration,
    ) -> Result<Drain, TrafficError> {
        self.gate.alive().await;
        self.inner.drain(container, within).await
    }
}
