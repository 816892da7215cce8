//! Whether another process of this machine still runs.
//!
//! A controller that was killed leaves its leadership behind until the lease ends.
//! Its successor on the same machine can see that it is gone, and needn't wait.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::state::ProcessIdentity;

/// This process; `None` where `/proc` doesn't tell.
pub fn this_process() -> Option<ProcessIdentity> {
    let pid = std::process::id();
    Some(ProcessIdentity {
        boot: boot()?,
        namespace: namespace()?,
        pid,
        started: started(pid)?,
    })
}

/// Whether the process surely has ended: it is of this boot of this machine, its ID
/// means the same here, and no process of that ID began when it did. `/proc` may hide
/// the processes of others; the kernel says of each ID whether there is one.
pub fn has_ended(process: &ProcessIdentity) -> bool {
    boot().as_ref() == Some(&process.boot)
        && namespace().as_ref() == Some(&process.namespace)
        && match started(process.pid) {
            Some(started) => started != process.started,
            None => is_free(process.pid),
        }
}

/// Whether no process has this ID, or only one that waits to be reaped.
fn is_free(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    let zombie = || fs::exists(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or(false);
    test_kill_process(pid) == Err(Errno::SRCH) || zombie()
}

fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

fn namespace() -> Option<String> {
    let link = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// When a process that still runs began, in clock ticks since the boot: field 22 of
/// `proc_pid_stat(5)`. The second field, in parentheses, may hold anything.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    (state != "Z").then_some(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_not_ended() {
        assert!(!has_ended(&this_process().unwrap()));
    }

    #[test]
    fn a_child_that_was_waited_for_has_ended() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let identity = ProcessIdentity {
            pid: child.id(),
            started: started(child.id()).unwrap(),
            ..this_process().unwrap()
        };
        assert!(!has_ended(&identity));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_ended(&identity));
    }

    #[test]
    fn another_process_of_the_same_id_is_another_process() {
        let this = this_process().unwrap();
        assert!(has_ended(&ProcessIdentity {
            started: this.started + 1,
            ..this
        }));
    }

    #[test]
    fn nothing_is_known_of_another_boot_or_namespace() {
        let gone = ProcessIdentity {
            started: 0,
            ..this_process().unwrap()
        };
        assert!(has_ended(&gone));
        let boot = "another".to_owned();
        assert!(!has_ended(&ProcessIdentity {
            boot,
            ..gone.clone()
        }));
        let namespace = "another".to_owned();
        assert!(!has_ended(&ProcessIdentity { namespace, ..gone }));
    }
}
