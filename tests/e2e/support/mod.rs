//! What the tests stand on.
//!
//! - [`sandbox`]: namespaces of a test's own. Whatever runs inside ends with it.
//! - [`rootless`]: an ordinary user inside one.
//! - [`images`]: the demo images, made from busybox without a registry.
//! - [`manifest`]: the texts that tests apply.
//! - [`podman`]: a Podman API service with storage of its own.
//! - [`registry`]: a registry of its own, with faults on demand.
//! - [`etcd`]: an etcd of its own, spoken to with `etcdctl` as users do.
//! - [`podherd`]: the real binary, and what can be seen of it from outside.
//! - [`world`]: one of each.

// Each helper is for whichever test needs it.
#![allow(dead_code, unused_imports)]

pub mod etcd;
pub mod images;
pub mod manifest;
pub mod podherd;
pub mod podman;
pub mod registry;
pub mod rootless;
pub mod sandbox;
pub mod wait;
pub mod world;

pub use etcd::Etcd;
pub use images::Image;
pub use manifest::{manifest, with, with_volume};
pub use podherd::{Options, Podherd, Response, Store, ask, cli, podherd};
pub use podman::Podman;
pub use registry::{Fault, Registry, Scheme};
pub use sandbox::{Net, Process, Sandbox};
pub use wait::{until, within};
pub use world::{LIMIT, World, condition, text};
