//! One request's way: look up, count in, connect, send, answer.

use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::{Body, Incoming};
use hyper::upgrade::OnUpgrade;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Limits;
use super::body::{Answer, Gauged, Progress, Upload};
use super::failure::Failure;
use super::headers::{
    authority, for_http1, for_http2, strip_hop_by_hop, to_backend, wanted_upgrade,
};
use super::metrics::{Metrics, RouteMetrics};
use super::pool::{ConnectError, Connection, Pool};
use super::route::{Admission, HttpRoute};
use super::switch::Switch;
use super::tunnel;
use super::upstream::InFlight;
use crate::manifest::AppProtocol;
use crate::traffic::Backend;

/// What every request needs.
#[derive(Debug)]
pub(super) struct Forwarder {
    /// Where requests are routed.
    pub switch: Arc<Switch>,
    /// What is counted.
    pub metrics: Metrics,
    /// Times.
    pub limits: Limits,
    /// Upgraded connections, which outlive the request that opened them.
    pub tunnels: TaskTracker,
    /// Ends them.
    pub hard_stop: CancellationToken,
}

/// A request, ready to be sent and, if nothing of it was sent, sent again.
struct Outgoing {
    request: Request<Upload>,
    authority: Authority,
    upgrade: Option<HeaderValue>,
    on_client: Option<OnUpgrade>,
    progress: Arc<Progress>,
}

/// Counts how a request ended, also when its client left.
struct Outcome<'m> {
    metrics: &'m Metrics,
    route: Option<RouteMetrics>,
    since: Instant,
    known: bool,
}

impl Outcome<'_> {
    fn record(&mut self, status: StatusCode) {
        self.known = true;
        self.route().answered(status, self.since.elapsed());
    }

    fn route(&self) -> RouteMetrics {
        self.route
            .clone()
            .unwrap_or_else(|| self.metrics.unrouted())
    }
}

impl Drop for Outcome<'_> {
    fn drop(&mut self) {
        if !self.known {
            self.route().canceled();
        }
    }
}

impl Forwarder {
    /// Answers a client's request. Dropped when the client leaves, and then
    /// everything that was begun for it ends.
    pub async fn serve(&self, client: IpAddr, request: Request<Incoming>) -> Response<Answer> {
        let mut outcome = Outcome {
            metrics: &self.metrics,
            route: None,
            since: Instant::now(),
            known: false,
        };
        let gauged = Gauged::new(&self.metrics.in_flight);
        let response = match prepare(client, request) {
            Ok(outgoing) => self.forward(outgoing, gauged, &mut outcome).await,
            Err(failure) => Err(failure),
        };
        let response = response.unwrap_or_else(|failure| {
            self.metrics.failed(failure.reason());
            failure.answer()
        });
        outcome.record(response.status());
        response
    }

    async fn forward(
        &self,
        mut outgoing: Outgoing,
        gauged: Gauged,
        outcome: &mut Outcome<'_>,
    ) -> Result<Response<Answer>, Failure> {
        let mut unreachable: Option<(Backend, Failure)> = None;
        loop {
            let except = unreachable.as_ref().map(|(backend, _)| backend);
            let Some(in_flight) = self.admit(&outgoing, except, outcome)? else {
                return Err(unreachable.map_or(Failure::NoBackend, |(_, failure)| failure));
            };
            match self.exchange(&mut outgoing, &in_flight).await {
                Ok((connection, response)) => {
                    return self.answer(outgoing, connection, response, in_flight, gauged);
                }
                // Nothing was sent: another backend may have it, once.
                Err(failure @ (Failure::Refused | Failure::ConnectTimeout))
                    if unreachable.is_none() =>
                {
                    unreachable = Some((in_flight.upstream().backend.clone(), failure));
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Finds the route and counts the request in; `None` without a backend.
    fn admit(
        &self,
        outgoing: &Outgoing,
        except: Option<&Backend>,
        outcome: &mut Outcome<'_>,
    ) -> Result<Option<InFlight<Pool>>, Failure> {
        loop {
            let route: Arc<HttpRoute> = self
                .switch
                .find(outgoing.authority.host(), outgoing.request.uri().path())
                .map_err(|_| Failure::Starting)?
                .ok_or(Failure::NoRoute)?;
            outcome.route = Some(route.metrics.clone());
            match route.enter(except) {
                Admission::Entered(in_flight) => return Ok(Some(in_flight)),
                Admission::NoBackend => return Ok(None),
                // A withdrawal comes after its table, so this ends.
                Admission::Withdrawn => {}
            }
        }
    }

    /// Sends the request and waits for the answer's head. On a failure to connect
    /// the request is still whole.
    async fn exchange(
        &self,
        outgoing: &mut Outgoing,
        in_flight: &InFlight<Pool>,
    ) -> Result<(Connection, Response<Incoming>), Failure> {
        let pool = &in_flight.upstream().link;
        let mut fresh = false;
        loop {
            let mut connection = pool
                .connection(fresh, self.limits.connect)
                .await
                .map_err(|error| {
                    tracing::debug!(backend = %in_flight.upstream().backend.address, %error, "no connection");
                    match error {
                        ConnectError::Failed(_) => Failure::Refused,
                        ConnectError::TimedOut => Failure::ConnectTimeout,
                    }
                })?;
            let request = outgoing.take(pool.protocol());
            // A kept connection may be closing. What RFC 9110, 9.2.2 lets a
            // client repeat is repeated then, if it has no body.
            let repeat = (connection.reused && request.method().is_safe())
                .then(|| outgoing.copy(&request))
                .flatten();
            let sent = self
                .within_head_timeout(&outgoing.progress, connection.send(request))
                .await?;
            let mut error = match sent {
                Ok(response) => return Ok((connection, response)),
                Err(error) => error,
            };
            let again = error.take_message().or(repeat);
            match again {
                Some(request) if connection.reused => {
                    outgoing.request = request;
                    fresh = true;
                }
                _ => {
                    tracing::debug!(backend = %in_flight.upstream().backend.address, error = %error.error(), "no answer");
                    return Err(if outgoing.progress.broken() {
                        Failure::ClientBroke
                    } else {
                        Failure::BadAnswer
                    });
                }
            }
        }
    }

    /// The backend's time for its head runs while no more of the request comes:
    /// a long upload is no slow answer.
    async fn within_head_timeout<T>(
        &self,
        progress: &Progress,
        sent: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let started = Instant::now();
        tokio::pin!(sent);
        loop {
            let deadline = progress.moved().max(started) + self.limits.response_head;
            tokio::select! {
                biased;
                answered = &mut sent => return Ok(answered),
                () = tokio::time::sleep_until(deadline) => {}
            }
            if progress.moved() + self.limits.response_head <= Instant::now() {
                return Err(if progress.ended() {
                    Failure::Timeout
                } else {
                    Failure::ClientStalled
                });
            }
        }
    }

    fn answer(
        &self,
        outgoing: Outgoing,
        connection: Connection,
        mut response: Response<Incoming>,
        in_flight: InFlight<Pool>,
        gauged: Gauged,
    ) -> Result<Response<Answer>, Failure> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let (Some(protocol), Some(on_client)) = (outgoing.upgrade, outgoing.on_client) else {
                return Err(Failure::BadAnswer);
            };
            let on_backend = hyper::upgrade::on(&mut response);
            let busy = (in_flight, gauged, connection);
            let tunnel = tunnel::run(on_client, on_backend, self.hard_stop.clone(), busy);
            self.tunnels.spawn(tunnel);
            let (mut parts, _) = response.into_parts();
            strip_hop_by_hop(&mut parts.headers);
            let headers = &mut parts.headers;
            headers.insert(http::header::UPGRADE, protocol);
            headers.insert(
                http::header::CONNECTION,
                HeaderValue::from_static("upgrade"),
            );
            return Ok(Response::from_parts(parts, Answer::Own(None)));
        }
        let (mut parts, body) = response.into_parts();
        strip_hop_by_hop(&mut parts.headers);
        // The server side writes the version that the client speaks.
        parts.version = http::Version::HTTP_11;
        let body = Answer::backend(body, connection, in_flight, gauged);
        Ok(Response::from_parts(parts, body))
    }
}

impl Outgoing {
    /// The request in the backend's shape; nothing is left here.
    fn take(&mut self, protocol: AppProtocol) -> Request<Upload> {
        let left = Request::new(Upload::nothing(Arc::clone(&self.progress)));
        let (mut parts, body) = std::mem::replace(&mut self.request, left).into_parts();
        match protocol {
            AppProtocol::Http => for_http1(&mut parts, &self.authority),
            AppProtocol::H2c => for_http2(&mut parts, &self.authority),
        }
        Request::from_parts(parts, body)
    }

    /// The same request once more, unless it has a body.
    fn copy(&self, request: &Request<Upload>) -> Option<Request<Upload>> {
        if !request.body().is_end_stream() {
            return None;
        }
        let mut copy = Request::new(Upload::nothing(Arc::clone(&self.progress)));
        copy.method_mut().clone_from(request.method());
        copy.uri_mut().clone_from(request.uri());
        copy.headers_mut().clone_from(request.headers());
        *copy.version_mut() = request.version();
        Some(copy)
    }
}

/// Checks a client's request and makes it one of the proxy's.
fn prepare(client: IpAddr, mut request: Request<Incoming>) -> Result<Outgoing, Failure> {
    if request.method() == Method::CONNECT {
        return Err(Failure::Connect);
    }
    let on_client = hyper::upgrade::on(&mut request);
    let (mut parts, body): (Parts, Incoming) = request.into_parts();
    let authority = authority(&parts).ok_or(Failure::Host)?;
    let upgrade = wanted_upgrade(&parts);
    to_backend(&mut parts, &authority, client, upgrade.as_ref());
    let (body, progress) = Upload::new(body);
    Ok(Outgoing {
        request: Request::from_parts(parts, body),
        authority,
        on_client: upgrade.is_some().then_some(on_client),
        upgrade,
        progress,
    })
}
