//! What the doubles notice: moments at which an invariant didn't hold.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use podherd::manifest::AppName;
use podherd::runtime::{EffectLog, Labels, MemoryRuntime};
use podherd::state::{
    Active, BindClaim, ContainerId, Inhibition, InhibitionReason, Intent, Keys, Operation,
    Ownership, Record, StepKind, StepState, Verb, Wish, decode, labels,
};
use podherd::store::{Authority, MemoryStore, Range};
use podherd::traffic::{AppRoutes, MemoryTraffic};

use super::cut::Site;

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
    /// The newest journal of each app.
    journals: Arc<Mutex<BTreeMap<String, Operation>>>,
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
            journals: Arc::default(),
            pulls_take: Arc::default(),
            network_removals_take: Arc::default(),
        }
    }

    /// The same for another controller.
    pub fn of(&self, authority: Authority) -> Self {
        Self {
            authority,
            ..self.clone()
        }
    }

    /// Notes a violation; it begins with the number of its invariant.
    pub fn note(&self, violation: String) {
        self.found.lock().unwrap().push(violation);
    }

    /// The newest journal of an app was written.
    pub fn journaled(&self, app: String, operation: Operation) {
        self.journals.lock().unwrap().insert(app, operation);
    }

    /// The operation of the app that is in flight.
    pub fn in_flight(&self, app: &str) -> Option<Operation> {
        let journals = self.journals.lock().unwrap();
        journals.get(app).filter(|it| it.in_flight()).cloned()
    }

    /// Where an effect is: which step it is done for.
    pub fn site(&self, call: &'static str, app: Option<&str>, deadline: Duration) -> Site {
        let operation = app.and_then(|app| self.in_flight(app));
        let step = operation.map(|operation| {
            let mut steps = operation.steps.iter();
            let running = steps.find(|step| step.state == StepState::Running);
            let step = running.map_or("between", |step| step.kind.as_str());
            format!("{}/{step}", operation.request.verb.as_str())
        });
        Site {
            call,
            app: app.map(str::to_owned),
            step,
            deadline,
        }
    }

    /// The app of a container.
    pub fn app_of(&self, id: &ContainerId) -> Option<String> {
        let container = self.runtime.container(id.as_str())?;
        container.labels.get(labels::APP).cloned()
    }

    /// A record as it is now.
    pub fn record<T: Record>(&self, key: String) -> Option<T> {
        let found = self.store.look(&Range::Key(key)).pop()?;
        Some(decode(&found.value).unwrap())
    }

    fn is_marked(&self, container: &ContainerId) -> bool {
        let all = format!("{}/state/inhibitions/", self.keys.prefix());
        let entries = self.store.look(&Range::Prefix(all));
        let mut decoded = entries
            .iter()
            .map(|entry| decode::<Inhibition>(&entry.value).unwrap());
        decoded.any(|it| {
            it.container == *container && it.reason == InhibitionReason::RetirementPending
        })
    }

    fn inhibitions(&self, app: &AppName) -> Vec<Inhibition> {
        let range = Range::Prefix(self.keys.inhibitions(app));
        let found = self.store.look(&range);
        let decoded = found.iter().map(|entry| decode(&entry.value).unwrap());
        decoded.collect()
    }

    pub fn violations(&self) -> Vec<String> {
        let mut all = self.found.lock().unwrap().clone();
        let writers = self.runtime.violations().into_iter();
        all.extend(writers.map(|found| format!("3: {found}")));
        all
    }

    /// An effect begins (invariant 13): leadership lasts as long as it may take. What
    /// passed since it was asked is forgiven.
    pub fn acts(&self, what: &str, deadline: Duration) {
        let least = deadline.saturating_sub(Duration::from_millis(100));
        if self.authority.permit(least).is_err() {
            self.note(format!("13: {what} without leadership"));
        }
    }

    /// The step of the app's operation that has begun.
    fn running(&self, app: &str) -> Option<StepKind> {
        let operation = self.in_flight(app)?;
        let mut steps = operation.steps.iter();
        let running = steps.find(|step| step.state == StepState::Running);
        running.map(|step| step.kind)
    }

    /// Something is about to be made for an app (invariant 8).
    pub fn makes(&self, labels: &Labels) {
        let Some(app) = labels.get(labels::APP) else {
            return;
        };
        let step = self.running(app);
        let journaled = [StepKind::Provision, StepKind::Create, StepKind::Start];
        if !step.is_some_and(|step| journaled.contains(&step)) {
            self.note(format!(
                "8: something is made for {app} without a journal, in {step:?}"
            ));
        }
        let same =
            |key: &str, its: &Labels| labels.contains_key(key) && its.get(key) == labels.get(key);
        let made = self.runtime.containers();
        let mut made = made.iter().map(|container| &container.labels);
        if made.any(|its| same(labels::OPERATION, its) && same(labels::SERVICE, its)) {
            self.note(format!("8: a second container is made for a step of {app}"));
        }
    }

    /// A claim on a port is given up (invariant 8).
    pub fn releases(&self, claim: &BindClaim) -> Option<String> {
        let name = &claim.container_name;
        let there = self.runtime.container(name);
        there.map(|_| format!("8: a port of {name} is released, which is still there"))
    }

    /// Something that is never deleted is about to be (invariant 11).
    pub fn deletes(&self, what: &str, name: &str) {
        self.note(format!("11: the {what} {name} is deleted"));
    }

    /// A container is about to be stopped or removed (invariants 1, 2, 5, 9 and 12).
    pub fn ends(&self, id: &ContainerId) {
        let Some(container) = self.runtime.container(id.as_str()) else {
            return;
        };
        let name = &container.name;
        if self.traffic.may_reach(&container.id) {
            self.note(format!("2: {name} is ended while it may be reached"));
        }
        let Some(app) = container.labels.get(labels::APP) else {
            self.note(format!("12: {name} isn't ours, and is ended"));
            return;
        };
        let Some(operation) = self.in_flight(app) else {
            self.note(format!("9: {name} is ended without a journal"));
            return;
        };
        let app: AppName = app.parse().unwrap();
        let active: Active = self.record(self.keys.active(&app)).unwrap_or_default();
        let mut named = active.services.values();
        if named.all(|service| service.container != container.id) {
            return;
        }
        let step = self.running(app.as_str());
        let journaled = [StepKind::Retire, StepKind::Stop, StepKind::Start];
        if !step.is_some_and(|step| journaled.contains(&step)) {
            self.note(format!("9: {name} is ended in {step:?}"));
        }
        let verb = operation.request.verb;
        let retires = operation
            .steps
            .iter()
            .any(|step| step.kind == StepKind::Retire && step.state == StepState::Running);
        let replaced = matches!(verb, Verb::Deploy | Verb::Rollback) && retires;
        let writes = self.runtime.spec(id.as_str());
        let writes = writes.is_some_and(|spec| spec.volumes.iter().any(|it| !it.read_only));
        let inhibited = self
            .inhibitions(&app)
            .iter()
            .any(|it| it.container == container.id);
        if !inhibited && (verb == Verb::Remove || (replaced && writes)) {
            self.note(format!("5: {name} is ended without a durable inhibition"));
        }
        let pinned = operation.request.revision.is_some_and(|number| {
            let range = Range::Key(self.keys.revision(&app, number));
            !self.store.look(&range).is_empty()
        });
        if replaced && !pinned {
            self.note(format!("1: {name} is ended before a revision is pinned"));
        }
    }

    /// A container is about to be started (invariants 4, 8 and 10).
    pub fn starts(&self, id: &ContainerId) {
        let Some(container) = self.runtime.container(id.as_str()) else {
            return;
        };
        let Some(app) = container.labels.get(labels::APP) else {
            self.note(format!("12: {} isn't ours, and is started", container.name));
            return;
        };
        if self.running(app) != Some(StepKind::Start) {
            self.note(format!(
                "8: {} is started without a journal",
                container.name
            ));
        }
        let app: AppName = app.parse().unwrap();
        let mut inhibitions = self.inhibitions(&app).into_iter();
        if inhibitions.any(|it| it.container == container.id) {
            self.note(format!("4: inhibited container {id} is started"));
        }
        let intent: Option<Intent> = self.record(self.keys.intent(&app));
        if intent.is_some_and(|intent| intent.state == Wish::Stopped) {
            self.note(format!(
                "10: {} is started, {app} is stopped",
                container.name
            ));
        }
        let ownership: Option<Ownership> = self.record(self.keys.ownership(&app));
        let live = ownership.map(|ownership| ownership.incarnation.to_string());
        if live.as_ref() != container.labels.get(labels::INCARNATION) {
            self.note(format!(
                "10: {} of an ended incarnation is started",
                container.name
            ));
        }
    }

    /// ACTIVE is written: what it newly calls verified answers right now, on the
    /// binds that it says (invariants 6 and 7).
    pub fn publishes(&self, before: &Active, after: &Active) -> (bool, Vec<String>) {
        let mut publishes = false;
        let mut wrong = Vec::new();
        for (name, service) in &after.services {
            let known = before.services.get(name);
            if let Some(known) = known.filter(|known| known.container != service.container) {
                let old = self.runtime.container(known.container.as_str());
                let runs = old.is_some_and(|old| old.state.may_run());
                if runs && !self.is_marked(&known.container) {
                    wrong.push(format!(
                        "5: {name} is superseded while it runs, without a marker"
                    ));
                }
            }
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
                    "6: ACTIVE of {name} names an execution that isn't there"
                ));
            }
            for bind in &service.binds {
                let (reply, who) = self.runtime.reply_at(bind.address(), bind.protocol);
                if reply != podherd::runtime::Reply::Fine
                    || who.as_ref() != Some(&service.container)
                {
                    wrong.push(format!(
                        "7: ACTIVE of {name} names a bind that doesn't answer"
                    ));
                }
            }
        }
        (publishes, wrong)
    }

    /// The graph is about to change: it may name only what ACTIVE calls verified.
    pub fn routes(&self, app: &AppName, routes: &AppRoutes) {
        let active: Active = self.record(self.keys.active(app)).unwrap_or_default();
        for (_, backend) in routes.backends() {
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
                    "6: the graph names {}, ACTIVE doesn't",
                    backend.container
                ));
            }
        }
    }
}
