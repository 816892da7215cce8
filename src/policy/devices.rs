//! Which devices may be used.

use serde::Deserialize;

use super::binds::HostPath;
use super::scope::Scope;
use crate::manifest::{Device, DeviceAccess};

/// A device, a folder of devices, or a CDI name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub(super) struct Allowed {
    pub(super) what: What,
    pub(super) apps: Scope,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// A path under `/dev`: the device, or all devices in the folder.
    Path {
        path: HostPath,
        access: DeviceAccess,
    },
    /// A CDI name.
    Cdi(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    path: Option<HostPath>,
    access: Option<DeviceAccess>,
    cdi: Option<Device>,
    apps: Scope,
}

impl TryFrom<Written> for Allowed {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let what = match (written.path, written.cdi, written.access) {
            (Some(path), None, _) if !path.as_str().starts_with("/dev/") => {
                return Err("the path of a device is under /dev");
            }
            (Some(path), None, access) => What::Path {
                path,
                access: access.unwrap_or_default(),
            },
            (None, Some(Device::Cdi(name)), None) => What::Cdi(name),
            (None, Some(Device::Cdi(_)), Some(_)) => {
                return Err("access is for paths: leave it out beside cdi");
            }
            (None, Some(Device::Node { .. }), _) => {
                return Err("cdi is a CDI name as in vendor.com/class=name: write path for a path");
            }
            (None, None, _) | (Some(_), Some(_), _) => {
                return Err("write either path or cdi");
            }
        };
        Ok(Self {
            what,
            apps: written.apps,
        })
    }
}
