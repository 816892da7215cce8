//! A deterministic simulation: one seed is one history, the same every time.
//!
//! The controller as it is, from its campaign to its steps, runs on doubles of store,
//! runtime, traffic and time, while people change their minds, and everything fails that
//! can fail. The invariants of DESIGN, section 6, are checked at every effect and every
//! write (`tests/doubles/watch.rs`), after every event, and when it is left in peace.
//!
//! - `history`: what happens, as data, from a seed; `apps`: random manifests.
//! - `world`: the doubles, and the controller's processes (`process`) on their `line`s.
//! - `nemesis`: what becomes of each effect, and the history as it was.
//! - `run`: runs a history; `invariants`: what must hold.
//! - `shrink`: a shorter history that fails as well.
//! - `mutations`: deliberate defects, each of which must be found.
//! - `tour`: a crash at each effect of every kind of operation.
//! - `report`: what people are told.

// A test says what went wrong by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod apps;
mod chance;
#[path = "../doubles/mod.rs"]
mod doubles;
mod history;
mod invariants;
mod line;
mod mutations;
mod nemesis;
mod process;
mod report;
mod run;
mod shrink;
mod tour;
mod world;

use history::History;
use run::run;

/// Seeds that failed once.
const REGRESSIONS: &str = include_str!("regressions.txt");
/// How many seeds are run unless `SEEDS` says otherwise.
const SEEDS: u64 = 300;

#[test]
fn a_seed_is_the_same_history_every_time() {
    for seed in [1, 7, 23] {
        let history = History::of(seed);
        let (one, other) = (run(&history), run(&history));
        for (line, (one, other)) in one.trace.iter().zip(&other.trace).enumerate() {
            assert_eq!(one, other, "line {line} of seed {seed}");
        }
        assert_eq!(one, other, "seed {seed}");
    }
}

#[test]
fn seeds_that_failed_once_pass() {
    let seeds = REGRESSIONS
        .lines()
        .filter_map(|line| line.split('#').next()?.trim().parse().ok());
    report::all(&seeds.collect::<Vec<u64>>());
}

#[test]
fn every_history_keeps_the_invariants() {
    report::all(&report::seeds(SEEDS));
}

#[test]
fn a_crash_at_any_effect_of_any_operation_is_recovered() {
    let began = std::time::Instant::now();
    let (calm, crashes) = tour::tour();
    calm.judge(began);
    crashes.judge(began);
    let unmet = crashes.unmet(&calm.seen);
    assert!(unmet.is_empty(), "not met:\n  {}", unmet.join("\n  "));
}
