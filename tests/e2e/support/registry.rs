//! A registry of the tests' own: plain HTTP on a sandbox's loopback, with faults on demand.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

use super::images::{self, Image};
use super::sandbox::Sandbox;

/// Where it listens; Podman's settings in the tests know it as one without TLS.
pub const ADDRESS: &str = "127.0.0.1:5000";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// What is wrong with a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Manifests are answered with this status.
    Status(u16),
    /// Manifests are never answered.
    Silent,
    /// A blob comes in pieces, this long apart.
    Slow(Duration),
    /// After its first half a blob doesn't go on.
    Stalled,
    /// After its first half the connection is closed.
    CutOff,
}

/// How a client proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// User and password with each request.
    Basic,
    /// A token, which user and password buy.
    Token,
}

#[derive(Debug, Default)]
struct Content {
    manifests: BTreeMap<String, (&'static str, Vec<u8>)>,
    blobs: BTreeMap<String, Vec<u8>>,
    /// By `repository:tag`.
    tags: BTreeMap<String, String>,
    /// By repository.
    faults: BTreeMap<String, Fault>,
    /// By repository: `user:password` in base64.
    logins: BTreeMap<String, String>,
    scheme: Option<Scheme>,
    requests: Vec<String>,
}

#[derive(Debug, Default)]
struct Shared {
    content: Mutex<Content>,
    /// Blobs that are being sent.
    sending: AtomicUsize,
    over: AtomicBool,
}

/// A running registry.
#[derive(Debug)]
pub struct Registry {
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl Registry {
    /// Starts one on the loopback of a sandbox with its own network.
    pub fn start(sandbox: &Sandbox) -> Self {
        let listener = sandbox.listen(ADDRESS);
        let shared = Arc::new(Shared::default());
        let of_it = Arc::clone(&shared);
        let accepting = thread::spawn(move || accept(&listener, &of_it));
        Self {
            shared,
            accepting: Some(accepting),
        }
    }

    /// The reference of `repository:tag` here.
    pub fn reference(name: &str) -> String {
        format!("{ADDRESS}/{name}")
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.shared.content.lock().expect("no test panics in here")
    }

    /// Pushes a demo image under `repository:tag`, with a layer of its own of so many
    /// KiB; answers its digest. Each call makes another image.
    pub fn push(&self, name: &str, image: Image, kib: usize) -> String {
        let digest = self.manifest(image, architecture(), kib);
        self.tag(name, &digest);
        digest
    }

    /// Pushes an index of two platforms, of which this host runs one; answers the
    /// digests of the index and of this host's manifest.
    pub fn push_index(&self, name: &str, image: Image) -> (String, String) {
        let other = match architecture() {
            "arm64" => "amd64",
            _ => "arm64",
        };
        let platforms = [other, architecture()].map(|it| (it, self.manifest(image, it, 1)));
        let entry = |(architecture, digest): &(&str, String)| {
            let size = self.content().manifests[digest].1.len();
            json!({"mediaType": MANIFEST, "digest": digest, "size": size,
                   "platform": {"architecture": architecture, "os": "linux"}})
        };
        let manifests: Vec<_> = platforms.iter().map(entry).collect();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
        let digest = self.keep(INDEX, &index);
        self.tag(name, &digest);
        let [_, (_, of_host)] = platforms;
        (digest, of_host)
    }

    /// Makes `repository:tag` name this digest.
    pub fn tag(&self, name: &str, digest: &str) {
        self.content()
            .tags
            .insert(name.to_owned(), digest.to_owned());
    }

    /// From now on the repository is only for this login.
    pub fn require_login(&self, repository: &str, login: &str, scheme: Scheme) {
        let mut content = self.content();
        content.scheme = Some(scheme);
        content.logins.insert(repository.to_owned(), base64(login));
    }

    /// From now on the repository has this fault, or none.
    pub fn set_fault(&self, repository: &str, fault: Option<Fault>) {
        let mut content = self.content();
        content.faults.remove(repository);
        content
            .faults
            .extend(fault.map(|fault| (repository.to_owned(), fault)));
    }

    /// Every request so far, as in `GET /v2/web/manifests/1`.
    pub fn requests(&self) -> Vec<String> {
        self.content().requests.clone()
    }

    /// How many blobs are being sent at this moment.
    pub fn sending(&self) -> usize {
        self.shared.sending.load(Ordering::SeqCst)
    }

    fn manifest(&self, image: Image, architecture: &str, kib: usize) -> String {
        let rootfs = fs::read(images::rootfs_tar()).expect("the demo's root file system");
        let layers = [rootfs, own_layer(kib)];
        let digests: Vec<_> = layers.iter().map(|layer| digest(layer)).collect();
        let config = json!({
            "architecture": architecture, "os": "linux",
            "config": {"Cmd": image.command()},
            "rootfs": {"type": "layers", "diff_ids": digests},
            "history": [{"created_by": "tests"}, {"created_by": "tests"}],
        });
        let config = config.to_string().into_bytes();
        let blob = |kind: &str, data: &[u8]| {
            self.content().blobs.insert(digest(data), data.to_vec());
            json!({"mediaType": kind, "digest": digest(data), "size": data.len()})
        };
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": blob(CONFIG, &config),
            "layers": layers.iter().map(|layer| blob(LAYER, layer)).collect::<Vec<_>>(),
        });
        self.keep(MANIFEST, &manifest)
    }

    fn keep(&self, kind: &'static str, manifest: &Value) -> String {
        let bytes = manifest.to_string().into_bytes();
        let digest = digest(&bytes);
        let mut content = self.content();
        content.manifests.insert(digest.clone(), (kind, bytes));
        digest
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    listener.set_nonblocking(true).expect("a listener");
    while !shared.over.load(Ordering::SeqCst) {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        stream.set_nonblocking(false).expect("a connection");
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            // A client that has gone away is no concern.
            let _ = serve(stream, &shared);
        });
    }
}

/// One request, one connection.
fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut login = None;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.trim_end().split_once(": ")
            && name.eq_ignore_ascii_case("authorization")
        {
            login = Some(value.to_owned());
        }
    }
    let Some((method, rest)) = first.split_once(' ') else {
        return Ok(());
    };
    let path = rest.split(' ').next().unwrap_or_default();
    let content = || shared.content.lock().expect("no test panics in here");
    content().requests.push(format!("{method} {path}"));
    let (repository, answer) = answer(&content(), path, login.as_deref());
    let fault = content().faults.get(repository).copied();
    match (answer, fault) {
        (Answer::Manifest(..), Some(Fault::Status(code))) => {
            let body = br#"{"errors":[{"code":"FAULT","message":"told so"}]}"#;
            head(&mut stream, code, "application/json", body.len(), "")?;
            stream.write_all(body)
        }
        (Answer::Manifest(..), Some(Fault::Silent)) => until_gone(&mut stream, shared),
        (Answer::Manifest(kind, digest, body), _) => {
            let more = format!("Docker-Content-Digest: {digest}\r\n");
            head(&mut stream, 200, kind, body.len(), &more)?;
            match method {
                "HEAD" => Ok(()),
                _ => stream.write_all(&body),
            }
        }
        (Answer::Blob(body), fault) => {
            shared.sending.fetch_add(1, Ordering::SeqCst);
            let sent = send_blob(&mut stream, &body, fault, shared);
            shared.sending.fetch_sub(1, Ordering::SeqCst);
            sent
        }
        (Answer::Said(code, more, body), _) => {
            head(&mut stream, code, "application/json", body.len(), &more)?;
            stream.write_all(body.as_bytes())
        }
    }
}

enum Answer {
    Manifest(&'static str, String, Vec<u8>),
    Blob(Vec<u8>),
    Said(u16, String, String),
}

/// The repository that the path is about, and what is there.
fn answer<'p>(content: &Content, path: &'p str, login: Option<&str>) -> (&'p str, Answer) {
    if let Some(query) = path.strip_prefix("/token") {
        return ("", token(content, query, login));
    }
    let rest = path.strip_prefix("/v2/").unwrap_or_default();
    let Some((repository, what)) = rest
        .split_once("/manifests/")
        .or_else(|| rest.split_once("/blobs/"))
    else {
        return ("", ping(content, login));
    };
    if let Some(wanted) = content.logins.get(repository) {
        let wanted = match content.scheme {
            Some(Scheme::Token) => format!("Bearer {}", base64(wanted)),
            _ => format!("Basic {wanted}"),
        };
        if login != Some(wanted.as_str()) {
            return (repository, refused(content));
        }
    }
    let named = content.tags.get(&format!("{repository}:{what}"));
    let digest = named.map_or(what, String::as_str);
    let found = match (content.manifests.get(digest), content.blobs.get(digest)) {
        (Some((kind, body)), _) => Answer::Manifest(kind, digest.to_owned(), body.clone()),
        (None, Some(body)) => Answer::Blob(body.clone()),
        (None, None) => {
            let body = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
            Answer::Said(404, String::new(), body.to_owned())
        }
    };
    (repository, found)
}

fn ping(content: &Content, login: Option<&str>) -> Answer {
    let known = |login: &str| {
        let mut all = content.logins.values();
        all.any(|known| login == format!("Basic {known}"))
    };
    match (content.scheme, login) {
        (Some(_), None) => refused(content),
        (Some(Scheme::Basic), Some(login)) if !known(login) => refused(content),
        _ => Answer::Said(200, String::new(), "{}".to_owned()),
    }
}

/// Anybody gets a token; it opens only what its login does.
fn token(content: &Content, query: &str, login: Option<&str>) -> Answer {
    let login = login.and_then(|login| login.strip_prefix("Basic "));
    let known = |login: &str| content.logins.values().any(|known| known == login);
    match login {
        Some(login) if !known(login) => refused(content),
        _ => {
            assert!(query.starts_with('?'), "a scope is asked for");
            let token = base64(login.unwrap_or("nobody"));
            Answer::Said(200, String::new(), json!({"token": token}).to_string())
        }
    }
}

fn refused(content: &Content) -> Answer {
    let challenge = match content.scheme {
        Some(Scheme::Token) => format!(r#"Bearer realm="http://{ADDRESS}/token",service="tests""#),
        _ => r#"Basic realm="tests""#.to_owned(),
    };
    let body = r#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#;
    let challenge = format!("WWW-Authenticate: {challenge}\r\n");
    Answer::Said(401, challenge, body.to_owned())
}

fn head(
    stream: &mut TcpStream,
    code: u16,
    kind: &str,
    length: usize,
    more: &str,
) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 {code} Told\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n{more}\r\n"
    );
    stream.write_all(head.as_bytes())
}

fn send_blob(
    stream: &mut TcpStream,
    body: &[u8],
    fault: Option<Fault>,
    shared: &Shared,
) -> std::io::Result<()> {
    head(stream, 200, "application/octet-stream", body.len(), "")?;
    match fault {
        Some(Fault::Slow(pause)) => {
            for piece in body.chunks(body.len().div_ceil(8)) {
                stream.write_all(piece)?;
                thread::sleep(pause);
            }
            Ok(())
        }
        Some(Fault::Stalled) => {
            stream.write_all(&body[..body.len() / 2])?;
            until_gone(stream, shared)
        }
        Some(Fault::CutOff) => stream.write_all(&body[..body.len() / 2]),
        _ => stream.write_all(body),
    }
}

/// Says nothing until the client has left.
fn until_gone(stream: &mut TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_millis(20)))?;
    while !shared.over.load(Ordering::SeqCst) {
        match stream.read(&mut [0]) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A layer that no other image has.
fn own_layer(kib: usize) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a directory");
    let mut data = vec![0; kib * 1024];
    let mut random = fs::File::open("/dev/urandom").expect("/dev/urandom");
    random.read_exact(&mut data).expect("random bytes");
    fs::write(dir.path().join("ballast"), data).expect("the ballast");
    tar(dir.path())
}

fn tar(dir: &Path) -> Vec<u8> {
    let output = Command::new("tar")
        .arg("-C")
        .arg(dir)
        .args(["-cf", "-", "."])
        .output()
        .expect("tar starts");
    assert!(output.status.success(), "tar: {}", output.status);
    output.stdout
}

/// As images call this host's processor.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn digest(data: &[u8]) -> String {
    use std::fmt::Write;
    let hash = ring::digest::digest(&ring::digest::SHA256, data);
    let mut text = "sha256:".to_owned();
    for byte in hash.as_ref() {
        write!(text, "{byte:02x}").expect("a String takes it");
    }
    text
}

/// As credentials are written.
pub fn base64(text: &str) -> String {
    use ::base64::Engine as _;
    ::base64::engine::general_purpose::STANDARD.encode(text)
}
