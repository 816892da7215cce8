//! Declared ports: no name and no number is used twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::manifest::error::Report;
use crate::manifest::names::PortName;
use crate::manifest::path::Path;
use crate::manifest::ports::{AppProtocol, Port, Protocol};
use crate::manifest::spec::{AppSpec, ServiceSpec};

pub(super) fn check(service: &ServiceSpec, at: &Path, report: &mut Report<'_>) {
    let at = at.key("ports");
    let mut names = BTreeSet::new();
    let mut numbers = BTreeMap::new();
    for (index, port) in service.ports.iter().enumerate() {
        let at = at.index(index);
        if !names.insert(&port.name) {
            let message = format!("port name `{}` is already used: choose another", port.name);
            report.at(&at.key("name"), message);
        }
        if not_zero(port.container, &at.key("container"), report)
            && let Some(other) = numbers.insert((port.protocol, port.container), &port.name)
        {
            let message = format!(
                "{}/{} is already declared as `{other}`: keep one",
                port.container,
                port.protocol.as_str()
            );
            report.at(&at.key("container"), message);
        }
        if port.protocol == Protocol::Udp && port.app_protocol != AppProtocol::Http {
            report.at(
                &at.key("appProtocol"),
                "only a tcp port has one: leave it out",
            );
        }
    }
}

/// Fixed host ports and listeners belong to the host: one holder each in the app.
pub(super) fn across_services(spec: &AppSpec, at: &Path, report: &mut Report<'_>) {
    let mut holders: BTreeMap<(Protocol, u16), Path> = BTreeMap::new();
    let mut claim = |protocol: Protocol, number: u16, at: Path, report: &mut Report<'_>| {
        if !not_zero(number, &at, report) {
            return;
        }
        if let Some(holder) = holders.get(&(protocol, number)) {
            let protocol = protocol.as_str();
            let message = format!(
                "host port {number}/{protocol} is already taken by {holder}: choose another"
            );
            report.at(&at, message);
        } else {
            holders.insert((protocol, number), at);
        }
    };
    for (name, service) in &spec.services {
        let at = at.key(name);
        for (index, port) in service.ports.iter().enumerate() {
            if let Some(host) = port.host {
                claim(
                    port.protocol,
                    host,
                    at.key("ports").index(index).key("host"),
                    report,
                );
            }
        }
        for (index, route) in service.tcp.iter().enumerate() {
            claim(
                Protocol::Tcp,
                route.listen,
                at.key("tcp").index(index).key("listen"),
                report,
            );
        }
        for (index, route) in service.udp.iter().enumerate() {
            claim(
                Protocol::Udp,
                route.listen,
                at.key("udp").index(index).key("listen"),
                report,
            );
        }
    }
}

/// Refuses a reference to a port that isn't declared, or not with this protocol.
pub(super) fn require(
    service: &ServiceSpec,
    name: &PortName,
    protocol: Protocol,
    at: &Path,
    report: &mut Report<'_>,
) {
    let protocol_word = protocol.as_str();
    let same_name = |port: &&Port| port.name == *name;
    match service.ports.iter().find(same_name) {
        Some(port) if port.protocol == protocol => {}
        Some(port) => {
            let message = format!(
                "port `{name}` is {}: a {protocol_word} port is needed here",
                port.protocol.as_str()
            );
            report.at(at, message);
        }
        None => {
            let fitting = service
                .ports
                .iter()
                .filter(|port| port.protocol == protocol);
            let fitting: Vec<_> = fitting.map(|port| format!("`{}`", port.name)).collect();
            let message = if fitting.is_empty() {
                format!("port `{name}` is not declared: add a {protocol_word} port under `ports`")
            } else {
                format!(
                    "port `{name}` is not declared: use {} or add it under `ports`",
                    fitting.join(", ")
                )
            };
            report.at(at, message);
        }
    }
}

fn not_zero(number: u16, at: &Path, report: &mut Report<'_>) -> bool {
    if number == 0 {
        report.at(at, "a port is a number from 1 to 65535");
    }
    number != 0
}
