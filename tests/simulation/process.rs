//! One process of the controller: all of it, from the campaign to the reconciler, on the
//! doubles.

use std::sync::Arc;
use std::time::Duration;

use podherd::clock::Entropy;
use podherd::controller::{
    Campaign, Catalog, Controller, Heartbeat, HostError, KnownStore, Pace, Passes, SharedRole,
    StatusRejections, TTL,
};
use podherd::manifest::NodeName;
use podherd::probe::{MemoryProber, Prober, Vitals};
use podherd::reconcile::{Context, Ports, Reconciler, Unobserved};
use podherd::runtime::Runtime;
use podherd::state::{Leader, Node};
use podherd::store::{Newest, Records, Store, authority};
use podherd::telemetry::{Health, Metrics};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::doubles::cut::Gate;
use crate::doubles::runtime::WatchedRuntime;
use crate::doubles::store::RecordingStore;
use crate::doubles::traffic::WatchedTraffic;
use crate::line::{ProbeLine, StoreLine};
use crate::world::World;

/// A process that runs.
#[derive(Debug)]
pub struct Process {
    pub gate: Gate,
    pub stop: CancellationToken,
    pub task: JoinHandle<Result<(), HostError>>,
}

impl Process {
    /// Starts one. Nothing that it does passes by its gate.
    pub fn start(world: &World, adopt: bool) -> Self {
        let gate = Gate::scripted(world.nemesis.clone());
        let stop = CancellationToken::new();
        let controller = controller(world, &gate, adopt);
        Self {
            gate,
            task: tokio::spawn(controller.run(stop.clone())),
            stop,
        }
    }
}

fn controller(world: &World, gate: &Gate, adopt: bool) -> Controller {
    let node: NodeName = "host-a".parse().unwrap();
    let keys = world.watch.keys.clone();
    let (keeper, authority) = authority();
    let watch = world.watch.of(authority.clone());
    let store: Arc<dyn Store> = Arc::new(StoreLine {
        store: watch.store.clone(),
        recording: RecordingStore::new(watch.clone(), gate.clone()),
        gate: gate.clone(),
        weather: world.weather.clone(),
    });
    let runtime: Arc<dyn Runtime> = Arc::new(WatchedRuntime {
        watch: watch.clone(),
        gate: gate.clone(),
    });
    let prober: Arc<dyn Prober> = Arc::new(ProbeLine {
        inner: MemoryProber::new(watch.runtime.clone()),
        gate: gate.clone(),
    });
    let seed = world.nemesis.chance(crate::chance::Chance::seed);
    let entropy = Arc::new(Entropy::from_seed(seed));
    let newest = Newest::default();
    let metrics = Metrics::new().unwrap();
    let since = podherd::clock::Clock::now(world.clock.as_ref());
    let ctx = Context {
        node: node.clone(),
        records: Records::new(store.clone(), keys.clone(), authority.clone()),
        runtime: runtime.clone(),
        policy: world.policy.clone(),
        traffic: Arc::new(WatchedTraffic {
            inner: watch.traffic.clone(),
            watch: watch.clone(),
            gate: gate.clone(),
        }),
        vitals: Vitals::new(prober.clone(), runtime.clone(), entropy.clone()),
        prober,
        clock: world.clock.clone(),
        entropy: entropy.clone(),
        ports: Arc::new(Ports::new(node.clone(), 20_000..=20_099)),
        networks: Arc::default(),
        newest: newest.clone(),
        observer: Arc::new(Unobserved),
    };
    Controller {
        catalog: Catalog::new(store.clone(), runtime, keys.clone()),
        work: Arc::new(Passes::new(Reconciler::new(ctx), metrics.reconcile.clone())),
        policy: world.policy.clone(),
        rejections: Arc::new(StatusRejections::new(
            store.clone(),
            keys.clone(),
            authority.clone(),
            world.clock.clone(),
        )),
        heartbeat: Heartbeat {
            store: store.clone(),
            key: keys.node(&node),
            node: Node {
                node: node.clone(),
                version: "1".to_owned(),
                since,
            },
            ttl: Duration::from_secs(60),
            entropy: entropy.clone(),
        },
        campaign: Campaign {
            store,
            key: keys.leader(),
            me: Leader {
                node,
                holder: entropy.uuid().to_string(),
                process: None,
                since,
            },
            ttl: TTL,
            clock: world.clock.clone(),
            entropy: entropy.clone(),
        },
        keeper,
        authority,
        newest,
        known: KnownStore::open(world.host.path()).unwrap(),
        adopt,
        pace: Pace {
            workers: 2,
            resync: Duration::from_secs(300),
        },
        entropy,
        metrics,
        health: Health::default(),
        role: SharedRole::default(),
    }
}
