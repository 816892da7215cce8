//! A world in memory: store, runtime, traffic, time and chance, all the test's own.
//!
//! - `world`: builds it and runs passes; `outcome`: says what became of it.
//! - `tests/doubles`: what it is built from.

mod outcome;
mod world;

pub use crate::doubles::cut::Cut;
pub use crate::doubles::leaks::{PRINTED, SECRET};
pub use crate::doubles::manifest::{Manifest, app, blog, reference};
pub use world::{World, name};
