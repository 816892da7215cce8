//! The world of a scenario: built in a line, run pass by pass, asked what became of it.

use std::sync::Arc;
use std::time::Duration;

use podherd::clock::Entropy;
use podherd::manifest::{AppName, NodeName};
use podherd::policy::MemoryPolicy;
use podherd::probe::{MemoryProber, Prober, Unhealthy, Vitals};
use podherd::reconcile::{Context, Ports, ReconcileError, Reconciler, Unobserved, Verdict};
use podherd::runtime::{Behaviour, EffectLog, MemoryImage, MemoryRuntime};
use podherd::state::{Asked, Keys, OperationId, labels};
use podherd::store::{
    AuthorityKeeper, Commit, Fence, MemoryStore, Newest, Records, Store, Txn, authority,
};
use podherd::traffic::MemoryTraffic;
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
/// What containers of these tests print. It may show up nowhere but in diagnostics,
/// and the secret in it nowhere at all.
pub const PRINTED: &str = "printed password=hunter2";
/// The secret in it.
pub const PASSWORD: &str = "hunter2";

/// What the values of these tests' secrets contain; it may show up nowhere at all.
pub const SECRET: &str = "s3cr3t";

pub fn name(app: &str) -> AppName {
    app.parse().unwrap()
}

pub struct World {
    pub store: MemoryStore,
    pub runtime: Arc<MemoryRuntime>,
    pub policy: Arc<MemoryPolicy>,
    pub traffic: Arc<MemoryTraffic>,
    pub newest: Newest,
    pub keys: Keys,
    pub gate: Gate,
    pub clock: Arc<TestClock>,
    pub keeper: AuthorityKeeper,
    pub recording: RecordingStore,
    pub watch: Watch,
    pub effects: EffectLog,
    entropy: Arc<Entropy>,
    reconciler: Reconciler,
    fence: Fence,
    vitals: Vitals,
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
        let policy = Arc::new(MemoryPolicy::default());
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
        let ctx = context(
            &watch, &recording, &gate, &policy, &entropy, &newest, &clock,
        );
        let vitals = ctx.vitals.clone();
        Self {
            store,
            runtime,
            policy,
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
            vitals,
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

    /// How long every removal of a network takes from now on.
    pub fn network_removals_take(&self, time: Duration) {
        *self.watch.network_removals_take.lock().unwrap() = time;
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

    /// Somebody asks for a verb, under this idempotency key.
    pub async fn request(&self, app: &str, id: &str, asked: &str) {
        let key = self.keys.request(&name(app), &OperationId::new(id));
        let put = Txn::default().put(key, asked.as_bytes().to_vec());
        let Commit::Applied(revision) = self.store.commit(put).await.unwrap() else {
            panic!("nothing was compared");
        };
        // As the watch tells it.
        if Asked::parse(asked.as_bytes()).is_ok_and(|asked| asked.ends()) {
            self.newest.end_asked(&name(app), revision);
        }
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
        // Boxed: two of them may be joined.
        let verdict = Box::pin(self.reconciler.reconcile(&name(app), cancel)).await;
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
            &self.policy,
            &self.entropy,
            &self.newest,
            &self.clock,
        );
        self.vitals = ctx.vitals.clone();
        self.reconciler = Reconciler::new(ctx);
    }

    /// The controller doesn't lead any more.
    pub fn end_term(&self) {
        self.reconciler.end_term();
    }

    /// How many executions are asked whether they are alive.
    pub fn followed(&self) -> usize {
        self.vitals.followed()
    }

    /// What failed its liveness probe.
    pub fn unhealthy(&self, app: &str) -> Vec<Unhealthy> {
        self.vitals.unhealthy(&name(app))
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
        let _ = tokio::join!(Box::pin(self.pass(app)), Box::pin(later));
    }

    /// Passes as they become due or something is found dead, for so long.
    pub async fn run_for(&self, app: &str, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let next = match self.pass(app).await {
                Ok(Verdict::Settled) => end,
                Ok(Verdict::Again(pause)) => Instant::now() + pause,
                Err(_) => Instant::now() + Duration::from_secs(1),
            };
            tokio::select! {
                biased;
                _ = self.vitals.changed() => {}
                () = tokio::time::sleep_until(next.min(end)) => {}
            }
        }
    }

    /// Another controller leads from now on; this one doesn't know yet.
    pub async fn overtake(&self) {
        win(&self.store, &self.keys).await;
    }
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
    policy: &Arc<MemoryPolicy>,
    entropy: &Arc<Entropy>,
    newest: &Newest,
    clock: &Arc<TestClock>,
) -> Context {
    let node: NodeName = "host-a".parse().unwrap();
    let runtime = Arc::new(WatchedRuntime {
        watch: watch.clone(),
        gate: gate.clone(),
    });
    let prober: Arc<dyn Prober> = Arc::new(MemoryProber::new(watch.runtime.clone()));
    Context {
        node: node.clone(),
        records: Records::new(
            Arc::new(recording.clone()),
            watch.keys.clone(),
            watch.authority.clone(),
        ),
        runtime: runtime.clone(),
        policy: policy.clone(),
        traffic: Arc::new(WatchedTraffic {
            inner: watch.traffic.clone(),
            watch: watch.clone(),
            gate: gate.clone(),
        }),
        vitals: Vitals::new(prober.clone(), runtime, entropy.clone()),
        prober,
        clock: clock.clone(),
        entropy: entropy.clone(),
        ports: Arc::new(Ports::new(node, 20_000..=20_099)),
        networks: Arc::default(),
        newest: newest.clone(),
        observer: Arc::new(Unobserved),
    }
}
