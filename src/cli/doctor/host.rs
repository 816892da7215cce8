//! The host itself: folders, ports, the policy.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::path::Path;

use super::finding::Finding;
use crate::settings::{ControllerSettings, Host, ProxySettings};

/// The ports that the kernel gives to clients.
const EPHEMERAL: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Those of them that it doesn't.
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";
/// The first port that an ordinary user may listen on.
const UNPRIVILEGED: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

pub(super) fn of_controller(settings: &ControllerSettings) -> Vec<Finding> {
    let policy = match &settings.policy {
        Some(path) => Finding::well("policy", format!("{} is right", path.display())),
        None => Finding::well("policy", "none: no host paths and no devices are allowed"),
    };
    vec![
        policy,
        state_dir(&settings.state_dir),
        ports(&settings.ports),
    ]
}

/// Whether we may write in the folder, or where it would be made.
fn state_dir(path: &Path) -> Finding {
    let there = path.ancestors().find(|path| path.exists()).unwrap_or(path);
    match rustix::fs::access(there, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Finding::well("state folder", path.display().to_string()),
        Err(error) => Finding::wrong(
            "state folder",
            format!("{} can't be written: {error}", there.display()),
            format!(
                "chown it to the user of the controller, or say --state-dir DIR (now {})",
                path.display()
            ),
        ),
    }
}

fn ports(ours: &RangeInclusive<u16>) -> Finding {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let said = format!("{}-{}", ours.start(), ours.end());
    match overlap(ours, &read(EPHEMERAL), &read(RESERVED)) {
        None => Finding::well("port range", said),
        Some((from, to)) => Finding::wrong(
            "port range",
            format!(
                "{said}: the kernel gives {from}-{to} of it to clients, so that containers may fail to start"
            ),
            format!(
                "say another --port-range, or sysctl -w net.ipv4.ip_local_reserved_ports={from}-{to}"
            ),
        ),
    }
}

/// The ports of ours that the kernel may give to a client.
fn overlap(ours: &RangeInclusive<u16>, ephemeral: &str, reserved: &str) -> Option<(u16, u16)> {
    let mut bounds = ephemeral.split_whitespace().map(str::parse::<u16>);
    let (Some(Ok(first)), Some(Ok(last))) = (bounds.next(), bounds.next()) else {
        return None;
    };
    let (from, to) = (first.max(*ours.start()), last.min(*ours.end()));
    let kept = reserved.trim().split(',').filter_map(|part| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<u16>().ok()?..=to.parse::<u16>().ok()?)
    });
    let kept: Vec<_> = kept.collect();
    let given = (from..=to).any(|port| !kept.iter().any(|range| range.contains(&port)));
    (from <= to && given).then_some((from, to))
}

pub(super) fn of_proxy(settings: &ProxySettings, here: &Host) -> Vec<Finding> {
    let start = fs::read_to_string(UNPRIVILEGED).unwrap_or_default();
    let start = start.trim().parse().unwrap_or(1024);
    settings
        .http
        .iter()
        .map(|address| listener(*address, start, here))
        .collect()
}

/// Whether HTTP could be served there, or is.
fn listener(address: SocketAddr, start: u16, here: &Host) -> Finding {
    let what = "http";
    if !here.is_root() && address.port() != 0 && address.port() < start {
        return Finding::wrong(
            what,
            format!("{address}: an ordinary user can't listen below {start}"),
            format!(
                "sysctl -w net.ipv4.ip_unprivileged_port_start={}, or say another --http",
                address.port()
            ),
        );
    }
    match TcpListener::bind(address) {
        Ok(_) => Finding::well(what, format!("{address} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Finding::well(
            what,
            format!("{address} is in use: by podherd, if it runs (ss -lntp says by whom)"),
        ),
        Err(error) => Finding::wrong(what, format!("{address}: {error}"), "say another --http"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn the_range_may_not_be_the_kernels() {
        let ours = 20_000..=29_999;
        assert_eq!(overlap(&ours, "32768\t60999\n", ""), None);
        assert_eq!(overlap(&ours, "25000 60999", ""), Some((25_000, 29_999)));
        assert_eq!(overlap(&ours, "1024 65535", "8080,20000-29999"), None);
        assert_eq!(
            overlap(&ours, "1024 65535", "20000-29998"),
            Some((20_000, 29_999))
        );
        assert_eq!(overlap(&ours, "", ""), None, "nothing is known");
    }

    #[test]
    fn low_ports_are_roots() {
        let user = Host {
            uid: 1000,
            ..Host::default()
        };
        let low: SocketAddr = "127.0.0.1:80".parse().unwrap();
        assert_eq!(listener(low, 1024, &user).level, Level::Wrong);
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        assert_eq!(listener(any, 1024, &user).level, Level::Well);
    }

    #[test]
    fn a_state_folder_is_judged_by_where_it_would_be() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(state_dir(&folder.path().join("a/b")).level, Level::Well);
    }
}
