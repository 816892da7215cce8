//! Decisions as tables.

mod living;
mod next;
mod order;
mod scene;
mod status;
