//! Client connections: accepting, serving and ending them.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::body::Gauged;
use super::forward::Forwarder;

/// Pause after an accept that failed, most often for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often an HTTP/2 client is checked to be alive.
const PING_EVERY: Duration = Duration::from_secs(30);
/// What an HTTP/2 client begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Accepts until `stop`, and hands each connection on with its place.
pub(super) async fn accept(
    listener: TcpListener,
    room: Arc<Semaphore>,
    stop: CancellationToken,
    mut serve: impl FnMut(TcpStream, SocketAddr, OwnedSemaphorePermit),
) {
    loop {
        let accepted = async {
            // At the limit clients wait in the kernel's queue.
            let place = Arc::clone(&room).acquire_owned().await;
            (place, listener.accept().await)
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = accepted => accepted,
        };
        match accepted {
            (Ok(place), Ok((stream, client))) => serve(stream, client, place),
            (_, Err(error)) => {
                tracing::warn!(%error, "a connection couldn't be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            // Nobody closes the semaphore.
            (Err(_), Ok(_)) => return,
        }
    }
}

/// Serves a client's connection in `tracker`.
pub(super) fn spawn(
    forwarder: &Arc<Forwarder>,
    tracker: &TaskTracker,
    stop: &CancellationToken,
    (stream, client, place): (TcpStream, SocketAddr, OwnedSemaphorePermit),
) {
    let served = serve(stream, client, Arc::clone(forwarder), stop.clone());
    let gauged = Gauged::new(&forwarder.metrics.connections);
    tracker.spawn(async move {
        served.await;
        drop((gauged, place));
    });
}

async fn serve(
    stream: TcpStream,
    client: SocketAddr,
    forwarder: Arc<Forwarder>,
    stop: CancellationToken,
) {
    // Fails only on a connection that is closed already.
    let _ = stream.set_nodelay(true);
    let limits = forwarder.limits;
    let hard_stop = forwarder.hard_stop.clone();
    let stream = Begun::new(stream, limits.request_head);
    let service = service_fn(move |request| {
        let forwarder = Arc::clone(&forwarder);
        async move { Ok::<_, Infallible>(forwarder.serve(client.ip(), request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request_head);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = hard_stop.cancelled() => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%client, error, "a client's connection broke");
    }
}

/// A connection that must begin to speak in time. Afterwards HTTP/1.1's own limit
/// on heads, or HTTP/2's pings, see to it that it lives.
#[derive(Debug)]
struct Begun {
    stream: TcpStream,
    /// How much of HTTP/2's preface has come; `None` once it is surely decided
    /// what the client speaks.
    matched: Option<usize>,
    deadline: Pin<Box<Sleep>>,
}

impl Begun {
    fn new(stream: TcpStream, within: Duration) -> Self {
        Self {
            stream,
            matched: Some(0),
            deadline: Box::pin(tokio::time::sleep_until(Instant::now() + within)),
        }
    }

    fn look(&mut self, read: &[u8]) {
        let Some(matched) = self.matched else { return };
        let rest = PREFACE.get(matched..).unwrap_or_default();
        // The end of the stream decides it, too.
        let undecided = !read.is_empty() && read.len() < rest.len() && rest.starts_with(read);
        self.matched = undecided.then_some(matched + read.len());
    }
}

impl AsyncRead for Begun {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if self.matched.is_none() {
            return polled;
        }
        if polled.is_ready() {
            self.look(buf.filled().get(before..).unwrap_or_default());
            polled
        } else {
            let late = self.deadline.as_mut().poll(cx);
            late.map(|()| Err(io::ErrorKind::TimedOut.into()))
        }
    }
}

impl AsyncWrite for Begun {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, server) = tokio::join!(client, listener.accept());
        (client.unwrap(), server.unwrap().0)
    }

    async fn decided(said: &[&[u8]]) -> Option<usize> {
        let (_client, server) = pair().await;
        let mut begun = Begun::new(server, Duration::from_secs(1));
        for read in said {
            begun.look(read);
        }
        begun.matched
    }

    #[tokio::test]
    async fn a_client_is_waited_for_until_it_is_clear_what_it_speaks() {
        assert_eq!(decided(&[]).await, Some(0));
        assert_eq!(decided(&[b"PRI "]).await, Some(4));
        assert_eq!(decided(&[b"PRI ", b"* HTTP"]).await, Some(10));
        assert_eq!(decided(&[b"P", b"OST"]).await, None);
        assert_eq!(decided(&[b"GET / HTTP/1.1"]).await, None);
        assert_eq!(decided(&[PREFACE]).await, None);
        assert_eq!(decided(&[b""]).await, None);
    }
}
