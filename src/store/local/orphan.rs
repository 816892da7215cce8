//! Finding and ending the etcd that a killed Podherd left behind.
//!
//! It is known by its program's name and by the data folder in its arguments,
//! never by a number that somebody wrote down: numbers are used again.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::{Instant, sleep};
use tracing::info;

use super::LocalEtcdError;

/// How long an orphan may take to end when asked, and when killed.
const GRACE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Ends every etcd that has these data open as its own.
pub(super) async fn end_all(data_dir: &Path) -> Result<(), LocalEtcdError> {
    for pid in processes()? {
        if is_ours(pid, data_dir) {
            end(pid, data_dir).await?;
        }
    }
    Ok(())
}

async fn end(pid: Pid, data_dir: &Path) -> Result<(), LocalEtcdError> {
    let failed = |reason: String| LocalEtcdError::Orphan {
        pid: pid.as_raw_nonzero().get(),
        reason,
    };
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(Errno::SRCH) => return Ok(()),
        Err(errno) => return Err(failed(errno.to_string())),
    };
    // The handle stays with one process; what is looked up by number may have
    // become another one until the handle was there.
    if !is_ours(pid, data_dir) {
        return Ok(());
    }
    info!(%pid, "ending the etcd that an earlier Podherd left");
    for signal in [Signal::TERM, Signal::KILL] {
        match send(&process, signal) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(errno) => return Err(failed(errno.to_string())),
        }
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if !is_ours(pid, data_dir) {
                return Ok(());
            }
            sleep(LOOK_AGAIN).await;
        }
    }
    Err(failed("it doesn't end".to_owned()))
}

/// Sends a signal; `false` when the process is gone.
fn send(process: &OwnedFd, signal: Signal) -> Result<bool, Errno> {
    match pidfd_send_signal(process, signal) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn processes() -> Result<Vec<Pid>, LocalEtcdError> {
    let proc = Path::new("/proc");
    let entries = fs::read_dir(proc).map_err(super::file(proc))?;
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
        .collect())
}

/// Whether it is an etcd with exactly this data folder. One that has ended but
/// wasn't waited for has no arguments any more, and no locks.
fn is_ours(pid: Pid, data_dir: &Path) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| names(&line, data_dir))
}

fn names(command_line: &[u8], data_dir: &Path) -> bool {
    let mut words = command_line.split(|byte| *byte == 0);
    let program = words.next().map(|word| Path::new(OsStr::from_bytes(word)));
    let is_etcd = program
        .and_then(Path::file_name)
        .is_some_and(|name| name.as_bytes().starts_with(b"etcd"));
    let is_flag = |word: &&[u8]| *word == super::supervise::DATA_DIR.as_bytes();
    is_etcd
        && words.find(is_flag).is_some()
        && words.next() == Some(data_dir.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_etcd_on_exactly_these_data_is_taken_for_ours() {
        let ours = Path::new("/var/lib/podherd/etcd");
        for (line, expected) in [
            (
                "/usr/bin/etcd\0--name\0podherd\0--data-dir\0/var/lib/podherd/etcd\0",
                true,
            ),
            (
                "etcd\0--data-dir\0/var/lib/podherd/etcd\0--name\0podherd\0",
                true,
            ),
            ("etcd\0--data-dir\0/var/lib/podherd/etcd2\0", false),
            (
                "etcd\0--data-dir\0/var/lib/etcd\0--name\0/var/lib/podherd/etcd\0",
                false,
            ),
            ("vi\0--data-dir\0/var/lib/podherd/etcd\0", false),
            ("etcd\0", false),
            ("", false),
        ] {
            assert_eq!(names(line.as_bytes(), ours), expected, "{line:?}");
        }
    }
}
