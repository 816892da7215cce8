//! Whether somebody wants something newer than what is being deployed.

use crate::manifest::{self, AppName};

use super::Context;

impl Context {
    /// Whether a newer manifest than this one is wanted, or none any more.
    pub(super) async fn superseded(&self, app: &AppName, source: i64) -> bool {
        self.newest.newest(app) > source && self.newest_counts(app).await
    }

    /// Returns when a newer manifest than this one is wanted, or none any more.
    pub(super) async fn supersession(&self, app: &AppName, source: i64) {
        let mut seen = source;
        loop {
            self.newest.changed_beyond(app, seen).await;
            seen = self.newest.newest(app);
            if self.newest_counts(app).await {
                return;
            }
        }
    }

    /// A refused manifest supersedes nothing: what was accepted before it goes on.
    /// Nor does what can't be read; the next safe point asks again.
    async fn newest_counts(&self, app: &AppName) -> bool {
        match self.records.manifest(app).await {
            Ok(Some(entry)) => manifest::parse(app.as_str(), &entry.value).is_ok(),
            Ok(None) => true,
            Err(_) => false,
        }
    }
}
