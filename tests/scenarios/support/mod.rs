//! A world in memory: store, runtime, traffic, time and chance, all the test's own.
//!
//! - `world`: builds it and runs passes; `outcome`: says what became of it.
//! - `manifest`: manifests in a line.
//! - `clock`: a calendar that follows tokio's paused time.
//! - `cut`: ends a run at a chosen effect.
//! - `store`, `runtime`, `traffic`: the doubles, wrapped to be cut, and to notice
//!   every moment at which an invariant doesn't hold.

mod clock;
mod cut;
mod manifest;
mod outcome;
mod runtime;
mod store;
mod traffic;
mod watch;
mod world;

pub use cut::Cut;
pub use manifest::{Manifest, app, blog, reference};
pub use world::{PRINTED, SECRET, World, name};
