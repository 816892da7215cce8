//! What keeps the reconciler at work: watches, events, the queue, leadership.

mod backoff;
mod queue;

pub use backoff::Backoff;
pub use queue::{Next, Queue, Why, Work};
