//! The sockets: opened and closed as the graph changes, each without touching the
//! others. One that can't be opened is reported, and tried again.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Shared, tcp, udp};
use crate::manifest::Protocol;
use crate::proxy::listener::accept;
use crate::traffic::{FailedListener, Listener};

/// How often a listener that couldn't be opened is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Podman's own DNS listens there, on each network's address. Once this port is taken
/// on all addresses, no container on such a network can start any more.
const DNS: u16 = 53;
const FOR_CONTAINERS: &str = "Podman's networks need port 53 for their DNS: give the proxy an \
                              address of its own with --l4-bind";

/// All listeners of the graph.
#[derive(Debug)]
pub(in crate::proxy) struct Listeners {
    shared: Arc<Shared>,
    bind: IpAddr,
    /// When nothing is opened any more and everything closes.
    stop: CancellationToken,
    states: Mutex<BTreeMap<Listener, State>>,
    failed: watch::Sender<Vec<FailedListener>>,
}

#[derive(Debug)]
enum State {
    Open(Open),
    Failed(io::Error),
}

#[derive(Debug)]
struct Open {
    close: CancellationToken,
    task: JoinHandle<()>,
}

impl Listeners {
    /// None yet; they will be on this address, until `stop`.
    pub fn new(shared: Arc<Shared>, bind: IpAddr, stop: CancellationToken) -> Self {
        Self {
            shared,
            bind,
            stop,
            states: Mutex::default(),
            failed: watch::Sender::new(Vec::new()),
        }
    }

    /// Those that couldn't be opened.
    pub fn failed(&self) -> watch::Receiver<Vec<FailedListener>> {
        self.failed.subscribe()
    }

    /// Opens and closes what the table that serves asks for. When it returns, what
    /// isn't served is among the failed ones.
    pub async fn follow(&self) {
        let mut states = self.states.lock().await;
        if self.stop.is_cancelled() {
            return;
        }
        let wanted = self.shared.switch.listeners();
        let gone = states.keys().filter(|listener| !wanted.contains(listener));
        for listener in gone.copied().collect::<Vec<_>>() {
            if let Some(state) = states.remove(&listener) {
                close(listener, state).await;
            }
        }
        for listener in wanted {
            if !matches!(states.get(&listener), Some(State::Open(_))) {
                let before = states.remove(&listener);
                let state = self.open(listener, before.is_some()).await;
                states.insert(listener, state);
            }
        }
        self.tell(&states);
    }

    /// Tries again what couldn't be opened, until the proxy stops.
    pub async fn keep_trying(&self) {
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(TRY_AGAIN) => {}
            }
            if !self.failed.borrow().is_empty() {
                self.follow().await;
            }
        }
    }

    /// Closes everything after `stop`.
    pub async fn close(&self) {
        let states = std::mem::take(&mut *self.states.lock().await);
        for (listener, state) in states {
            close(listener, state).await;
        }
    }

    async fn open(&self, listener: Listener, again: bool) -> State {
        match self.bind(listener).await {
            Ok(open) => {
                tracing::info!(%listener, address = %self.bind, "serving");
                State::Open(open)
            }
            Err(error) => {
                if !again {
                    tracing::error!(%listener, address = %self.bind, %error, "can't be opened; it is tried again");
                }
                State::Failed(error)
            }
        }
    }

    async fn bind(&self, listener: Listener) -> io::Result<Open> {
        if listener.port == DNS && self.bind.is_unspecified() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, FOR_CONTAINERS));
        }
        let address = SocketAddr::new(self.bind, listener.port);
        let close = self.stop.child_token();
        let task = match listener.protocol {
            Protocol::Tcp => {
                let socket = TcpListener::bind(address).await?;
                let shared = Arc::clone(&self.shared);
                let room = Arc::clone(&shared.room);
                let serve = move |stream, _, place| {
                    let served = tcp::serve(stream, listener, Arc::clone(&shared));
                    shared.connections.spawn(async move {
                        served.await;
                        drop(place);
                    });
                };
                tokio::spawn(accept(socket, room, close.clone(), serve))
            }
            Protocol::Udp => {
                let socket = UdpSocket::bind(address).await?;
                let shared = Arc::clone(&self.shared);
                tokio::spawn(udp::serve(socket, listener, shared, close.clone()))
            }
        };
        Ok(Open { close, task })
    }

    fn tell(&self, states: &BTreeMap<Listener, State>) {
        let failed: Vec<_> = states
            .iter()
            .filter_map(|(listener, state)| match state {
                State::Open(_) => None,
                State::Failed(error) => Some(FailedListener {
                    listener: *listener,
                    why: error.to_string(),
                }),
            })
            .collect();
        let metrics = &self.shared.metrics;
        metrics.listeners(states.len() - failed.len(), failed.len());
        self.failed.send_if_modified(|told| {
            let changed = *told != failed;
            *told = failed;
            changed
        });
    }
}

/// Closes a socket; what it has accepted goes on.
async fn close(listener: Listener, state: State) {
    let State::Open(open) = state else { return };
    open.close.cancel();
    match open.task.await {
        Ok(()) => tracing::info!(%listener, "closed"),
        Err(error) => tracing::error!(%listener, %error, "broke down"),
    }
}
