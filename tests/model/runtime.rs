//! Calls of a container runtime as data, and what it answers to them.
//!
//! After each call the container is looked at too, so that the call that makes the
//! difference is the one that shows it. What takes the real one a moment (a log's first
//! line, the end after a signal) is waited for.

mod answer;
mod calls;
mod player;

pub use calls::{Call, FOREIGN, Hand, Kind, Made, sequence};
pub use player::{Backend, play};
