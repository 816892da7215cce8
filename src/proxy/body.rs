//! Bodies on their way through: never buffered, and watched to their end.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use prometheus::IntGauge;
use tokio::time::Instant;

use super::pool::{Connection, Pool};
use super::upstream::InFlight;

/// How far a request's body has come.
#[derive(Debug)]
pub(super) struct Progress(Mutex<State>);

#[derive(Debug, Clone, Copy)]
struct State {
    moved: Instant,
    ended: bool,
    broken: bool,
}

impl Progress {
    fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn state(&self) -> State {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the body last moved on.
    pub fn moved(&self) -> Instant {
        self.state().moved
    }

    /// Whether all of it was sent.
    pub fn ended(&self) -> bool {
        self.state().ended
    }

    /// Whether the client broke it off.
    pub fn broken(&self) -> bool {
        self.state().broken
    }
}

/// A request's body, on its way to a backend.
#[derive(Debug)]
pub(super) struct Upload {
    /// None for the repetition of a request without a body.
    body: Option<Incoming>,
    progress: Arc<Progress>,
}

impl Upload {
    /// Wraps a client's body.
    pub fn new(body: Incoming) -> (Self, Arc<Progress>) {
        let progress = Arc::new(Progress(Mutex::new(State {
            moved: Instant::now(),
            ended: body.is_end_stream(),
            broken: false,
        })));
        let upload = Self {
            body: Some(body),
            progress: Arc::clone(&progress),
        };
        (upload, progress)
    }

    /// A body of nothing.
    pub fn nothing(progress: Arc<Progress>) -> Self {
        Self {
            body: None,
            progress,
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(&mut *body).poll_frame(cx);
        if let Poll::Ready(frame) = &polled {
            let ended = frame.is_none() || body.is_end_stream();
            let broken = matches!(frame, Some(Err(_)));
            this.progress.update(|state| {
                state.moved = Instant::now();
                state.ended |= ended;
                state.broken |= broken;
            });
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

/// Counts a request as in flight for the metrics, until dropped.
#[derive(Debug)]
pub(super) struct Gauged(IntGauge);

impl Gauged {
    /// Counts one in.
    pub fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Gauged {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A backend's answer on its way to the client. Until it has ended, its request
/// is in flight and its connection in use.
#[derive(Debug)]
pub(super) struct Download {
    body: Incoming,
    /// Read to its end, trailers and all.
    complete: bool,
    connection: Option<Connection>,
    in_flight: Option<InFlight<Pool>>,
    gauged: Option<Gauged>,
}

impl Download {
    fn finish(&mut self) {
        let in_flight = self.in_flight.take();
        if let (Some(connection), Some(in_flight)) = (self.connection.take(), &in_flight)
            && (self.complete || self.body.is_end_stream())
        {
            in_flight.upstream().link.put_back(connection);
        }
        drop(self.gauged.take());
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        self.finish();
    }
}

/// What a client gets.
#[derive(Debug)]
pub(super) enum Answer {
    /// The proxy's own words, if any.
    Own(Option<Bytes>),
    /// A backend's.
    Backend(Box<Download>),
}

impl Answer {
    /// A backend's answer, with what it keeps busy.
    pub fn backend(
        body: Incoming,
        connection: Connection,
        in_flight: InFlight<Pool>,
        gauged: Gauged,
    ) -> Self {
        Self::Backend(Box::new(Download {
            body,
            complete: false,
            connection: Some(connection),
            in_flight: Some(in_flight),
            gauged: Some(gauged),
        }))
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut *self {
            Self::Own(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Backend(download) => {
                let polled = Pin::new(&mut download.body).poll_frame(cx);
                match &polled {
                    Poll::Ready(None) => {
                        download.complete = true;
                        download.finish();
                    }
                    Poll::Ready(Some(Err(_))) => download.finish(),
                    Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(text) => text.is_none(),
            Self::Backend(download) => download.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
            Self::Backend(download) => download.body.size_hint(),
        }
    }
}
