//! The campaign: one controller leads, the others stand by.
//!
//! The leader's key hangs on a lease that the leader renews. A term is held for
//! the lease's time counted from *before* a renewal was sent, so it never lasts
//! longer here than in etcd. When etcd can't be reached, the term runs out by
//! itself and the lease is renewed as soon as etcd is back: as long as the key
//! is the one that was created, nobody else has led meanwhile.
//!
//! A leader that was killed holds the key until its lease ends. A successor on the
//! same machine that sees its process gone takes the key down and doesn't wait.
//!
//! Time is monotonic. It stands still while the machine is suspended; what a
//! leader does in the moment after that is stopped by the fence in etcd and by
//! the host's lock, not by the clock.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::host::has_ended;
use crate::backoff::Pauses;
use crate::clock::{Clock, Entropy};
use crate::state::{Leader, decode, encode};
use crate::store::{
    AuthorityKeeper, Change, Commit, Entry, Fence, LeaseId, Range, Store, StoreError, Target, Txn,
    WatchEvent,
};

/// How long a term lasts without a renewal. Renewals begin every sixth of it and
/// take at most [`crate::store::deadline::LEASE`]: while etcd answers, 20 s are
/// left at any time, more than any effect takes.
pub const TTL: Duration = Duration::from_secs(30);

/// Between tries while etcd can't be reached.
const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(5),
};
/// A round that went well for this long forgets the failures before it.
const STABLE: Duration = Duration::from_secs(60);

/// One controller's campaign for the leadership.
#[derive(Debug)]
pub struct Campaign {
    /// Where.
    pub store: Arc<dyn Store>,
    /// The leadership key.
    pub key: String,
    /// Who; `since` is set anew for each term.
    pub me: Leader,
    /// How long a term lasts without a renewal: [`TTL`], unless a test is in a hurry.
    pub ttl: Duration,
    /// The calendar, for people who read the key.
    pub clock: Arc<dyn Clock>,
    /// Jitter.
    pub entropy: Arc<Entropy>,
}

impl Campaign {
    /// Campaigns, leads, and campaigns again until cancelled. Then it gives the
    /// leadership up so that the next one takes over at once: cancel it only
    /// when everything that acts under it has come to its end.
    pub async fn run(self, keeper: AuthorityKeeper, cancel: CancellationToken) {
        let mut lease = None;
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            never = self.campaign(&keeper, &mut lease) => match never {},
        }
        keeper.release();
        self.give_up(&mut lease).await;
    }

    async fn campaign(&self, keeper: &AuthorityKeeper, lease: &mut Option<LeaseId>) -> Infallible {
        let mut failures = 0;
        loop {
            let begun = Instant::now();
            let round = self.round(keeper, lease).await;
            // Frees the key if it was created after all by a call that seemed to fail.
            self.give_up(lease).await;
            let Err(error) = round else {
                failures = 0;
                continue;
            };
            if begun.elapsed() > STABLE {
                failures = 0;
            }
            failures += 1;
            warn!(%error, failures, "can't campaign for the leadership; trying again");
            sleep(PAUSES.after(failures, &self.entropy)).await;
        }
    }

    /// Stands by, is elected, and leads to the end of that term; or loses the election.
    async fn round(
        &self,
        keeper: &AuthorityKeeper,
        held: &mut Option<LeaseId>,
    ) -> Result<(), StoreError> {
        self.stand_by().await?;
        let asked = Instant::now();
        let lease = self.store.grant(self.ttl).await?;
        *held = Some(lease);
        let me = Leader {
            since: self.clock.now(),
            ..self.me.clone()
        };
        let value = encode(&me).map_err(|error| StoreError::Refused {
            call: "commit",
            message: error.to_string(),
        })?;
        let create = Txn::default()
            .when(&self.key, Target::Absent)
            .put_leased(&self.key, value, lease);
        match self.store.commit(create).await? {
            Commit::Applied(create_revision) => {
                let fence = Fence {
                    key: self.key.clone(),
                    create_revision,
                };
                self.lead(keeper, lease, &fence, asked).await;
            }
            Commit::Refused(_) => debug!("another controller was faster"),
        }
        Ok(())
    }

    /// Returns when nobody leads.
    async fn stand_by(&self) -> Result<(), StoreError> {
        loop {
            let (revision, leader) = self.look().await?;
            let Some(leader) = leader else {
                return Ok(());
            };
            match decode::<Leader>(&leader.value) {
                Ok(other) if other.process.as_ref().is_some_and(has_ended) => {
                    info!(
                        holder = other.holder,
                        "the leader was a process of this machine and has ended"
                    );
                    self.take_down(&leader).await?;
                    continue;
                }
                // What acted under it has ended, or this wouldn't stand by.
                Ok(other) if self.is_me(&other) => {
                    info!("a term of this controller is left, which etcd lost sight of");
                    self.take_down(&leader).await?;
                    continue;
                }
                Ok(other) => {
                    info!(node = %other.node, holder = other.holder, "standing by: another controller leads");
                }
                Err(error) => warn!(%error, "standing by: the leadership key is held"),
            }
            self.watch_until(revision + 1, |change| {
                matches!(change, Change::Delete { .. })
            })
            .await?;
        }
    }

    fn is_me(&self, leader: &Leader) -> bool {
        leader.holder == self.me.holder && leader.process == self.me.process
    }

    /// Deletes the key of a term whose holder is surely gone. Whatever that holder
    /// still had under way is refused by its fence.
    async fn take_down(&self, leader: &Entry) -> Result<(), StoreError> {
        let same = Target::CreateRevision(leader.create_revision);
        let delete = Txn::default()
            .when(&self.key, same)
            .delete(self.key.clone());
        // Refused: it isn't that term any more.
        self.store.commit(delete).await.map(drop)
    }

    /// Holds the term until it is lost for good.
    async fn lead(&self, keeper: &AuthorityKeeper, lease: LeaseId, fence: &Fence, asked: Instant) {
        let every = self.ttl / 6;
        let mut until = asked + self.ttl;
        let mut holding = true;
        let mut failures = 0;
        keeper.hold(fence.clone(), until);
        info!(revision = fence.create_revision, "leading");
        let mut taken = pin!(self.taken(fence));
        let mut renewal = pin!(self.renew(lease, asked + every));
        loop {
            tokio::select! {
                biased;
                () = &mut taken => {
                    warn!("the leadership key was deleted");
                    break;
                }
                (sent, renewed) = &mut renewal => {
                    // After a pause only the key itself proves that the term goes on.
                    let renewed = match renewed {
                        Ok(()) if !holding => self.is_mine(fence).await,
                        Ok(()) => Ok(true),
                        Err(error) => Err(error),
                    };
                    match renewed {
                        Ok(true) => {
                            if !holding {
                                info!("leading again: nobody else led meanwhile");
                            }
                            (until, holding, failures) = (sent + self.ttl, true, 0);
                            keeper.hold(fence.clone(), until);
                            renewal.set(self.renew(lease, sent + every));
                        }
                        Ok(false) | Err(StoreError::LeaseExpired) => {
                            warn!("the leadership has expired");
                            break;
                        }
                        Err(error) => {
                            failures += 1;
                            warn!(%error, failures, "the leadership can't be renewed; trying again");
                            let pause = PAUSES.after(failures, &self.entropy);
                            renewal.set(self.renew(lease, Instant::now() + pause));
                        }
                    }
                }
                () = sleep_until(until), if holding => {
                    warn!("the leadership ran out: nothing is started or stopped until etcd is back");
                    holding = false;
                    keeper.release();
                }
            }
        }
        keeper.release();
    }

    async fn renew(&self, lease: LeaseId, at: Instant) -> (Instant, Result<(), StoreError>) {
        sleep_until(at).await;
        let sent = Instant::now();
        (sent, self.store.keep_alive(lease).await)
    }

    /// Returns when the key surely is no longer that of this term. Only somebody
    /// who deletes it by hand makes that happen while the lease lives.
    async fn taken(&self, fence: &Fence) {
        let taken_by = |change: &Change| match change {
            Change::Put(entry) => entry.create_revision != fence.create_revision,
            Change::Delete { .. } => true,
        };
        let mut failures = 0;
        loop {
            let begun = Instant::now();
            let error = match self.look().await {
                Ok((revision, Some(entry))) if entry.create_revision == fence.create_revision => {
                    match self.watch_until(revision + 1, taken_by).await {
                        Ok(()) => return,
                        Err(error) => error,
                    }
                }
                Ok(_) => return,
                Err(error) => error,
            };
            if begun.elapsed() > STABLE {
                failures = 0;
            }
            failures += 1;
            debug!(%error, failures, "the leadership key can't be watched; trying again");
            sleep(PAUSES.after(failures, &self.entropy)).await;
        }
    }

    async fn is_mine(&self, fence: &Fence) -> Result<bool, StoreError> {
        let (_, leader) = self.look().await?;
        Ok(leader.is_some_and(|leader| leader.create_revision == fence.create_revision))
    }

    /// The leadership key, with the revision at which it was read.
    async fn look(&self) -> Result<(i64, Option<Entry>), StoreError> {
        let mut view = self.store.read(&[Range::Key(self.key.clone())]).await?;
        Ok((
            view.revision,
            view.ranges.pop().and_then(|mut range| range.pop()),
        ))
    }

    /// Returns when such a change of the leadership key was seen.
    async fn watch_until(
        &self,
        from: i64,
        wanted: impl Fn(&Change) -> bool,
    ) -> Result<(), StoreError> {
        let is_ours = |change: &Change| match change {
            Change::Put(entry) => entry.key == self.key,
            Change::Delete { key, .. } => *key == self.key,
        };
        let mut watch = self.store.watch(&self.key, from).await?;
        while let Some(event) = watch.next().await {
            if let WatchEvent::Changes { changes, .. } = event?
                && changes
                    .iter()
                    .any(|change| is_ours(change) && wanted(change))
            {
                return Ok(());
            }
        }
        Err(StoreError::Unavailable {
            call: "watch",
            message: "the watch ended".to_owned(),
        })
    }

    /// Ends the lease, and with it the key. If that fails, it ends by itself.
    async fn give_up(&self, lease: &mut Option<LeaseId>) {
        if let Some(lease) = lease.take() {
            match self.store.revoke(lease).await {
                Ok(()) | Err(StoreError::LeaseExpired) => {}
                Err(error) => debug!(%error, "the lease of the leadership ends by itself"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
