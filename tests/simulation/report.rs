//! Runs many seeds on all cores, and says what came of it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::doubles::cut::Cut;
use crate::history::History;
use crate::run::{Outcome, run};
use crate::shrink::shrink;

/// Failures after which no more seeds are run.
const ENOUGH: usize = 3;

/// The seeds that the environment asks for: `SEEDS=1000`, `SEEDS=5000..6000`, or one
/// alone by `SEED=17`.
pub fn seeds(usual: u64) -> Vec<u64> {
    if let Ok(seed) = std::env::var("SEED") {
        return vec![seed.parse().expect("SEED is a number")];
    }
    match std::env::var("SEEDS") {
        Err(_) => (0..usual).collect(),
        Ok(asked) => match asked.split_once("..") {
            Some((from, to)) => {
                let number = |text: &str| text.parse::<u64>().expect("SEEDS is FROM..TO");
                (number(from)..number(to)).collect()
            }
            None => (0..asked.parse().expect("SEEDS is a number")).collect(),
        },
    }
}

/// What many histories came to.
#[derive(Debug, Default)]
pub struct Summary {
    pub failed: Vec<(History, Outcome)>,
    pub met: BTreeSet<crate::nemesis::Met>,
    pub seen: BTreeSet<(String, &'static str)>,
    pub effects: usize,
    pub run: usize,
}

/// Runs each history that this gives, on all cores, until enough have failed.
pub fn sweep(history: &(dyn Fn(usize) -> Option<History> + Sync)) -> Summary {
    let summary = Mutex::new(Summary::default());
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(history) = history(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run(&history);
                    let mut summary = summary.lock().unwrap();
                    summary.take(history, outcome);
                    if summary.failed.len() >= ENOUGH {
                        return;
                    }
                }
            });
        }
    });
    summary.into_inner().unwrap()
}

impl Summary {
    fn take(&mut self, history: History, outcome: Outcome) {
        self.run += 1;
        self.effects += outcome.effects;
        self.met.extend(outcome.met.iter().cloned());
        self.seen.extend(outcome.seen.iter().cloned());
        if self.run.is_multiple_of(1000) {
            eprintln!("{} histories, {} failed", self.run, self.failed.len());
        }
        if outcome.failed() {
            self.failed.push((history, outcome));
        }
    }

    /// Each step that was reached, with the ways in which it was cut.
    pub fn coverage(&self) -> String {
        let mut text = String::new();
        for (step, call) in &self.seen {
            let met = self
                .met
                .iter()
                .filter(|(at, of, _)| (at, of) == (step, call));
            let cuts: Vec<String> = met.map(|(.., cut)| format!("{cut:?}")).collect();
            writeln!(text, "  {step:<20} {call:<16} {}", cuts.join(" ")).unwrap();
        }
        text
    }

    /// Of these steps' calls, each with a crash that wasn't met.
    pub fn unmet(&self, seen: &BTreeSet<(String, &'static str)>) -> Vec<String> {
        // What belongs to no step is a status, an event, a term; or was gone already.
        let steps = seen.iter().filter(|(step, _)| step != "-");
        let pairs = steps.flat_map(|(step, call)| {
            [Cut::Before, Cut::After].map(|cut| (step.clone(), *call, cut))
        });
        pairs
            .filter(|pair| !self.met.contains(pair))
            .map(|(step, call, cut)| format!("{cut:?} {call} of {step}"))
            .collect()
    }

    /// Says in a line what came of it; fails with the story of each that failed.
    pub fn judge(&self, began: Instant) {
        let seconds = began.elapsed().as_secs_f64();
        eprintln!(
            "{} histories, {} effects and writes, {} failed, {seconds:.1} s",
            self.run,
            self.effects,
            self.failed.len()
        );
        if std::env::var_os("COVERAGE").is_some() {
            eprintln!("{}", self.coverage());
        }
        let stories: Vec<String> = self
            .failed
            .iter()
            .map(|(history, outcome)| story(history, outcome.clone()))
            .collect();
        assert!(stories.is_empty(), "\n{}", stories.concat());
    }
}

/// Runs all of these seeds; fails with the story of the first ones that fail.
pub fn all(seeds: &[u64]) {
    let began = Instant::now();
    sweep(&|index| seeds.get(index).copied().map(History::of)).judge(began);
}

/// What happened, as short as it can be told.
fn story(history: &History, outcome: Outcome) -> String {
    let (shortest, shown) = shrink(history, outcome);
    let whole = std::env::var_os("SEED").is_some();
    let skipped = if whole {
        0
    } else {
        shown.trace.len().saturating_sub(60)
    };
    format!(
        "═══ {} fails: {}\n\nthe shortest history that does:\n{shortest}\nas it went:\n{}\n\n\
         again: SEED={} cargo test --test simulation every_history\n\n",
        history.name,
        shown.violations.join("\n    "),
        shown.trace[skipped..].join("\n"),
        history.seed,
    )
}
