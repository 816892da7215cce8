//! Probes: they ask a declared port, and can pass.

use super::{ports, process, timespan};
use crate::manifest::error::Report;
use crate::manifest::path::Path;
use crate::manifest::ports::Protocol;
use crate::manifest::probe::{Check, Liveness, Readiness, Startup};
use crate::manifest::spec::ServiceSpec;

/// More in a row than this is a slip of the keyboard.
const MAX_IN_A_ROW: u32 = 1_000;

pub(super) fn check(service: &ServiceSpec, at: &Path, report: &mut Report<'_>) {
    match &service.readiness {
        Some(probe) => readiness(service, probe, &at.key("readiness"), report),
        None if needs_stated_readiness(service) => report.at(
            &at.key("udp"),
            "a service with only udp routes must state its readiness: add `readiness` with log, \
             exec, health, delay or none",
        ),
        None => {}
    }
    if let Some(probe) = &service.liveness {
        liveness(service, probe, &at.key("liveness"), report);
    }
    if let Some(probe) = &service.startup {
        startup(service, probe, &at.key("startup"), report);
    }
}

/// Whether nothing tells from outside that the service answers.
fn needs_stated_readiness(service: &ServiceSpec) -> bool {
    !service.udp.is_empty() && service.tcp.is_empty() && service.http.is_empty()
}

fn readiness(service: &ServiceSpec, probe: &Readiness, at: &Path, report: &mut Report<'_>) {
    check_of(service, &probe.check, at, report);
    timespan(probe.timeout, &at.key("timeout"), report);
    timespan(probe.interval, &at.key("interval"), report);
    in_a_row(1, probe.successes, &at.key("successes"), report);
    if let Check::Delay(pause) = probe.check
        && pause > probe.timeout
    {
        let message = format!(
            "{pause} is longer than the timeout of {}: raise it",
            probe.timeout
        );
        report.at(&at.key("delay"), message);
    }
}

fn liveness(service: &ServiceSpec, probe: &Liveness, at: &Path, report: &mut Report<'_>) {
    check_of(service, &probe.check, at, report);
    timespan(probe.interval, &at.key("interval"), report);
    timespan(probe.timeout, &at.key("timeout"), report);
    in_a_row(2, probe.failures, &at.key("failures"), report);
    let word = match probe.check {
        Check::Http { .. } | Check::Tcp { .. } | Check::Exec { .. } | Check::Health => return,
        Check::Log { .. } => "log",
        Check::Delay(_) => "delay",
        Check::None => "none",
    };
    let message =
        format!("`{word}` tells nothing about a running service: use another, or none of all");
    report.at_key(&at.key(word), message);
}

fn startup(service: &ServiceSpec, probe: &Startup, at: &Path, report: &mut Report<'_>) {
    check_of(service, &probe.check, at, report);
    timespan(probe.timeout, &at.key("timeout"), report);
    if probe.check == Check::None {
        report.at_key(&at.key("none"), "waits for nothing: leave `startup` out");
    }
}

fn check_of(service: &ServiceSpec, check: &Check, at: &Path, report: &mut Report<'_>) {
    match check {
        Check::Http {
            path,
            port,
            status: _,
        } => {
            let at = at.key("http");
            if !is_request_path(path) {
                let message = "must start with '/' and have no spaces, no '#' and only ASCII";
                report.at(&at.key("path"), message);
            }
            ports::require(service, port, Protocol::Tcp, &at.key("port"), report);
        }
        Check::Tcp { port } => {
            ports::require(
                service,
                port,
                Protocol::Tcp,
                &at.key("tcp").key("port"),
                report,
            );
        }
        Check::Exec { command } => {
            let at = at.key("exec").key("command");
            process::command(command, &at, report);
        }
        Check::Log { contains } => {
            if contains.is_empty() {
                let at = at.key("log").key("contains");
                report.at(
                    &at,
                    "every log contains an empty text: write what to look for",
                );
            }
        }
        Check::Delay(pause) => timespan(*pause, &at.key("delay"), report),
        Check::Health | Check::None => {}
    }
}

fn in_a_row(least: u32, count: u32, at: &Path, report: &mut Report<'_>) {
    if !(least..=MAX_IN_A_ROW).contains(&count) {
        report.at(at, format!("must be from {least} to {MAX_IN_A_ROW}"));
    }
}

/// A path for a request, with its query.
fn is_request_path(path: &str) -> bool {
    path.starts_with('/')
        && path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#')
}
