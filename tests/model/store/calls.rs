//! The calls, and how they follow from a seed.

use fastrand::Rng;
use podherd::store::Range;

use crate::model::one_of;

/// `a0` is the neighbour of everything below `a/`; the last one is as high as keys go.
const KEYS: [&str; 8] = ["a", "a/1", "a/2", "a0", "a/\u{10ffff}", "b", "b/ü", "c"];
const PREFIXES: [&str; 8] = ["", "a", "a/", "a/1", "b", "b/ü", "c", "none"];
/// The lease that may end by itself; the others live for longer than any sequence.
pub const SHORT: usize = 0;
/// A call. What it is about is said by slots, so that it still means something when
/// calls before it are left out.
#[derive(Debug, Clone)]
pub enum Call {
    Identity,
    Read(Vec<Which>),
    Commit(Vec<When>, Vec<Write>),
    /// Watches from so many revisions before the next one.
    Watch(usize, &'static str, i64),
    /// Reads a watch until it has told everything.
    Drain(usize),
    /// Forgets what is older than so many revisions; every watch has told all before.
    Compact(i64),
    /// Grants a lease for so many milliseconds; the slot's former one is revoked.
    Grant(usize, u64),
    KeepAlive(usize),
    Revoke(usize),
    /// Waits for the end of the short lease.
    Outlive,
}

/// What is read.
#[derive(Debug, Clone, Copy)]
pub enum Which {
    Key(&'static str),
    Prefix(&'static str),
}

/// What is compared.
#[derive(Debug, Clone, Copy)]
pub enum When {
    Absent(&'static str),
    Created(&'static str, At),
    Modified(&'static str, At),
}

/// A revision.
#[derive(Debug, Clone, Copy)]
pub enum At {
    /// The key's own, as it is now.
    Own,
    /// That of no key.
    Zero,
    /// So many after the sequence began.
    Later(i64),
}

/// What is written.
#[derive(Debug, Clone, Copy)]
pub enum Write {
    Put(&'static str, u8),
    PutLeased(&'static str, usize),
    Delete(&'static str),
    DeletePrefix(&'static str),
}

/// The calls that follow from a seed.
pub fn sequence(seed: u64) -> Vec<Call> {
    let random = &mut Rng::with_seed(seed);
    // Waiting for the end of a lease takes seconds: in some sequences, once.
    let mut may_outlive = random.u8(..8) == 0;
    let count = random.usize(4..40);
    let mut calls = Vec::new();
    while calls.len() < count {
        let call = call(random);
        if matches!(call, Call::Outlive) && !std::mem::take(&mut may_outlive) {
            continue;
        }
        calls.push(call);
    }
    calls.push(Call::Read(vec![Which::Prefix("")]));
    calls
}

fn call(random: &mut Rng) -> Call {
    let slot = random.usize(..3);
    match random.u8(..40) {
        0 => Call::Identity,
        1..=6 => Call::Read((0..random.usize(..4)).map(|_| which(random)).collect()),
        7..=22 => {
            let compares = (0..random.usize(..3)).map(|_| when(random)).collect();
            let writes = (0..random.usize(..5)).map(|_| write(random)).collect();
            Call::Commit(compares, writes)
        }
        23..=25 => Call::Watch(slot, one_of(random, &PREFIXES), random.i64(-3..8)),
        26..=29 => Call::Drain(slot),
        30 => Call::Compact(random.i64(0..6)),
        31..=33 => Call::Grant(slot, one_of(random, &[0, 300, 1_000])),
        34..=35 => Call::KeepAlive(slot),
        36..=37 => Call::Revoke(slot),
        _ => Call::Outlive,
    }
}

fn key(random: &mut Rng) -> &'static str {
    // Sometimes none at all.
    if random.u8(..60) == 0 {
        ""
    } else {
        one_of(random, &KEYS)
    }
}

fn which(random: &mut Rng) -> Which {
    if random.bool() {
        Which::Key(key(random))
    } else {
        Which::Prefix(one_of(random, &PREFIXES))
    }
}

fn when(random: &mut Rng) -> When {
    let key = key(random);
    let at = match random.u8(..6) {
        0 => At::Zero,
        1..=3 => At::Own,
        _ => At::Later(random.i64(0..12)),
    };
    match random.u8(..3) {
        0 => When::Absent(key),
        1 => When::Created(key, at),
        _ => When::Modified(key, at),
    }
}

fn write(random: &mut Rng) -> Write {
    match random.u8(..10) {
        0..=4 => Write::Put(key(random), random.u8(..)),
        5..=6 => Write::PutLeased(key(random), random.usize(..3)),
        7..=8 => Write::Delete(key(random)),
        _ => Write::DeletePrefix(one_of(random, &PREFIXES)),
    }
}

impl Which {
    pub fn range(&self) -> Range {
        match *self {
            Self::Key(key) => Range::Key(key.to_owned()),
            Self::Prefix(prefix) => Range::Prefix(prefix.to_owned()),
        }
    }
}
