//! What Podherd does, against a store, a runtime and a traffic graph in memory.
//! Every test asserts what was done and in which order.

// A test says what went wrong by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod deploy;
mod interrupted;
mod support;
