//! Decides what becomes of each effect, takes down what was done, and counts what was met.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::chance::Chance;
use crate::doubles::cut::{Cut, Script, Site};

/// A step, the call that was made for it, and what became of that.
pub type Met = (String, &'static str, Cut);

/// Longest time that an effect takes, in milliseconds, when all is well.
const LONGEST: u32 = 30;

#[derive(Debug)]
struct State {
    chance: Chance,
    began: Instant,
    armed: Option<Cut>,
    trace: Vec<String>,
    met: BTreeSet<Met>,
    seen: BTreeSet<(String, &'static str)>,
}

/// The bad luck of one history.
#[derive(Debug)]
pub struct Nemesis {
    state: Mutex<State>,
    passed: watch::Sender<usize>,
}

impl Nemesis {
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                chance: Chance::new(seed),
                began: Instant::now(),
                armed: None,
                trace: Vec::new(),
                met: BTreeSet::new(),
                seen: BTreeSet::new(),
            }),
            passed: watch::Sender::new(0),
        })
    }

    /// Cuts the next effect.
    pub fn arm(&self, cut: Option<Cut>) {
        self.state.lock().unwrap().armed = cut;
    }

    /// Returns when so many more effects have begun.
    pub async fn passes(&self, count: usize) {
        let target = *self.passed.borrow() + count;
        let mut passed = self.passed.subscribe();
        _ = passed.wait_for(|passed| *passed >= target).await;
    }

    /// The same, or when the time is over.
    pub async fn passes_within(&self, count: usize, time: Duration) {
        _ = tokio::time::timeout(time, self.passes(count)).await;
    }

    /// How many effects have begun.
    pub fn passed(&self) -> usize {
        *self.passed.borrow()
    }

    /// Takes a line down.
    pub fn tell(&self, line: impl AsRef<str>) {
        self.state.lock().unwrap().tell(line.as_ref());
    }

    /// Some of the seed's chance.
    pub fn chance<T>(&self, draw: impl FnOnce(&mut Chance) -> T) -> T {
        draw(&mut self.state.lock().unwrap().chance)
    }

    pub fn trace(&self) -> Vec<String> {
        self.state.lock().unwrap().trace.clone()
    }

    pub fn met(&self) -> BTreeSet<Met> {
        self.state.lock().unwrap().met.clone()
    }

    /// Every step with every call that was made for it.
    pub fn seen(&self) -> BTreeSet<(String, &'static str)> {
        self.state.lock().unwrap().seen.clone()
    }
}

impl State {
    fn tell(&mut self, line: &str) {
        let at = self.began.elapsed().as_secs_f64();
        self.trace.push(format!("{at:>10.3} {line}"));
    }
}

impl Script for Nemesis {
    fn decide(&self, site: &Site) -> (Option<Cut>, Duration) {
        let mut state = self.state.lock().unwrap();
        let takes = Duration::from_millis(1) + state.chance.millis(LONGEST);
        let cut = state.armed.take();
        let app = site.app.as_deref().unwrap_or("-");
        let step = site.step.clone().unwrap_or_else(|| "-".to_owned());
        let becomes = cut.map_or(String::new(), |cut| format!("  ── {cut:?} ──"));
        state.tell(&format!("    {app:<5} {step:<18} {}{becomes}", site.call));
        if let Some(cut) = cut {
            state.met.insert((step.clone(), site.call, cut));
        }
        state.seen.insert((step, site.call));
        drop(state);
        self.passed.send_modify(|passed| *passed += 1);
        (cut, takes)
    }
}
