//! Waiting for something with a deadline.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Calls `probe` until it answers `Ok`, and panics with its last `Err` and `what`
/// after `limit`.
#[track_caller]
pub fn within<T, E: Debug>(
    limit: Duration,
    what: &str,
    mut probe: impl FnMut() -> Result<T, E>,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        match probe() {
            Ok(value) => return value,
            Err(last) if Instant::now() >= deadline => {
                panic!("{what}: not within {limit:?}; last seen: {last:?}")
            }
            Err(_) => std::thread::sleep(Duration::from_millis(25)),
        }
    }
}

/// Waits up to 30 s for `probe` to be true.
#[track_caller]
pub fn until(what: &str, mut probe: impl FnMut() -> bool) {
    within(Duration::from_secs(30), what, || {
        if probe() { Ok(()) } else { Err("not yet") }
    });
}
