//! Which host port a candidate gets.
//!
//! Claims are records; this is their index in memory, read once a term of
//! leadership and kept by the one who writes them. The transaction that writes
//! a claim compares that nobody has it, so a stale index can't give a port twice.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use tokio::sync::Mutex;

use crate::clock::Entropy;
use crate::manifest::{AppName, NodeName, Protocol};
use crate::state::BindClaim;
use crate::store::{Records, RecordsError};

/// A host port.
pub(super) type HostPort = (Protocol, u16);

/// The claims on this host's ports.
#[derive(Debug)]
pub struct Ports {
    node: NodeName,
    range: RangeInclusive<u16>,
    claims: Mutex<Option<BTreeMap<HostPort, BindClaim>>>,
}

/// No port of the range is free.
#[derive(Debug, thiserror::Error)]
#[error("every port of the range {}-{} is claimed: give a wider --port-range", range.start(), range.end())]
pub struct Exhausted {
    range: RangeInclusive<u16>,
}

impl Ports {
    /// Ports of this range on this host.
    pub fn new(node: NodeName, range: RangeInclusive<u16>) -> Self {
        Self {
            node,
            range,
            claims: Mutex::new(None),
        }
    }

    /// Forgets what was read: after leadership changed, or a claim was refused.
    pub async fn reset(&self) {
        *self.claims.lock().await = None;
    }

    async fn with<T>(
        &self,
        records: &Records,
        work: impl FnOnce(&mut BTreeMap<HostPort, BindClaim>) -> T,
    ) -> Result<T, RecordsError> {
        let mut claims = self.claims.lock().await;
        let index = match claims.take() {
            Some(index) => index,
            None => read(records, &self.node).await?,
        };
        let index = claims.insert(index);
        Ok(work(index))
    }

    /// Claims a free port of the range in the index; the caller makes it durable.
    pub(super) async fn claim_free(
        &self,
        records: &Records,
        protocol: Protocol,
        claim: &BindClaim,
        entropy: &Entropy,
    ) -> Result<Result<u16, Exhausted>, RecordsError> {
        self.with(records, |claims| {
            let size = usize::from(self.range.end() - self.range.start()) + 1;
            // From a random port on, so that a released one isn't the next one given.
            let first = entropy.below(size);
            let port = (0..size)
                .map(|step| (first + step) % size)
                .filter_map(|offset| u16::try_from(offset).ok())
                .map(|offset| self.range.start() + offset)
                .find(|port| !claims.contains_key(&(protocol, *port)));
            let Some(port) = port else {
                return Err(Exhausted {
                    range: self.range.clone(),
                });
            };
            claims.insert((protocol, port), claim.clone());
            Ok(port)
        })
        .await
    }

    /// Claims exactly this port in the index. Gives who holds it, when somebody does.
    pub(super) async fn claim_fixed(
        &self,
        records: &Records,
        port: HostPort,
        claim: &BindClaim,
    ) -> Result<Option<BindClaim>, RecordsError> {
        self.with(records, |claims| {
            let holder = claims.get(&port).cloned();
            if holder.is_none() {
                claims.insert(port, claim.clone());
            }
            holder
        })
        .await
    }

    /// Whether backends may be given this port.
    pub(super) fn gives(&self, port: u16) -> bool {
        self.range.contains(&port)
    }

    /// Who holds a port.
    pub(super) async fn holder(
        &self,
        records: &Records,
        port: HostPort,
    ) -> Result<Option<BindClaim>, RecordsError> {
        self.with(records, |claims| claims.get(&port).cloned())
            .await
    }

    /// The ports that a service holds, by claims that `which` picks.
    pub(super) async fn held(
        &self,
        records: &Records,
        app: &AppName,
        which: impl Fn(&BindClaim) -> bool,
    ) -> Result<Vec<HostPort>, RecordsError> {
        self.with(records, |claims| {
            let held = claims
                .iter()
                .filter(|(_, claim)| &claim.app == app && which(claim));
            held.map(|(port, _)| *port).collect()
        })
        .await
    }

    /// Forgets these claims in the index; call it once their deletion is durable.
    pub(super) async fn released(&self, ports: &[HostPort]) {
        if let Some(claims) = self.claims.lock().await.as_mut() {
            for port in ports {
                claims.remove(port);
            }
        }
    }
}

async fn read(
    records: &Records,
    node: &NodeName,
) -> Result<BTreeMap<HostPort, BindClaim>, RecordsError> {
    let prefix = records.keys().binds(node);
    let claims = records.bind_claims(node).await?;
    Ok(claims
        .into_iter()
        .filter_map(|(key, claim)| Some((parse(key.strip_prefix(&prefix)?)?, claim)))
        .collect())
}

fn parse(tail: &str) -> Option<HostPort> {
    let (protocol, port) = tail.split_once('/')?;
    let protocol = match protocol {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        _ => return None,
    };
    Some((protocol, port.parse().ok()?))
}
