//! Shared networks: held by every app that names them, removed by the last to leave.
//!
//! Who has a part in a network is in the apps' ownership records. An app marks itself
//! as a holder before it looks for the network, and as leaving before it looks for
//! other holders; both under one lock, so that nobody removes what another is about
//! to join, and of two that leave at the same time one removes it.

use std::collections::BTreeSet;

use tokio::sync::{Mutex, MutexGuard};

use crate::manifest::{NetworkName, SharedNetwork};
use crate::runtime::{Labels, Network, RuntimeError, deadline};
use crate::state::{Stake, Warning, labels};
use crate::store::Changes;

use super::Context;
use super::error::{Failure, StepError};
use super::run::Run;

/// One joins or leaves shared networks at a time.
#[derive(Debug, Default)]
pub struct SharedNetworks(Mutex<()>);

impl SharedNetworks {
    pub(super) async fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.lock().await
    }
}

/// The network as Podherd creates it. Its label names no app: it belongs to all.
pub(super) fn network(shared: &SharedNetwork) -> Network {
    let label = (labels::NETWORK.to_owned(), shared.name.to_string());
    Network {
        labels: Labels::from([label]),
        internal: shared.internal,
    }
}

/// Refuses a network that isn't Podherd's, and one of the other kind.
pub(super) fn check(shared: &SharedNetwork, found: &Network) -> Result<(), Failure> {
    let name = &shared.name;
    if !is_shared(name, found) {
        return Err(Failure::lasting(
            "ForeignResource",
            format!(
                "network {name} exists without Podherd's label; it is never taken over: choose \
                 another name in spec.networks, or remove it by hand (podman network rm {name})"
            ),
        ));
    }
    if shared.internal != found.internal {
        let is = if found.internal { "" } else { "not " };
        return Err(Failure::lasting(
            "NetworkConflict",
            format!(
                "network {name} exists and is {is}internal, and stays so while an app is in it: \
                 say internal: {}, or choose another name",
                found.internal
            ),
        ));
    }
    Ok(())
}

fn is_shared(name: &NetworkName, found: &Network) -> bool {
    found.labels.get(labels::NETWORK).map(String::as_str) == Some(name.as_str())
}

impl Run<'_> {
    /// Leaves shared networks, and removes those that no other app holds. One that
    /// can't be removed is a warning.
    pub(super) async fn leave(
        &mut self,
        index: usize,
        networks: &BTreeSet<NetworkName>,
    ) -> Result<(), StepError> {
        if networks.is_empty() {
            return Ok(self.journal.begin(index, Changes::default()).await?);
        }
        let _alone = self.ctx.networks.lock().await;
        for name in networks {
            let stakes = &mut self.ownership.shared_networks;
            stakes.insert(name.clone(), Stake::Leaving);
        }
        let own = self.ctx.records.keys().ownership(self.app);
        let mut changes = Changes::default();
        changes.put(own.clone(), &self.ownership)?;
        self.journal.begin(index, changes).await?;
        let held = self.held_by_others().await?;
        for name in networks {
            let left = if held.contains(name) {
                Ok(())
            } else {
                self.remove_shared(name).await?
            };
            match left {
                Ok(()) => _ = self.ownership.shared_networks.remove(name),
                // The mark stays: the next deployment tries again.
                Err(why) => self.journal.warn(Warning {
                    service: None,
                    leftover: format!("network {name}"),
                    detail: why,
                }),
            }
        }
        Ok(self.journal.stage().put(own, &self.ownership)?)
    }

    async fn held_by_others(&self) -> Result<BTreeSet<NetworkName>, StepError> {
        let ours = self.ownership.incarnation;
        let all = self.ctx.records.ownerships().await?;
        let others = all.into_iter().filter(|other| other.incarnation != ours);
        Ok(others
            .flat_map(|other| other.shared_networks)
            .filter(|(_, stake)| *stake == Stake::Held)
            .map(|(name, _)| name)
            .collect())
    }

    /// Removes the network if its label says that it is Podherd's; the inner error
    /// says why it is still there.
    async fn remove_shared(&self, name: &NetworkName) -> Result<Result<(), String>, StepError> {
        let ours = |found: &Network| is_shared(name, found);
        self.ctx.remove_network(name.as_str(), ours).await
    }
}

impl Context {
    /// Removes a network that is `ours`, never by force. The inner error says why it is
    /// still there and stays. What can't be known now is a failure: once the app is gone,
    /// nobody tries again.
    pub(super) async fn remove_network(
        &self,
        name: &str,
        ours: impl Fn(&Network) -> bool,
    ) -> Result<Result<(), String>, StepError> {
        let unknown = |error: RuntimeError| {
            let why = format!("network {name} isn't confirmed gone: {error}");
            Failure::passing("ReclaimFailed", why)
        };
        match self.runtime.network(name).await.map_err(unknown)? {
            None => return Ok(Ok(())),
            Some(found) if !ours(&found) => {
                return Ok(Err("its labels aren't ours; it is left alone".to_owned()));
            }
            Some(_) => {}
        }
        self.permit(deadline::REMOVE)?;
        match self.runtime.remove_network(name).await {
            Ok(()) => Ok(Ok(())),
            // The reply may be lost, and the network gone.
            Err(error) if error.is_ambiguous() => match self.runtime.network(name).await {
                Ok(None) => Ok(Ok(())),
                Ok(Some(_)) | Err(_) => Err(unknown(error).into()),
            },
            Err(error) => Ok(Err(error.to_string())),
        }
    }
}
