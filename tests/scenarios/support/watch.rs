//! What the doubles notice: moments at which an invariant didn't hold.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use podherd::runtime::{EffectLog, MemoryRuntime};
use podherd::state::{Active, ContainerId, Keys, labels};
use podherd::store::{Authority, MemoryStore};
use podherd::traffic::{AppRoutes, MemoryTraffic};

/// Looks at all doubles at once.
#[derive(Debug, Clone)]
pub struct Watch {
    pub store: MemoryStore,
    pub runtime: Arc<MemoryRuntime>,
    pub traffic: Arc<MemoryTraffic>,
    pub keys: Keys,
    pub effects: EffectLog,
    /// The authority of the controller that runs now.
    pub authority: Authority,
    found: Arc<Mutex<Vec<String>>>,
    /// How long the preflight's look at an image takes.
    pub pulls_take: Arc<Mutex<Duration>>,
    /// How long the removal of a network takes.
    pub network_removals_take: Arc<Mutex<Duration>>,
}

impl Watch {
    pub fn new(
        store: MemoryStore,
        runtime: Arc<MemoryRuntime>,
        traffic: Arc<MemoryTraffic>,
        keys: Keys,
        effects: EffectLog,
        authority: Authority,
    ) -> Self {
        Self {
            store,
            runtime,
            traffic,
            keys,
            effects,
            authority,
            found: Arc::default(),
            pulls_take: Arc::default(),
            network_removals_take: Arc::default(),
        }
    }

    pub fn note(&self, violation: String) {
        self.found.lock().unwrap().push(violation);
    }

    pub fn violations(&self) -> Vec<String> {
        let mut all = self.found.lock().unwrap().clone();
        all.extend(self.runtime.violations());
        all
    }

    /// An effect begins (invariant 13).
    pub fn acts(&self, what: &str) {
        if !self.authority.holds() {
            self.note(format!("{what} without leadership"));
        }
    }

    /// A container is about to be stopped or removed (invariants 2 and 12).
    pub fn ends(&self, id: &ContainerId) {
        let Some(container) = self.runtime.container(id.as_str()) else {
            return;
        };
        if self.traffic.may_reach(&container.id) {
            self.note(format!(
                "{} is ended while it may be reached",
                container.name
            ));
        }
        if !container.labels.contains_key(labels::INCARNATION) {
            self.note(format!("{} isn't ours, and is ended", container.name));
        }
    }

    /// A container is about to be started (invariant 4).
    pub fn starts(&self, id: &ContainerId) {
        let inhibitions = format!("{}/state/inhibitions/", self.keys.prefix());
        let inhibited = self.store.entries().into_iter().any(|entry| {
            entry.key.starts_with(&inhibitions) && entry.key.ends_with(&format!("/{id}"))
        });
        if inhibited {
            self.note(format!("inhibited container {id} is started"));
        }
    }

    /// ACTIVE is written: what it newly calls verified answers right now, on the
    /// binds that it says (invariants 6 and 7).
    pub fn publishes(&self, before: &Active, after: &Active) -> (bool, Vec<String>) {
        let mut publishes = false;
        let mut wrong = Vec::new();
        for (name, service) in &after.services {
            let known = before.services.get(name);
            let same = known.is_some_and(|known| {
                known.verified == service.verified && known.container == service.container
            });
            if service.verified.is_none() || same {
                continue;
            }
            publishes = true;
            let container = self.runtime.container(service.container.as_str());
            if container
                .as_ref()
                .and_then(|container| container.started_at)
                != service.verified
            {
                wrong.push(format!(
                    "ACTIVE of {name} names an execution that isn't there"
                ));
            }
            for bind in &service.binds {
                let (reply, who) = self.runtime.reply_at(bind.address(), bind.protocol);
                if reply != podherd::runtime::Reply::Fine
                    || who.as_ref() != Some(&service.container)
                {
                    wrong.push(format!("ACTIVE of {name} names a bind that doesn't answer"));
                }
            }
        }
        (publishes, wrong)
    }

    /// The graph is about to change: it may name only what ACTIVE calls verified.
    pub fn routes(&self, app: &podherd::manifest::AppName, routes: &AppRoutes) {
        let key = self.keys.active(app);
        let entries = self.store.entries();
        let active: Active = entries
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| podherd::state::decode(&entry.value).unwrap())
            .unwrap_or_default();
        for backend in routes.http.iter().flat_map(|rule| &rule.backends) {
            let named = active.services.values().any(|service| {
                service.container == backend.container
                    && service.verified == Some(backend.started_at)
                    && service
                        .binds
                        .iter()
                        .any(|bind| bind.address() == backend.address)
            });
            if !named {
                self.note(format!(
                    "the graph names {}, ACTIVE doesn't",
                    backend.container
                ));
            }
        }
    }
}
