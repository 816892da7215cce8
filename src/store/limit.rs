//! What etcd accepts at most, as it is configured by default.

/// Comparisons of one transaction, and writes of one transaction.
pub const OPERATIONS: usize = 128;
/// Bytes of one request.
pub const REQUEST_BYTES: usize = 1_536 * 1024;
