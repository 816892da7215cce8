//! From a [`ContainerSpec`] to the body of Podman's create call.

use std::collections::BTreeMap;

use podman_api::models;
use podman_api::opts::{ContainerCreateOpts, ContainerRestartPolicy, ImageVolumeMode};
use serde_json::{Value, json};

use super::super::{ContainerSpec, PortMapping, SecretMount, TmpfsMount, VolumeAttachment};
use super::host_files;
use crate::manifest::{Logging, Resources, Userns, signal_number};

/// Microseconds over which CPU time is shared out: the kernel's default.
const CPU_PERIOD: u64 = 100_000;

/// The body, or what is wrong with the spec.
pub(super) fn body(spec: &ContainerSpec) -> Result<Value, String> {
    let mut options = ContainerCreateOpts::builder()
        .name(&spec.name)
        .hostname(&spec.hostname)
        .image(&spec.image_id)
        .env(&spec.env)
        .labels(&spec.labels)
        .portmappings(spec.ports.iter().map(port))
        .volumes(spec.volumes.iter().map(volume))
        .mounts((spec.tmpfs.iter().map(tmpfs)).chain(spec.binds.iter().map(host_files::bind)))
        // Preflight has seen to it that each of the image's volumes is mapped.
        .image_volume_mode(ImageVolumeMode::Ignore)
        // Whether and when a container runs again is Podherd's to say.
        .restart_policy(ContainerRestartPolicy::No)
        .stop_timeout(spec.stop_timeout.as_secs())
        .resource_limits(limits(&spec.resources))
        .add_capabilities(&spec.security.cap_add)
        .drop_capabilities(&spec.security.cap_drop)
        .read_only_fs(spec.security.read_only_root);
    if let Some(entrypoint) = &spec.entrypoint {
        options = options.entrypoint(entrypoint);
    }
    if let Some(command) = &spec.command {
        options = options.command(command);
    }
    if let Some(dir) = &spec.working_dir {
        options = options.work_dir(dir);
    }
    if let Some(user) = &spec.user {
        options = options.user(user);
    }
    if let Some(name) = &spec.stop_signal {
        let number = signal_number(name).ok_or_else(|| format!("{name:?} is no signal"))?;
        options = options.stop_signal(number);
    }
    if let Some(userns) = spec.security.userns {
        options = options.user_namespace(namespace(match userns {
            Userns::Auto => "auto",
            Userns::Host => "host",
        }));
    }
    if !spec.networks.is_empty() {
        let networks: BTreeMap<_, _> = spec
            .networks
            .iter()
            .map(|network| (&network.name, json!({"aliases": network.aliases})))
            .collect();
        // Rootless Podman would take another kind by default.
        options = options
            .net_namespace(namespace("bridge"))
            .networks(networks);
    }
    let options = options.build().serialize_vec().ok();
    let mut body: Value = options
        .and_then(|text| serde_json::from_slice(&text).ok())
        .ok_or_else(|| "the spec isn't JSON".to_owned())?;
    // With Podman's search domain, a short name is asked of the server of whichever
    // network comes first, which denies names of another. Without, each knows them all.
    if spec.networks.len() > 1 {
        body["dns_search"] = json!(["."]);
    }
    // Without it, Podman takes `auto` for the host's own, and says nothing.
    if spec.security.userns == Some(Userns::Auto) {
        body["idmappings"] = json!({"AutoUserNs": true});
    }
    if let Some(logging) = &spec.logging {
        body["log_configuration"] = log_configuration(logging);
    }
    // podman-api calls it `no_new_privilages`, which Podman silently ignores.
    if spec.security.no_new_privileges {
        body["no_new_privileges"] = Value::Bool(true);
    }
    if !spec.devices.is_empty() {
        body["devices"] = host_files::devices(&spec.devices);
    }
    secrets(spec, &mut body);
    Ok(body)
}

/// By name: the values are Podman's to look up.
fn secrets(spec: &ContainerSpec, body: &mut Value) {
    let env = spec.secret_env.iter();
    let env: BTreeMap<_, _> = env.map(|it| (&it.variable, &it.secret)).collect();
    if !env.is_empty() {
        body["secret_env"] = json!(env);
    }
    let file = |file: &SecretMount| {
        json!({
            "Source": file.secret,
            "Target": file.path,
            "UID": file.uid,
            "GID": file.gid,
            "Mode": file.mode,
        })
    };
    let files: Vec<_> = spec.secret_files.iter().map(file).collect();
    if !files.is_empty() {
        body["secrets"] = Value::from(files);
    }
}

/// podman-api has that of Docker's API there.
fn log_configuration(logging: &Logging) -> Value {
    let mut configuration = json!({"driver": logging.driver.as_str()});
    if let Some(size) = logging.max_size {
        configuration["size"] = Value::from(size.get());
    }
    configuration
}

fn port(port: &PortMapping) -> models::PortMapping {
    models::PortMapping {
        container_port: Some(port.container),
        // For netavark `0.0.0.0` is one address, which nobody has; nothing is every one.
        host_ip: (!port.host_ip.is_unspecified()).then(|| port.host_ip.to_string()),
        host_port: Some(port.host),
        protocol: Some(port.protocol.as_str().to_owned()),
        range: None,
    }
}

fn volume(volume: &VolumeAttachment) -> models::NamedVolume {
    models::NamedVolume {
        dest: Some(volume.path.clone()),
        is_anonymous: None,
        name: Some(volume.name.clone()),
        options: volume.read_only.then(|| vec!["ro".to_owned()]),
    }
}

fn tmpfs(mount: &TmpfsMount) -> models::ContainerMount {
    let mut options = vec!["rw".to_owned(), "nosuid".to_owned(), "nodev".to_owned()];
    options.extend(mount.size.map(|size| format!("size={size}")));
    models::ContainerMount {
        destination: Some(mount.path.clone()),
        options: Some(options),
        source: Some("tmpfs".to_owned()),
        _type: Some("tmpfs".to_owned()),
        uid_mappings: None,
        gid_mappings: None,
    }
}

fn limits(resources: &Resources) -> models::LinuxResources {
    let cpu = resources.cpus.map(|cpus| models::LinuxCpu {
        cpus: None,
        mems: None,
        period: Some(CPU_PERIOD),
        // A thousandth of a core is a thousandth of the period.
        quota: Some(i64::from(cpus.millis()) * 100),
        realtime_period: None,
        realtime_runtime: None,
        shares: None,
    });
    let memory = resources.memory.map(|memory| models::LinuxMemory {
        disable_oom_killer: None,
        kernel: None,
        kernel_tcp: None,
        limit: i64::try_from(memory.get()).ok(),
        reservation: None,
        swap: None,
        swappiness: None,
        use_hierarchy: None,
    });
    let pids = resources.pids.map(|pids| models::LinuxPids {
        limit: Some(i64::from(pids)),
    });
    models::LinuxResources {
        block_io: None,
        cpu,
        devices: None,
        hugepage_limits: None,
        memory,
        network: None,
        pids,
        rdma: None,
        unified: None,
    }
}

fn namespace(mode: &str) -> models::Namespace {
    models::Namespace {
        nsmode: Some(mode.to_owned()),
        value: None,
    }
}
