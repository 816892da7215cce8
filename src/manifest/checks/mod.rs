//! What the types can't say: each check looks at typed values and reports by path.

mod graph;
mod image;
mod labels;
mod logging;
mod mounts;
mod ports;
mod probes;
mod process;
mod resources;
mod routes;
mod security;
mod update;
mod writers;

use std::collections::BTreeSet;

pub(super) use mounts::is_absolute;
pub(super) use security::is_capability;

use super::envelope::Metadata;
use super::error::Report;
use super::names::AppName;
use super::path::Path;
use super::placement::Placement;
use super::quantity::Timespan;
use super::spec::{AppSpec, ServiceSpec};

/// Most services of an app.
const MAX_SERVICES: usize = 50;
/// Most ports of an app.
const MAX_PORTS: usize = 64;
/// Longest time that anything in a manifest may take.
const MAX_TIMESPAN: Timespan = Timespan::from_secs(24 * 60 * 60);

/// What `--network` means something else by, or Podman always has.
const NETWORK_MODES: [&str; 10] = [
    "bridge",
    "container",
    "default",
    "host",
    "none",
    "ns",
    "pasta",
    "podman",
    "private",
    "slirp4netns",
];

/// The kernel's longest host name.
const MAX_HOST_NAME: usize = 64;

/// Checks the app's name against its key, and its labels.
pub(super) fn metadata(key_name: &str, metadata: &Metadata, report: &mut Report<'_>) {
    let at = Path::root().key("metadata");
    if metadata.name.as_str() != key_name {
        let message = format!(
            "the name is `{}` and the key's last part `{key_name}`: make them equal",
            metadata.name
        );
        report.at(&at.key("name"), message);
    }
    labels::check(&metadata.labels, &at.key("labels"), report);
}

/// Checks all of the spec.
pub(super) fn spec(spec: &AppSpec, report: &mut Report<'_>) {
    let at = Path::root().key("spec");
    process::environment(&spec.env, &at.key("env"), report);
    networks(spec, &at.key("networks"), report);
    if let Some(Placement::Selector(selector)) = &spec.placement {
        let at = at.key("placement").key("selector");
        if selector.is_empty() {
            report.at(
                &at,
                "an empty selector chooses nothing: name a label, or leave it out",
            );
        }
        labels::check(selector, &at, report);
    }

    let at = at.key("services");
    if spec.services.is_empty() {
        report.at(&at, "an app needs at least one service");
    }
    bounded(spec, &at, report);
    for (name, each) in &spec.services {
        service(each, &at.key(name), report);
    }
    ports::across_services(spec, &at, report);
    routes::across_services(spec, &at, report);
    writers::across_services(spec, &at, report);
    graph::check(spec, &at, report);
}

/// What is written of a whole app at once has to fit into one transaction of etcd.
fn bounded(spec: &AppSpec, at: &Path, report: &mut Report<'_>) {
    let ports: usize = spec.services.values().map(|it| it.ports.len()).sum();
    for (count, most, what) in [
        (spec.services.len(), MAX_SERVICES, "services"),
        (ports, MAX_PORTS, "ports in all"),
    ] {
        if count > most {
            report.at(
                at,
                format!("{count} {what}: an app has at most {most}, make several of it"),
            );
        }
    }
}

fn service(service: &ServiceSpec, at: &Path, report: &mut Report<'_>) {
    image::check(&service.image, &at.key("image"), report);
    process::check(service, at, report);
    mounts::check(service, at, report);
    ports::check(service, at, report);
    routes::check(service, at, report);
    probes::check(service, at, report);
    update::check(service, at, report);
    resources::check(service, at, report);
    logging::check(service, at, report);
    security::check(service, at, report);
}

fn networks(spec: &AppSpec, at: &Path, report: &mut Report<'_>) {
    let mut seen = BTreeSet::new();
    for (index, network) in spec.networks.iter().enumerate() {
        if !seen.insert(&network.name) {
            let message = format!("network `{}` is already listed: keep one", network.name);
            report.at(&at.index(index).key("name"), message);
        }
        if NETWORK_MODES.contains(&network.name.as_str()) {
            let message = format!("{} is a word of Podman's own: choose another", network.name);
            report.at(&at.index(index).key("name"), message);
        }
    }
}

/// In a shared network a container's host name is `service.app`.
pub(super) fn host_names(app: &AppName, spec: &AppSpec, report: &mut Report<'_>) {
    let at = Path::root().key("spec").key("services");
    for name in spec.services.keys() {
        let length = name.as_str().len() + 1 + app.as_str().len();
        if !spec.networks.is_empty() && length > MAX_HOST_NAME {
            let message = format!(
                "in a shared network its host name is `{name}.{app}`, and {MAX_HOST_NAME} \
                 characters are the longest allowed: choose shorter names"
            );
            report.at_key(&at.key(name), message);
        }
    }
}

/// Refuses a time of zero and one that is absurdly long.
fn timespan(value: Timespan, at: &Path, report: &mut Report<'_>) {
    if value.is_zero() {
        report.at(at, "must be longer than zero");
    }
    bounded_timespan(value, at, report);
}

/// Refuses a time that is absurdly long; zero means at once.
fn bounded_timespan(value: Timespan, at: &Path, report: &mut Report<'_>) {
    if value > MAX_TIMESPAN {
        report.at(
            at,
            format!("{value} is longer than {MAX_TIMESPAN}, the longest allowed"),
        );
    }
}
