//! The embedded data plane: serves the traffic graph over HTTP, TCP and UDP.
//!
//! - [`serve`] binds the listeners and starts everything else.
//! - `plane` keeps the process registered, follows the graph and acknowledges it.
//! - `records` holds the apps' routes, `table` finds one (both pure), and `switch`
//!   swaps tables and knows what is left of the one before.
//! - `route` chooses among a rule's backends. `upstream` is one of them with what it
//!   has in flight, `serving` all of one table, and `pool` one's HTTP connections.
//! - `listener` has the clients' connections; `forward` one request's way through,
//!   with `headers`, `body`, `tunnel` and `failure`.
//! - `stream` is TCP and UDP.
//!
//! A withdrawal that this data plane has acknowledged is complete: no request
//! enters the backend from there on, and those that had entered are counted until
//! their responses have ended.
//!
//! What a client sees when no backend answers: 404 without a route; 503 with
//! `Retry-After` while the service is withdrawn, or before the graph was read; 502
//! when the backend refuses or breaks off; 504 when it doesn't accept or doesn't
//! answer in time. The text says which, and so does the metric
//! `podherd_proxy_failures_total`.

mod body;
mod failure;
mod forward;
mod headers;
mod listener;
mod metrics;
mod plane;
mod pool;
mod records;
mod route;
mod serving;
mod stream;
mod switch;
mod table;
mod tunnel;
mod upstream;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::forward::Forwarder;
use self::metrics::Metrics;
use self::plane::Plane;
use self::stream::{Listeners, Shared};
use self::switch::Switch;
use crate::clock::Clock;
use crate::manifest::NodeName;
use crate::state::Keys;
use crate::store::Store;

/// How a data plane is set up.
#[derive(Debug, Clone)]
pub struct ProxyOptions {
    /// This host.
    pub node: NodeName,
    /// The data plane's name, unique on the host.
    pub name: String,
    /// Where it listens for HTTP; port 0 takes a free one.
    pub listeners: Vec<SocketAddr>,
    /// The address of the graph's TCP and UDP listeners.
    pub l4_bind: IpAddr,
    /// TCP ports of this host, beside the HTTP listeners', that Podherd has for
    /// itself: no app can listen there.
    pub reserved: BTreeSet<u16>,
    /// Times and numbers.
    pub limits: Limits,
}

/// How long the data plane waits, and how much it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For a backend to accept a connection.
    pub connect: Duration,
    /// For a backend to begin its answer, since the request last moved on.
    pub response_head: Duration,
    /// For a client to send a request's head, also the first and the next.
    pub request_head: Duration,
    /// For requests in flight when the proxy stops.
    pub shutdown: Duration,
    /// Of the registration: how long a data plane that died is waited for.
    pub lease: Duration,
    /// Open HTTP connections of clients, and as many TCP connections; more wait.
    pub connections: usize,
    /// Sessions of one UDP listener. For one more, the one that has been quiet for
    /// longest ends.
    pub udp_sessions: usize,
    /// After how long without a datagram a UDP session ends.
    pub udp_idle: Duration,
    /// The same once its backend is withdrawn, or its place is needed: how long an
    /// answer may take then.
    pub udp_quiet: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            response_head: Duration::from_secs(60),
            request_head: Duration::from_secs(30),
            shutdown: Duration::from_secs(10),
            lease: Duration::from_secs(5),
            connections: 8192,
            udp_sessions: 4096,
            udp_idle: Duration::from_secs(60),
            udp_quiet: Duration::from_secs(1),
        }
    }
}

/// Why a data plane can't start.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// A listener can't be bound.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The name can't be a part of a key.
    #[error("{0:?} is no name for a data plane: it must not be empty or contain a slash")]
    Name(String),
    /// Its metrics are registered already.
    #[error("the proxy's metrics can't be registered: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// A running data plane.
#[derive(Debug)]
pub struct Proxy {
    addresses: Vec<SocketAddr>,
    ready: watch::Receiver<bool>,
    running: JoinHandle<()>,
}

impl Proxy {
    /// The bound addresses, in the order of the listeners.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Whether it has read the graph and serves it.
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Returns when it has read the graph, or has stopped before that.
    pub async fn ready(&self) {
        // An error means that it has stopped.
        let _ = self.ready.clone().wait_for(|ready| *ready).await;
    }

    /// Returns when it has stopped: after `cancel`, once what was in flight has
    /// ended or its time was over.
    pub async fn stopped(self) {
        if let Err(error) = self.running.await {
            tracing::error!(%error, "the proxy broke down");
        }
    }
}

/// Binds the listeners and serves the graph until `cancel`.
///
/// The sockets come before the registration: two processes can't hold one of
/// them, so a record of the same name is a dead predecessor's.
///
/// # Errors
/// When a listener can't be bound, or the name or the metrics are refused.
pub async fn serve(
    options: ProxyOptions,
    store: Arc<dyn Store>,
    keys: Keys,
    clock: Arc<dyn Clock>,
    registry: &Registry,
    cancel: CancellationToken,
) -> Result<Proxy, ProxyError> {
    let ProxyOptions {
        node,
        name,
        listeners,
        l4_bind,
        mut reserved,
        limits,
    } = options;
    if name.is_empty() || name.contains('/') {
        return Err(ProxyError::Name(name));
    }
    let listeners = bind(listeners).await?;
    let addresses: Vec<_> = listeners.iter().map(|(address, _)| *address).collect();
    reserved.extend(addresses.iter().map(SocketAddr::port));
    let metrics = Metrics::register(registry)?;
    let switch = Arc::new(Switch::new(metrics.clone()));
    let (sender, ready) = watch::channel(false);
    let hard_stop = CancellationToken::new();
    let shared = Arc::new(Shared {
        switch: Arc::clone(&switch),
        metrics: metrics.clone(),
        limits,
        room: Arc::new(Semaphore::new(limits.connections)),
        connections: TaskTracker::new(),
        hard_stop: hard_stop.clone(),
    });
    let streams = Arc::new(Listeners::new(Arc::clone(&shared), l4_bind, cancel.clone()));
    let plane = Plane {
        store,
        keys,
        node,
        name,
        since: clock.now(),
        lease: limits.lease,
        switch: Arc::clone(&switch),
        listeners: Arc::clone(&streams),
        reserved,
        metrics: metrics.clone(),
        ready: sender,
    };
    let forwarder = Arc::new(Forwarder {
        switch,
        metrics,
        limits,
        tunnels: TaskTracker::new(),
        hard_stop,
    });
    let serving = Serving {
        listeners: listeners
            .into_iter()
            .map(|(_, listener)| listener)
            .collect(),
        forwarder,
        streams,
        connections: shared.connections.clone(),
    };
    let running = serving.run(plane, cancel);
    Ok(Proxy {
        addresses,
        ready,
        running: tokio::spawn(running),
    })
}

async fn bind(addresses: Vec<SocketAddr>) -> Result<Vec<(SocketAddr, TcpListener)>, ProxyError> {
    let mut listeners = Vec::new();
    for address in addresses {
        let failed = |source| ProxyError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        listeners.push((listener.local_addr().map_err(failed)?, listener));
    }
    Ok(listeners)
}

/// Everything that serves.
struct Serving {
    listeners: Vec<TcpListener>,
    forwarder: Arc<Forwarder>,
    streams: Arc<Listeners>,
    /// TCP connections.
    connections: TaskTracker,
}

impl Serving {
    async fn run(mut self, plane: Plane, cancel: CancellationToken) {
        let leave = CancellationToken::new();
        let plane = tokio::spawn(plane.run(leave.clone()));
        let clients = TaskTracker::new();
        self.accept(&clients, &cancel);
        self.streams.keep_trying().await;

        // What is in flight ends first. Until then the plane stays registered: what
        // it drains is still waited for.
        let Self {
            forwarder,
            streams,
            connections,
            ..
        } = self;
        streams.close().await;
        let ended = || async {
            for tracker in [&clients, &connections, &forwarder.tunnels] {
                tracker.close();
                tracker.wait().await;
            }
        };
        let limit = forwarder.limits.shutdown;
        if tokio::time::timeout(limit, ended()).await.is_err() {
            tracing::warn!("requests were still in flight when the proxy had to stop");
        }
        forwarder.hard_stop.cancel();
        ended().await;
        leave.cancel();
        if let Err(error) = plane.await {
            tracing::error!(%error, "the data plane's link to the store broke down");
        }
    }

    fn accept(&mut self, clients: &TaskTracker, stop: &CancellationToken) {
        let room = Arc::new(Semaphore::new(self.forwarder.limits.connections));
        for listener in std::mem::take(&mut self.listeners) {
            let (forwarder, tracker) = (Arc::clone(&self.forwarder), clients.clone());
            let stopped = stop.clone();
            let serve = move |stream, client, place| {
                listener::spawn(&forwarder, &tracker, &stopped, (stream, client, place));
            };
            clients.spawn(listener::accept(
                listener,
                Arc::clone(&room),
                stop.clone(),
                serve,
            ));
        }
    }
}
