//! What a container gets of the host's files: bind mounts and devices.

use podman_api::models;
use serde_json::{Value, json};

use crate::manifest::{BindMount, Device};

/// A host path as a mount. Only the path itself: a file system that is mounted below
/// it would keep its write access in a read-only mount.
pub(super) fn bind(bind: &BindMount) -> models::ContainerMount {
    let access = if bind.read_only { "ro" } else { "rw" };
    let options = ["bind", access, "rprivate", "nosuid", "nodev"];
    models::ContainerMount {
        destination: Some(bind.path.clone()),
        options: Some(options.map(str::to_owned).to_vec()),
        source: Some(bind.source.clone()),
        _type: Some("bind".to_owned()),
        uid_mappings: None,
        gid_mappings: None,
    }
}

/// Devices as Podman reads them: all in the path, and CDI names likewise.
pub(super) fn devices(devices: &[Device]) -> Value {
    let written = devices.iter().map(|device| match device {
        Device::Cdi(name) => json!({"path": name}),
        Device::Node {
            host,
            container,
            access,
        } => json!({"path": format!("{host}:{container}:{access}")}),
    });
    written.collect()
}
