//! End to end: the real binary, the real Podman, the real etcd.
//!
//! Every test makes a world of its own (see `support`): nothing of the host is
//! touched, and tests may run side by side. They need root, and the packages
//! that `make setup` installs.

// A test says what went wrong by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../model/mod.rs"]
mod model;
#[path = "../runtime/contract.rs"]
mod runtime_contract;
#[path = "../store/contract.rs"]
mod store_contract;
mod support;

mod cli_apply;
mod cli_containers;
mod cli_get;
mod cli_host;
mod cli_verbs;
mod command;
mod crash;
mod deploy;
mod etcd;
mod failpoints;
mod heal;
mod leadership;
mod limits;
mod listeners;
mod living;
mod local_etcd;
mod model_runtime;
mod model_store;
mod networks;
mod overlap;
mod paused;
mod policy;
mod ports;
mod proxy;
mod refusal;
mod registry;
mod rootless;
mod runtime;
mod secrets;
mod store;
mod verbs;
mod world;
