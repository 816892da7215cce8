//! Podherd, a Kubernetes-style reconciling controller for Podman.
pub mod backoff;
pub mod clock;
pub mod controller;
pub mod manifest;
pub mod plan;
pub mod probe;
pub mod reconcile;
pub mod runtime;
pub mod settings;
pub mod state;
pub mod store;
pub mod telemetry;
pub mod traffic;
