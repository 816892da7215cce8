//! The stream of changes, with a watchdog.
//!
//! A watch can go dead without a sign: the connection stays open and nothing
//! comes. So a quiet one is asked for a sign of life every few seconds, and one
//! that doesn't answer ends with an error.

use etcd_client::{
    Event, EventType, WatchOptions, WatchRequestSender, WatchResponse, WatchResponseStream,
};
use futures::{StreamExt, stream};
use tokio::time::Instant;

use super::super::{Change, StoreError, Watch, WatchEvent, deadline};
use super::{EtcdStore, Repeat, error, read};

const CALL: &str = "watch";

struct Watching {
    asker: WatchRequestSender,
    answers: WatchResponseStream,
    /// Nothing older is delivered.
    from: i64,
    /// Everything up to this revision has been delivered.
    delivered: i64,
    ask_at: Instant,
    /// When the question was sent that wasn't answered yet.
    asked: Option<Instant>,
    ended: bool,
}

/// Opens a watch. Its first event may already be the error that ends it.
pub(super) async fn open(store: &EtcdStore, prefix: &str, from: i64) -> Result<Watch, StoreError> {
    // etcd would take 0 for "from now on".
    let from = from.max(1);
    let mut watching = start(store, prefix, from).await?;
    if store.authenticates && watching.1.as_ref().is_some_and(is_denied) {
        // etcd doesn't tell an expired token from a missing right here.
        let refresh = || store.client.refresh_token();
        store
            .call(CALL, deadline::CONNECT, Repeat::Freely, refresh)
            .await?;
        watching = start(store, prefix, from).await?;
    }
    let (mut watching, first) = watching;
    if let Some(refusal) = first.as_ref().and_then(refusal) {
        match refusal {
            StoreError::Compacted { .. } => {
                return Ok(stream::once(std::future::ready(Err(refusal))).boxed());
            }
            other => return Err(other),
        }
    }
    let mut first = first.and_then(|answer| watching.understand(&answer));
    Ok(stream::unfold(watching, move |mut watching| {
        let first = first.take();
        async move {
            if watching.ended {
                return None;
            }
            let event = match first {
                Some(event) => Ok(event),
                None => watching.next_event().await,
            };
            watching.ended = event.is_err();
            Some((event, watching))
        }
    })
    .boxed())
}

/// Sends the request and waits until etcd has answered it.
async fn start(
    store: &EtcdStore,
    prefix: &str,
    from: i64,
) -> Result<(Watching, Option<WatchResponse>), StoreError> {
    // etcd begins a watch even at the revision up to which it was compacted, though it
    // may have forgotten what was deleted there. Asked for one more, it says so.
    let start = (from - 1).max(1);
    let options = WatchOptions::new()
        .with_start_revision(start)
        .with_progress_notify();
    let options = if prefix.is_empty() {
        options.with_all_keys()
    } else {
        options.with_prefix()
    };
    let (stream, first) = store
        .call(CALL, deadline::WATCH, Repeat::Freely, || {
            let (mut client, options) = (store.watch.clone(), options.clone());
            async move {
                let mut stream = client.watch(prefix, Some(options)).await?;
                let first = stream.message().await?;
                Ok((stream, first))
            }
        })
        .await?;
    let (asker, answers) = stream.split();
    let watching = Watching {
        asker,
        answers,
        from,
        delivered: from - 1,
        ask_at: Instant::now() + deadline::WATCH_PROGRESS,
        asked: None,
        ended: false,
    };
    Ok((watching, first))
}

impl Watching {
    async fn next_event(&mut self) -> Result<WatchEvent, StoreError> {
        loop {
            let wake = self
                .asked
                .map_or(self.ask_at, |at| at + deadline::WATCH_ANSWER);
            // What has already arrived comes first: a reader that was busy for
            // a minute must not take that minute for silence.
            let answer = tokio::select! {
                biased;
                answer = self.answers.message() => answer,
                () = tokio::time::sleep_until(wake) => {
                    if self.asked.is_some() {
                        return Err(error::unavailable(CALL, "the watch has gone silent"));
                    }
                    self.ask().await?;
                    continue;
                }
            };
            let Some(answer) = answer.map_err(|error| error::classify(CALL, &error))? else {
                return Err(error::unavailable(CALL, "etcd ended the watch"));
            };
            if let Some(refusal) = refusal(&answer) {
                return Err(refusal);
            }
            if let Some(event) = self.understand(&answer) {
                return Ok(event);
            }
        }
    }

    async fn ask(&mut self) -> Result<(), StoreError> {
        self.asked = Some(Instant::now());
        let asked = self.asker.request_progress().await;
        asked.map_err(|error| error::classify(CALL, &error))
    }

    /// What an answer tells; `None` for the confirmation that the watch exists.
    fn understand(&mut self, answer: &WatchResponse) -> Option<WatchEvent> {
        self.asked = None;
        self.ask_at = Instant::now() + deadline::WATCH_PROGRESS;
        let changes = answer.events().iter().filter_map(change);
        let changes: Vec<Change> = changes.filter(|it| it.revision() >= self.from).collect();
        if let Some(last) = changes.last() {
            // The header's revision may be ahead of what is delivered while the
            // watch catches up; the changes themselves never are.
            self.delivered = last.revision();
            return Some(WatchEvent::Changes {
                revision: self.delivered,
                changes,
            });
        }
        if answer.created() || !answer.events().is_empty() {
            return None;
        }
        // A sign of life that was asked for carries no watch's ID; before 3.4.25
        // and 3.5.8 (etcd issue 15220) its revision may be ahead of changes still
        // to come. One that etcd sends by itself belongs to this watch and isn't.
        if let (0.., Some(header)) = (answer.watch_id(), answer.header()) {
            self.delivered = self.delivered.max(header.revision());
        }
        Some(WatchEvent::Progress(self.delivered))
    }
}

fn change(event: &Event) -> Option<Change> {
    let found = event.kv()?.clone();
    Some(match event.event_type() {
        EventType::Put => Change::Put(read::entry(found)),
        EventType::Delete => {
            let entry = read::entry(found);
            Change::Delete {
                key: entry.key,
                mod_revision: entry.mod_revision,
            }
        }
    })
}

/// Whether etcd ended the watch because of who we are, or of an old token.
fn is_denied(answer: &WatchResponse) -> bool {
    let said = |words| answer.cancel_reason().contains(words);
    answer.canceled()
        && (said("permission denied")
            || said("user name is empty")
            || said("invalid auth token")
            || said("auth store is old"))
}

/// Why etcd ended the watch, if it did.
fn refusal(answer: &WatchResponse) -> Option<StoreError> {
    if !answer.canceled() {
        return None;
    }
    Some(if answer.compact_revision() > 0 {
        StoreError::Compacted {
            compacted: answer.compact_revision(),
        }
    } else if is_denied(answer) {
        StoreError::Denied { call: CALL }
    } else {
        error::unavailable(
            CALL,
            format!("etcd ended the watch: {}", answer.cancel_reason()),
        )
    })
}
