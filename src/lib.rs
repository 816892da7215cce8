//! Podherd: a reconciling controller for Podman.

pub mod manifest;
