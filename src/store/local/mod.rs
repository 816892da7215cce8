//! An etcd of this host's own, for `podherd run --local-etcd`.
//!
//! It listens on loopback only, without a password: whoever may open a
//! connection on this host may write manifests. It is started again when it
//! dies, and ends with Podherd. When Podherd itself was killed, its etcd is left
//! behind and keeps the data locked; the next start ends it first.
//!
//! - `orphan`: finding and ending what an earlier Podherd left;
//! - `supervise`: the process, its output, its restarts.

mod orphan;
mod supervise;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{EtcdOptions, EtcdStore, Store};
use supervise::Running;

/// How long a start may take, a large log replayed.
const START: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long the port may be held by one that was just ended.
const PORT_WAIT: Duration = Duration::from_secs(3);

/// What the local etcd is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalEtcdOptions {
    /// The program: a path, or a name in `PATH`.
    pub binary: PathBuf,
    /// Podherd's state folder; the data go to `etcd` in it.
    pub state_dir: PathBuf,
    /// The port on loopback.
    pub port: u16,
    /// How large the data may become, before etcd refuses writes.
    pub quota_bytes: u64,
}

impl LocalEtcdOptions {
    /// etcd's own port, and its own limit of 2 GiB.
    pub fn new(state_dir: &Path) -> Self {
        Self {
            binary: "etcd".into(),
            state_dir: state_dir.to_owned(),
            port: 2379,
            quota_bytes: 2 << 30,
        }
    }

    fn data_dir(&self) -> PathBuf {
        self.state_dir.join("etcd")
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// Why there is no local etcd.
#[derive(Debug, thiserror::Error)]
pub enum LocalEtcdError {
    /// The program isn't installed.
    #[error(
        "--local-etcd needs the program {}, which isn't there: install the Debian package \
         etcd-server, or name it with --etcd-binary", binary.display()
    )]
    Missing {
        /// The program that was looked for.
        binary: PathBuf,
    },
    /// Another process listens on the port.
    #[error(
        "--local-etcd can't have port {port} on 127.0.0.1, another process has it: stop that, give \
         another with --local-etcd-port, or use the etcd that is there with --etcd http://127.0.0.1:{port}"
    )]
    PortTaken {
        /// The port.
        port: u16,
    },
    /// Another Podherd that is alive has it.
    #[error(
        "the local etcd in {} belongs to another Podherd (PID {pid}): stop that one, or give \
         this one a --state-dir of its own", state_dir.display()
    )]
    AlreadyRuns {
        /// The state folder.
        state_dir: PathBuf,
        /// The other one.
        pid: String,
    },
    /// What an earlier Podherd left can't be ended.
    #[error("the etcd that an earlier Podherd left (PID {pid}) can't be ended: {reason}")]
    Orphan {
        /// The etcd.
        pid: i32,
        /// Why not.
        reason: String,
    },
    /// It doesn't get ready.
    #[error("the local etcd doesn't get ready: {reason}; it said last: {said}")]
    NotReady {
        /// What was seen.
        reason: String,
        /// The end of its output.
        said: String,
    },
    /// A file or the process table can't be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A local etcd that runs until it is stopped or this is dropped.
#[derive(Debug)]
pub struct LocalEtcd {
    endpoint: String,
    stop: CancellationToken,
    supervisor: JoinHandle<()>,
    /// Held as long as this process may start an etcd on these data.
    _lock: File,
}

impl LocalEtcd {
    /// Starts it and waits until it answers. Take the host's lock first: then a
    /// second Podherd stands by instead of being refused here.
    ///
    /// # Errors
    /// When it can't be started or doesn't answer within a minute. Nothing is
    /// left running then.
    pub async fn start(options: LocalEtcdOptions) -> Result<Self, LocalEtcdError> {
        let data_dir = options.data_dir();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&data_dir)
            .map_err(file(&data_dir))?;
        let lock = lock(&options.state_dir)?;
        orphan::end_all(&data_dir).await?;
        wait_for_port(options.port).await?;
        let mut running = Running::spawn(&options)?;
        wait_until_ready(&options, &mut running).await?;
        info!(endpoint = options.endpoint(), data = %data_dir.display(), "the local etcd is ready");
        let stop = CancellationToken::new();
        Ok(Self {
            endpoint: options.endpoint(),
            supervisor: tokio::spawn(supervise::keep_running(options, running, stop.clone())),
            stop,
            _lock: lock,
        })
    }

    /// Where it listens.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Ends it and waits for its end. Connections to it should be closed before,
    /// since it waits for them a few seconds.
    pub async fn stop(mut self) {
        self.stop.cancel();
        // It has nothing to say, and a panic in it was reported already.
        let _ = (&mut self.supervisor).await;
    }
}

impl Drop for LocalEtcd {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The kernel may keep the port of an etcd that was just ended for a moment.
async fn wait_for_port(port: u16) -> Result<(), LocalEtcdError> {
    let deadline = Instant::now() + PORT_WAIT;
    loop {
        match check_port(port) {
            Err(LocalEtcdError::PortTaken { .. }) if Instant::now() < deadline => {
                sleep(LOOK_AGAIN).await;
            }
            checked => return checked,
        }
    }
}

/// For `map_err`: which file.
fn file(path: &Path) -> impl FnOnce(io::Error) -> LocalEtcdError {
    let path = path.to_owned();
    move |source| LocalEtcdError::File { path, source }
}

/// Only one Podherd at a time may end what runs on these data and start anew.
fn lock(state_dir: &Path) -> Result<File, LocalEtcdError> {
    let path = state_dir.join("etcd.lock");
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(file(&path))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            let _ = lock.take(16).read_to_string(&mut pid);
            return Err(LocalEtcdError::AlreadyRuns {
                state_dir: state_dir.to_owned(),
                pid,
            });
        }
        Err(errno) => return Err(file(&path)(errno.into())),
    }
    // Only for the message above.
    let _ = lock
        .set_len(0)
        .and_then(|()| lock.rewind())
        .and_then(|()| write!(lock, "{}", std::process::id()));
    Ok(lock)
}

/// etcd would only say that it couldn't listen, among a hundred other lines.
fn check_port(port: u16) -> Result<(), LocalEtcdError> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Err(LocalEtcdError::PortTaken { port })
        }
        // Any other reason is etcd's to tell.
        _ => Ok(()),
    }
}

async fn wait_until_ready(
    options: &LocalEtcdOptions,
    running: &mut Running,
) -> Result<(), LocalEtcdError> {
    let client = EtcdOptions::new(vec![options.endpoint()], "/podherd");
    let not_ready = |reason: String, running: &Running| LocalEtcdError::NotReady {
        reason,
        said: running.said(),
    };
    let store = match EtcdStore::connect(&client).await {
        Ok(store) => store,
        Err(error) => return Err(not_ready(error.to_string(), running)),
    };
    let deadline = Instant::now() + START;
    loop {
        if let Some(status) = running.ended() {
            // Its last words may still be on their way.
            sleep(LOOK_AGAIN).await;
            return Err(not_ready(format!("it ended ({status})"), running));
        }
        match store.identity().await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() >= deadline => {
                return Err(not_ready(error.to_string(), running));
            }
            Err(_) => sleep(LOOK_AGAIN).await,
        }
    }
}
