//! `podherd run`: controller and proxy in one process, with an etcd of its own
//! where that is wanted.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::assemble::{Control, World};
use super::connect;
use super::process::Process;
use super::proxy::Serving;
use crate::controller::{HostLock, SharedRole};
use crate::settings::{
    ConfigOption, ControllerOptions, EtcdChoice, EtcdOptions, Host, ListenOptions,
    LocalEtcdOptions, LogOptions, NodeOptions, PodmanOptions, ProxyOptions,
};
use crate::state::Keys;
use crate::store::{self, LocalEtcd};

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigOption,
    #[command(flatten)]
    etcd: EtcdOptions,
    #[command(flatten)]
    local_etcd: LocalEtcdOptions,
    #[command(flatten)]
    podman: PodmanOptions,
    #[command(flatten)]
    node: NodeOptions,
    #[command(flatten)]
    controller: ControllerOptions,
    #[command(flatten)]
    proxy: ProxyOptions,
    #[command(flatten)]
    listen: ListenOptions,
    #[command(flatten)]
    log: LogOptions,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let file = arguments.config.load()?;
    let host = Host::here();
    let etcd = arguments
        .etcd
        .resolve_or_local(arguments.local_etcd, &file)?;
    let podman = arguments.podman.resolve(&file, &host)?;
    let node = arguments.node.resolve(&file, &host)?;
    let settings = arguments.controller.resolve(&file, &host)?;
    let proxy = arguments.proxy.resolve(&file)?;
    let listen = arguments.listen.resolve(&file);
    let process = Process::start(&arguments.log.resolve(&file), listen).await?;
    let mut reserved = BTreeSet::from([listen.port()]);
    if let EtcdChoice::Local(local) = &etcd {
        reserved.insert(local.port);
    }

    let reach = async {
        let (options, local) = match etcd {
            EtcdChoice::Running(options) => (options, None),
            EtcdChoice::Local(local) => {
                // The lock first: a second Podherd on this host stands by.
                process
                    .health
                    .waits_for("this host's Podman: another Podherd acts on it");
                let lock = HostLock::acquire(&podman.socket, &settings.state_dir).await?;
                process.health.waits_for("the local etcd");
                let etcd = LocalEtcd::start(store::LocalEtcdOptions {
                    binary: local.binary,
                    port: local.port,
                    ..store::LocalEtcdOptions::new(&settings.state_dir)
                })
                .await?;
                let endpoints = vec![etcd.endpoint().to_owned()];
                let options = store::EtcdOptions::new(endpoints, &local.prefix);
                (options, Some((lock, etcd)))
            }
        };
        let store = connect::etcd(&options, &process).await?;
        anyhow::Ok((store, options.prefix, local))
    };
    let Some(reached) = process.unless_stopped(Box::pin(reach)).await else {
        process.end();
        return Ok(());
    };
    let (store, prefix, local) = reached?;
    let (lock, local) = local.unzip();
    let keys = Keys::new(&prefix);
    let runtime = connect::podman(&podman, &process.metrics)?;
    let serving = Serving::start(
        proxy,
        node.clone(),
        Arc::clone(&store),
        keys.clone(),
        &process,
        reserved,
    )
    .await?;
    let control = Control {
        world: World::new(node, store, runtime, settings.policy.clone(), keys),
        settings,
        socket: podman.socket,
        lock,
        metrics: process.metrics.clone(),
        health: process.health.clone(),
        role: SharedRole::default(),
    };
    // The proxy ends after the controller, whose last step may wait for it.
    let ended = serving
        .until(Box::pin(control.run(process.stop.clone())))
        .await;
    if let Some(etcd) = local {
        etcd.stop().await;
    }
    process.end();
    Ok(ended?)
}
