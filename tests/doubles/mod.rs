//! What the scenarios and the simulation both stand on: the doubles of store, runtime
//! and traffic, wrapped to be cut anywhere, and to notice every moment at which an
//! invariant doesn't hold.
//!
//! - `clock`: a calendar that follows tokio's paused time.
//! - `cut`: what becomes of an effect: the gate through which each passes.
//! - `leaks`: what may show up nowhere.
//! - `manifest`: manifests in a line.
//! - `store`, `runtime`, `traffic`: the doubles, wrapped.
//! - `watch`: the invariants that are checked at each effect and each write.

// Neither of the two uses all of it.
#![allow(dead_code)]

pub mod clock;
pub mod cut;
pub mod leaks;
pub mod manifest;
pub mod runtime;
pub mod store;
pub mod traffic;
pub mod watch;
