//! Tells authors about keys below `apps/` that name no app, in the status
//! beside where it would be for an app.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::clock::Clock;
use crate::state::{Condition, ConditionType, Keys, Status, Truth, encode};
use crate::store::{Authority, Commit, NotLeading, Store, StoreError, Txn, deadline};

/// Told about keys below `apps/` that name no app.
#[async_trait]
pub trait Rejections: Send + Sync + fmt::Debug {
    /// The key with this last part, written at this revision, names no app.
    async fn reject(&self, tail: &str, revision: i64, message: &str);

    /// The key is gone, and so should be what was said about it.
    async fn withdraw(&self, tail: &str);
}

/// Says it in a status record.
#[derive(Debug)]
pub struct StatusRejections {
    store: Arc<dyn Store>,
    keys: Keys,
    authority: Authority,
    clock: Arc<dyn Clock>,
}

/// Why a status couldn't be written.
#[derive(Debug, thiserror::Error)]
enum Unsaid {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
}

impl StatusRejections {
    /// Says it below these keys, as long as this controller leads.
    pub fn new(
        store: Arc<dyn Store>,
        keys: Keys,
        authority: Authority,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            store,
            keys,
            authority,
            clock,
        }
    }

    /// An app's status can't be hit: the last part is no app's name.
    fn key(&self, tail: &str) -> String {
        format!("{}/status/{tail}", self.keys.prefix())
    }

    async fn commit(&self, txn: Txn) -> Result<(), Unsaid> {
        let fence = self.authority.permit(deadline::COMMIT)?;
        match self.store.commit(fence.guard(txn)).await? {
            Commit::Applied(_) => Ok(()),
            Commit::Refused(_) => Err(NotLeading.into()),
        }
    }

    /// What is said is for people, and said in the log too: nothing waits for it.
    async fn say(&self, tail: &str, txn: Txn) {
        if tail.is_empty() {
            return;
        }
        if let Err(error) = self.commit(txn).await {
            tracing::warn!(%error, "the status of a key that names no app can't be written");
        }
    }
}

#[async_trait]
impl Rejections for StatusRejections {
    async fn reject(&self, tail: &str, revision: i64, message: &str) {
        let status = Status {
            observed_revision: revision,
            conditions: vec![Condition {
                r#type: ConditionType::Accepted,
                status: Truth::False,
                reason: "InvalidName".to_owned(),
                message: message.to_owned(),
                last_transition_time: self.clock.now(),
            }],
            ..Status::default()
        };
        match encode(&status) {
            Ok(value) => {
                self.say(tail, Txn::default().put(self.key(tail), value))
                    .await;
            }
            Err(error) => tracing::error!(%error, "a status can't be encoded"),
        }
    }

    async fn withdraw(&self, tail: &str) {
        self.say(tail, Txn::default().delete(self.key(tail))).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::clock::SystemClock;
    use crate::store::{AuthorityKeeper, Fence, MemoryStore, authority};

    async fn leading() -> (MemoryStore, AuthorityKeeper, StatusRejections) {
        let store = MemoryStore::new();
        let keys = Keys::new("/podherd");
        let commit = store.commit(Txn::default().put(keys.leader(), Vec::new()));
        let Ok(Commit::Applied(create_revision)) = commit.await else {
            panic!("not written");
        };
        let (keeper, authority) = authority();
        let fence = Fence {
            key: keys.leader(),
            create_revision,
        };
        keeper.hold(fence, Instant::now() + Duration::from_secs(30));
        let rejections = StatusRejections::new(
            Arc::new(store.clone()),
            keys,
            authority,
            Arc::new(SystemClock),
        );
        (store, keeper, rejections)
    }

    fn status(store: &MemoryStore) -> Option<String> {
        let entries = store.entries();
        let entry = entries
            .iter()
            .find(|entry| entry.key == "/podherd/status/a/b")?;
        Some(String::from_utf8(entry.value.clone()).unwrap())
    }

    #[tokio::test]
    async fn a_rejection_is_a_status_until_it_is_withdrawn() {
        let (store, _keeper, rejections) = leading().await;

        rejections.reject("a/b", 7, "no name").await;
        let said = status(&store).unwrap();
        assert!(
            said.contains("InvalidName") && said.contains("no name"),
            "{said}"
        );

        rejections.withdraw("a/b").await;
        assert_eq!(status(&store), None);
    }

    #[tokio::test]
    async fn without_leadership_nothing_is_written() {
        let (store, keeper, rejections) = leading().await;
        keeper.release();

        rejections.reject("a/b", 7, "no name").await;

        assert_eq!(status(&store), None);
    }
}
