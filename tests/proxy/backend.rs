//! Backends that do what a test tells them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

pub type Body = BoxBody<Bytes, hyper::Error>;
type Handler = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// A server that speaks HTTP/1.1 and h2c, and counts.
pub struct Backend {
    pub name: String,
    pub address: SocketAddr,
    hits: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
    stop: DropGuard,
}

pub fn text(text: impl Into<Bytes>) -> Response<Body> {
    Response::new(
        Full::new(text.into())
            .map_err(|never| match never {})
            .boxed(),
    )
}

impl Backend {
    /// Answers every request as `handler` does.
    pub async fn serve<F>(
        name: &str,
        handler: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |request| Box::pin(handler(request)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let hits = Arc::new(AtomicU64::new(0));
        let connections = Arc::new(AtomicU64::new(0));
        let stop = CancellationToken::new();
        let counters = (Arc::clone(&hits), Arc::clone(&connections));
        tokio::spawn(accept(listener, handler, counters, stop.clone()));
        Self {
            name: name.to_owned(),
            address,
            hits,
            connections,
            stop: stop.drop_guard(),
        }
    }

    /// Answers every request with its name.
    pub async fn named(name: &str) -> Self {
        let answer = name.to_owned();
        Self::serve(name, move |_| {
            let answer = answer.clone();
            async move { text(answer) }
        })
        .await
    }

    /// How many requests have come in.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::SeqCst)
    }

    /// How many connections were opened.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }

    /// Closes the listener and every connection at once, as a stopped container does.
    pub fn kill(self) {
        drop(self.stop);
    }
}

async fn accept(
    listener: TcpListener,
    handler: Handler,
    (hits, connections): (Arc<AtomicU64>, Arc<AtomicU64>),
    stop: CancellationToken,
) {
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted.unwrap().0,
        };
        connections.fetch_add(1, Ordering::SeqCst);
        let (handler, hits, stop) = (Arc::clone(&handler), Arc::clone(&hits), stop.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                hits.fetch_add(1, Ordering::SeqCst);
                let answer = handler(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
            tokio::select! {
                _ = connection => {}
                () = stop.cancelled() => {}
            }
        });
    }
}
