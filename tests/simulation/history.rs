//! A history: what people, the host and bad luck do to a world, as data.

use std::fmt;
use std::time::Duration;

use crate::apps::{App, NAMES};
use crate::chance::Chance;
use crate::doubles::cut::Cut;

/// Changes and faults of one history, at most.
const LONGEST: u32 = 14;

/// When something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// So long after what was before.
    After(Duration),
    /// Before this many more effects and writes have begun.
    AtEffect(usize),
}

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Somebody puts a manifest.
    Put(App),
    /// Somebody puts one that is wrong.
    PutWrong(&'static str),
    /// Somebody deletes it.
    Delete(&'static str),
    /// Somebody asks for something.
    Request(&'static str, u32, String),
    /// What becomes of the next effect or write; a controller that it ends is started
    /// again after some time.
    Cut(Cut),
    /// The controller is killed.
    Kill,
    /// It is told to stop, and started again.
    Stop,
    /// Podman can't be reached for some time.
    PodmanAway(Duration),
    /// Its stream of events breaks.
    EventsLost,
    /// The store can't be reached for some time.
    StoreAway(Duration),
    /// Each of its calls takes so long, for a minute.
    StoreSlow(Duration),
    /// It forgets its history, and its watches end.
    Compacted,
    /// Somebody else has the leadership for some time.
    Overtaken(Duration),
    /// Data planes confirm nothing for some time.
    PlaneStuck(Duration),
    /// The registry can't be reached for some time.
    RegistryAway(Duration),
    /// Somebody's prune removes the local images.
    Pruned,
    /// The node's policy forbids the registry for some time.
    Forbidden(Duration),
    /// A container's process ends with this code.
    Dies(u32, i32),
    /// Somebody removes a container.
    Removed(u32),
    /// Somebody restarts one; its port moves.
    Restarted(u32, bool),
    /// Somebody starts one that doesn't run.
    Revived(u32),
    /// Somebody pauses one for some time.
    Paused(u32, Duration),
    /// Its probes fail until it is started again.
    Sickens(u32),
    /// Requests of it are in flight that don't end.
    Busy(u32),
}

/// One event of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub when: When,
    pub what: What,
}

/// All that a run needs, so that the same history always runs the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// How people call it.
    pub name: String,
    pub seed: u64,
    pub events: Vec<Event>,
    /// Whether the store is an older one in the end, or an empty one.
    pub amnesia: Option<Amnesia>,
}

/// What the store has forgotten in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amnesia {
    /// What came after the first event.
    Some,
    /// Everything.
    All,
    /// It is another cluster's.
    Foreign,
}

impl History {
    /// The history of a seed.
    pub fn of(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let apps = 1 + chance.below(3) as usize;
        let names = &NAMES[..apps];
        let mut events: Vec<Event> = names
            .iter()
            .map(|name| Event {
                when: When::After(chance.millis(2000)),
                what: What::Put(first(name, &mut chance)),
            })
            .collect();
        for _ in 0..2 + chance.below(LONGEST) {
            let what = change(names, &mut chance);
            let when = when(&mut chance);
            events.push(Event { when, what });
        }
        let amnesia = chance
            .one_in(12)
            .then(|| chance.pick(&[Amnesia::Some, Amnesia::All, Amnesia::Foreign]));
        Self {
            name: format!("seed {seed}"),
            seed,
            events,
            amnesia,
        }
    }
}

/// What is deployed first can mostly serve, or nothing that follows would mean much.
fn first(name: &'static str, chance: &mut Chance) -> App {
    let app = App::random(name, chance);
    if chance.one_in(6) { app } else { app.mended() }
}

fn when(chance: &mut Chance) -> When {
    match chance.below(6) {
        0 => When::After(Duration::ZERO),
        1 => When::After(chance.millis(1000)),
        2 => When::After(chance.millis(20_000)),
        _ => When::AtEffect(1 + chance.below(16) as usize),
    }
}

fn time(chance: &mut Chance) -> Duration {
    Duration::from_secs(chance.pick(&[1, 5, 20, 40, 90]))
}

fn change(names: &[&'static str], chance: &mut Chance) -> What {
    let name = chance.pick(names);
    match chance.below(52) {
        0..=7 => What::Put(App::random(name, chance)),
        8 => What::PutWrong(name),
        9 | 10 => What::Delete(name),
        11..=16 => What::Request(name, chance.below(5), request(chance)),
        17..=24 => What::Cut(chance.pick(&[Cut::Before, Cut::After])),
        25..=30 => What::Cut(chance.pick(&[
            Cut::LosesReply,
            Cut::Breaks,
            Cut::Refused,
            Cut::Hangs,
            Cut::HangsAfter,
        ])),
        31 => What::Kill,
        32 => What::Stop,
        33 => What::PodmanAway(time(chance)),
        34 => What::EventsLost,
        35 => What::StoreAway(time(chance)),
        36 => What::StoreSlow(Duration::from_millis(chance.pick(&[200, 2000, 6000]))),
        37 => What::Compacted,
        38 | 39 => What::Overtaken(time(chance)),
        40 => What::PlaneStuck(time(chance)),
        41 => What::RegistryAway(time(chance)),
        42 => What::Pruned,
        43 => What::Forbidden(time(chance)),
        44 | 45 => What::Dies(chance.below(8), chance.pick(&[0, 1, 137])),
        46 => What::Removed(chance.below(8)),
        47 => What::Restarted(chance.below(8), chance.one_in(2)),
        48 => What::Revived(chance.below(8)),
        49 => What::Paused(chance.below(8), time(chance)),
        50 => What::Sickens(chance.below(8)),
        _ => What::Busy(chance.below(8)),
    }
}

fn request(chance: &mut Chance) -> String {
    let one = chance.one_in(3);
    match chance.below(12) {
        0 | 1 if one => "{verb: restart, service: web}".to_owned(),
        0..=2 => "verb: restart".to_owned(),
        3 | 4 => "verb: stop".to_owned(),
        5 | 6 => "verb: start".to_owned(),
        7 => "verb: deploy".to_owned(),
        8 | 9 => format!("{{verb: rollback, revision: {}}}", 1 + chance.below(3)),
        10 => "verb: remove".to_owned(),
        _ => "verb: [what".to_owned(),
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(time) => write!(f, "after {time:?}"),
            Self::AtEffect(count) => write!(f, "at effect {count}"),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put(app) => write!(f, "put {app}"),
            Self::PutWrong(app) => write!(f, "put a wrong manifest of {app}"),
            Self::Delete(app) => write!(f, "delete {app}"),
            Self::Request(app, id, what) => write!(f, "request {app}/r-{id} {what}"),
            Self::Cut(cut) => write!(f, "the next effect: {cut:?}"),
            other => write!(f, "{other:?}"),
        }
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in &self.events {
            writeln!(f, "  {:<18} {}", event.when.to_string(), event.what)?;
        }
        match self.amnesia {
            Some(amnesia) => writeln!(f, "  in the end         the store forgets: {amnesia:?}"),
            None => Ok(()),
        }
    }
}
