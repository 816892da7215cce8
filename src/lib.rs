//! Podherd, a Kubernetes-style reconciling controller for Podman.
//!
//! People put manifests into etcd. The **controller** ([`controller`]) watches
//! them and hands each app that changed to the **reconciler** ([`reconcile`]),
//! which observes the app, lets [`plan`] decide, and performs the decision one
//! journaled step at a time. What passed readiness is published to the traffic
//! graph ([`traffic`]), which a **data plane** ([`proxy`]) serves.
//!
//! Dependencies point one way:
//!
//! - [`manifest`] (what people write) and [`state`] (what is remembered) know
//!   nobody.
//! - [`policy`] is what the node lets a manifest have; it knows the manifest alone.
//! - [`store`], [`runtime`], [`traffic`] and [`probe`] are the ways out: a trait,
//!   its real implementation, and a double in memory.
//! - [`plan`] is pure; [`reconcile`] performs; [`controller`] keeps at work.
//! - [`telemetry`] is told; [`settings`] are read, and [`cli`] puts everything together.
//! - [`clock`] and [`backoff`] are time and chance.

pub mod backoff;
pub mod cli;
pub mod clock;
pub mod controller;
pub mod manifest;
pub mod plan;
pub mod policy;
pub mod probe;
pub mod proxy;
pub mod reconcile;
pub mod runtime;
pub mod settings;
pub mod state;
pub mod store;
pub mod telemetry;
pub mod traffic;
