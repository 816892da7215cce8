//! A [`Runtime`] whose calls are timed.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::Instant;

use super::metrics::RequestMetrics;
use crate::manifest::Protocol;
use crate::runtime::{
    Container, ContainerSpec, ContainerSummary, Image, Labels, Network, PullReport, Runtime,
    RuntimeError, RuntimeEvents, Secret, SecretValue, Volume, Wanted,
};
use crate::state::ContainerId;

/// Times each call to the runtime within.
#[derive(Debug)]
pub struct MeteredRuntime<R> {
    inner: R,
    metrics: RequestMetrics,
}

impl<R: Runtime> MeteredRuntime<R> {
    /// Times the calls to `inner`.
    pub fn new(inner: R, metrics: RequestMetrics) -> Self {
        Self { inner, metrics }
    }

    async fn time<T>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<T, RuntimeError>> + Send,
    ) -> Result<T, RuntimeError> {
        let began = Instant::now();
        let result = answer.await;
        let code = result.as_ref().map_or_else(code, |_| "ok");
        self.metrics.observe(call, code, began.elapsed());
        result
    }
}

fn code(error: &RuntimeError) -> &'static str {
    match error {
        RuntimeError::Unavailable { .. } => "unavailable",
        RuntimeError::Deadline { .. } => "deadline",
        RuntimeError::NotFound { .. } => "not_found",
        RuntimeError::NameInUse { .. } => "name_in_use",
        RuntimeError::PortInUse { .. } => "port_in_use",
        RuntimeError::InUse { .. } => "in_use",
        RuntimeError::ImageAbsent { .. } => "image_absent",
        RuntimeError::ImageUnknown { .. } => "image_unknown",
        RuntimeError::ImageDenied { .. } => "image_denied",
        RuntimeError::AuthFile { .. } => "auth_file",
        RuntimeError::PullFailed { .. } => "pull_failed",
        RuntimeError::NoUserIds => "no_user_ids",
        RuntimeError::Refused { .. } => "refused",
    }
}

#[async_trait]
impl<R: Runtime> Runtime for MeteredRuntime<R> {
    async fn ping(&self) -> Result<(), RuntimeError> {
        self.time("ping", self.inner.ping()).await
    }

    async fn port_is_free(&self, protocol: Protocol, port: u16) -> Result<bool, RuntimeError> {
        self.time("port_is_free", self.inner.port_is_free(protocol, port))
            .await
    }

    async fn image(
        &self,
        reference: &str,
        wanted: Wanted<'_>,
        report: &PullReport,
    ) -> Result<Image, RuntimeError> {
        let call = match wanted {
            Wanted::ByPolicy(_) => "ensure_image",
            Wanted::Exactly(_) => "ensure_pinned",
            Wanted::Present(_) => "find_image",
        };
        self.time(call, self.inner.image(reference, wanted, report))
            .await
    }

    async fn list(&self, labels: &Labels) -> Result<Vec<ContainerSummary>, RuntimeError> {
        self.time("list", self.inner.list(labels)).await
    }

    async fn inspect(&self, id_or_name: &str) -> Result<Option<Container>, RuntimeError> {
        self.time("inspect", self.inner.inspect(id_or_name)).await
    }

    async fn check_user_ids(&self) -> Result<(), RuntimeError> {
        self.time("check_user_ids", self.inner.check_user_ids())
            .await
    }

    async fn create(&self, spec: &ContainerSpec) -> Result<ContainerId, RuntimeError> {
        self.time("create", self.inner.create(spec)).await
    }

    async fn start(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.time("start", self.inner.start(id)).await
    }

    async fn signal(&self, id: &ContainerId, signal: &str) -> Result<(), RuntimeError> {
        self.time("signal", self.inner.signal(id, signal)).await
    }

    async fn wait_stopped(&self, id: &ContainerId, within: Duration) -> Result<bool, RuntimeError> {
        self.time("wait_stopped", self.inner.wait_stopped(id, within))
            .await
    }

    async fn remove(&self, id: &ContainerId, force: bool) -> Result<(), RuntimeError> {
        self.time("remove", self.inner.remove(id, force)).await
    }

    async fn logs(
        &self,
        id: &ContainerId,
        lines: usize,
        since: Option<Timestamp>,
    ) -> Result<Vec<String>, RuntimeError> {
        self.time("logs", self.inner.logs(id, lines, since)).await
    }

    async fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        within: Duration,
    ) -> Result<i64, RuntimeError> {
        self.time("exec", self.inner.exec(id, command, within))
            .await
    }

    async fn healthcheck(&self, id: &ContainerId, within: Duration) -> Result<bool, RuntimeError> {
        self.time("healthcheck", self.inner.healthcheck(id, within))
            .await
    }

    async fn volume(&self, name: &str) -> Result<Option<Labels>, RuntimeError> {
        self.time("volume", self.inner.volume(name)).await
    }

    async fn create_volume(&self, name: &str, labels: &Labels) -> Result<(), RuntimeError> {
        self.time("create_volume", self.inner.create_volume(name, labels))
            .await
    }

    async fn volumes(&self) -> Result<Vec<Volume>, RuntimeError> {
        self.time("volumes", self.inner.volumes()).await
    }

    async fn remove_volume(&self, name: &str) -> Result<(), RuntimeError> {
        self.time("remove_volume", self.inner.remove_volume(name))
            .await
    }

    async fn secrets(&self) -> Result<Vec<Secret>, RuntimeError> {
        self.time("secrets", self.inner.secrets()).await
    }

    async fn secret(&self, name: &str) -> Result<Option<Labels>, RuntimeError> {
        self.time("secret", self.inner.secret(name)).await
    }

    async fn create_secret(
        &self,
        name: &str,
        value: &SecretValue,
        labels: &Labels,
    ) -> Result<(), RuntimeError> {
        let create = self.inner.create_secret(name, value, labels);
        self.time("create_secret", create).await
    }

    async fn remove_secret(&self, name: &str) -> Result<(), RuntimeError> {
        self.time("remove_secret", self.inner.remove_secret(name))
            .await
    }

    async fn network(&self, name: &str) -> Result<Option<Network>, RuntimeError> {
        self.time("network", self.inner.network(name)).await
    }

    async fn create_network(&self, name: &str, network: &Network) -> Result<(), RuntimeError> {
        self.time("create_network", self.inner.create_network(name, network))
            .await
    }

    async fn remove_network(&self, name: &str) -> Result<(), RuntimeError> {
        self.time("remove_network", self.inner.remove_network(name))
            .await
    }

    async fn events(&self, label: &str) -> Result<RuntimeEvents, RuntimeError> {
        self.time("events", self.inner.events(label)).await
    }
}
