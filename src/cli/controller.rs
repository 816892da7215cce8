//! `podherd controller`: the controller alone.

use super::assemble::{Control, World};
use super::connect;
use super::process::Process;
use crate::controller::SharedRole;
use crate::settings::{
    ConfigOption, ControllerOptions, EtcdOptions, Host, ListenOptions, LogOptions, NodeOptions,
    PodmanOptions,
};
use crate::state::Keys;

/// Its options.
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
    listen: ListenOptions,
    #[command(flatten)]
    log: LogOptions,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let file = arguments.config.load()?;
    let host = Host::here();
    let etcd = arguments.etcd.resolve(&file)?;
    let podman = arguments.podman.resolve(&file, &host)?;
    let node = arguments.node.resolve(&file, &host)?;
    let settings = arguments.controller.resolve(&file, &host)?;
    let process = Process::start(
        &arguments.log.resolve(&file),
        arguments.listen.resolve(&file),
    )
    .await?;

    let Some(store) = process.unless_stopped(connect::etcd(&etcd, &process)).await else {
        process.end();
        return Ok(());
    };
    let store = store?;
    let runtime = connect::podman(&podman, &process.metrics)?;
    let control = Control {
        world: World::new(
            node,
            store,
            runtime,
            settings.policy.clone(),
            Keys::new(&etcd.prefix),
        ),
        settings,
        socket: podman.socket,
        lock: None,
        metrics: process.metrics.clone(),
        health: process.health.clone(),
        role: SharedRole::default(),
    };
    control.run(process.stop.clone()).await?;
    process.end();
    Ok(())
}
