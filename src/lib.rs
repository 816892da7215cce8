//! Podherd, a Kubernetes-style reconciling controller for Podman.
pub mod backoff;
pub mod clock;
pub mod manifest;
pub mod plan;
pub mod proxy;
pub mod runtime;
pub mod state;
pub mod store;
pub mod traffic;
