//! Leases: each ends at its time unless renewed, and takes its keys along.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::super::{LeaseId, StoreError, limit};
use super::kv::State;

#[derive(Debug, Clone)]
struct Lease {
    ttl: Duration,
    until: Instant,
    keys: BTreeSet<String>,
}

/// The leases that live.
#[derive(Debug, Clone, Default)]
pub(super) struct Leases {
    living: BTreeMap<LeaseId, Lease>,
    granted: u64,
}

impl Leases {
    /// When the next one ends, unless renewed.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.living.values().map(|lease| lease.until).min()
    }

    /// Differs when a lease was granted: it may end before all the others.
    pub(super) fn changes(&self) -> u64 {
        self.granted
    }

    pub(super) fn must_live(&self, id: LeaseId) -> Result<(), StoreError> {
        if self.living.contains_key(&id) {
            Ok(())
        } else {
            Err(StoreError::LeaseExpired)
        }
    }

    pub(super) fn attach(&mut self, key: &str, id: Option<LeaseId>) {
        if let Some(lease) = id.and_then(|id| self.living.get_mut(&id)) {
            lease.keys.insert(key.to_owned());
        }
    }

    pub(super) fn detach(&mut self, key: &str, id: Option<LeaseId>) {
        if let Some(lease) = id.and_then(|id| self.living.get_mut(&id)) {
            lease.keys.remove(key);
        }
    }
}

impl State {
    pub(super) fn grant(&mut self, ttl: Duration, now: Instant) -> LeaseId {
        self.leases.granted += 1;
        let id = LeaseId(i64::try_from(self.leases.granted).unwrap_or(i64::MAX));
        let ttl = Duration::from_secs(limit::lease_seconds(ttl));
        let lease = Lease {
            ttl,
            until: now + ttl,
            keys: BTreeSet::new(),
        };
        self.leases.living.insert(id, lease);
        id
    }

    pub(super) fn keep_alive(&mut self, id: LeaseId, now: Instant) -> Result<(), StoreError> {
        let lease = self
            .leases
            .living
            .get_mut(&id)
            .ok_or(StoreError::LeaseExpired)?;
        lease.until = now + lease.ttl;
        Ok(())
    }

    pub(super) fn revoke(&mut self, id: LeaseId) -> Result<(), StoreError> {
        let lease = self
            .leases
            .living
            .remove(&id)
            .ok_or(StoreError::LeaseExpired)?;
        self.delete_all(&lease.keys);
        Ok(())
    }

    /// Ends every lease whose time is over, the oldest ID first.
    pub(super) fn expire(&mut self, now: Instant) {
        let over: Vec<LeaseId> = self
            .leases
            .living
            .iter()
            .filter(|(_, lease)| lease.until <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            if let Some(lease) = self.leases.living.remove(&id) {
                self.delete_all(&lease.keys);
            }
        }
    }
}
