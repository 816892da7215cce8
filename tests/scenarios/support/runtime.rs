//! The runtime, watched: effects can be cut, and each is checked against the
//! invariants as it begins.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use podherd::manifest::Protocol;
use podherd::runtime::{
    Container, ContainerSpec, ContainerSummary, Image, Labels, Network, PullReport, Runtime,
    RuntimeError, RuntimeEvents, Secret, SecretValue, Volume, Wanted,
};
use podherd::state::ContainerId;

use super::cut::Gate;
use super::watch::Watch;

#[derive(Debug)]
pub struct WatchedRuntime {
    pub watch: Watch,
    pub gate: Gate,
}

impl WatchedRuntime {
    async fn effect<T>(
        &self,
        call: &'static str,
        act: impl Future<Output = Result<T, RuntimeError>>,
    ) -> Result<T, RuntimeError> {
        let watched = async {
            elsewhere().await;
            self.watch.acts(call);
            act.await
        };
        let lost = || RuntimeError::Unavailable {
            call,
            message: "the connection broke".to_owned(),
        };
        self.gate.pass(watched, lost).await
    }
}

/// Lets another app's pass go on: a real call takes its time.
async fn elsewhere() {
    tokio::task::yield_now().await;
}

#[async_trait]
impl Runtime for WatchedRuntime {
    async fn ping(&self) -> Result<(), RuntimeError> {
        self.watch.runtime.ping().await
    }

    async fn port_is_free(&self, protocol: Protocol, port: u16) -> Result<bool, RuntimeError> {
        self.watch.runtime.port_is_free(protocol, port).await
    }

    async fn image(
        &self,
        reference: &str,
        wanted: Wanted<'_>,
        report: &PullReport,
    ) -> Result<Image, RuntimeError> {
        let local = match wanted {
            Wanted::ByPolicy(_) => false,
            Wanted::Present(_) => true,
            Wanted::Exactly(digest) => {
                let present = Wanted::Present(digest);
                let found = self.watch.runtime.image(reference, present, report);
                found.await.is_ok()
            }
        };
        if !local {
            let takes = *self.watch.pulls_take.lock().unwrap();
            tokio::time::sleep(takes).await;
        }
        self.watch.runtime.image(reference, wanted, report).await
    }

    async fn list(&self, labels: &Labels) -> Result<Vec<ContainerSummary>, RuntimeError> {
        self.watch.runtime.list(labels).await
    }

    async fn inspect(&self, id_or_name: &str) -> Result<Option<Container>, RuntimeError> {
        self.watch.runtime.inspect(id_or_name).await
    }

    async fn check_user_ids(&self) -> Result<(), RuntimeError> {
        self.watch.runtime.check_user_ids().await
    }

    async fn create(&self, spec: &ContainerSpec) -> Result<ContainerId, RuntimeError> {
        self.effect("create", self.watch.runtime.create(spec)).await
    }

    async fn start(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let start = async {
            self.watch.starts(id);
            self.watch.runtime.start(id).await
        };
        self.effect("start", start).await
    }

    async fn signal(&self, id: &ContainerId, signal: &str) -> Result<(), RuntimeError> {
        let send = async {
            self.watch.ends(id);
            self.watch.runtime.signal(id, signal).await
        };
        self.effect("signal", send).await
    }

    async fn wait_stopped(&self, id: &ContainerId, within: Duration) -> Result<bool, RuntimeError> {
        self.watch.runtime.wait_stopped(id, within).await
    }

    async fn remove(&self, id: &ContainerId, force: bool) -> Result<(), RuntimeError> {
        let remove = async {
            self.watch.ends(id);
            self.watch.runtime.remove(id, force).await
        };
        self.effect("remove", remove).await
    }

    async fn logs(
        &self,
        id: &ContainerId,
        lines: usize,
        since: Option<Timestamp>,
    ) -> Result<Vec<String>, RuntimeError> {
        self.watch.runtime.logs(id, lines, since).await
    }

    async fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        within: Duration,
    ) -> Result<i64, RuntimeError> {
        self.watch.runtime.exec(id, command, within).await
    }

    async fn healthcheck(&self, id: &ContainerId, within: Duration) -> Result<bool, RuntimeError> {
        self.watch.runtime.healthcheck(id, within).await
    }

    async fn volume(&self, name: &str) -> Result<Option<Labels>, RuntimeError> {
        self.watch.runtime.volume(name).await
    }

    async fn create_volume(&self, name: &str, labels: &Labels) -> Result<(), RuntimeError> {
        let create = self.watch.runtime.create_volume(name, labels);
        self.effect("create_volume", create).await
    }

    async fn volumes(&self) -> Result<Vec<Volume>, RuntimeError> {
        Runtime::volumes(self.watch.runtime.as_ref()).await
    }

    async fn remove_volume(&self, name: &str) -> Result<(), RuntimeError> {
        let remove = self.watch.runtime.remove_volume(name);
        self.effect("remove_volume", remove).await
    }

    async fn secrets(&self) -> Result<Vec<Secret>, RuntimeError> {
        self.watch.runtime.secrets().await
    }

    async fn secret(&self, name: &str) -> Result<Option<Labels>, RuntimeError> {
        self.watch.runtime.secret(name).await
    }

    async fn create_secret(
        &self,
        name: &str,
        value: &SecretValue,
        labels: &Labels,
    ) -> Result<(), RuntimeError> {
        let create = self.watch.runtime.create_secret(name, value, labels);
        self.effect("create_secret", create).await
    }

    async fn remove_secret(&self, name: &str) -> Result<(), RuntimeError> {
        let remove = self.watch.runtime.remove_secret(name);
        self.effect("remove_secret", remove).await
    }

    async fn network(&self, name: &str) -> Result<Option<Network>, RuntimeError> {
        let found = self.watch.runtime.network(name).await;
        elsewhere().await;
        found
    }

    async fn create_network(&self, name: &str, network: &Network) -> Result<(), RuntimeError> {
        let create = self.watch.runtime.create_network(name, network);
        self.effect("create_network", create).await
    }

    async fn remove_network(&self, name: &str) -> Result<(), RuntimeError> {
        let takes = *self.watch.network_removals_take.lock().unwrap();
        let remove = async {
            tokio::time::sleep(takes).await;
            self.watch.runtime.remove_network(name).await
        };
        self.effect("remove_network", remove).await
    }

    async fn events(&self, label: &str) -> Result<RuntimeEvents, RuntimeError> {
        self.watch.runtime.events(label).await
    }
}
