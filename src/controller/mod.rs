//! What keeps the reconciler at work: watches, events, the queue, leadership.
//!
//! - [`queue`](Queue): which app is worked on next, and when again.
//! - [`known`](Catalog): which apps there are.
//! - [`watch`](ManifestWatch): changed manifests go into the queue.
//! - [`events`](EventWatch): so do apps whose containers start, die or vanish,
//!   and now and then all of them.
//! - [`leadership`](Campaign): one controller leads, the others stand by.
//! - [`heartbeat`](Heartbeat): this host's sign of life.
//! - [`host`](HostLock): one Podherd acts on a Podman, and knows its store.

mod events;
mod heartbeat;
mod host;
mod known;
mod leadership;
mod queue;
mod watch;

pub use events::{EventWatch, resync};
pub use heartbeat::Heartbeat;
pub use host::{HostError, HostLock, KnownStore};
pub use known::{Catalog, Listing};
pub use leadership::{Campaign, TTL};
pub use queue::{Next, Queue, Why, Work};
pub use watch::{ManifestWatch, Rejections};
