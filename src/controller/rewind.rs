//! A store that goes back while this controller leads: etcd was restored from a backup
//! in place, so fast that the leadership outlived it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::host::KnownStore;

/// Ends the term when the store goes back.
#[derive(Debug, Clone)]
pub struct Rewind {
    known: Arc<KnownStore>,
    over: CancellationToken,
}

impl Rewind {
    /// Remembers in `known`, and ends the term by `over`.
    pub fn new(known: Arc<KnownStore>, over: CancellationToken) -> Self {
        Self { known, over }
    }

    /// Whether the store, which had come to `reached`, now is at an earlier revision.
    /// Then the term is over, and the next one begins with the question whether this is
    /// the store that the host belongs to; it isn't, until somebody adopts it.
    pub fn noticed(&self, reached: i64, now: i64) -> bool {
        if now >= reached {
            return false;
        }
        tracing::error!(
            reached,
            now,
            "etcd went back to an earlier state: nothing is started or stopped"
        );
        if let Err(error) = self.known.raise(reached) {
            tracing::error!(%error, "the store's revision can't be remembered");
        }
        self.over.cancel();
        true
    }
}
