//! What must hold of the world at any moment, and once it is left in peace. What is
//! checked at each effect and each write is in `tests/doubles/watch.rs`.

use podherd::manifest::AppName;
use podherd::runtime::{Container, ContainerState, Reply};
use podherd::state::{
    Active, BindClaim, ConditionType, Inhibition, InhibitionReason, Intent, Operation, Ownership,
    Record, Revision, Status, Truth, Verb, Wish, decode, labels,
};
use podherd::store::Range;

use crate::apps::NAMES;
use crate::doubles::leaks::leaks;
use crate::world::{FOREIGN, World};

impl World {
    /// Everything that was found so far, and what is wrong right now.
    pub fn violations(&self) -> Vec<String> {
        let mut found = self.watch.violations();
        found.extend(self.misrouted());
        found.extend(self.disturbed());
        found
    }

    /// Whether the container is asked whether it is alive.
    pub fn asks_liveness(&self, container: &Container) -> bool {
        let label = |key| container.labels.get(key);
        let revisions: Vec<Revision> = label(labels::APP)
            .and_then(|app| app.parse().ok())
            .map(|app| self.records(self.watch.keys.revisions(&app)))
            .unwrap_or_default();
        revisions
            .iter()
            .filter(|it| Some(&it.number.to_string()) == label(labels::REVISION))
            .flat_map(|revision| &revision.services)
            .filter(|(name, _)| Some(&name.to_string()) == label(labels::SERVICE))
            .any(|(_, pinned)| pinned.spec.liveness.is_some())
    }

    /// Everything that was written leaks nothing (invariant 16).
    pub fn leaks(&self) -> Vec<String> {
        leaks(&self.store().entries())
    }

    /// Requests that reach whom they aren't for (invariants 4 and 6): each backend that
    /// a data plane may still serve is asked who answers.
    fn misrouted(&self) -> Vec<String> {
        let mut found = Vec::new();
        for name in names() {
            let inhibited: Vec<Inhibition> = self.records(self.watch.keys.inhibitions(&name));
            for (service, backend) in self.watch.traffic.served(&name) {
                let protocol = podherd::manifest::Protocol::Tcp;
                let (reply, who) = self.runtime().reply_at(backend.address, protocol);
                if reply != Reply::Refused && who.as_ref() != Some(&backend.container) {
                    found.push(format!("6: requests to {name}/{service} reach {who:?}"));
                }
                let replaced = |it: &&Inhibition| {
                    it.container == backend.container
                        && it.reason == InhibitionReason::ReplacementPending
                };
                if inhibited.iter().any(|it| replaced(&it)) {
                    found.push(format!(
                        "4: requests to {name}/{service} reach an inhibited one"
                    ));
                }
            }
        }
        found
    }

    /// What isn't ours is as it was (invariant 12), and volumes stay (11).
    fn disturbed(&self) -> Vec<String> {
        let foreign = self.runtime().container(FOREIGN);
        let runs = |container: &Container| container.state == ContainerState::Running;
        let mut found = Vec::new();
        if !foreign.as_ref().is_some_and(runs) {
            found.push("12: somebody else's container doesn't run".to_owned());
        }
        if !self.runtime().volumes().iter().any(|name| name == FOREIGN) {
            found.push("12: somebody else's volume is gone".to_owned());
        }
        found
    }

    pub fn records<T: Record>(&self, prefix: String) -> Vec<T> {
        let entries = self.store().look(&Range::Prefix(prefix));
        let decoded = entries.iter().map(|entry| decode(&entry.value).unwrap());
        decoded.collect()
    }

    /// Why the world isn't as it should be in peace (invariants 8, 10 and 14); nothing
    /// once it is.
    pub fn unsettled(&self) -> Vec<String> {
        names().flat_map(|name| self.unsettled_app(&name)).collect()
    }

    fn unsettled_app(&self, app: &AppName) -> Vec<String> {
        let keys = &self.watch.keys;
        let manifest = self.store().look(&Range::Key(keys.app(app))).pop();
        let intent: Option<Intent> = self.watch.record(keys.intent(app));
        let operations: Vec<Operation> = self.records(keys.operations(app));
        let mut left = Vec::new();
        if operations.iter().any(Operation::in_flight) {
            left.push(format!("{app}: an operation is in flight"));
        }
        let done = operations.iter().filter(|operation| {
            let verb = operation.request.verb;
            operation.succeeded() && matches!(verb, Verb::Stop | Verb::Start)
        });
        let last = done.max_by_key(|operation| operation.started_at);
        let was_stopped = last.is_some_and(|last| {
            let ownership: Option<Ownership> = self.watch.record(keys.ownership(app));
            last.request.verb == Verb::Stop
                && ownership.is_some_and(|it| it.incarnation == last.incarnation)
        });
        if was_stopped && intent.is_none() {
            left.push(format!("10: {app}: was stopped, and isn't to be"));
        }
        if !self
            .store()
            .look(&Range::Prefix(keys.requests_of(app)))
            .is_empty()
        {
            left.push(format!("{app}: a request isn't answered"));
        }
        match manifest {
            None => left.extend(self.not_gone(app)),
            Some(_) if intent.is_some_and(|intent| intent.state == Wish::Stopped) => {
                left.extend(self.not_stopped(app));
            }
            Some(entry) => left.extend(self.not_serving(app, entry.mod_revision)),
        }
        left
    }

    fn not_gone(&self, app: &AppName) -> Vec<String> {
        let keys = &self.watch.keys;
        let mut left: Vec<String> = self
            .containers(app)
            .iter()
            .map(|container| format!("{app}: {} is left", container.name))
            .collect();
        for key in [
            keys.ownership(app),
            keys.active(app),
            keys.intent(app),
            keys.status(app),
        ] {
            if !self.store().look(&Range::Key(key.clone())).is_empty() {
                left.push(format!("{app}: {key} is left"));
            }
        }
        if self.watch.traffic.routes(app).is_some() {
            left.push(format!("{app}: is still routed"));
        }
        for name in self.runtime().networks() {
            let network = self.runtime().network_of(&name).unwrap_or_default();
            if network.labels.get(labels::APP).map(String::as_str) == Some(app.as_str()) {
                left.push(format!("{app}: the network {name} is left"));
            }
        }
        left.extend(self.wrong_claims(app, &[]));
        left
    }

    fn not_stopped(&self, app: &AppName) -> Vec<String> {
        let mut left: Vec<String> = self
            .containers(app)
            .iter()
            .filter(|container| container.state.may_run())
            .map(|container| format!("{app}: is stopped, and {} runs", container.name))
            .collect();
        if !self.watch.traffic.served(app).is_empty() {
            left.push(format!("{app}: is stopped, and routed"));
        }
        left
    }

    fn not_serving(&self, app: &AppName, source: i64) -> Vec<String> {
        let keys = &self.watch.keys;
        let mut left = Vec::new();
        let status: Status = self.watch.record(keys.status(app)).unwrap_or_default();
        let mut conditions = status.conditions.iter();
        let ready = conditions.find(|it| it.r#type == ConditionType::Ready);
        let is_ready = ready.is_some_and(|ready| {
            (ready.status == Truth::True && status.observed_revision == source)
                || ready.reason == "RolledBack"
        });
        if !is_ready {
            left.push(format!("{app}: isn't ready: {ready:?}"));
        }
        let active: Active = self.watch.record(keys.active(app)).unwrap_or_default();
        if active.services.is_empty() {
            left.push(format!("{app}: ACTIVE is empty"));
        }
        let mut named = Vec::new();
        for (service, it) in &active.services {
            named.push(it.container.clone());
            let container = self.runtime().container(it.container.as_str());
            let started = container.and_then(|container| container.started_at);
            if it.verified.is_none() || started != it.verified {
                left.push(format!("{app}/{service}: isn't verified"));
            }
            for bind in &it.binds {
                let (reply, who) = self.runtime().reply_at(bind.address(), bind.protocol);
                if reply != Reply::Fine || who.as_ref() != Some(&it.container) {
                    left.push(format!(
                        "{app}/{service}: {} gets {reply:?}",
                        bind.address()
                    ));
                }
            }
        }
        let web = "web".parse().unwrap();
        let routed = self.watch.traffic.served(app);
        if active.services.contains_key(&web) && !routed.iter().any(|(name, _)| *name == web) {
            left.push(format!("{app}/web: isn't routed"));
        }
        for container in self.containers(app) {
            if !named.contains(&container.id) {
                left.push(format!("8: {app}: {} is an orphan", container.name));
            }
        }
        left.extend(self.wrong_claims(app, &named));
        let inhibitions: Vec<Inhibition> = self.records(keys.inhibitions(app));
        if !inhibitions.is_empty() {
            left.push(format!("{app}: inhibitions are left: {inhibitions:?}"));
        }
        left
    }

    fn containers(&self, app: &AppName) -> Vec<Container> {
        let all = self.runtime().containers().into_iter();
        let of_it = |container: &Container| {
            container.labels.get(labels::APP).map(String::as_str) == Some(app.as_str())
        };
        all.filter(of_it).collect()
    }

    /// Claims on ports of containers other than these.
    fn wrong_claims(&self, app: &AppName, of: &[podherd::state::ContainerId]) -> Vec<String> {
        let held: Vec<String> = of
            .iter()
            .filter_map(|id| self.runtime().container(id.as_str()))
            .map(|container| container.name)
            .collect();
        let node = "host-a".parse().unwrap();
        let claims: Vec<BindClaim> = self.records(self.watch.keys.binds(&node));
        let stale = claims
            .iter()
            .filter(|claim| claim.app == *app && !held.contains(&claim.container_name))
            .map(|claim| format!("{app}: a port is claimed for {}", claim.container_name));
        let claimed = |name: &&String| claims.iter().any(|claim| claim.container_name == **name);
        let unclaimed = held
            .iter()
            .filter(|name| !claimed(name))
            .map(|name| format!("{app}: no port is claimed for {name}"));
        stale.chain(unclaimed).collect()
    }
}

fn names() -> impl Iterator<Item = AppName> {
    NAMES.iter().map(|name| name.parse().unwrap())
}
