//! The newest revision of each manifest, as the watch saw it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::manifest::AppName;

/// What a long step asks to find out that its manifest was superseded.
#[derive(Debug, Clone)]
pub struct Newest(Arc<watch::Sender<BTreeMap<AppName, i64>>>);

impl Default for Newest {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(BTreeMap::new())))
    }
}

impl Newest {
    /// The watch saw the manifest at this revision, written or deleted.
    pub fn saw(&self, app: &AppName, revision: i64) {
        self.0.send_if_modified(|seen| {
            let newest = seen.entry(app.clone()).or_default();
            let newer = revision > *newest;
            *newest = revision.max(*newest);
            newer
        });
    }

    /// Forgets what an earlier term saw.
    pub fn forget(&self) {
        self.0.send_modify(BTreeMap::clear);
    }

    /// The newest revision that the watch saw; 0 when it saw none.
    pub fn newest(&self, app: &AppName) -> i64 {
        self.0.borrow().get(app).copied().unwrap_or(0)
    }

    /// Returns when the watch has seen a newer revision than this one.
    pub async fn changed_beyond(&self, app: &AppName, revision: i64) {
        let mut seen = self.0.subscribe();
        let newer =
            |seen: &BTreeMap<AppName, i64>| seen.get(app).is_some_and(|newest| *newest > revision);
        if seen.wait_for(newer).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
