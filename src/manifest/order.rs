//! The order in which an app's services are deployed.

use std::collections::{BTreeMap, BTreeSet};

use super::names::ServiceName;
use super::spec::AppSpec;

impl AppSpec {
    /// Every service once: dependencies first, and by name where that leaves a choice.
    ///
    /// A manifest has no cycles. For a spec that didn't come from one, the services
    /// of a cycle follow at the end by name, so that none is ever left out.
    pub fn order(&self) -> Vec<ServiceName> {
        let mut waits_for: BTreeMap<&ServiceName, BTreeSet<&ServiceName>> = BTreeMap::new();
        let mut needed_by: BTreeMap<&ServiceName, Vec<&ServiceName>> = BTreeMap::new();
        for (name, service) in &self.services {
            let known = service
                .depends_on
                .iter()
                .filter(|other| self.services.contains_key(*other));
            let dependencies: BTreeSet<_> = known.collect();
            for dependency in &dependencies {
                needed_by.entry(*dependency).or_default().push(name);
            }
            waits_for.insert(name, dependencies);
        }

        let free = waits_for.iter().filter(|(_, others)| others.is_empty());
        let mut free: BTreeSet<&ServiceName> = free.map(|(name, _)| *name).collect();
        let mut order = Vec::with_capacity(self.services.len());
        while let Some(next) = free.pop_first() {
            order.push(next.clone());
            waits_for.remove(next);
            for waiting in needed_by.remove(next).unwrap_or_default() {
                if let Some(others) = waits_for.get_mut(waiting) {
                    others.remove(next);
                    if others.is_empty() {
                        free.insert(waiting);
                    }
                }
            }
        }
        order.extend(waits_for.into_keys().cloned());
        order
    }
}
