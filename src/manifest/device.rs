//! Devices: `/dev/fuse`, `/dev/ttyUSB0:/dev/modem:rw`, or a CDI name such as
//! `nvidia.com/gpu=0`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A device that a container gets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Device {
    /// A device of the host, by its path.
    Node {
        /// Path on the host.
        host: String,
        /// Path in the container.
        container: String,
        /// What may be done with it.
        access: DeviceAccess,
    },
    /// What a CDI specification on the host describes, as `vendor.com/class=name`.
    Cdi(String),
}

/// Why a text is no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a device: write its path under /dev, as in /dev/fuse or \
     /dev/ttyUSB0:/dev/modem:rw, or a CDI name as in vendor.com/class=name"
)]
pub struct DeviceError(String);

impl FromStr for Device {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let device = if text.starts_with('/') {
            node(text)
        } else {
            is_cdi(text).then(|| Self::Cdi(text.to_owned()))
        };
        device.ok_or_else(|| DeviceError(text.to_owned()))
    }
}

fn node(text: &str) -> Option<Device> {
    let mut parts = text.split(':');
    let host = parts.next().filter(|path| is_device_path(path))?;
    let (container, access) = match (parts.next(), parts.next(), parts.next()) {
        (None, ..) => (host, DeviceAccess::ALL),
        (Some(path), None, _) if path.starts_with('/') => (path, DeviceAccess::ALL),
        (Some(access), None, _) => (host, access.parse().ok()?),
        (Some(path), Some(access), None) => (path, access.parse().ok()?),
        (Some(_), Some(_), Some(_)) => return None,
    };
    is_device_path(container).then(|| Device::Node {
        host: host.to_owned(),
        container: container.to_owned(),
        access,
    })
}

fn is_device_path(path: &str) -> bool {
    super::checks::is_absolute(path) && path.starts_with("/dev/")
}

/// `vendor.com/class=name`, by the CDI specification.
fn is_cdi(text: &str) -> bool {
    let word = |text: &str, more: &[char]| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || more.contains(&c))
    };
    let Some((kind, name)) = text.split_once('=') else {
        return false;
    };
    let Some((vendor, class)) = kind.split_once('/') else {
        return false;
    };
    word(vendor, &['.', '-', '_']) && word(class, &['-', '_']) && word(name, &['.', '-', '_', ':'])
}

impl TryFrom<String> for Device {
    type Error = DeviceError;

    fn try_from(text: String) -> Result<Self, DeviceError> {
        text.parse()
    }
}

impl From<Device> for String {
    fn from(device: Device) -> Self {
        device.to_string()
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cdi(name) => f.write_str(name),
            Self::Node {
                host,
                container,
                access,
            } => {
                f.write_str(host)?;
                if container != host {
                    write!(f, ":{container}")?;
                }
                if *access != DeviceAccess::ALL {
                    write!(f, ":{access}")?;
                }
                Ok(())
            }
        }
    }
}

impl JsonSchema for Device {
    fn schema_name() -> Cow<'static, str> {
        "Device".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^(/dev/[^:]+(:/dev/[^:]+)?(:[rwm]{1,3})?|[^/=]+/[^/=]+=.+)$",
        })
    }
}

/// What may be done with a device: read (`r`), write (`w`), make its node (`m`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct DeviceAccess {
    read: bool,
    write: bool,
    make: bool,
}

/// Why a text says nothing of what may be done with a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an access: write some of r, w and m, each once, as in rw")]
pub struct DeviceAccessError(String);

impl DeviceAccess {
    /// Everything: what is meant when nothing is said.
    pub const ALL: Self = Self {
        read: true,
        write: true,
        make: true,
    };

    /// Whether nothing is in it that isn't in `other`.
    pub fn is_within(self, other: Self) -> bool {
        (!self.read || other.read) && (!self.write || other.write) && (!self.make || other.make)
    }
}

impl Default for DeviceAccess {
    fn default() -> Self {
        Self::ALL
    }
}

impl FromStr for DeviceAccess {
    type Err = DeviceAccessError;

    fn from_str(text: &str) -> Result<Self, DeviceAccessError> {
        let has = |letter| text.matches(letter).count() == 1;
        let access = Self {
            read: has('r'),
            write: has('w'),
            make: has('m'),
        };
        let letters = [access.read, access.write, access.make];
        let found = letters.into_iter().filter(|is| *is).count();
        if found > 0 && found == text.len() {
            Ok(access)
        } else {
            Err(DeviceAccessError(text.to_owned()))
        }
    }
}

impl TryFrom<String> for DeviceAccess {
    type Error = DeviceAccessError;

    fn try_from(text: String) -> Result<Self, DeviceAccessError> {
        text.parse()
    }
}

impl fmt::Display for DeviceAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (is, letter) in [(self.read, "r"), (self.write, "w"), (self.make, "m")] {
            if is {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_a_path_under_dev_or_a_cdi_name() {
        for (text, written) in [
            ("/dev/fuse", "/dev/fuse"),
            ("/dev/fuse:rwm", "/dev/fuse"),
            ("/dev/fuse:r", "/dev/fuse:r"),
            ("/dev/a:/dev/b", "/dev/a:/dev/b"),
            ("/dev/a:/dev/b:wr", "/dev/a:/dev/b:rw"),
            ("nvidia.com/gpu=0", "nvidia.com/gpu=0"),
            ("vendor.com/net-dev=eth0:1", "vendor.com/net-dev=eth0:1"),
        ] {
            let device: Device = text.parse().unwrap();
            assert_eq!(device.to_string(), written);
            assert_eq!(written.parse::<Device>().unwrap(), device);
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "/dev",
            "/dev/",
            "/etc/passwd",
            "/dev/../etc/passwd",
            "/dev/fuse:/etc/passwd",
            "/dev/fuse:",
            "/dev/fuse:rr",
            "/dev/fuse:x",
            "/dev/fuse:rwmr",
            "/dev/a:/dev/b:rw:z",
            "fuse",
            "vendor.com/class",
            "/class=name",
            "vendor.com/=name",
            "vendor.com/class=",
            "vendor.com/cl/ass=name",
            "vendor.com/class=na me",
        ] {
            assert!(text.parse::<Device>().is_err(), "{text}");
        }
    }
}
