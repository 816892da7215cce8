//! A small HTTP client on Podman's Unix socket, for what `podman-api` can't do:
//!
//! - `inspect`, which there asks for the container's size (a walk over its files)
//!   and keeps the whole answer, environment and all;
//! - `create`, where its options misspell `no_new_privileges`;
//! - `wait` with an interval, and for more than one condition;
//! - a pull, whose report carries an error, and its credentials;
//! - a secret's value, as it is and without quotes;
//! - events and logs, read frame by frame;
//! - a command's input and output, both ways.
//!
//! Connections are kept alive. One that broke is replaced by the next call, so a
//! restarted service is found again without anybody's help.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;

use super::fault::{Fault, unreadable};

/// Understood by every Podman from 4.0 on.
const API: &str = "/v4.0.0/libpod";
/// Credentials for a registry.
const REGISTRY_AUTH: HeaderName = HeaderName::from_static("x-registry-auth");
/// Connections kept for later.
const IDLE: usize = 8;
/// Largest answer that is read at once.
const LARGEST: usize = 64 * 1024 * 1024;

type Sender = SendRequest<Full<Bytes>>;

/// The client. Cloning isn't needed: share it.
pub(super) struct Socket {
    path: PathBuf,
    idle: Mutex<Vec<Sender>>,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Whether a request may be sent a second time when a kept connection turns out broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It only looks or waits.
    Safe,
    /// It changes something.
    Never,
}

/// What a request carries.
enum Body<'b> {
    None,
    Json(&'b Value),
    Bytes(Bytes),
}

impl Socket {
    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            idle: Mutex::default(),
        }
    }

    /// GET and read JSON.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Fault> {
        let (mut sender, answer) = self
            .ask(Method::GET, path, Body::None, Repeat::Safe)
            .await?;
        let body = read(answer).await?;
        self.keep(&mut sender);
        serde_json::from_slice(&body).map_err(|_| unreadable())
    }

    /// POST and read JSON.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Option<&Value>,
        repeat: Repeat,
    ) -> Result<T, Fault> {
        let body = body.map_or(Body::None, Body::Json);
        let (mut sender, answer) = self.ask(Method::POST, path, body, repeat).await?;
        let body = read(answer).await?;
        self.keep(&mut sender);
        serde_json::from_slice(&body).map_err(|_| unreadable())
    }

    /// POST bytes as they are; the answer doesn't matter.
    pub(super) async fn upload(&self, path: &str, bytes: &[u8]) -> Result<(), Fault> {
        let body = Body::Bytes(Bytes::copy_from_slice(bytes));
        self.tell(Method::POST, path, body).await
    }

    /// DELETE; the answer doesn't matter.
    pub(super) async fn delete(&self, path: &str) -> Result<(), Fault> {
        self.tell(Method::DELETE, path, Body::None).await
    }

    async fn tell(&self, method: Method, path: &str, body: Body<'_>) -> Result<(), Fault> {
        let (mut sender, answer) = self.ask(method, path, body, Repeat::Never).await?;
        read(answer).await?;
        self.keep(&mut sender);
        Ok(())
    }

    /// The body of an answer that goes on and on. Its connection ends with it.
    pub(super) async fn stream(&self, method: Method, path: &str) -> Result<Incoming, Fault> {
        let (_, answer) = self.ask(method, path, Body::None, Repeat::Safe).await?;
        Ok(answer)
    }

    /// The same of whichever API the path is of, with credentials for a registry.
    pub(super) async fn stream_to(
        &self,
        method: Method,
        path: &str,
        credentials: Option<HeaderValue>,
    ) -> Result<Incoming, Fault> {
        let credentials = credentials.map(|value| (REGISTRY_AUTH, value));
        let (_, answer) = self
            .send(method, path, Body::None, credentials, Repeat::Safe)
            .await?;
        Ok(answer)
    }

    /// POST JSON, and go on without HTTP: both ways, until either side ends.
    pub(super) async fn upgrade(&self, path: &str, body: &Value) -> Result<Upgraded, Fault> {
        let body = serde_json::to_vec(body).map_err(|_| unreadable())?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{API}{path}"))
            .header(header::HOST, "podman")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "tcp")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Fault::said(400, &error.to_string()))?;
        let (_sender, answer) = self.send_on_new(request).await?;
        match answer.status() {
            StatusCode::SWITCHING_PROTOCOLS => {
                let upgraded = hyper::upgrade::on(answer).await;
                upgraded.map_err(|error| lost(&error))
            }
            status => Err(refusal(status, &read(answer.into_body()).await?)),
        }
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Body<'_>,
        repeat: Repeat,
    ) -> Result<(Option<Sender>, Incoming), Fault> {
        let path = format!("{API}{path}");
        self.send(method, &path, body, None, repeat).await
    }

    /// Sends a request and reads the head of the answer; an error status is a fault.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Body<'_>,
        more: Option<(HeaderName, HeaderValue)>,
        repeat: Repeat,
    ) -> Result<(Option<Sender>, Incoming), Fault> {
        let kind = match body {
            Body::Bytes(_) => "application/octet-stream",
            Body::None | Body::Json(_) => "application/json",
        };
        let body = match body {
            Body::None => Bytes::new(),
            Body::Json(value) => serde_json::to_vec(value).map_err(|_| unreadable())?.into(),
            Body::Bytes(bytes) => bytes,
        };
        let request = || {
            let mut request = Request::builder()
                .method(method.clone())
                .uri(path)
                .header(header::HOST, "podman")
                .header(header::CONTENT_TYPE, kind);
            if let Some((name, value)) = &more {
                request = request.header(name, value);
            }
            request
                .body(Full::new(body.clone()))
                .map_err(|error| Fault::said(400, &error.to_string()))
        };
        let kept = match repeat {
            Repeat::Safe => self.kept(),
            Repeat::Never => None,
        };
        let (sender, answer) = match kept {
            Some(mut sender) => match sender.send_request(request()?).await {
                Ok(answer) => (sender, answer),
                // Most likely the service was restarted meanwhile.
                Err(_) => self.send_on_new(request()?).await?,
            },
            None => self.send_on_new(request()?).await?,
        };
        let status = answer.status();
        if status.is_success() {
            return Ok((Some(sender), answer.into_body()));
        }
        let body = read(answer.into_body()).await?;
        self.keep(&mut Some(sender));
        Err(refusal(status, &body))
    }

    async fn send_on_new(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Sender, http::Response<Incoming>), Fault> {
        let stream = UnixStream::connect(&self.path)
            .await
            .map_err(|error| Fault::Lost(format!("{}: {error}", self.path.display())))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| lost(&error))?;
        // It ends with the sender and the answer's body.
        tokio::spawn(connection.with_upgrades());
        let answer = sender.send_request(request).await;
        answer
            .map(|answer| (sender, answer))
            .map_err(|error| lost(&error))
    }

    fn kept(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|sender| !sender.is_closed());
        let ready = idle.iter().position(Sender::is_ready)?;
        Some(idle.swap_remove(ready))
    }

    /// Keeps the connection of an answer that was read to its end.
    fn keep(&self, sender: &mut Option<Sender>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = sender.take_if(|sender| idle.len() < IDLE && !sender.is_closed()) {
            idle.push(sender);
        }
    }
}

async fn read(body: Incoming) -> Result<Bytes, Fault> {
    let body = Limited::new(body, LARGEST).collect().await;
    body.map(http_body_util::Collected::to_bytes)
        .map_err(|_| Fault::Lost("the answer was cut off".to_owned()))
}

fn lost(error: &hyper::Error) -> Fault {
    Fault::Lost(error.to_string())
}

/// Podman's errors are `{"cause", "message", "response"}`; the message says it all.
fn refusal(status: StatusCode, body: &[u8]) -> Fault {
    let told = serde_json::from_slice::<Value>(body).ok();
    let message = told
        .as_ref()
        .and_then(|told| told["message"].as_str())
        .unwrap_or_else(|| {
            status
                .canonical_reason()
                .unwrap_or("an error without a name")
        });
    Fault::said(status.as_u16(), message)
}

/// A text as one part of a path or a query.
pub(super) fn encoded(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            result.push(char::from(byte));
        } else {
            result.push('%');
            for digit in [byte >> 4, byte & 15] {
                result.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
            }
        }
    }
    result
}
