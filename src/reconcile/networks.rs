//! Shared networks: held by every app that names them, removed by the last to leave.
//!
//! Who has a part in a network is in the apps' ownership records. An app marks itself
//! as a holder before it looks for the network, and as leaving before it looks for
//! other holders; both under one lock, so that nobody removes what another is about
//! to join, and of two that leave at the same time one removes it.

use std::collections::BTreeSet;

use tokio::sync::{Mutex, MutexGuard};

use crate::manifest::{NetworkName, SharedNetwork};
use crate::runtime::{Labels, Network, deadline};
use crate::state::{Stake, Warning, labels};
use crate::store::Changes;

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
        match self.ctx.runtime.network(name.as_str()).await {
            Ok(None) => Ok(Ok(())),
            Ok(Some(found)) if is_shared(name, &found) => {
                self.ctx.permit(deadline::REMOVE)?;
                let removed = self.ctx.runtime.remove_network(name.as_str()).await;
                Ok(removed.map_err(|error| error.to_string()))
            }
            Ok(Some(_)) => Ok(Err("its label isn't Podherd's; it is left alone".to_owned())),
            Err(error) => Ok(Err(error.to_string())),
        }
    }
}
