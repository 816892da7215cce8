//! What Podherd does, against a store, a runtime and a traffic graph in memory.
//! Every test asserts what was done and in which order.

// A test says what went wrong by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod changing;
mod deploy;
mod failing;
mod history;
mod interrupted;
mod leading;
mod refused;
mod removing;
mod repairing;
mod strange;
mod support;
mod writing;
