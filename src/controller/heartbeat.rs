//! The host's heartbeat: a record on a lease, for those who want to know which
//! hosts are alive. Every controller writes its own, leading or not.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::backoff::Pauses;
use crate::clock::Entropy;
use crate::state::{Node, encode};
use crate::store::{LeaseId, Range, Store, StoreError, Target, Txn};

const PAUSES: Pauses = Pauses {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(15),
};

/// Keeps one host's record alive.
#[derive(Debug)]
pub struct Heartbeat {
    /// Where.
    pub store: Arc<dyn Store>,
    /// The host's key.
    pub key: String,
    /// What is written.
    pub node: Node,
    /// How long the record stays after the last sign of life.
    pub ttl: Duration,
    /// Jitter.
    pub entropy: Arc<Entropy>,
}

impl Heartbeat {
    /// Writes and renews until cancelled, then takes the record away.
    pub async fn run(self, cancel: CancellationToken) {
        let mut lease = None;
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            never = self.beat(&mut lease) => match never {},
        }
        if let Some(lease) = lease
            && let Err(error) = self.store.revoke(lease).await
        {
            debug!(%error, "the heartbeat's lease ends by itself");
        }
    }

    async fn beat(&self, lease: &mut Option<LeaseId>) -> Infallible {
        let mut failures = 0;
        loop {
            let beat = match *lease {
                Some(lease) => self.renew(lease).await,
                None => self.begin(lease).await,
            };
            let pause = match beat {
                Ok(()) => {
                    failures = 0;
                    self.ttl / 3
                }
                Err(error) => {
                    if matches!(error, StoreError::LeaseExpired) {
                        *lease = None;
                    }
                    failures += 1;
                    if failures == 1 {
                        info!(%error, "no heartbeat; trying again");
                    }
                    PAUSES.after(failures, &self.entropy)
                }
            };
            sleep(pause).await;
        }
    }

    /// Writes the record, over one that an earlier process left.
    async fn begin(&self, lease: &mut Option<LeaseId>) -> Result<(), StoreError> {
        let granted = self.store.grant(self.ttl).await?;
        *lease = Some(granted);
        let put = Txn::default().put_leased(&self.key, self.value()?, granted);
        self.store.commit(put).await.map(drop)
    }

    /// Renews the lease, and writes the record again if somebody took it away:
    /// by hand, or another controller of this host when it ended.
    async fn renew(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.store.keep_alive(lease).await?;
        let view = self.store.read(&[Range::Key(self.key.clone())]).await?;
        if view.ranges.iter().any(|range| !range.is_empty()) {
            return Ok(());
        }
        let put = Txn::default().when(&self.key, Target::Absent).put_leased(
            &self.key,
            self.value()?,
            lease,
        );
        self.store.commit(put).await.map(drop)
    }

    fn value(&self) -> Result<Vec<u8>, StoreError> {
        encode(&self.node).map_err(|error| StoreError::Refused {
            call: "commit",
            message: error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests;
