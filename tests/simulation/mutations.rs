//! Deliberate defects: each must be found by a few seeds, or a hole is open.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use podherd::sabotage::{Defect, choose};

use crate::history::History;
use crate::run::run;

/// Seeds in which a defect has to be found.
const WITHIN: u64 = 150;

/// The first seed that finds the defect, and what it finds.
fn found(defect: Defect) -> Option<(u64, String)> {
    choose(Some(defect));
    let found = (0..WITHIN).find_map(|seed| {
        let outcome = run(&History::of(seed));
        let first = outcome.violations.into_iter().next()?;
        Some((seed, first))
    });
    choose(None);
    found
}

#[test]
fn each_deliberate_defect_is_found() {
    let only = std::env::var("DEFECT").ok();
    let wanted = |defect: &&Defect| {
        only.as_ref()
            .is_none_or(|name| format!("{defect:?}") == *name)
    };
    let defects: Vec<&Defect> = Defect::ALL.iter().filter(wanted).collect();
    let next = AtomicUsize::new(0);
    let survivors = Mutex::new(Vec::new());
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(defect) = defects.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match found(**defect) {
                        Some((seed, what)) => eprintln!("{defect:?}: seed {seed}: {what}"),
                        None => survivors.lock().unwrap().push(**defect),
                    }
                }
            });
        }
    });
    let survivors = survivors.into_inner().unwrap();
    assert_eq!(survivors, [], "nothing found these in {WITHIN} seeds");
}
