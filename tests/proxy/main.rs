//! The publisher and the data plane together, over the in-memory store and real
//! sockets on loopback.

// A test says what went wrong by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod backend;
mod client;
mod gate;
mod stream;
mod world;

mod failures;
mod headers;
mod protocol;
mod publisher;
mod shutdown;
mod streaming;
mod swap;
mod tcp;
mod udp;
