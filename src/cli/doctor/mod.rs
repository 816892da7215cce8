//! `podherd doctor`: whether this host has what Podherd needs, and how to mend what it lacks.

mod cluster;
mod finding;
mod host;
mod podman;

use crate::manifest::NodeName;
use crate::settings::{
    ConfigOption, ControllerOptions, EtcdOptions, Host, NodeOptions, PodmanOptions, ProxyOptions,
};

use super::client::Client;
use super::output::print;
use super::{FAILED, WELL};
use finding::{Finding, Level};

/// Its options: those of `podherd run`, so that what is looked at is what would be used.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigOption,
    #[command(flatten)]
    etcd: EtcdOptions,
    #[command(flatten)]
    podman: PodmanOptions,
    #[command(flatten)]
    node: NodeOptions,
    #[command(flatten)]
    controller: ControllerOptions,
    #[command(flatten)]
    proxy: ProxyOptions,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<u8> {
    let file = arguments.config.load()?;
    let here = Host::here();
    let mut findings = Vec::new();
    // Each by itself: one that is wrong hides no other.
    let node = settle(
        "host name",
        arguments.node.resolve(&file, &here),
        &mut findings,
    );
    let etcd = settle("etcd", arguments.etcd.resolve(&file), &mut findings);
    if let Some(etcd) = etcd {
        findings.extend(of_etcd(&etcd, node.as_ref()).await);
    }
    let podman = settle(
        "podman",
        arguments.podman.resolve(&file, &here),
        &mut findings,
    );
    if let Some(settings) = podman {
        findings.extend(podman::check(&settings, &here).await);
    }
    let controller = settle(
        "controller",
        arguments.controller.resolve(&file, &here),
        &mut findings,
    );
    if let Some(settings) = controller {
        findings.extend(host::of_controller(&settings));
    }
    let proxy = settle("proxy", arguments.proxy.resolve(&file), &mut findings);
    if let Some(settings) = proxy {
        findings.extend(host::of_proxy(&settings, &here));
    }
    print(&findings.iter().map(Finding::to_string).collect::<String>())?;
    let wrong = findings
        .iter()
        .filter(|it| it.level == Level::Wrong)
        .count();
    match wrong {
        0 => Ok(WELL),
        wrong => {
            super::note(&format!("{wrong} to mend"));
            Ok(FAILED)
        }
    }
}

/// The settings; wrong ones are a finding.
fn settle<T, E: std::error::Error>(
    what: &'static str,
    settings: Result<T, E>,
    findings: &mut Vec<Finding>,
) -> Option<T> {
    settings
        .map_err(|error| findings.push(Finding::wrong(what, error.to_string(), "set it right")))
        .ok()
}

async fn of_etcd(etcd: &crate::store::EtcdOptions, node: Option<&NodeName>) -> Vec<Finding> {
    match Client::connect(etcd).await {
        Ok(client) => cluster::check(&client, node).await,
        Err(error) => vec![Finding::wrong(
            "etcd",
            error.to_string(),
            "start etcd, or say where it is with --etcd; etcdctl endpoint health looks from outside",
        )],
    }
}
