//! Sequences of calls, made on a double and on the real thing: the answers must agree.
//!
//! A sequence follows from its seed alone. What differs by nature (IDs, times, where
//! revisions begin) is taken out of the answers. One that disagrees is shortened by
//! leaving calls out, printed, and kept as a test of its own when it is mended.
//!
//! - [`store`]: calls of a store, and what it answers;
//! - [`runtime`]: calls of a container runtime, and what it answers.

pub mod runtime;
pub mod store;

use std::fmt::{Debug, Write as _};
use std::ops::Range;

/// Disagreements after which the rest isn't tried: shortening takes a while.
const ENOUGH: usize = 5;

/// What the double and the real thing answered, call by call.
#[derive(Debug, Default)]
pub struct Played {
    /// The double's answers.
    pub double: Vec<String>,
    /// The real one's.
    pub real: Vec<String>,
}

impl Played {
    /// The first call that they answer differently.
    fn disagreement(&self) -> Option<usize> {
        let mut pairs = self.double.iter().zip(&self.real);
        pairs.position(|(double, real)| double != real)
    }
}

/// The seeds to run: as many as usual, or as `MODEL_SEEDS` says (`300`, or `17..18`).
pub fn seeds(usual: u64) -> Range<u64> {
    let Ok(asked) = std::env::var("MODEL_SEEDS") else {
        return 0..usual;
    };
    let number = |text: &str| text.trim().parse().ok();
    let range = match asked.split_once("..") {
        Some((first, end)) => number(first).zip(number(end)),
        None => number(&asked).map(|count| (0, count)),
    };
    let (first, end) = range.expect("MODEL_SEEDS is a number of seeds, or FIRST..END");
    first..end
}

/// Runs each seed's sequence, and panics with the shortest forms of those that disagree.
pub fn agree_on<C: Clone + Debug>(
    seeds: Range<u64>,
    sequence: impl Fn(u64) -> Vec<C>,
    mut play: impl FnMut(&[C]) -> Played,
) {
    let mut failures = Vec::new();
    for seed in seeds {
        eprintln!("seed {seed}");
        if let Some(history) = disagreement(&sequence(seed), &mut play) {
            let failure = format!(
                "seed {seed} (alone: MODEL_SEEDS={seed}..{})\n{history}",
                seed + 1
            );
            eprintln!("{failure}");
            failures.push(failure);
            if failures.len() == ENOUGH {
                break;
            }
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Plays one known sequence, which must agree.
#[track_caller]
pub fn agree<C: Clone + Debug>(calls: &[C], play: impl FnOnce(&[C]) -> Played) {
    let played = play(calls);
    let disagreement = played.disagreement();
    assert!(disagreement.is_none(), "\n{}", history(calls, &played));
}

/// The shortest form of a sequence that disagrees, with its answers.
fn disagreement<C: Clone + Debug>(
    calls: &[C],
    play: &mut impl FnMut(&[C]) -> Played,
) -> Option<String> {
    let at = play(calls).disagreement()?;
    let shortest = shortened(calls[..=at].to_vec(), |calls| {
        play(calls).disagreement().is_some()
    });
    Some(history(&shortest, &play(&shortest)))
}

/// Leaves calls out, many at once first, as long as the rest still fails.
fn shortened<C: Clone>(mut calls: Vec<C>, mut fails: impl FnMut(&[C]) -> bool) -> Vec<C> {
    let mut size = calls.len() / 2;
    while size > 0 {
        let mut start = 0;
        let before = calls.len();
        while start < calls.len() {
            let end = (start + size).min(calls.len());
            let rest = [&calls[..start], &calls[end..]].concat();
            if fails(&rest) {
                calls = rest;
            } else {
                start = end;
            }
        }
        if size > 1 || calls.len() == before {
            size /= 2;
        }
    }
    calls
}

fn history<C: Debug>(calls: &[C], played: &Played) -> String {
    let mut text = String::new();
    for (at, call) in calls.iter().enumerate() {
        let _ = writeln!(text, "  {call:?}");
        let answers = played.double.get(at).zip(played.real.get(at));
        if let Some((double, real)) = answers.filter(|(double, real)| double != real) {
            let _ = writeln!(text, "    the double: {double}\n    the real:   {real}");
        }
    }
    text
}

/// One of these.
fn one_of<T: Clone>(random: &mut fastrand::Rng, all: &[T]) -> T {
    all[random.usize(..all.len())].clone()
}

#[test]
fn a_failing_sequence_is_shortened_to_what_makes_it_fail() {
    let fails = |calls: &[u32]| calls.contains(&7) && calls.contains(&31);
    assert_eq!(shortened((0..40).collect(), fails), [7, 31]);
}
