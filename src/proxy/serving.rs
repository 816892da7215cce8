//! The backends of one table, kept over to the next one.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use super::upstream::{Link, Upstream};
use crate::state::ContainerId;
use crate::traffic::Backend;

/// Backends that serve; `K` tells apart what is spoken with one.
#[derive(Debug)]
pub(super) struct Serving<K, L>(HashMap<(Backend, K), Arc<Upstream<L>>>);

impl<K, L> Default for Serving<K, L> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Copy + Eq + Hash, L: Link> Serving<K, L> {
    /// The backend as it serves here or in the table before, or else a new one.
    pub fn keep(
        &mut self,
        before: &Self,
        backend: &Backend,
        kind: K,
        make: impl FnOnce() -> Upstream<L>,
    ) -> Arc<Upstream<L>> {
        let identity = (backend.clone(), kind);
        let kept = self.0.get(&identity).or_else(|| before.0.get(&identity));
        let upstream = kept.cloned().unwrap_or_else(|| Arc::new(make()));
        self.0.insert(identity, Arc::clone(&upstream));
        upstream
    }

    /// Leaves out what none of these is.
    pub fn retain<'u>(&mut self, named: impl Iterator<Item = &'u Arc<Upstream<L>>>) {
        let named: HashSet<*const Upstream<L>> = named.map(Arc::as_ptr).collect();
        self.0
            .retain(|_, upstream| named.contains(&Arc::as_ptr(upstream)));
    }

    /// Withdraws what `next` doesn't have, and becomes it.
    pub fn give_way(&mut self, next: Self) -> Vec<Arc<Upstream<L>>> {
        let before = std::mem::replace(self, next);
        let gone = before.0.into_iter();
        gone.filter(|(identity, _)| !self.0.contains_key(identity))
            .map(|(_, upstream)| {
                upstream.withdraw();
                upstream
            })
            .collect()
    }

    /// The containers that are routed to.
    pub fn containers(&self) -> impl Iterator<Item = &ContainerId> {
        self.0.keys().map(|(backend, _)| &backend.container)
    }
}
