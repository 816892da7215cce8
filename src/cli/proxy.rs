//! `podherd proxy`: the data plane alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::connect;
use super::process::Process;
use crate::clock::SystemClock;
use crate::manifest::NodeName;
use crate::proxy::{self, Limits, Proxy, ProxyError};
use crate::settings::{
    ConfigOption, EtcdOptions, Host, ListenOptions, LogOptions, NodeOptions, ProxyOptions,
    ProxySettings,
};
use crate::state::Keys;
use crate::store::Store;
use crate::telemetry::Check;

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigOption,
    #[command(flatten)]
    etcd: EtcdOptions,
    #[command(flatten)]
    node: NodeOptions,
    #[command(flatten)]
    proxy: ProxyOptions,
    #[command(flatten)]
    listen: ListenOptions,
    #[command(flatten)]
    log: LogOptions,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let file = arguments.config.load()?;
    let etcd = arguments.etcd.resolve(&file)?;
    let node = arguments.node.resolve(&file, &Host::here())?;
    let settings = arguments.proxy.resolve(&file)?;
    let listen = arguments.listen.resolve(&file);
    let process = Process::start(&arguments.log.resolve(&file), listen).await?;

    let Some(store) = process.unless_stopped(connect::etcd(&etcd, &process)).await else {
        process.end();
        return Ok(());
    };
    let store = store?;
    let keys = Keys::new(&etcd.prefix);
    let reserved = BTreeSet::from([listen.port()]);
    let serving = Serving::start(settings, node, store, keys, &process, reserved).await?;
    serving.until(process.stop.cancelled()).await;
    process.end();
    Ok(())
}

/// A proxy that serves in this process.
#[derive(Debug)]
pub(super) struct Serving {
    proxy: Proxy,
    stop: CancellationToken,
    ready: Ready,
}

impl Serving {
    /// Binds the HTTP listeners; the graph may come later. No app can listen on a
    /// reserved TCP port.
    pub(super) async fn start(
        settings: ProxySettings,
        node: NodeName,
        store: Arc<dyn Store>,
        keys: Keys,
        process: &Process,
        reserved: BTreeSet<u16>,
    ) -> Result<Self, ProxyError> {
        let stop = CancellationToken::new();
        let options = proxy::ProxyOptions {
            node,
            name: settings.name,
            listeners: settings.http,
            l4_bind: settings.l4_bind,
            reserved,
            limits: Limits::default(),
        };
        let registry = process.metrics.registry();
        let clock = Arc::new(SystemClock);
        let proxy = proxy::serve(options, store, keys, clock, registry, stop.clone()).await?;
        for address in proxy.addresses() {
            tracing::info!(%address, "serving HTTP");
        }
        let ready = Ready::default();
        process.health.require(Arc::new(ready.clone()));
        Ok(Self { proxy, stop, ready })
    }

    /// Serves until `end` has come, then until requests in flight have ended.
    pub(super) async fn until<T>(self, end: impl Future<Output = T>) -> T {
        let wait = async {
            self.proxy.ready().await;
            self.ready.0.store(self.proxy.is_ready(), Ordering::Relaxed);
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            ended = end => ended,
            // Never comes.
            () = wait => std::future::pending().await,
        };
        self.stop.cancel();
        self.proxy.stopped().await;
        ended
    }
}

/// Whether the proxy has read the graph.
#[derive(Debug, Clone, Default)]
struct Ready(Arc<AtomicBool>);

#[async_trait]
impl Check for Ready {
    fn name(&self) -> &'static str {
        "proxy"
    }

    async fn check(&self) -> Result<String, String> {
        if self.0.load(Ordering::Relaxed) {
            Ok("serving".to_owned())
        } else {
            Err("the routes haven't been read from etcd yet".to_owned())
        }
    }
}
