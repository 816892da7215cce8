//! The stream of changes below a prefix.

use futures::StreamExt;
use futures::stream;
use tokio::sync::watch as signal;
use tokio::time::Instant;

use super::super::{StoreError, Watch, WatchEvent, deadline};
use super::MemoryStore;

struct Watching {
    store: MemoryStore,
    prefix: String,
    /// The first revision that wasn't delivered yet.
    next: i64,
    progress_at: Instant,
    stirred: signal::Receiver<u64>,
    ended: bool,
}

/// Opens a watch; like etcd, it tells that its start was compacted as its first event.
pub(super) fn open(store: MemoryStore, prefix: String, from: i64) -> Watch {
    let watching = Watching {
        stirred: store.shared.stirred.subscribe(),
        store,
        prefix,
        next: from.max(1),
        progress_at: Instant::now() + deadline::WATCH_PROGRESS,
        ended: false,
    };
    stream::unfold(watching, |mut watching| async move {
        if watching.ended {
            return None;
        }
        let event = watching.next_event().await;
        watching.ended = event.is_err();
        Some((event, watching))
    })
    .boxed()
}

impl Watching {
    async fn next_event(&mut self) -> Result<WatchEvent, StoreError> {
        loop {
            // Before looking, so that nothing is missed between the look and the wait.
            self.stirred.borrow_and_update();
            let (changes, revision, next_end) = self.store.with(|state| {
                let changes = state.changes(&self.prefix, self.next);
                (changes, state.revision(), state.leases.next_end())
            });
            let changes = changes?;
            self.next = self.next.max(revision + 1);
            let now = Instant::now();
            if let Some(last) = changes.last() {
                self.progress_at = now + deadline::WATCH_PROGRESS;
                return Ok(WatchEvent::Changes {
                    revision: last.revision(),
                    changes,
                });
            }
            if self.progress_at <= now {
                self.progress_at = now + deadline::WATCH_PROGRESS;
                return Ok(WatchEvent::Progress(revision));
            }
            let wake = next_end.map_or(self.progress_at, |end| end.min(self.progress_at));
            tokio::select! {
                biased;
                // The sender lives in the store that this watch holds.
                _ = self.stirred.changed() => {}
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }
}
