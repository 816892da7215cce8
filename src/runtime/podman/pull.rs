//! A pull: what it tells on its way, when it has stalled, and why it failed.
//!
//! Podman's own pull tells no bytes. The one of its Docker-like API does; that takes a
//! name without a registry for one of Docker Hub's, so such a name goes the other way.

use std::collections::BTreeMap;

use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::time::timeout;

use super::super::{PullProgress, PullReport, Runtime as _, RuntimeError};
use super::Podman;
use super::auth::names_registry;
use super::fault::Fault;
use super::images::repository;
use super::socket::encoded;

/// Longest line of a pull's report.
const LINE: usize = 1024 * 1024;

impl Podman {
    /// Pulls what the reference names, whatever is there already.
    pub(super) async fn pull(
        &self,
        reference: &str,
        report: &PullReport,
    ) -> Result<(), RuntimeError> {
        let credentials = match &self.auth_file {
            Some(file) => {
                let header = file.header(reference).await;
                header.map_err(|source| RuntimeError::AuthFile {
                    image: reference.to_owned(),
                    source,
                })?
            }
            None => None,
        };
        let name = encoded(reference);
        let counts = names_registry(reference);
        let path = if counts {
            format!("/v4.0.0/images/create?fromImage={name}")
        } else {
            format!("/v4.0.0/libpod/images/pull?policy=always&reference={name}")
        };
        let pulling = async {
            let ask = self.socket.stream_to(Method::POST, &path, credentials);
            // Podman 5 answers only when there is something to tell.
            let body = self.in_time(counts, ask).await??;
            self.follow(body, counts, report).await
        };
        let pulled = match timeout(self.deadlines.pull, pulling).await {
            Ok(pulled) => pulled,
            Err(_) => Err(Stopped::Late(self.deadlines.pull.as_secs())),
        };
        let image = reference.to_owned();
        match pulled {
            Ok(()) => Ok(()),
            Err(Stopped::Fault(Fault::Said { message, .. })) => {
                Err(pull_error(reference, &message))
            }
            Err(Stopped::Fault(fault)) => Err(fault.of_call("pull")),
            Err(stopped @ (Stopped::Stalled(_) | Stopped::Late(_))) => {
                // Perhaps it is Podman that doesn't answer.
                self.ping().await?;
                let message = stopped.to_string();
                Err(RuntimeError::PullFailed { image, message })
            }
        }
    }

    /// Waits for something that the registry has to send, if that can be told.
    async fn in_time<T>(&self, counts: bool, next: impl Future<Output = T>) -> Result<T, Stopped> {
        if !counts {
            return Ok(next.await);
        }
        let stall = self.deadlines.stall;
        let stalled = |_| Stopped::Stalled(stall.as_secs());
        timeout(stall, next).await.map_err(stalled)
    }

    /// Reads the report to its end. The status is 200 whatever comes of the pull.
    async fn follow(
        &self,
        mut body: Incoming,
        counts: bool,
        report: &PullReport,
    ) -> Result<(), Stopped> {
        let mut told = Told::default();
        loop {
            let limited = counts && told.waits_for_bytes();
            let frame = self.in_time(limited, body.frame()).await?;
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| Fault::Lost(error.to_string()))?;
            if let Ok(data) = frame.into_data() {
                told.read(&data);
            }
            if let Some(progress) = told.progress() {
                report.pulling(progress);
            }
        }
        told.end_line();
        match told.error {
            Some(error) => Err(Fault::said(500, &error).into()),
            // Only Podman's own report says at its end that all went well.
            None if counts || told.done => Ok(()),
            None => Err(Fault::said(500, "the report of the pull was cut off").into()),
        }
    }
}

/// What ends a pull.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("Podman broke it off")]
    Fault(Fault),
    #[error(
        "nothing came from the registry for {0} s: check the registry and the network, or give it \
         longer with --pull-stall"
    )]
    Stalled(u64),
    #[error(
        "it took longer than {0} s: give it longer with --pull-timeout, or load the image by hand"
    )]
    Late(u64),
}

impl From<Fault> for Stopped {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// What a pull told so far.
#[derive(Debug, Default)]
pub(super) struct Told {
    line: Vec<u8>,
    error: Option<String>,
    done: bool,
    layers: BTreeMap<String, Layer>,
}

/// A layer that isn't on the host yet.
#[derive(Debug, Default)]
struct Layer {
    bytes: PullProgress,
    complete: bool,
}

#[derive(Deserialize)]
struct Line {
    error: Option<String>,
    status: Option<String>,
    id: Option<String>,
    #[serde(default, rename = "progressDetail")]
    detail: Detail,
}

#[derive(Default, Deserialize)]
struct Detail {
    current: Option<u64>,
    total: Option<u64>,
}

impl Told {
    pub(super) fn read(&mut self, data: &[u8]) {
        for byte in data {
            match byte {
                b'\n' => self.end_line(),
                byte if self.line.len() < LINE => self.line.push(*byte),
                _ => {}
            }
        }
    }

    fn end_line(&mut self) {
        if let Ok(line) = serde_json::from_slice::<Line>(&self.line) {
            self.take(line);
        }
        self.line.clear();
    }

    fn take(&mut self, line: Line) {
        self.error = self.error.take().or(line.error.filter(|it| !it.is_empty()));
        let Some(id) = line.id.filter(|id| !id.is_empty()) else {
            return;
        };
        let Some(status) = line.status else {
            self.done = true;
            return;
        };
        match status.as_str() {
            "Pulling fs layer" => _ = self.layers.entry(id).or_default(),
            "Downloading" => {
                let layer = self.layers.entry(id).or_default();
                layer.bytes = PullProgress {
                    bytes: line.detail.current.unwrap_or_default(),
                    total: line.detail.total.unwrap_or_default(),
                };
            }
            "Download complete" => {
                if let Some(layer) = self.layers.get_mut(&id) {
                    layer.complete = true;
                    layer.bytes.bytes = layer.bytes.total;
                }
            }
            _ => {}
        }
    }

    /// Whether the registry has something to send: at the beginning, and while a layer
    /// is under way. Unpacking one may take any time.
    pub(super) fn waits_for_bytes(&self) -> bool {
        let open = |layer: &Layer| {
            let PullProgress { bytes, total } = layer.bytes;
            !layer.complete && (total == 0 || bytes < total)
        };
        self.layers.is_empty() || self.layers.values().any(open)
    }

    /// How far the layers are; `None` while there is none that had to be pulled. The
    /// image's configuration is told like a layer, and again when all is there.
    pub(super) fn progress(&self) -> Option<PullProgress> {
        let mut layers = self.layers.values().map(|layer| layer.bytes);
        let first = layers.next()?;
        Some(layers.fold(first, |sum, layer| PullProgress {
            bytes: sum.bytes.saturating_add(layer.bytes),
            total: sum.total.saturating_add(layer.total),
        }))
    }
}

/// Tells a sure answer of the registry from a failure that may pass.
pub(super) fn pull_error(reference: &str, error: &str) -> RuntimeError {
    let image = reference.to_owned();
    // The cause comes after the image's name, which may itself read like one.
    let (_, cause) = error
        .rsplit_once(repository(reference))
        .unwrap_or(("", error));
    let cause = Fault::said(500, cause);
    let unknown = [
        "manifest unknown",
        "name unknown",
        "repository name not known",
        "statuscode: 404",
        "404 (not found)",
        "invalid reference format",
        "repository name must be",
    ];
    let denied = [
        "unauthorized",
        "authentication required",
        "statuscode: 401",
        "statuscode: 403",
        "403 (forbidden)",
        "403 forbidden",
    ];
    let refuses = cause.says(&denied) || cause.says(&["denied"]) && !cause.says(&["permission"]);
    if cause.says(&["image not known"]) {
        RuntimeError::ImageAbsent { image }
    } else if cause.says(&unknown) {
        RuntimeError::ImageUnknown { image }
    } else if refuses {
        RuntimeError::ImageDenied { image }
    } else {
        let hint = hint(&cause);
        let (Fault::Said { message, .. } | Fault::Lost(message)) =
            Fault::said(500, &without_queries(error));
        let message = format!("{message}{hint}");
        RuntimeError::PullFailed { image, message }
    }
}

/// What to do about it, where that is known.
fn hint(cause: &Fault) -> &'static str {
    let hints: [(&[&str], &str); 5] = [
        (
            &[
                "http response to https client",
                "first record does not look like a tls handshake",
            ],
            "; it speaks plain HTTP: give it TLS, or say insecure = true for it in Podman's \
             registries.conf",
        ),
        (
            &["certificate signed by unknown authority", "x509:"],
            "; put its CA into /etc/containers/certs.d/REGISTRY/ca.crt on this host",
        ),
        (
            &["no such host", "server misbehaving"],
            "; check the registry's name and this host's DNS",
        ),
        (
            &["connection refused"],
            "; nobody listens there: check the registry's name and port",
        ),
        (
            &["toomanyrequests", "429 too many"],
            "; the registry wants fewer pulls",
        ),
    ];
    let known = hints.iter().find(|(signs, _)| cause.says(signs));
    known.map_or("", |(_, hint)| hint)
}

/// The text without the queries of its URLs: a signed one opens what it points at.
fn without_queries(text: &str) -> String {
    let cut = |word: &str| match word.split_once('?') {
        Some((head, query)) if head.contains("://") => {
            let rest = query.find(['"', '\'']).map_or("", |end| &query[end..]);
            format!("{head}{rest}")
        }
        _ => word.to_owned(),
    };
    let words: Vec<_> = text.split(' ').map(cut).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_url_loses_its_signature() {
        let error = r#"reading blob: Get "https://s3.example.com/b/1?sig=hunter2&x=1": EOF"#;
        let told = pull_error("r.io/web:1", error).to_string();
        assert!(
            !told.contains("hunter2") && told.contains(r#"/b/1": EOF"#),
            "{told}"
        );
    }

    #[test]
    fn bytes_are_waited_for_only_while_the_registry_owes_some() {
        let mut told = Told::default();
        assert!(told.waits_for_bytes() && told.progress().is_none());
        told.read(b"{\"status\":\"Already exists\",\"progressDetail\":{},\"id\":\"0\"}\n");
        assert!(told.progress().is_none());
        told.read(b"{\"status\":\"Pulling fs layer\",\"progressDetail\":{},\"id\":\"a\"}\n");
        assert_eq!(told.progress(), Some(PullProgress::default()));
        told.read(
            b"{\"status\":\"Downloading\",\"progressDetail\":{\"current\":4,\"total\":9},\"id\":\"a\"}\n",
        );
        assert!(told.waits_for_bytes());
        assert_eq!(told.progress(), Some(PullProgress { bytes: 4, total: 9 }));
        told.read(b"{\"status\":\"Download complete\",\"progressDetail\":{},\"id\":\"a\"}\n");
        assert!(!told.waits_for_bytes());
        assert_eq!(told.progress(), Some(PullProgress { bytes: 9, total: 9 }));
    }
}
