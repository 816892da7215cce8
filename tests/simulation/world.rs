//! The world of one history: the doubles, and a controller that is started again
//! whenever it ends.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use podherd::manifest::Protocol;
use podherd::policy::MemoryPolicy;
use podherd::runtime::{Behaviour, ContainerSpec, EffectLog, Labels, MemoryImage, MemoryRuntime};
use podherd::state::{Keys, labels};
use podherd::store::{Authority, MemoryStore, Store, Txn, authority};
use podherd::traffic::MemoryTraffic;
use tokio_util::sync::CancellationToken;

use crate::doubles::clock::TestClock;
use crate::doubles::cut::Gate;
use crate::doubles::leaks::PRINTED;
use crate::doubles::manifest::reference;
use crate::doubles::watch::Watch;
use crate::line::Weather;
use crate::nemesis::Nemesis;
use crate::process::Process;

/// Images, with what their containers do.
const IMAGES: [(&str, Behaviour); 6] = [
    ("web:1", Behaviour::Ready),
    ("web:2", Behaviour::Ready),
    ("web:slow", Behaviour::SlowReady(Duration::from_secs(3))),
    (
        "web:lingers",
        Behaviour::SlowToLeave(Duration::from_secs(5)),
    ),
    ("web:never", Behaviour::NeverReady),
    ("web:exits", Behaviour::ExitsAtOnce(1)),
];

/// A container of somebody else.
pub const FOREIGN: &str = "somebody-elses";

#[derive(Debug)]
pub struct World {
    pub clock: Arc<TestClock>,
    pub policy: Arc<MemoryPolicy>,
    pub watch: Watch,
    pub weather: Weather,
    pub nemesis: Arc<Nemesis>,
    /// The host's memory, which survives the processes.
    pub host: tempfile::TempDir,
    running: Mutex<Option<(Gate, CancellationToken)>>,
    /// How often a process began.
    begun: Mutex<usize>,
}

/// Nobody's: what people do isn't watched.
fn nobody() -> Authority {
    authority().1
}

impl World {
    pub fn new(seed: u64) -> Arc<Self> {
        let effects = EffectLog::new();
        let clock = Arc::new(TestClock::new());
        let runtime = MemoryRuntime::new(clock.clone(), effects.clone()).named_by(labels::SERVICE);
        for (image, behaves) in IMAGES {
            let content = MemoryImage::new(image).behaves(behaves).prints(PRINTED);
            runtime.push_image(&reference(image), content);
        }
        let foreign = ContainerSpec {
            name: FOREIGN.to_owned(),
            ..ContainerSpec::default()
        };
        runtime.run_by_hand(&foreign);
        runtime.add_volume(FOREIGN, &Labels::new());
        runtime.occupy_port(Protocol::Tcp, 20_003);
        let watch = Watch::new(
            MemoryStore::new(),
            Arc::new(runtime),
            Arc::new(MemoryTraffic::new(effects.clone())),
            Keys::new("/podherd"),
            effects,
            nobody(),
        );
        let shm = std::path::Path::new("/dev/shm");
        let host = match tempfile::tempdir_in(shm) {
            Ok(host) => host,
            Err(_) => tempfile::tempdir().unwrap(),
        };
        Arc::new(Self {
            clock,
            policy: Arc::default(),
            watch,
            weather: Weather::default(),
            nemesis: Nemesis::new(seed),
            host,
            running: Mutex::default(),
            begun: Mutex::default(),
        })
    }

    pub fn runtime(&self) -> &MemoryRuntime {
        &self.watch.runtime
    }

    pub fn store(&self) -> &MemoryStore {
        &self.watch.store
    }

    /// Writes as somebody who reaches the store while the controller may not.
    pub async fn write(&self, txn: Txn) {
        self.store().commit(txn).await.unwrap();
    }

    /// Kills the controller.
    pub fn kill(&self) {
        if let Some((gate, _)) = &*self.running.lock().unwrap() {
            gate.close();
        }
    }

    /// Tells the controller to stop.
    pub fn stop(&self) {
        if let Some((_, stop)) = &*self.running.lock().unwrap() {
            stop.cancel();
        }
    }

    /// Starts a controller whenever there is none.
    pub async fn supervise(self: Arc<Self>) {
        loop {
            let mut process = Process::start(&self, false);
            let known = (process.gate.clone(), process.stop.clone());
            *self.running.lock().unwrap() = Some(known);
            *self.begun.lock().unwrap() += 1;
            self.nemesis.tell("controller starts");
            tokio::select! {
                biased;
                () = process.gate.closed() => self.nemesis.tell("controller is killed"),
                ended = &mut process.task => match ended {
                    Ok(Ok(())) => self.nemesis.tell("controller stopped"),
                    Ok(Err(error)) => self.nemesis.tell(format!("controller refuses: {error}")),
                    Err(error) => self.watch.note(format!("0: the controller broke down: {error}")),
                },
            }
            // Nothing that is left of it passes any more.
            process.gate.close();
            process.task.abort();
            let (pause, at_once) = self
                .nemesis
                .chance(|chance| (chance.millis(4000), chance.one_in(2)));
            tokio::time::sleep(pause).await;
            if at_once {
                // As a successor on the same machine does, which sees that it is dead.
                let key = self.watch.keys.leader();
                self.write(Txn::default().delete(key)).await;
            }
        }
    }

    /// Ends whatever is bad.
    pub fn calm(&self) {
        self.nemesis.arm(None);
        self.weather.set_away(false);
        self.weather.set_slow(Duration::ZERO);
        self.runtime().set_down(false);
        self.runtime().set_registry_down(false);
        self.watch.traffic.set_stuck(false);
        self.policy.set("");
        for container in self.runtime().containers() {
            self.runtime().unpause_by_hand(container.id.as_str());
        }
    }
}
