//! The runtime, watched: effects can be cut, and each is checked against the
//! invariants as it begins.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use podherd::manifest::Protocol;
use podherd::runtime::{
    Container, ContainerSpec, ContainerSummary, Image, Labels, MemoryRuntime, Network, PullReport,
    Runtime, RuntimeError, RuntimeEvents, Secret, SecretValue, Volume, Wanted, deadline,
};
use podherd::state::ContainerId;

use super::cut::{Broken, Gate, Site};
use super::watch::Watch;

#[derive(Debug)]
pub struct WatchedRuntime {
    pub watch: Watch,
    pub gate: Gate,
}

impl WatchedRuntime {
    async fn effect<T>(
        &self,
        site: Site,
        act: impl Future<Output = Result<T, RuntimeError>>,
    ) -> Result<T, RuntimeError> {
        let (call, deadline) = (site.call, site.deadline);
        let watched = async {
            elsewhere().await;
            act.await
        };
        self.gate.alive().await;
        self.watch.acts(call, deadline);
        let broken = |why| match why {
            Broken::Connection => RuntimeError::Unavailable {
                call,
                message: "the connection broke".to_owned(),
            },
            Broken::Refused => RuntimeError::Refused {
                call,
                message: "it didn't want to".to_owned(),
            },
            Broken::Deadline(time) => RuntimeError::Deadline {
                call,
                seconds: time.as_secs(),
            },
        };
        self.gate.pass(site, watched, broken).await
    }

    /// An effect on a container.
    fn on(&self, call: &'static str, id: &ContainerId, deadline: Duration) -> Site {
        let app = self.watch.app_of(id);
        self.watch.site(call, app.as_deref(), deadline)
    }

    /// An effect on something that is made with these labels.
    fn with(&self, call: &'static str, labels: &Labels) -> Site {
        let app = labels.get(podherd::state::labels::APP);
        self.watch
            .site(call, app.map(String::as_str), deadline::CREATE)
    }

    /// The runtime, as long as the process that asks is alive.
    async fn inner(&self) -> &MemoryRuntime {
        self.gate.alive().await;
        &self.watch.runtime
    }
}

/// Lets another app's pass go on: a real call takes its time.
async fn elsewhere() {
    tokio::task::yield_now().await;
}

#[async_trait]
impl Runtime for WatchedRuntime {
    async fn ping(&self) -> Result<(), RuntimeError> {
        self.inner().await.ping().await
    }

    async fn port_is_free(&self, protocol: Protocol, port: u16) -> Result<bool, RuntimeError> {
        self.inner().await.port_is_free(protocol, port).await
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
        self.gate.alive().await;
        if !local {
            let takes = *self.watch.pulls_take.lock().unwrap();
            tokio::time::sleep(takes).await;
        }
        self.watch.runtime.image(reference, wanted, report).await
    }

    async fn list(&self, labels: &Labels) -> Result<Vec<ContainerSummary>, RuntimeError> {
        self.inner().await.list(labels).await
    }

    async fn inspect(&self, id_or_name: &str) -> Result<Option<Container>, RuntimeError> {
        self.inner().await.inspect(id_or_name).await
    }

    async fn check_user_ids(&self) -> Result<(), RuntimeError> {
        self.inner().await.check_user_ids().await
    }

    async fn create(&self, spec: &ContainerSpec) -> Result<ContainerId, RuntimeError> {
        let create = async {
            self.watch.makes(&spec.labels);
            self.watch.runtime.create(spec).await
        };
        self.effect(self.with("create", &spec.labels), create).await
    }

    async fn start(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let start = async {
            self.watch.starts(id);
            self.watch.runtime.start(id).await
        };
        self.effect(self.on("start", id, deadline::START), start)
            .await
    }

    async fn signal(&self, id: &ContainerId, signal: &str) -> Result<(), RuntimeError> {
        let send = async {
            self.watch.ends(id);
            self.watch.runtime.signal(id, signal).await
        };
        self.effect(self.on("signal", id, deadline::SIGNAL), send)
            .await
    }

    async fn wait_stopped(&self, id: &ContainerId, within: Duration) -> Result<bool, RuntimeError> {
        self.inner().await.wait_stopped(id, within).await
    }

    async fn remove(&self, id: &ContainerId, force: bool) -> Result<(), RuntimeError> {
        let remove = async {
            self.watch.ends(id);
            self.watch.runtime.remove(id, force).await
        };
        self.effect(self.on("remove", id, deadline::REMOVE), remove)
            .await
    }

    async fn logs(
        &self,
        id: &ContainerId,
        lines: usize,
        since: Option<Timestamp>,
    ) -> Result<Vec<String>, RuntimeError> {
        self.inner().await.logs(id, lines, since).await
    }

    async fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        within: Duration,
    ) -> Result<i64, RuntimeError> {
        self.inner().await.exec(id, command, within).await
    }

    async fn healthcheck(&self, id: &ContainerId, within: Duration) -> Result<bool, RuntimeError> {
        self.inner().await.healthcheck(id, within).await
    }

    async fn volume(&self, name: &str) -> Result<Option<Labels>, RuntimeError> {
        self.inner().await.volume(name).await
    }

    async fn create_volume(&self, name: &str, labels: &Labels) -> Result<(), RuntimeError> {
        let create = async {
            self.watch.makes(labels);
            self.watch.runtime.create_volume(name, labels).await
        };
        self.effect(self.with("create_volume", labels), create)
            .await
    }

    async fn volumes(&self) -> Result<Vec<Volume>, RuntimeError> {
        Runtime::volumes(self.inner().await).await
    }

    async fn remove_volume(&self, name: &str) -> Result<(), RuntimeError> {
        let remove = async {
            self.watch.deletes("volume", name);
            self.watch.runtime.remove_volume(name).await
        };
        self.effect(
            self.watch.site("remove_volume", None, deadline::REMOVE),
            remove,
        )
        .await
    }

    async fn secrets(&self) -> Result<Vec<Secret>, RuntimeError> {
        self.inner().await.secrets().await
    }

    async fn secret(&self, name: &str) -> Result<Option<Labels>, RuntimeError> {
        self.inner().await.secret(name).await
    }

    async fn create_secret(
        &self,
        name: &str,
        value: &SecretValue,
        labels: &Labels,
    ) -> Result<(), RuntimeError> {
        let create = self.watch.runtime.create_secret(name, value, labels);
        self.effect(self.with("create_secret", labels), create)
            .await
    }

    async fn remove_secret(&self, name: &str) -> Result<(), RuntimeError> {
        let remove = async {
            self.watch.deletes("secret", name);
            self.watch.runtime.remove_secret(name).await
        };
        self.effect(
            self.watch.site("remove_secret", None, deadline::REMOVE),
            remove,
        )
        .await
    }

    async fn network(&self, name: &str) -> Result<Option<Network>, RuntimeError> {
        let found = self.inner().await.network(name).await;
        elsewhere().await;
        found
    }

    async fn create_network(&self, name: &str, network: &Network) -> Result<(), RuntimeError> {
        let create = self.watch.runtime.create_network(name, network);
        self.effect(self.with("create_network", &network.labels), create)
            .await
    }

    async fn remove_network(&self, name: &str) -> Result<(), RuntimeError> {
        let takes = *self.watch.network_removals_take.lock().unwrap();
        let remove = async {
            tokio::time::sleep(takes).await;
            self.watch.runtime.remove_network(name).await
        };
        self.effect(
            self.watch.site("remove_network", None, deadline::REMOVE),
            remove,
        )
        .await
    }

    async fn events(&self, label: &str) -> Result<RuntimeEvents, RuntimeError> {
        self.inner().await.events(label).await
    }
}
