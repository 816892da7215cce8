//! Calls of a store as data, and what it answers to them. Revisions are told as their
//! distance from the one at which the sequence began.

mod calls;
mod player;

pub use calls::{Call, SHORT, When, Which, Write, sequence};
pub use player::{Backend, TooSlow, play};
