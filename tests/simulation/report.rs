//! Runs many seeds on all cores, and says what came of it.

use std::collections::{BTreeMap, BTreeSet};
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
    pub failed: BTreeMap<u64, Outcome>,
    pub met: BTreeSet<crate::nemesis::Met>,
    pub seen: BTreeSet<(String, &'static str)>,
    pub effects: usize,
    pub run: usize,
}

/// Runs each of these, on all cores, until enough have failed.
pub fn sweep(seeds: &[u64], enough: usize) -> Summary {
    let summary = Mutex::new(Summary::default());
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run(&History::of(*seed));
                    let mut summary = summary.lock().unwrap();
                    summary.take(*seed, outcome);
                    if summary.failed.len() >= enough {
                        return;
                    }
                }
            });
        }
    });
    summary.into_inner().unwrap()
}

impl Summary {
    fn take(&mut self, seed: u64, outcome: Outcome) {
        self.run += 1;
        self.effects += outcome.effects;
        self.met.extend(outcome.met.iter().cloned());
        self.seen.extend(outcome.seen.iter().cloned());
        if self.run.is_multiple_of(1000) {
            eprintln!("{} histories, {} failed", self.run, self.failed.len());
        }
        if outcome.failed() {
            self.failed.insert(seed, outcome);
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

    /// Pairs of a step's call and a crash that weren't met.
    pub fn unmet(&self) -> Vec<String> {
        let mut unmet = Vec::new();
        for (step, call) in &self.seen {
            for cut in [Cut::Before, Cut::After] {
                if !self.met.contains(&(step.clone(), *call, cut)) {
                    unmet.push(format!("{step} {call} {cut:?}"));
                }
            }
        }
        unmet
    }
}

/// Runs all of these; fails with the story of the first ones that fail.
pub fn all(seeds: Vec<u64>) -> Summary {
    let began = Instant::now();
    let summary = sweep(&seeds, ENOUGH);
    let seconds = began.elapsed().as_secs_f64();
    eprintln!(
        "{} histories, {} effects and writes, {} failed, {seconds:.1} s",
        summary.run,
        summary.effects,
        summary.failed.len()
    );
    if summary.failed.is_empty() {
        return summary;
    }
    let mut stories = String::new();
    for (seed, outcome) in &summary.failed {
        stories.push_str(&story(*seed, outcome.clone()));
    }
    panic!("\n{stories}");
}

/// What happened, as short as it can be told.
fn story(seed: u64, outcome: Outcome) -> String {
    let (history, shown) = shrink(&History::of(seed), outcome);
    let whole = std::env::var_os("SEED").is_some();
    let skipped = if whole {
        0
    } else {
        shown.trace.len().saturating_sub(60)
    };
    format!(
        "═══ seed {seed} fails: {}\n\nthe shortest history that does:\n{history}\nas it went:\n{}\n\
         \nagain: SEED={seed} cargo test --test simulation every_history\n\n",
        shown.violations.join("\n    "),
        shown.trace[skipped..].join("\n"),
    )
}
