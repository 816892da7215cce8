//! How etcd and Podman are reached.

use std::sync::Arc;
use std::time::Duration;

use super::process::Process;
use crate::backoff::Pauses;
use crate::clock::Entropy;
use crate::runtime::{AuthFile, Deadlines, Podman, Runtime, RuntimeError};
use crate::settings::PodmanSettings;
use crate::store::{EtcdOptions, EtcdStore, Store, StoreError};
use crate::telemetry::{EtcdCheck, MeteredRuntime, MeteredStore, Metrics};

/// Pauses before etcd is tried again.
const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(15),
};

/// Connects to etcd, however long it takes to come up; until then the process
/// isn't ready. What etcd refuses for good, a password or settings, is an error
/// at once.
pub(super) async fn etcd(
    options: &EtcdOptions,
    process: &Process,
) -> Result<Arc<dyn Store>, StoreError> {
    process.health.waits_for("etcd");
    let entropy = Entropy::from_system();
    let mut failures = 0;
    loop {
        // Boxed: it is large, and lives in the frames of all who wait for it.
        match Box::pin(EtcdStore::connect(options)).await {
            Ok(store) => {
                let metrics = process.metrics.etcd.clone();
                let store: Arc<dyn Store> = Arc::new(MeteredStore::new(store, metrics));
                process
                    .health
                    .require(Arc::new(EtcdCheck(Arc::clone(&store))));
                process.health.started();
                return Ok(store);
            }
            Err(error @ StoreError::Unavailable { .. }) => {
                failures += 1;
                let pause = PAUSES.after(failures, &entropy);
                tracing::warn!(%error, ?pause, "trying again");
                tokio::time::sleep(pause).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The Podman behind this socket; it may come up later.
pub(super) fn podman(
    settings: &PodmanSettings,
    metrics: &Metrics,
) -> Result<Arc<dyn Runtime>, RuntimeError> {
    let deadlines = Deadlines {
        pull: settings.pull_timeout,
        stall: settings.pull_stall,
        ..Deadlines::default()
    };
    let podman = Podman::connect(&format!("unix://{}", settings.socket.display()))?
        .with_deadlines(deadlines)
        .with_auth_file(settings.auth_file.clone().map(AuthFile::new));
    Ok(Arc::new(MeteredRuntime::new(
        podman,
        metrics.podman.clone(),
    )))
}
