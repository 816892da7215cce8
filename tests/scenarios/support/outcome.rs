//! What became of the world: effects, records, containers; and what must hold of them.

use podherd::manifest::{NodeName, ServiceName};
use podherd::runtime::Container;
use podherd::state::{
    Active, ActiveService, BindClaim, Condition, ConditionType, Event, Inhibition, Operation,
    Ownership, Record, Retained, Revision, Status, Truth, decode, labels,
};
use podherd::traffic::AppRoutes;

use super::world::{World, name};
use crate::doubles::leaks::leaks;

impl World {
    /// The effects since the last look, with names as the manifest has them.
    pub fn effects(&self) -> Vec<String> {
        let readable = |effect: String| {
            let mut words: Vec<String> = effect.split(' ').map(str::to_owned).collect();
            for word in &mut words {
                if let Some(name) = word.strip_prefix("podherd-") {
                    // podherd-<app>-<8 digits>[-<volume>]
                    let parts: Vec<&str> = name.splitn(3, '-').collect();
                    *word = (*parts.get(2).unwrap_or(&parts[0])).to_owned();
                }
            }
            words.join(" ")
        };
        self.effects
            .take()
            .into_iter()
            .filter(|effect| !effect.starts_with("pull "))
            .map(readable)
            .collect()
    }

    /// How many transactions were applied so far.
    pub fn writes(&self) -> usize {
        self.recording.writes()
    }

    /// Every invariant held so far, and nothing printed leaked.
    pub fn check(&self) {
        assert_eq!(self.watch.violations(), Vec::<String>::new());
        assert_eq!(leaks(&self.store.entries()), Vec::<String>::new());
    }

    fn record<T: Record>(&self, key: &str) -> Option<T> {
        let entries = self.store.entries();
        let entry = entries.iter().find(|entry| entry.key == key)?;
        Some(decode(&entry.value).unwrap())
    }

    /// The records below a prefix, oldest first.
    fn records<T: Record>(&self, prefix: &str) -> Vec<T> {
        let mut entries = self.store.entries();
        entries.sort_by_key(|entry| entry.create_revision);
        entries
            .iter()
            .filter(|entry| entry.key.starts_with(prefix))
            .map(|entry| decode(&entry.value).unwrap())
            .collect()
    }

    pub fn status(&self, app: &str) -> Option<Status> {
        self.record(&self.keys.status(&name(app)))
    }

    /// A condition of the app.
    pub fn condition(&self, app: &str, r#type: ConditionType) -> Condition {
        let status = self.status(app).unwrap();
        let mut conditions = status.conditions.into_iter();
        conditions.find(|found| found.r#type == r#type).unwrap()
    }

    pub fn active(&self, app: &str) -> Active {
        self.record(&self.keys.active(&name(app)))
            .unwrap_or_default()
    }

    pub fn active_revision(&self, app: &str, service: &str) -> u64 {
        self.serving(app, service).revision.0
    }

    /// What ACTIVE says of a service.
    pub fn serving(&self, app: &str, service_name: &str) -> ActiveService {
        self.active(app).services[&service_name.parse::<ServiceName>().unwrap()].clone()
    }

    pub fn operations(&self, app: &str) -> Vec<Operation> {
        self.records(&self.keys.operations(&name(app)))
    }

    /// The newest operation.
    pub fn last(&self, app: &str) -> Operation {
        self.operations(app).pop().unwrap()
    }

    /// The newest deployment.
    pub fn last_deploy(&self, app: &str) -> Operation {
        let mut operations = self.operations(app).into_iter();
        operations.rfind(Operation::deploys).unwrap()
    }

    pub fn revisions(&self, app: &str) -> Vec<Revision> {
        self.records(&self.keys.revisions(&name(app)))
    }

    pub fn ownership(&self, app: &str) -> Option<Ownership> {
        self.record(&self.keys.ownership(&name(app)))
    }

    pub fn retained(&self) -> Vec<Retained> {
        self.records(&self.keys.retained_all())
    }

    pub fn inhibitions(&self, app: &str) -> Vec<Inhibition> {
        self.records(&self.keys.inhibitions(&name(app)))
    }

    pub fn events(&self, app: &str) -> Vec<Event> {
        self.records(&format!("{}/events/{app}/", self.keys.prefix()))
    }

    /// The names of the containers that claim a host port.
    pub fn claims(&self) -> Vec<String> {
        let node: NodeName = "host-a".parse().unwrap();
        let claims: Vec<BindClaim> = self.records(&self.keys.binds(&node));
        claims
            .into_iter()
            .map(|claim| claim.container_name)
            .collect()
    }

    pub fn routes(&self, app: &str) -> Option<AppRoutes> {
        self.traffic.routes(&name(app))
    }

    /// The containers of a service, oldest first.
    pub fn containers(&self, service: &str) -> Vec<Container> {
        let of = |container: &Container| {
            container.labels.get(labels::SERVICE).map(String::as_str) == Some(service)
        };
        self.runtime.containers().into_iter().filter(of).collect()
    }

    /// The only container of a service.
    pub fn container(&self, service: &str) -> Container {
        let mut found = self.containers(service);
        assert_eq!(found.len(), 1, "{found:#?}");
        found.remove(0)
    }

    /// Keys below the prefix of the controller's state that contain a text.
    pub fn keys_with(&self, text: &str) -> Vec<String> {
        let entries = self.store.entries().into_iter();
        entries
            .map(|entry| entry.key)
            .filter(|key| key.contains(text))
            .collect()
    }

    /// The app serves: every service that ACTIVE names runs verified, nothing else
    /// of the app exists, the routes follow, the claims fit, nothing is in flight.
    pub fn assert_serves(&self, app: &str, services: &[&str]) {
        self.check();
        let active = self.active(app);
        let named: Vec<&str> = active.services.keys().map(ServiceName::as_str).collect();
        assert_eq!(named, services, "what ACTIVE names");
        let mut claims = Vec::new();
        for (name, active) in &active.services {
            let container = self.container(name.as_str());
            assert_eq!(container.id, active.container);
            assert!(container.started_at.is_some());
            assert_eq!(container.started_at, active.verified, "{name} is verified");
            claims.extend(active.binds.iter().map(|_| container.name.clone()));
            for bind in &active.binds {
                let (_, who) = self.runtime.reply_at(bind.address(), bind.protocol);
                assert_eq!(
                    who,
                    Some(container.id.clone()),
                    "{name} answers on its bind"
                );
            }
        }
        let mut held = self.claims();
        held.sort();
        claims.sort();
        assert_eq!(held, claims, "what holds a port");
        let routed = self.routes(app);
        let routed = routed.iter().flat_map(AppRoutes::containers);
        for container in routed {
            let named = active
                .services
                .values()
                .any(|it| &it.container == container);
            assert!(named, "routes follow ACTIVE");
        }
        assert!(self.operations(app).iter().all(|it| !it.in_flight()));
        assert!(
            self.inhibitions(app).is_empty(),
            "{:?}",
            self.inhibitions(app)
        );
        let ready = self.condition(app, ConditionType::Ready);
        assert_eq!(ready.status, Truth::True, "{ready:?}");
    }

    /// These services, each its app's only one, are all that there is, and serve.
    pub fn assert_only_serves(&self, services: &[(&str, &str)]) {
        self.check();
        assert_eq!(self.runtime.containers().len(), services.len());
        for (app, service) in services {
            assert_eq!(
                self.serving(app, service).verified,
                self.container(service).started_at
            );
            let ready = self.condition(app, ConditionType::Ready);
            assert_eq!(ready.status, Truth::True, "{ready:?}");
        }
    }

    /// Nothing of the app is left but what is retained.
    pub fn assert_gone(&self, app: &str) {
        self.check();
        assert_eq!(self.runtime.containers(), Vec::new());
        assert_eq!(self.runtime.networks(), Vec::<String>::new());
        assert_eq!(self.claims(), Vec::<String>::new());
        assert_eq!(self.routes(app), None);
        for kind in ["ownership", "active", "intent", "inhibitions", "revisions"] {
            let left = self.keys_with(&format!("/state/{kind}/{app}"));
            assert_eq!(left, Vec::<String>::new());
        }
        assert_eq!(self.status(app), None);
        assert!(self.operations(app).iter().all(|it| !it.in_flight()));
    }
}
