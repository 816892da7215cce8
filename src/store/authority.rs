//! Leadership as a value: who may write and act, and for how long.
//!
//! The controller's campaign holds the [`AuthorityKeeper`]; everybody else gets
//! an [`Authority`] and asks it before each write and each effect. A controller
//! that lost its lease thus stops by itself, and what it still sends to the
//! store is refused there by the [`Fence`].

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::{Target, Txn};
use crate::sabotage::{self, Defect};

/// The leadership key as it was won; gone or another's when leadership is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The leadership key.
    pub key: String,
    /// Revision at which this term's key was created.
    pub create_revision: i64,
}

impl Fence {
    /// Makes a transaction fail unless this term still lasts.
    #[must_use]
    pub fn guard(&self, txn: Txn) -> Txn {
        if sabotage::has(Defect::FenceForgotten) {
            return txn;
        }
        txn.when(
            self.key.clone(),
            Target::CreateRevision(self.create_revision),
        )
    }
}

/// A term of leadership.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    fence: Fence,
    until: Instant,
}

/// Why a write or an effect may not begin now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this controller doesn't hold the leadership long enough to begin; another one may lead, or etcd is slow"
)]
pub struct NotLeading;

/// What the campaign tells everybody else.
#[derive(Debug)]
pub struct AuthorityKeeper(watch::Sender<Option<Term>>);

/// What a writer asks before it writes or acts.
#[derive(Debug, Clone)]
pub struct Authority(watch::Receiver<Option<Term>>);

/// A keeper without leadership, and the authority that follows it.
pub fn authority() -> (AuthorityKeeper, Authority) {
    let (sender, receiver) = watch::channel(None);
    (AuthorityKeeper(sender), Authority(receiver))
}

impl AuthorityKeeper {
    /// Leadership was won or renewed: it lasts until then unless renewed again.
    /// `until` is counted from before the renewal was sent, never after.
    pub fn hold(&self, fence: Fence, until: Instant) {
        self.0.send_replace(Some(Term { fence, until }));
    }

    /// Leadership is lost or given up.
    pub fn release(&self) {
        self.0.send_replace(None);
    }
}

impl Authority {
    /// The fence for a write or an effect that takes at most `deadline`.
    ///
    /// # Errors
    /// When leadership is not held, or would end before the deadline.
    pub fn permit(&self, deadline: Duration) -> Result<Fence, NotLeading> {
        match &*self.0.borrow() {
            Some(term) if Instant::now() + deadline <= term.until => Ok(term.fence.clone()),
            Some(term) if sabotage::has(Defect::LeadershipNotAsked) => Ok(term.fence.clone()),
            _ => Err(NotLeading),
        }
    }

    /// Whether leadership is held now.
    pub fn holds(&self) -> bool {
        self.permit(Duration::ZERO).is_ok()
    }

    /// Returns when leadership is held.
    pub async fn won(&mut self) {
        // An error means that the keeper is gone: it can never be won.
        if self.0.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns when leadership is no longer held: given up, or its time is over.
    pub async fn lost(&mut self) {
        loop {
            let Some(until) = self.0.borrow_and_update().as_ref().map(|term| term.until) else {
                return;
            };
            tokio::select! {
                biased;
                changed = self.0.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = tokio::time::sleep_until(until) => {
                    if !self.holds() {
                        return;
                    }
                }
            }
        }
    }
}
