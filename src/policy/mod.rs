//! What this node lets manifests have: images, host paths, devices, privileges.
//!
//! It stands in a file on the node, never in etcd: who can write manifests must not
//! be able to grant themselves the host. Without a file, images of every registry are
//! allowed, and of the host nothing.
//!
//! - `file`: the file's text as a [`Policy`]; `images`, `binds`, `devices`,
//!   `privileges` and `scope` are its parts, with the question that each answers.
//! - `site`: a policy beside the host's paths as they are now, as plain values; from
//!   them follows what a service gets ([`Grant`]), or why it doesn't ([`Denial`]).
//! - `host`: where both are read, [`HostPolicy`], with a double in memory.

mod binds;
mod denial;
mod devices;
mod file;
mod host;
mod images;
mod memory;
mod privileges;
mod scope;
mod site;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use denial::Denial;
pub use file::{NodePolicy, PolicyFileError, read};
pub use host::{HostPolicy, PathError};
pub use memory::MemoryPolicy;
pub use site::{Grant, Paths, Site, Verdict};

use binds::Root;
use devices::Allowed;
use images::Images;
use privileges::Privileges;

/// What a node allows. The default is what holds without a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Policy {
    images: Images,
    binds: BTreeMap<String, Root>,
    devices: BTreeMap<String, Allowed>,
    privileges: Privileges,
}

/// The node's policy, as far as it can be known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rules {
    /// This holds.
    Known(Policy),
    /// The file can't be read, and why. Nothing that it would have to allow is allowed.
    Unreadable(String),
}

impl Rules {
    fn known(&self) -> Result<&Policy, Denial> {
        match self {
            Self::Known(policy) => Ok(policy),
            Self::Unreadable(why) => Err(Denial::Unreadable { why: why.clone() }),
        }
    }

    /// Whether an image may be used as the manifest names it.
    ///
    /// # Errors
    /// When it may not.
    pub fn permit_image(&self, image: &str) -> Result<(), Denial> {
        self.known()?.images.permit(image)
    }

    /// Whether an image may be pulled by its digest. That it is pinned is what
    /// `requireDigest` asks for.
    ///
    /// # Errors
    /// When it may not.
    pub fn permit_pinned(&self, image: &str) -> Result<(), Denial> {
        self.known()?.images.permit_registry(image)
    }
}
