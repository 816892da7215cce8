//! How long each call to the store may take, by the monotonic clock.

use std::time::Duration;

/// Connecting, and proving who we are.
pub const CONNECT: Duration = Duration::from_secs(5);
/// Reading; of a long range, each page.
pub const READ: Duration = Duration::from_secs(5);
/// A transaction.
pub const COMMIT: Duration = Duration::from_secs(5);
/// Granting, renewing or revoking a lease.
pub const LEASE: Duration = Duration::from_secs(5);
/// Opening a watch.
pub const WATCH: Duration = Duration::from_secs(5);
/// How often a watch on which nothing changes tells that it is alive.
pub const WATCH_PROGRESS: Duration = Duration::from_secs(3);
/// How long a watch may leave that question unanswered before it is taken for dead.
pub const WATCH_ANSWER: Duration = Duration::from_secs(7);
