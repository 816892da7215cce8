//! What keeps the reconciler at work: watches, events, the queue, leadership.

mod queue;

pub use queue::{Next, Queue, Why, Work};
