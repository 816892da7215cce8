//! Decisions as tables.

mod next;
mod order;
mod scene;
mod status;
