//! The world of a scenario: built in a line, run pass by pass, asked what became of it.

use std::sync::Arc;
use std::time::Duration;

use podherd::clock::Entropy;
use podherd::manifest::{AppName, NodeName, ServiceName};
use podherd::probe::MemoryProber;
use podherd::reconcile::{Context, Ports, ReconcileError, Reconciler, Unobserved, Verdict};
use podherd::runtime::{Behaviour, Container, EffectLog, MemoryImage, MemoryRuntime};
use podherd::state::{
    Active, ActiveService, Condition, ConditionType, Event, Inhibition, Keys, Operation, Ownership,
    Record, Retained, Revision, Status, decode, labels,
};
use podherd::store::{
    AuthorityKeeper, Commit, Fence, MemoryStore, Newest, Records, Store, Txn, authority,
};
use podherd::traffic::{AppRoutes, MemoryTraffic};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::clock::TestClock;
use super::cut::{Cut, Gate};
use super::manifest::{Manifest, reference};
use super::runtime::WatchedRuntime;
use super::store::RecordingStore;
use super::traffic::WatchedTraffic;
use super::watch::Watch;

/// Longer than any scenario.
const TERM: Duration = Duration::from_secs(400 * 24 * 3600);
/// Passes after which an app that hasn't settled never will.
const PASSES: usize = 60;
/// What containers of these tests print; it may show up nowhere but in diagnostics.
pub const PRINTED: &str = "password=hunter2";

pub fn name(app: &str) -> AppName {
    app.parse().unwrap()
}

fn service(name: &str) -> ServiceName {
    name.parse().unwrap()
}

pub struct World {
    pub store: MemoryStore,
    pub runtime: Arc<MemoryRuntime>,
    pub traffic: Arc<MemoryTraffic>,
    pub newest: Newest,
    pub keys: Keys,
    pub gate: Gate,
    pub clock: Arc<TestClock>,
    pub keeper: AuthorityKeeper,
    recording: RecordingStore,
    watch: Watch,
    effects: EffectLog,
    entropy: Arc<Entropy>,
    reconciler: Reconciler,
    fence: Fence,
}

impl World {
    /// An empty host and an empty store; the test leads.
    pub async fn new() -> Self {
        Self::seeded(7).await
    }

    /// The same with other chances.
    pub async fn seeded(seed: u64) -> Self {
        let effects = EffectLog::new();
        let clock = Arc::new(TestClock::new());
        let runtime = MemoryRuntime::new(clock.clone(), effects.clone()).named_by(labels::SERVICE);
        let runtime = Arc::new(runtime);
        let traffic = Arc::new(MemoryTraffic::new(effects.clone()));
        let store = MemoryStore::new();
        let keys = Keys::new("/podherd");
        let (keeper, authority) = authority();
        let watch = Watch::new(
            store.clone(),
            runtime.clone(),
            traffic.clone(),
            keys.clone(),
            effects.clone(),
            authority,
        );
        let gate = Gate::default();
        let recording = RecordingStore::new(watch.clone(), gate.clone());
        let entropy = Arc::new(Entropy::from_seed(seed));
        let newest = Newest::default();
        let fence = win(&store, &keys).await;
        keeper.hold(fence.clone(), Instant::now() + TERM);
        let ctx = context(&watch, &recording, &gate, &entropy, &newest, &clock);
        Self {
            store,
            runtime,
            traffic,
            newest,
            keys,
            gate,
            clock,
            keeper,
            recording,
            watch,
            effects,
            entropy,
            reconciler: Reconciler::new(ctx),
            fence,
        }
    }

    /// With images in the registry, each with a content of its own.
    #[must_use]
    pub fn images(self, images: &[&str]) -> Self {
        for image in images {
            self.push(image, MemoryImage::new(image));
        }
        self
    }

    /// With an image whose containers behave like this.
    #[must_use]
    pub fn image(self, image: &str, behaves: Behaviour) -> Self {
        self.push(image, MemoryImage::new(image).behaves(behaves));
        self
    }

    /// Offers an image; its containers print something that nobody may see.
    pub fn push(&self, image: &str, content: MemoryImage) {
        self.runtime
            .push_image(&reference(image), content.prints(PRINTED));
    }

    /// How long every look at an image takes from now on.
    pub fn pulls_take(&self, time: Duration) {
        *self.watch.pulls_take.lock().unwrap() = time;
    }

    // What people do.

    /// Somebody puts the manifest; its revision.
    pub async fn put(&self, manifest: &Manifest) -> i64 {
        self.put_text(&manifest.name, &manifest.yaml()).await
    }

    pub async fn put_text(&self, app: &str, text: &str) -> i64 {
        let txn = Txn::default().put(self.keys.app(&name(app)), text.as_bytes().to_vec());
        self.wrote(app, txn).await
    }

    /// Somebody deletes the manifest.
    pub async fn delete(&self, app: &str) -> i64 {
        let txn = Txn::default().delete(self.keys.app(&name(app)));
        self.wrote(app, txn).await
    }

    async fn wrote(&self, app: &str, txn: Txn) -> i64 {
        let Commit::Applied(revision) = self.store.commit(txn).await.unwrap() else {
            panic!("nothing was compared");
        };
        self.newest.saw(&name(app), revision);
        revision
    }

    /// Puts the manifest and waits until the app has settled.
    pub async fn deploy(&self, manifest: &Manifest) {
        self.put(manifest).await;
        self.settle(&manifest.name).await;
    }

    // What the controller does.

    /// One pass.
    pub async fn pass(&self, app: &str) -> Result<Verdict, ReconcileError> {
        self.pass_until(app, &CancellationToken::new()).await
    }

    pub async fn pass_until(
        &self,
        app: &str,
        cancel: &CancellationToken,
    ) -> Result<Verdict, ReconcileError> {
        let verdict = self.reconciler.reconcile(&name(app), cancel).await;
        self.check();
        verdict
    }

    /// Passes, and the pauses between them, until nothing is left to do. An error
    /// is tried again after a while, as the queue does.
    pub async fn settle(&self, app: &str) {
        for _ in 0..PASSES {
            match self.pass(app).await {
                Ok(Verdict::Settled) => return,
                Ok(Verdict::Again(pause)) => tokio::time::sleep(pause).await,
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
        panic!("{app} doesn't settle: {:#?}", self.status(app));
    }

    /// One pass that ends at the effect of this number; whether it came so far.
    pub async fn pass_cut(&self, app: &str, number: usize, cut: Cut) -> bool {
        self.gate.cut_at(number, cut);
        let app = name(app);
        let cancel = CancellationToken::new();
        tokio::select! {
            biased;
            () = self.gate.closed() => {}
            _ = self.reconciler.reconcile(&app, &cancel) => {}
        }
        self.gate.open()
    }

    /// The controller's process ends, and another one leads.
    pub async fn restart(&mut self) {
        self.fence = win(&self.store, &self.keys).await;
        self.keeper.hold(self.fence.clone(), Instant::now() + TERM);
        let ctx = context(
            &self.watch,
            &self.recording,
            &self.gate,
            &self.entropy,
            &self.newest,
            &self.clock,
        );
        self.reconciler = Reconciler::new(ctx);
    }

    /// The leadership ends after this time, unless renewed.
    pub fn lead_for(&self, time: Duration) {
        self.keeper.hold(self.fence.clone(), Instant::now() + time);
    }

    /// One pass, in the middle of which something happens after this time.
    pub async fn pass_while<T>(
        &self,
        app: &str,
        after: Duration,
        happens: impl AsyncFnOnce() -> T,
    ) {
        let later = async {
            tokio::time::sleep(after).await;
            happens().await
        };
        let _ = tokio::join!(self.pass(app), later);
    }

    /// Passes as they become due, for so long.
    pub async fn run_for(&self, app: &str, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let next = match self.pass(app).await {
                Ok(Verdict::Settled) => end,
                Ok(Verdict::Again(pause)) => Instant::now() + pause,
                Err(_) => Instant::now() + Duration::from_secs(1),
            };
            tokio::time::sleep_until(next.min(end)).await;
        }
    }

    /// Another controller leads from now on; this one doesn't know yet.
    pub async fn overtake(&self) {
        win(&self.store, &self.keys).await;
    }

    // What became of it.

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
        for entry in self.store.entries() {
            let text = String::from_utf8(entry.value.clone()).unwrap();
            let shown = if entry.key.contains("/state/operations/") {
                without_diagnostics(&entry.value)
            } else {
                text
            };
            assert!(!shown.contains(PRINTED), "{} shows a log", entry.key);
        }
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
        self.active(app).services[&service(service_name)].clone()
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
        let claims: Vec<podherd::state::BindClaim> = self.records(&self.keys.binds(&node));
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
        assert_eq!(ready.status, podherd::state::Truth::True, "{ready:?}");
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

fn without_diagnostics(operation: &[u8]) -> String {
    let mut json: serde_json::Value = serde_json::from_slice(operation).unwrap();
    for step in json["steps"].as_array_mut().unwrap() {
        step.as_object_mut().unwrap().remove("diagnostics");
    }
    json.to_string()
}

/// Writes the leadership key anew: whoever led before doesn't any more.
async fn win(store: &MemoryStore, keys: &Keys) -> Fence {
    let key = keys.leader();
    store
        .commit(Txn::default().delete(key.clone()))
        .await
        .unwrap();
    let won = Txn::default().put(key.clone(), b"{}".to_vec());
    let Commit::Applied(create_revision) = store.commit(won).await.unwrap() else {
        panic!("nothing was compared");
    };
    Fence {
        key,
        create_revision,
    }
}

fn context(
    watch: &Watch,
    recording: &RecordingStore,
    gate: &Gate,
    entropy: &Arc<Entropy>,
    newest: &Newest,
    clock: &Arc<TestClock>,
) -> Context {
    let node: NodeName = "host-a".parse().unwrap();
    Context {
        node: node.clone(),
        records: Records::new(
            Arc::new(recording.clone()),
            watch.keys.clone(),
            watch.authority.clone(),
        ),
        runtime: Arc::new(WatchedRuntime {
            watch: watch.clone(),
            gate: gate.clone(),
        }),
        traffic: Arc::new(WatchedTraffic {
            inner: watch.traffic.clone(),
            watch: watch.clone(),
            gate: gate.clone(),
        }),
        prober: Arc::new(MemoryProber::new(watch.runtime.clone())),
        clock: clock.clone(),
        entropy: entropy.clone(),
        ports: Arc::new(Ports::new(node, 20_000..=20_099)),
        newest: newest.clone(),
        observer: Arc::new(Unobserved),
    }
}
