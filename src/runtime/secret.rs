//! Secrets and volumes as the runtime tells of them, and a value on its way there.

use std::fmt;

use super::Labels;
use crate::state::SecretVersion;

/// A secret's value. It goes from where it is read into Podman, and nowhere else:
/// it can't be printed, compared or copied.
pub struct SecretValue(Vec<u8>);

/// Podman's own limit.
const LARGEST: usize = 512_000;

/// Why something can't be a secret's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a secret's value has 1 to {} bytes; this one has {bytes}", LARGEST - 1)]
pub struct SecretValueError {
    /// How many it has.
    pub bytes: usize,
}

impl SecretValue {
    /// Takes the bytes as they are.
    ///
    /// # Errors
    /// When Podman wouldn't take as many or as few.
    pub fn new(bytes: Vec<u8>) -> Result<Self, SecretValueError> {
        if (1..LARGEST).contains(&bytes.len()) {
            Ok(Self(bytes))
        } else {
            Err(SecretValueError { bytes: bytes.len() })
        }
    }

    /// For the runtime's eyes only.
    pub(super) fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

/// A secret as a list shows it: without its value, and without its labels, which
/// Podman 4.3 leaves out there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    /// Its name.
    pub name: String,
    /// Which version it has.
    pub version: SecretVersion,
}

/// A secret that a container gets as an environment variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretEnv {
    /// The variable.
    pub variable: String,
    /// The secret's name.
    pub secret: String,
}

/// A secret that a container gets as a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretMount {
    /// The secret's name.
    pub secret: String,
    /// Where the file is.
    pub path: String,
    /// Its mode.
    pub mode: u32,
    /// Whom it belongs to.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// A volume as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Whether a container, running or not, mounts it.
    pub in_use: bool,
}
