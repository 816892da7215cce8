//! A changed policy puts every app into the queue.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::known::Catalog;
use super::queue::{Queue, Why};
use crate::policy::HostPolicy;

/// How often the policy is looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Puts in every app whenever the policy isn't what it was, until `cancel`.
pub async fn policy_changes(
    policy: Arc<dyn HostPolicy>,
    catalog: Catalog,
    queue: Queue,
    cancel: CancellationToken,
) {
    let follow = async {
        let mut known = policy.rules().await;
        loop {
            tokio::time::sleep(LOOK).await;
            let rules = policy.rules().await;
            if rules == known {
                continue;
            }
            match catalog.apps().await {
                Ok(apps) => {
                    for app in &apps {
                        queue.enqueue(app, Why::Policy);
                    }
                    known = rules;
                }
                Err(error) => {
                    tracing::warn!(%error, "apps can't be listed for the changed policy");
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = cancel.cancelled() => {}
        () = follow => {}
    }
}
