//! What keeps the reconciler at work: watches, events, the queue, leadership.
//!
//! - [`run`](Controller): its life, from the store's recognition to the end.
//! - [`queue`](Queue): which app is worked on next, and when again.
//! - [`passes`](Passes): what is done for it, and [`observe`](Counting): as metrics.
//! - [`known`](Catalog): which apps there are.
//! - [`watch`](ManifestWatch): changed manifests go into the queue.
//! - `requests`: so do what people ask for by key, and who is to end at once.
//! - `rewind`: a store that went back to an earlier state ends the term.
//! - [`rejections`](Rejections): what is said about keys that name no app.
//! - [`events`](EventWatch): so do apps whose containers start, die or vanish,
//!   and now and then all of them.
//! - [`leadership`](Campaign): one controller leads, the others stand by.
//! - [`policy`](policy_changes): and all of them when the node's policy changes.
//! - [`heartbeat`](Heartbeat): this host's sign of life.
//! - [`host`](HostLock): one Podherd acts on a Podman, and knows its store.
//! - [`role`](Role): what this controller is to the others.

mod events;
mod heartbeat;
mod host;
mod known;
mod leadership;
mod observe;
mod passes;
mod policy;
mod queue;
mod rejections;
mod requests;
mod rewind;
mod role;
mod run;
#[cfg(test)]
mod testing;
mod watch;

pub use events::{EventWatch, resync};
pub use heartbeat::Heartbeat;
pub use host::{HostError, HostLock, KnownStore, this_process};
pub use known::{Catalog, Listing};
pub use leadership::{Campaign, TTL};
pub use observe::Counting;
pub use passes::Passes;
pub use policy::policy_changes;
pub use queue::{Next, Queue, Why, Work};
pub use rejections::{Rejections, StatusRejections};
pub use role::{Role, SharedRole};
pub use run::{Controller, Pace};
pub use watch::ManifestWatch;
