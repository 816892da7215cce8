//! Records as they are and as they change, from watches: nothing is polled.

use std::collections::VecDeque;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{SelectAll, select_all};

use super::client::Client;
use crate::backoff::Pauses;
use crate::clock::Entropy;
use crate::store::{Change, Entry, Range, StoreError, Watch, WatchEvent};

/// Pauses before etcd is asked again.
const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(200),
    longest: Duration::from_secs(5),
};

/// What is new.
#[derive(Debug)]
pub(super) enum News {
    /// All that is there now. What was known before may be outdated.
    Listed(Vec<Entry>),
    /// One change.
    Changed(Change),
}

/// Everything below some prefixes, kept up to date.
pub(super) struct Live {
    client: Client,
    prefixes: Vec<String>,
    watches: Option<SelectAll<Watch>>,
    ready: VecDeque<News>,
    failures: u32,
    entropy: Entropy,
}

impl Live {
    pub(super) fn new(client: &Client, prefixes: Vec<String>) -> Self {
        Self {
            client: client.clone(),
            prefixes,
            watches: None,
            ready: VecDeque::new(),
            failures: 0,
            entropy: Entropy::from_system(),
        }
    }

    /// What is new; the first is always a listing. An etcd that is away for a while is
    /// waited for; one that refuses is an error.
    pub(super) async fn next(&mut self) -> Result<News, StoreError> {
        loop {
            if let Some(news) = self.ready.pop_front() {
                return Ok(news);
            }
            match self.advance().await {
                Ok(()) => self.failures = 0,
                Err(error @ (StoreError::Unavailable { .. } | StoreError::Compacted { .. })) => {
                    self.watches = None;
                    if self.failures == 0 {
                        super::note(&format!("{error}; trying again"));
                    }
                    self.failures = self.failures.saturating_add(1);
                    tokio::time::sleep(PAUSES.after(self.failures, &self.entropy)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn advance(&mut self) -> Result<(), StoreError> {
        let Some(watches) = &mut self.watches else {
            return self.list_and_watch().await;
        };
        match watches.next().await {
            Some(Ok(WatchEvent::Changes { changes, .. })) => {
                self.ready.extend(changes.into_iter().map(News::Changed));
                Ok(())
            }
            Some(Ok(WatchEvent::Progress(_))) => Ok(()),
            Some(Err(error)) => Err(error),
            None => Err(StoreError::Unavailable {
                call: "watch",
                message: "the watch ended without a reason".to_owned(),
            }),
        }
    }

    async fn list_and_watch(&mut self) -> Result<(), StoreError> {
        let ranges: Vec<_> = self.prefixes.iter().cloned().map(Range::Prefix).collect();
        let view = self.client.store.read(&ranges).await?;
        let mut watches = Vec::new();
        for prefix in &self.prefixes {
            watches.push(self.client.store.watch(prefix, view.revision + 1).await?);
        }
        self.watches = Some(select_all(watches));
        let entries = view.ranges.into_iter().flatten().collect();
        self.ready.push_back(News::Listed(entries));
        Ok(())
    }
}
