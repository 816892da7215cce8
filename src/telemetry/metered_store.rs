//! A [`Store`] whose calls are timed.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::metrics::RequestMetrics;
use crate::store::{Commit, LeaseId, Range, Store, StoreError, Txn, View, Watch};

/// Times each call to the store within.
#[derive(Debug)]
pub struct MeteredStore<S> {
    inner: S,
    metrics: RequestMetrics,
}

impl<S: Store> MeteredStore<S> {
    /// Times the calls to `inner`.
    pub fn new(inner: S, metrics: RequestMetrics) -> Self {
        Self { inner, metrics }
    }

    async fn time<T>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let result = answer.await;
        let code = result.as_ref().map_or_else(code, |_| "ok");
        self.metrics.observe(call, code, began.elapsed());
        result
    }
}

fn code(error: &StoreError) -> &'static str {
    match error {
        StoreError::Unavailable { .. } => "unavailable",
        StoreError::NoSpace => "no_space",
        StoreError::Compacted { .. } => "compacted",
        StoreError::LeaseExpired => "lease_expired",
        StoreError::Denied { .. } => "denied",
        StoreError::Refused { .. } => "refused",
    }
}

#[async_trait]
impl<S: Store> Store for MeteredStore<S> {
    async fn identity(&self) -> Result<(u64, i64), StoreError> {
        self.time("identity", self.inner.identity()).await
    }

    async fn read(&self, ranges: &[Range]) -> Result<View, StoreError> {
        self.time("read", self.inner.read(ranges)).await
    }

    async fn commit(&self, txn: Txn) -> Result<Commit, StoreError> {
        let began = Instant::now();
        let result = self.inner.commit(txn).await;
        let code = match &result {
            Ok(Commit::Applied(_)) => "ok",
            Ok(Commit::Refused(_)) => "conflict",
            Err(error) => code(error),
        };
        self.metrics.observe("commit", code, began.elapsed());
        result
    }

    async fn watch(&self, prefix: &str, from: i64) -> Result<Watch, StoreError> {
        self.time("watch", self.inner.watch(prefix, from)).await
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.time("grant", self.inner.grant(ttl)).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.time("keep_alive", self.inner.keep_alive(lease)).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.time("revoke", self.inner.revoke(lease)).await
    }
}
