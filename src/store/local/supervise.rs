//! The etcd process: how it is started, what it says, and that it runs.

use std::collections::VecDeque;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::backoff::Pauses;
use crate::clock::Entropy;

use super::{LocalEtcdError, LocalEtcdOptions, file};

/// The flag by which an orphan is known.
pub(super) const DATA_DIR: &str = "--data-dir";
/// Its name, and the address under which it would be known to other members:
/// it never has any.
const NAME: &str = "podherd";
const PEER: &str = "http://127.0.0.1:2380";
/// How long it may take to end when asked. It gives open watches 7 s.
const GRACE: Duration = Duration::from_secs(10);
const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(250),
    longest: Duration::from_secs(30),
};
/// One that ran this long is started again without a longer pause.
const STABLE: Duration = Duration::from_secs(60);
/// How many lines of its output are kept for an error.
const LINES: usize = 20;

/// A running etcd. Killed when dropped.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    since: Instant,
    said: Arc<Mutex<VecDeque<String>>>,
}

impl Running {
    pub(super) fn spawn(options: &LocalEtcdOptions) -> Result<Self, LocalEtcdError> {
        let mut child = command(options).spawn().map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                LocalEtcdError::Missing {
                    binary: options.binary.clone(),
                }
            } else {
                file(&options.binary)(error)
            }
        })?;
        let said = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(output) = child.stderr.take() {
            tokio::spawn(listen(output, said.clone()));
        }
        Ok(Self {
            child,
            since: Instant::now(),
            said,
        })
    }

    /// Its status, once it has ended.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The last lines of its output.
    pub(super) fn said(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.iter().cloned().collect::<Vec<_>>().join(" | ")
    }

    /// Asks it to end, and kills it if it doesn't.
    async fn end(mut self) {
        let pid = self
            .child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        // While the child isn't waited for, its number can't be another's.
        if let Some(pid) = pid
            && kill_process(pid, Signal::TERM).is_ok()
            && timeout(GRACE, self.child.wait()).await.is_ok()
        {
            info!("the local etcd has ended");
            return;
        }
        warn!("the local etcd doesn't end; killing it");
        if let Err(error) = self.child.kill().await {
            warn!(%error, "the local etcd can't be killed");
        }
    }
}

fn command(options: &LocalEtcdOptions) -> Command {
    let url = options.endpoint();
    let mut command = Command::new(&options.binary);
    command
        .arg(DATA_DIR)
        .arg(options.data_dir())
        .args(["--name", NAME])
        .args([
            "--listen-client-urls",
            &url,
            "--advertise-client-urls",
            &url,
        ])
        // It has to listen for members that never come; any port will do.
        .args(["--listen-peer-urls", "http://127.0.0.1:0"])
        .args(["--initial-advertise-peer-urls", PEER])
        .args(["--initial-cluster", &format!("{NAME}={PEER}")])
        // Only the first start looks at it: it makes the cluster's ID unlike any other's.
        .args([
            "--initial-cluster-token",
            &Entropy::from_system().uuid().to_string(),
        ])
        // Nobody else can be elected, so there is no reason to wait for long.
        .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
        .args([
            "--auto-compaction-mode",
            "periodic",
            "--auto-compaction-retention",
            "1h",
        ])
        .args(["--quota-backend-bytes", &options.quota_bytes.to_string()])
        .args(["--snapshot-count", "10000"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        // Ctrl-C is for Podherd, which still has a lease to give back.
        .process_group(0);
    // etcd takes options from the environment, and refuses to start when it has
    // one there as well as in its arguments.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ETCD_") {
            command.env_remove(name);
        }
    }
    if cfg!(target_arch = "aarch64") {
        // etcd 3.4 wants to be told that this is meant.
        command.env("ETCD_UNSUPPORTED_ARCH", "arm64");
    }
    command
}

/// Passes its output on to the log, and keeps the end of it.
async fn listen(output: ChildStderr, said: Arc<Mutex<VecDeque<String>>>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        debug!(target: "etcd", "{line}");
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() == LINES {
            said.pop_front();
        }
        said.push_back(line);
    }
}

/// Starts it again whenever it ends, until told to stop.
pub(super) async fn keep_running(
    options: LocalEtcdOptions,
    mut running: Running,
    stop: CancellationToken,
) {
    let entropy = Entropy::from_system();
    let mut failures = 0;
    loop {
        let status = tokio::select! {
            biased;
            () = stop.cancelled() => return running.end().await,
            status = running.child.wait() => status,
        };
        if running.since.elapsed() > STABLE {
            failures = 0;
        }
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        warn!(
            status,
            said = running.said(),
            "the local etcd has ended; starting it again"
        );
        running = loop {
            failures += 1;
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = sleep(PAUSES.after(failures, &entropy)) => {}
            }
            match Running::spawn(&options) {
                Ok(running) => break running,
                Err(error) => warn!(%error, "the local etcd can't be started; trying again"),
            }
        };
    }
}
