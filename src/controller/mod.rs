//! What keeps the reconciler at work: watches, events, the queue, leadership.
//!
//! - [`queue`](Queue): which app is worked on next, and when again.
//! - [`known`](Catalog): which apps there are.
//! - [`watch`](ManifestWatch): changed manifests go into the queue.
//! - [`events`](EventWatch): so do apps whose containers start, die or vanish,
//!   and now and then all of them.

mod events;
mod known;
mod queue;
#[cfg(test)]
mod testing;
mod watch;

pub use events::{EventWatch, resync};
pub use known::{Catalog, Listing};
pub use queue::{Next, Queue, Why, Work};
pub use watch::{ManifestWatch, Rejections};
