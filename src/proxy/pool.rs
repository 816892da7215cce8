//! Connections to one backend: kept-alive ones for HTTP/1.1, one that all requests
//! share for HTTP/2. They belong to the backend and end with it, so that no
//! connection outlives the table that it was opened for.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::body::Upload;
use super::upstream::Link;
use crate::manifest::AppProtocol;

/// Idle HTTP/1.1 connections that are kept.
const MOST_IDLE: usize = 64;
/// How long one is kept. Shorter than most servers' own limit, so that few
/// requests meet a connection that is just being closed.
const LONGEST_IDLE: Duration = Duration::from_secs(20);
/// How often an HTTP/2 connection in use is checked to be alive.
const PING_EVERY: Duration = Duration::from_secs(20);

/// The connections to one backend.
#[derive(Debug)]
pub(super) struct Pool {
    address: SocketAddr,
    connections: Connections,
}

#[derive(Debug)]
enum Connections {
    Http1(Mutex<Idle>),
    Http2(tokio::sync::Mutex<Option<http2::SendRequest<Upload>>>),
}

#[derive(Debug, Default)]
struct Idle {
    /// The one used last is at the end, and is used first.
    senders: Vec<(http1::SendRequest<Upload>, Instant)>,
    /// The backend is withdrawn: keep none.
    closed: bool,
}

/// A connection that one request has.
#[derive(Debug)]
pub(super) struct Connection {
    /// It served another request before, so the backend may be closing it.
    pub reused: bool,
    sender: Sender,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Upload>),
    Http2(http2::SendRequest<Upload>),
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    /// The backend refused, or can't be reached.
    #[error("{0}")]
    Failed(io::Error),
    /// It didn't accept in time.
    #[error("it didn't accept the connection in time")]
    TimedOut,
}

impl Pool {
    /// No connection yet.
    pub fn new(address: SocketAddr, protocol: AppProtocol) -> Self {
        let connections = match protocol {
            AppProtocol::Http => Connections::Http1(Mutex::default()),
            AppProtocol::H2c => Connections::Http2(tokio::sync::Mutex::default()),
        };
        Self {
            address,
            connections,
        }
    }

    /// What the backend speaks.
    pub fn protocol(&self) -> AppProtocol {
        match self.connections {
            Connections::Http1(_) => AppProtocol::Http,
            Connections::Http2(_) => AppProtocol::H2c,
        }
    }

    /// A connection; a new one if `fresh`.
    pub async fn connection(
        &self,
        fresh: bool,
        within: Duration,
    ) -> Result<Connection, ConnectError> {
        let opened = match &self.connections {
            Connections::Http1(idle) => {
                let kept = if fresh {
                    None
                } else {
                    lock(idle).take(Instant::now())
                };
                if let Some(sender) = kept {
                    return Ok(Connection {
                        reused: true,
                        sender: Sender::Http1(sender),
                    });
                }
                tokio::time::timeout(within, self.open_http1()).await
            }
            Connections::Http2(shared) => {
                let mut shared = shared.lock().await;
                if let Some(sender) = shared.as_ref()
                    && !fresh
                    && !sender.is_closed()
                {
                    return Ok(Connection {
                        reused: true,
                        sender: Sender::Http2(sender.clone()),
                    });
                }
                let opened = tokio::time::timeout(within, self.open_http2()).await;
                if let Ok(Ok(sender)) = &opened {
                    *shared = Some(sender.clone());
                }
                opened.map(|opened| opened.map(Sender::Http2))
            }
        };
        match opened {
            Ok(Ok(sender)) => Ok(Connection {
                reused: false,
                sender,
            }),
            Ok(Err(error)) => Err(ConnectError::Failed(error)),
            Err(_) => Err(ConnectError::TimedOut),
        }
    }

    async fn stream(&self) -> io::Result<TokioIo<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(TokioIo::new(stream))
    }

    async fn open_http1(&self) -> io::Result<Sender> {
        let (sender, connection) = http1::handshake(self.stream().await?)
            .await
            .map_err(io::Error::other)?;
        tokio::spawn(async move {
            // What fails is told to the request that it fails.
            let _ = connection.with_upgrades().await;
        });
        Ok(Sender::Http1(sender))
    }

    async fn open_http2(&self) -> io::Result<http2::SendRequest<Upload>> {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .handshake(self.stream().await?)
            .await
            .map_err(io::Error::other)?;
        tokio::spawn(async move {
            // As above.
            let _ = connection.await;
        });
        Ok(sender)
    }

    /// Takes a connection back whose response was read to its end.
    pub fn put_back(&self, connection: Connection) {
        if let (Connections::Http1(idle), Sender::Http1(sender)) =
            (&self.connections, connection.sender)
        {
            lock(idle).put(sender, Instant::now());
        }
    }
}

impl Link for Pool {
    /// Closes what no request uses, now and from now on.
    fn withdrawn(&self) {
        if let Connections::Http1(idle) = &self.connections {
            let mut idle = lock(idle);
            idle.closed = true;
            idle.senders.clear();
        }
        // An HTTP/2 connection ends with the backend, once its last stream has.
    }
}

impl Idle {
    fn take(&mut self, now: Instant) -> Option<http1::SendRequest<Upload>> {
        self.prune(now);
        // One that isn't ready is still reading the end of its last exchange.
        let ready = self
            .senders
            .iter()
            .rposition(|(sender, _)| sender.is_ready())?;
        Some(self.senders.remove(ready).0)
    }

    fn put(&mut self, sender: http1::SendRequest<Upload>, now: Instant) {
        self.prune(now);
        if !self.closed && self.senders.len() < MOST_IDLE {
            self.senders.push((sender, now));
        }
    }

    fn prune(&mut self, now: Instant) {
        self.senders.retain(|(sender, since)| {
            !sender.is_closed() && now.saturating_duration_since(*since) < LONGEST_IDLE
        });
    }
}

impl Connection {
    /// Sends a request. One that was surely not sent comes back with the error.
    pub async fn send(
        &mut self,
        request: Request<Upload>,
    ) -> Result<Response<Incoming>, Box<TrySendError<Request<Upload>>>> {
        let answered = match &mut self.sender {
            Sender::Http1(sender) => sender.try_send_request(request).await,
            Sender::Http2(sender) => sender.try_send_request(request).await,
        };
        answered.map_err(Box::new)
    }
}

fn lock(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
