//! Runs a history.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Once};
use std::time::Duration;

use podherd::state::OperationId;
use podherd::store::{MemoryStore, Txn};
use tokio::time::Instant;

use crate::apps::App;
use crate::doubles::manifest::reference;
use crate::history::{Amnesia, Event, History, What, When};
use crate::nemesis::Met;
use crate::world::{FOREIGN, World};

/// Longest wait for effects that don't come.
const PATIENCE: Duration = Duration::from_secs(45);
/// How long everything may take once it is left in peace: longer than any pause.
const PEACE: Duration = Duration::from_secs(2 * 3600);

/// What became of a history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Each begins with the number of its invariant.
    pub violations: Vec<String>,
    pub trace: Vec<String>,
    pub met: BTreeSet<Met>,
    pub seen: BTreeSet<(String, &'static str)>,
    pub effects: usize,
}

impl Outcome {
    pub fn failed(&self) -> bool {
        !self.violations.is_empty()
    }
}

thread_local! {
    static RUNS: Cell<bool> = const { Cell::new(false) };
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// A panic in a task of the controller is caught there: it is found here all the same.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if RUNS.get() {
                PANICS.with_borrow_mut(|panics| panics.push(format!("0: {info}")));
            } else {
                before(info);
            }
        }));
    });
}

/// Runs it, on a clock and a thread of its own.
pub fn run(history: &History) -> Outcome {
    note_panics();
    RUNS.set(true);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let mut outcome = runtime.block_on(perform(history));
    drop(runtime);
    RUNS.set(false);
    outcome.violations.extend(PANICS.take());
    outcome
}

async fn perform(history: &History) -> Outcome {
    let world = World::new(history.seed);
    let supervisor = tokio::spawn(Arc::clone(&world).supervise());
    let mut driver = Driver {
        world: Arc::clone(&world),
        wanted: BTreeMap::new(),
        first: None,
        busy: Vec::new(),
    };
    let violations = driver.perform(history).await;
    supervisor.abort();
    Outcome {
        violations,
        trace: world.nemesis.trace(),
        met: world.nemesis.met(),
        seen: world.nemesis.seen(),
        effects: world.nemesis.passed(),
    }
}

struct Driver {
    world: Arc<World>,
    /// What was put last for each app, where it can be read.
    wanted: BTreeMap<&'static str, Option<App>>,
    /// The store after the first event.
    first: Option<podherd::store::Backup>,
    /// Containers whose requests don't end.
    busy: Vec<podherd::state::ContainerId>,
}

impl Driver {
    async fn perform(&mut self, history: &History) -> Vec<String> {
        for event in &history.events {
            self.wait(event.when).await;
            self.world.nemesis.tell(format!("── {}", event.what));
            self.happens(event).await;
            if self.first.is_none() {
                self.first = Some(self.world.store().backup());
            }
            let violations = self.world.violations();
            if !violations.is_empty() {
                return violations;
            }
        }
        self.world.nemesis.passes_within(4, PATIENCE).await;
        self.world.nemesis.tell("── peace");
        self.world.calm();
        for container in std::mem::take(&mut self.busy) {
            self.world.watch.traffic.set_in_flight(&container, 0);
        }
        let violations = match history.amnesia {
            Some(amnesia) => self.forget(amnesia).await,
            None => self.settle().await,
        };
        if !violations.is_empty() {
            return violations;
        }
        self.world.leaks()
    }

    async fn wait(&self, when: When) {
        match when {
            When::After(time) => tokio::time::sleep(time).await,
            When::AtEffect(count) => self.world.nemesis.passes_within(count, PATIENCE).await,
        }
    }

    /// Everything converges, and then nothing is written any more (invariant 14).
    async fn settle(&mut self) -> Vec<String> {
        self.mend().await;
        let end = Instant::now() + PEACE;
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let violations = self.world.violations();
            if !violations.is_empty() {
                return violations;
            }
            let left = self.world.unsettled();
            if left.is_empty() {
                break;
            }
            if Instant::now() > end {
                return left.iter().map(|what| format!("14: {what}")).collect();
            }
        }
        self.world.nemesis.tell("── converged");
        // Events of what was done last are written after it, and go with their leases.
        let before = self.world.nemesis.passed();
        tokio::time::sleep(Duration::from_secs(400)).await;
        let more = self.world.nemesis.passed() - before;
        if more > MOST_AFTERWARDS {
            return vec![format!("14: {more} effects after everything had converged")];
        }
        let mut violations = self.world.violations();
        let left = self.world.unsettled();
        violations.extend(left.iter().map(|what| format!("14: afterwards {what}")));
        violations
    }

    /// People mend what can't serve as it is.
    async fn mend(&mut self) {
        let keys = self.world.watch.keys.clone();
        for (name, wanted) in self.wanted.clone() {
            let key = keys.app(&name.parse().unwrap());
            let there = !self
                .world
                .store()
                .look(&podherd::store::Range::Key(key.clone()))
                .is_empty();
            let good = match wanted {
                Some(app) if app.is_good() => continue,
                Some(app) => app.mended(),
                None => App::plain(name),
            };
            if there {
                self.world.nemesis.tell(format!("── mended: {good}"));
                let text = good.manifest().yaml().into_bytes();
                self.world.write(Txn::default().put(key, text)).await;
            }
        }
    }

    /// The store isn't what it was: nothing is started, stopped or removed (invariant 15).
    async fn forget(&self, amnesia: Amnesia) -> Vec<String> {
        let world = &self.world;
        // How far the store has come is remembered each minute.
        tokio::time::sleep(Duration::from_secs(130)).await;
        world.kill();
        tokio::time::sleep(Duration::from_millis(1)).await;
        match (amnesia, &self.first) {
            (Amnesia::Some, Some(backup)) => world.store().restore(backup),
            _ => world.store().restore(&MemoryStore::new().backup()),
        }
        if amnesia == Amnesia::Foreign {
            world.weather.set_foreign();
        }
        world.weather.end_watches();
        world.nemesis.tell("── the store has forgotten");
        let before = world.watch.effects.len();
        tokio::time::sleep(Duration::from_secs(600)).await;
        let after = world.watch.effects.all();
        let mut violations = world.watch.violations();
        for effect in &after[before..] {
            violations.push(format!("15: {effect} after the store has forgotten"));
        }
        violations
    }

    async fn happens(&mut self, event: &Event) {
        let world = Arc::clone(&self.world);
        let runtime = world.runtime();
        match &event.what {
            What::Put(app) => {
                self.wanted.insert(app.name, Some(app.clone()));
                self.put(app.name, &app.manifest().yaml()).await;
            }
            What::PutWrong(app) => {
                self.wanted.insert(app, None);
                self.put(app, "apiVersion: podherd/v1\nkind: App\nnonsense: 1\n")
                    .await;
            }
            What::Delete(app) => {
                let key = world.watch.keys.app(&app.parse().unwrap());
                world.write(Txn::default().delete(key)).await;
            }
            What::Request(app, id, what) => {
                let id = OperationId::new(format!("r-{id}"));
                let key = world.watch.keys.request(&app.parse().unwrap(), &id);
                let put = Txn::default().put(key, what.clone().into_bytes());
                world.write(put).await;
            }
            What::Cut(cut) => {
                world.nemesis.arm(Some(*cut));
                world.nemesis.passes_within(1, PATIENCE).await;
                world.nemesis.arm(None);
            }
            What::Kill => world.kill(),
            What::Stop => world.stop(),
            What::EventsLost => runtime.end_events(),
            What::Compacted => {
                world.store().compact(world.store().revision());
                world.weather.end_watches();
            }
            What::Pruned => {
                for image in crate::apps::GOOD {
                    runtime.prune_image(&reference(image));
                }
            }
            What::PodmanAway(time) => {
                runtime.set_down(true);
                self.later(*time, |world| world.runtime().set_down(false));
            }
            What::StoreAway(time) => {
                world.weather.set_away(true);
                self.later(*time, |world| world.weather.set_away(false));
            }
            What::StoreSlow(each) => {
                world.weather.set_slow(*each);
                let minute = Duration::from_secs(60);
                self.later(minute, |world| world.weather.set_slow(Duration::ZERO));
            }
            What::PlaneStuck(time) => {
                world.watch.traffic.set_stuck(true);
                self.later(*time, |world| world.watch.traffic.set_stuck(false));
            }
            What::RegistryAway(time) => {
                runtime.set_registry_down(true);
                self.later(*time, |world| world.runtime().set_registry_down(false));
            }
            What::Forbidden(time) => {
                world.policy.set("images: {allowed: [localhost]}");
                self.later(*time, |world| world.policy.set(""));
            }
            What::Overtaken(time) => self.overtake(*time).await,
            What::Dies(..)
            | What::Removed(_)
            | What::Restarted(..)
            | What::Revived(_)
            | What::Paused(..)
            | What::Sickens(_)
            | What::Busy(_) => self.befalls(&event.what),
        }
    }

    /// Something happens to a container of ours.
    fn befalls(&mut self, what: &What) {
        let world = Arc::clone(&self.world);
        let runtime = world.runtime();
        let ours = runtime.containers();
        let ours: Vec<_> = ours.iter().filter(|it| it.name != FOREIGN).collect();
        let chosen = |index: &u32| ours.get(*index as usize % ours.len().max(1));
        let (What::Dies(index, _)
        | What::Removed(index)
        | What::Restarted(index, _)
        | What::Revived(index)
        | What::Paused(index, _)
        | What::Sickens(index)
        | What::Busy(index)) = what
        else {
            return;
        };
        let Some(container) = chosen(index) else {
            return;
        };
        let id = container.id.clone();
        world.nemesis.tell(format!("   to {}", container.name));
        match what {
            What::Dies(_, code) => runtime.crash(id.as_str(), *code),
            What::Removed(_) => runtime.remove_by_hand(id.as_str()),
            What::Restarted(_, moves) => {
                let port = u16::try_from(41_000 + world.nemesis.passed() % 20_000);
                runtime.restart_by_hand(id.as_str(), port.ok().filter(|_| *moves));
            }
            What::Revived(_) => runtime.start_by_hand(id.as_str()),
            What::Paused(_, time) => {
                runtime.pause_by_hand(id.as_str());
                self.later(*time, move |world| {
                    world.runtime().unpause_by_hand(id.as_str());
                });
            }
            // Nobody would notice where nobody asks.
            What::Sickens(_) if !world.asks_liveness(container) => {}
            What::Sickens(_) => runtime.sicken(id.as_str()),
            What::Busy(_) => {
                world.watch.traffic.set_in_flight(&id, 3);
                self.busy.push(id);
            }
            _ => {}
        }
    }

    async fn put(&self, app: &str, text: &str) {
        let key = self.world.watch.keys.app(&app.parse().unwrap());
        let put = Txn::default().put(key, text.as_bytes().to_vec());
        self.world.write(put).await;
    }

    /// Somebody takes the leadership, and gives it up later.
    async fn overtake(&self, time: Duration) {
        let key = self.world.watch.keys.leader();
        self.world.write(Txn::default().delete(key.clone())).await;
        let taken = Txn::default().put(key.clone(), b"{}".to_vec());
        self.world.write(taken).await;
        let world = Arc::clone(&self.world);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            let range = podherd::store::Range::Key(key.clone());
            let held = world.store().look(&range).pop();
            if held.is_some_and(|entry| entry.value == b"{}") {
                world.write(Txn::default().delete(key)).await;
            }
        });
    }

    fn later(&self, time: Duration, act: impl FnOnce(&World) + Send + 'static) {
        let world = Arc::clone(&self.world);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            act(&world);
        });
    }
}

/// Effects that may come late: events for people, a look at an image.
const MOST_AFTERWARDS: usize = 6;
