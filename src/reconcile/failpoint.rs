//! Kills the process at a chosen point of a step: how the end-to-end tests show that a
//! crash anywhere is recovered. Debug builds only.
//!
//! `PODHERD_FAILPOINT` names a file, and what is in it the point, as `VERB/STEP:MOMENT`:
//! `deploy/create:after`. The moments are `begun`, when it is journaled that the step
//! begins and nothing is done yet, and `after`, when its effect is done and not
//! journaled. The last step of every verb is `outcome`.

/// Dies here, if this is the chosen point.
#[cfg(debug_assertions)]
pub(super) fn reached(verb: &str, step: &str, moment: &str) {
    let Some(file) = std::env::var_os("PODHERD_FAILPOINT") else {
        return;
    };
    let chosen = std::fs::read_to_string(file).unwrap_or_default();
    if chosen == format!("{verb}/{step}:{moment}") {
        let this = rustix::process::getpid();
        _ = rustix::process::kill_process(this, rustix::process::Signal::KILL);
    }
}

/// Does nothing: this isn't a debug build.
#[cfg(not(debug_assertions))]
pub(super) fn reached(_: &str, _: &str, _: &str) {}
