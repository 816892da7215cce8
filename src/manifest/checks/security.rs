//! Privileges: capabilities that exist, each either given or taken.

use std::collections::BTreeSet;

use crate::manifest::error::Report;
use crate::manifest::path::Path;
use crate::manifest::spec::{Security, ServiceSpec, Userns};

/// Linux's capabilities, by their names without `CAP_`.
#[rustfmt::skip]
const CAPABILITIES: [&str; 41] = [
    "AUDIT_CONTROL", "AUDIT_READ", "AUDIT_WRITE", "BLOCK_SUSPEND", "BPF", "CHECKPOINT_RESTORE",
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "IPC_LOCK", "IPC_OWNER", "KILL",
    "LEASE", "LINUX_IMMUTABLE", "MAC_ADMIN", "MAC_OVERRIDE", "MKNOD", "NET_ADMIN",
    "NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW", "PERFMON", "SETFCAP", "SETGID", "SETPCAP",
    "SETUID", "SYSLOG", "SYS_ADMIN", "SYS_BOOT", "SYS_CHROOT", "SYS_MODULE", "SYS_NICE",
    "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];

pub(super) fn check(service: &ServiceSpec, at: &Path, report: &mut Report<'_>) {
    let security = &service.security;
    let at = at.key("security");
    // Podman chooses other IDs for each generation, and gives the files to the first.
    if security.userns == Some(Userns::Auto)
        && let Some(volume) = service.volumes.first()
    {
        let message = format!(
            "with `auto` each generation has other user IDs, and the files of volume `{}` would \
             be closed to the next one: leave out one of the two",
            volume.name
        );
        report.at(&at.key("userns"), message);
    }
    capabilities(security, &at, report);
}

fn capabilities(security: &Security, at: &Path, report: &mut Report<'_>) {
    let mut dropped = BTreeSet::new();
    for (index, capability) in security.cap_drop.iter().enumerate() {
        let at = at.key("capDrop").index(index);
        if capability != "ALL" && !is_capability(capability) {
            report.at(&at, format!("{} or ALL", unknown(capability)));
        } else if !dropped.insert(plain(capability)) {
            report.at(&at, format!("{capability} is already listed: keep one"));
        }
    }
    let mut added = BTreeSet::new();
    for (index, capability) in security.cap_add.iter().enumerate() {
        let at = at.key("capAdd").index(index);
        if !is_capability(capability) {
            report.at(&at, unknown(capability));
        } else if dropped.contains(plain(capability)) {
            report.at(
                &at,
                format!("{capability} is also in `capDrop`: keep one of the two"),
            );
        } else if !added.insert(plain(capability)) {
            report.at(&at, format!("{capability} is already listed: keep one"));
        }
    }
}

fn unknown(capability: &str) -> String {
    format!("{capability:?} is not a capability: write one such as NET_BIND_SERVICE")
}

/// Whether this is a capability of Linux, with or without `CAP_`; `ALL` is none.
pub(in crate::manifest) fn is_capability(capability: &str) -> bool {
    CAPABILITIES.contains(&plain(capability))
}

fn plain(capability: &str) -> &str {
    capability.strip_prefix("CAP_").unwrap_or(capability)
}
