//! What etcd accepts at most, as it is configured by default.

use std::time::Duration;

/// Comparisons of one transaction, and writes of one transaction.
pub const OPERATIONS: usize = 128;
/// Bytes of one request.
pub const REQUEST_BYTES: usize = 1_536 * 1024;

/// How long a lease lives that is granted for this time: etcd counts whole seconds.
pub(super) fn lease_seconds(ttl: Duration) -> u64 {
    let whole = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    whole.max(1)
}
