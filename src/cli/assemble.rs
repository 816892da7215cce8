//! How the reconciler and the controller are put together.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Entropy, SystemClock};
use crate::controller::{
    Campaign, Catalog, Controller, Counting, Heartbeat, HostError, HostLock, KnownStore, Pace,
    Passes, SharedRole, StatusRejections, TTL, this_process,
};
use crate::manifest::NodeName;
use crate::policy::{HostPolicy, NodePolicy};
use crate::probe::{NetworkProber, Prober, Vitals};
use crate::reconcile::{Context, Observer, Ports, Reconciler};
use crate::runtime::Runtime;
use crate::settings::ControllerSettings;
use crate::state::{Keys, Leader, Node};
use crate::store::{Authority, Newest, Records, Store, authority};
use crate::telemetry::{Health, Metrics, PodmanCheck};
use crate::traffic::Publisher;

/// How long a host's record stays after its last sign of life.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// The world as commands have it at hand.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub node: NodeName,
    pub store: Arc<dyn Store>,
    pub runtime: Arc<dyn Runtime>,
    pub policy: Arc<dyn HostPolicy>,
    pub keys: Keys,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<Entropy>,
}

impl World {
    pub(super) fn new(
        node: NodeName,
        store: Arc<dyn Store>,
        runtime: Arc<dyn Runtime>,
        policy: Option<PathBuf>,
        keys: Keys,
    ) -> Self {
        Self {
            node,
            store,
            runtime,
            policy: Arc::new(NodePolicy::new(policy)),
            keys,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(Entropy::from_system()),
        }
    }

    pub(super) fn catalog(&self) -> Catalog {
        Catalog::new(
            Arc::clone(&self.store),
            Arc::clone(&self.runtime),
            self.keys.clone(),
        )
    }

    /// A reconciler that writes with this authority, until `cancel`.
    pub(super) fn reconciler(
        &self,
        authority: &Authority,
        newest: Newest,
        ports: RangeInclusive<u16>,
        observer: Arc<dyn Observer>,
        cancel: &CancellationToken,
    ) -> Reconciler {
        let prober: Arc<dyn Prober> = Arc::new(NetworkProber);
        Reconciler::new(Context {
            node: self.node.clone(),
            records: Records::new(
                Arc::clone(&self.store),
                self.keys.clone(),
                authority.clone(),
            ),
            policy: Arc::clone(&self.policy),
            runtime: Arc::clone(&self.runtime),
            traffic: Arc::new(Publisher::start(
                Arc::clone(&self.store),
                self.keys.clone(),
                authority.clone(),
                cancel,
            )),
            vitals: Vitals::new(
                Arc::clone(&prober),
                Arc::clone(&self.runtime),
                Arc::clone(&self.entropy),
            ),
            prober,
            clock: Arc::clone(&self.clock),
            entropy: Arc::clone(&self.entropy),
            ports: Arc::new(Ports::new(self.node.clone(), ports)),
            networks: Arc::default(),
            newest,
            observer,
        })
    }
}

/// Controls this host until `stop`.
pub(super) struct Control {
    pub world: World,
    pub settings: ControllerSettings,
    pub socket: PathBuf,
    /// The host's lock, where it is held already.
    pub lock: Option<HostLock>,
    pub metrics: Metrics,
    pub health: Health,
    pub role: SharedRole,
}

impl Control {
    /// Waits for the host's lock, then for leadership, and works.
    pub(super) async fn run(self, stop: CancellationToken) -> Result<(), HostError> {
        self.health
            .require(Arc::new(PodmanCheck(Arc::clone(&self.world.runtime))));
        self.health.require(Arc::new(self.role.clone()));
        let _lock = if let Some(lock) = self.lock {
            lock
        } else {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                lock = HostLock::acquire(&self.socket, &self.settings.state_dir) => lock?,
            }
        };
        let known = KnownStore::open(&self.settings.state_dir)?;
        let (keeper, authority) = authority();
        let newest = Newest::default();
        let ended = CancellationToken::new();
        let _ends = ended.clone().drop_guard();
        let reconciler = self.world.reconciler(
            &authority,
            newest.clone(),
            self.settings.ports.clone(),
            Arc::new(Counting::new(&self.metrics)),
            &ended,
        );
        let World {
            node,
            store,
            policy,
            keys,
            clock,
            entropy,
            ..
        } = self.world.clone();
        let since = clock.now();
        let heartbeat = Heartbeat {
            store: Arc::clone(&store),
            key: keys.node(&node),
            node: Node {
                node: node.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                since,
            },
            ttl: HEARTBEAT,
            entropy: Arc::clone(&entropy),
        };
        let controller = Controller {
            catalog: self.world.catalog(),
            work: Arc::new(Passes::new(reconciler, self.metrics.reconcile.clone())),
            policy,
            rejections: Arc::new(StatusRejections::new(
                Arc::clone(&store),
                keys.clone(),
                authority.clone(),
                Arc::clone(&clock),
            )),
            campaign: Campaign {
                store,
                key: keys.leader(),
                me: Leader {
                    node,
                    holder: entropy.uuid().to_string(),
                    process: this_process(),
                    since,
                },
                ttl: TTL,
                clock,
                entropy: Arc::clone(&entropy),
            },
            heartbeat,
            keeper,
            authority,
            newest,
            known,
            adopt: self.settings.adopt,
            pace: Pace {
                workers: self.settings.workers,
                resync: self.settings.resync,
            },
            entropy,
            metrics: self.metrics,
            health: self.health,
            role: self.role,
        };
        controller.run(stop).await
    }
}
