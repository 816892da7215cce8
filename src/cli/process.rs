//! What every command that stays begins and ends with: logs, metrics and
//! health, and the signals that end it.

use std::net::SocketAddr;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::settings::LogSettings;
use crate::telemetry::{self, Health, Metrics};

/// A process that stays until it is told to stop.
#[derive(Debug)]
pub(super) struct Process {
    /// What is shown at `/metrics`.
    pub metrics: Metrics,
    /// What is shown at `/healthz` and `/readyz`.
    pub health: Health,
    /// Cancelled by SIGTERM and SIGINT.
    pub stop: CancellationToken,
    listener: JoinHandle<()>,
}

impl Process {
    /// Begins to log, to show itself on `listen`, and to heed signals.
    pub(super) async fn start(log: &LogSettings, listen: SocketAddr) -> anyhow::Result<Self> {
        telemetry::init(log.format, &log.filter).context("--log")?;
        let metrics = Metrics::new()?;
        let health = Health::default();
        let socket = TcpListener::bind(listen)
            .await
            .with_context(|| format!("--listen {listen}: can't listen there"))?;
        let stop = CancellationToken::new();
        heed_signals(stop.clone())?;
        let served = telemetry::serve(
            socket,
            metrics.clone(),
            health.clone(),
            CancellationToken::new(),
        );
        let listener = tokio::spawn(async move {
            if let Err(error) = served.await {
                tracing::error!(%error, "metrics and health can't be served any more");
            }
        });
        tracing::info!(version = env!("CARGO_PKG_VERSION"), %listen, "podherd starts");
        Ok(Self {
            metrics,
            health,
            stop,
            listener,
        })
    }

    /// What comes of this, unless the process is told to stop before.
    pub(super) async fn unless_stopped<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            came = wait => Some(came),
        }
    }

    /// The last thing that is done.
    pub(super) fn end(self) {
        self.listener.abort();
        tracing::info!("podherd has ended; workloads go on");
    }
}

/// The first signal ends the process in order, a second one at once.
fn heed_signals(stop: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut told = async move || {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    };
    tokio::spawn(async move {
        let signal = told().await;
        tracing::info!(
            signal,
            "told to stop: what is worked on ends at the next safe point"
        );
        stop.cancel();
        let signal = told().await;
        tracing::warn!(
            signal,
            "told to stop again: ends at once, and the next start cleans up"
        );
        std::process::exit(i32::from(super::FAILED));
    });
    Ok(())
}
