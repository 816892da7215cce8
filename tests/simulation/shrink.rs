//! A shorter history that fails as well.

use std::time::{Duration, Instant};

use crate::history::History;
use crate::run::{Outcome, run};

/// How long a shorter history is looked for.
const LONGEST: Duration = Duration::from_secs(40);

/// The invariant that was broken first.
fn broken(outcome: &Outcome) -> Option<&str> {
    outcome.violations.first()?.split(':').next()
}

/// Leaves out one event after the other, as long as the same invariant is broken.
pub fn shrink(history: &History, outcome: Outcome) -> (History, Outcome) {
    let (mut shortest, mut shown) = (history.clone(), outcome);
    let until = Instant::now() + LONGEST;
    let mut shorter = true;
    while shorter {
        shorter = false;
        let mut index = 0;
        while index < shortest.events.len() && Instant::now() < until {
            let mut candidate = shortest.clone();
            candidate.events.remove(index);
            let tried = run(&candidate);
            if tried.failed() && broken(&tried) == broken(&shown) {
                (shortest, shown) = (candidate, tried);
                shorter = true;
            } else {
                index += 1;
            }
        }
    }
    (shortest, shown)
}
