//! Routes: a host, a path and a declared port, each claimed once.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::ports;
use crate::manifest::error::Report;
use crate::manifest::path::Path;
use crate::manifest::ports::Protocol;
use crate::manifest::spec::{AppSpec, ServiceSpec};

const MAX_HOST: usize = 253;
const MAX_LABEL: usize = 63;

pub(super) fn check(service: &ServiceSpec, at: &Path, report: &mut Report<'_>) {
    for (index, route) in service.http.iter().enumerate() {
        let at = at.key("http").index(index);
        if !is_host_name(&route.host) || route.host.parse::<Ipv4Addr>().is_ok() {
            let message = format!(
                "{:?} is not a host name: write a lower-case DNS name without a port",
                route.host
            );
            report.at(&at.key("host"), message);
        }
        if !is_route_path(&route.path) {
            let message = "must start with '/' and be ASCII without spaces, '?', '#', doubled \
                           slashes, '.' and '..'";
            report.at(&at.key("path"), message);
        }
        ports::require(service, &route.port, Protocol::Tcp, &at.key("port"), report);
    }
    for (index, route) in service.tcp.iter().enumerate() {
        let at = at.key("tcp").index(index).key("port");
        ports::require(service, &route.port, Protocol::Tcp, &at, report);
    }
    for (index, route) in service.udp.iter().enumerate() {
        let at = at.key("udp").index(index).key("port");
        ports::require(service, &route.port, Protocol::Udp, &at, report);
    }
}

/// One holder of each host and path in the app.
pub(super) fn across_services(spec: &AppSpec, at: &Path, report: &mut Report<'_>) {
    let mut holders: BTreeMap<(&str, &str), Path> = BTreeMap::new();
    for (name, service) in &spec.services {
        for (index, route) in service.http.iter().enumerate() {
            let at = at.key(name).key("http").index(index);
            // Prefixes match by whole segments, so that /x and /x/ are the same.
            let claim = (route.host.as_str(), route.path.trim_end_matches('/'));
            if let Some(holder) = holders.get(&claim) {
                let message = format!(
                    "{}{} is already routed by {holder}: choose another host or path",
                    route.host, route.path
                );
                report.at(&at, message);
            } else {
                holders.insert(claim, at);
            }
        }
    }
}

/// A lower-case DNS name, without a trailing dot.
pub(super) fn is_host_name(host: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        (1..=MAX_LABEL).contains(&bytes.len())
            && bytes.iter().all(|&byte| plain(byte) || byte == b'-')
            && bytes.first().is_some_and(|&byte| plain(byte))
            && bytes.last().is_some_and(|&byte| plain(byte))
    };
    host.len() <= MAX_HOST && host.split('.').all(is_label)
}

fn is_route_path(path: &str) -> bool {
    let is_part = |part: &str| {
        !matches!(part, "." | "..")
            && part
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#'))
    };
    path.strip_prefix('/')
        .is_some_and(|rest| rest.split('/').all(is_part))
        && !path.contains("//")
}
