//! The newest revisions of manifests and of requests that end something, as the watches
//! saw them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::manifest::AppName;

/// Revisions by app, and who waits for a higher one.
type Seen = Arc<watch::Sender<BTreeMap<AppName, i64>>>;

/// What a long step asks to find out that it was superseded.
#[derive(Debug, Clone)]
pub struct Newest {
    /// Of manifests.
    manifests: Seen,
    /// Of requests to stop or to remove.
    ends: Seen,
}

impl Default for Newest {
    fn default() -> Self {
        let none = || Arc::new(watch::Sender::new(BTreeMap::new()));
        Self {
            manifests: none(),
            ends: none(),
        }
    }
}

impl Newest {
    /// The watch saw the manifest at this revision, written or deleted.
    pub fn saw(&self, app: &AppName, revision: i64) {
        raise(&self.manifests, app, revision);
    }

    /// Somebody asked at this revision to stop or to remove the app.
    pub fn end_asked(&self, app: &AppName, revision: i64) {
        raise(&self.ends, app, revision);
    }

    /// Forgets what an earlier term saw.
    pub fn forget(&self) {
        self.manifests.send_modify(BTreeMap::clear);
        self.ends.send_modify(BTreeMap::clear);
    }

    /// The newest revision that the watch saw; 0 when it saw none.
    pub fn newest(&self, app: &AppName) -> i64 {
        self.manifests.borrow().get(app).copied().unwrap_or(0)
    }

    /// Returns when the watch has seen a newer revision of the manifest than this one.
    pub async fn changed_beyond(&self, app: &AppName, revision: i64) {
        beyond(&self.manifests, app, revision).await;
    }

    /// Returns when somebody has asked to stop or to remove the app after this revision.
    pub async fn end_asked_beyond(&self, app: &AppName, revision: i64) {
        beyond(&self.ends, app, revision).await;
    }
}

fn raise(seen: &Seen, app: &AppName, revision: i64) {
    seen.send_if_modified(|seen| {
        let newest = seen.entry(app.clone()).or_default();
        let newer = revision > *newest;
        *newest = revision.max(*newest);
        newer
    });
}

async fn beyond(seen: &Seen, app: &AppName, revision: i64) {
    let mut seen = seen.subscribe();
    let newer =
        |seen: &BTreeMap<AppName, i64>| seen.get(app).is_some_and(|newest| *newest > revision);
    if seen.wait_for(newer).await.is_err() {
        std::future::pending::<()>().await;
    }
}
