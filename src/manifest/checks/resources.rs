//! Limits and times of a service: none that would let nothing run, none that is absurd.

use super::bounded_timespan;
use crate::manifest::error::Report;
use crate::manifest::path::Path;
use crate::manifest::spec::ServiceSpec;

/// Below this, runtimes can't even start a container.
const MIN_MEMORY: u64 = 6 * 1024 * 1024;

pub(super) fn check(service: &ServiceSpec, at: &Path, report: &mut Report<'_>) {
    bounded_timespan(service.stop_grace, &at.key("stopGrace"), report);
    let limits = &service.resources;
    let resources = at.key("resources");
    if limits.cpus.is_some_and(|cpus| cpus.millis() == 0) {
        report.at(
            &resources.key("cpus"),
            "must be more than zero: leave it out for no limit",
        );
    }
    if limits
        .memory
        .is_some_and(|memory| memory.get() < MIN_MEMORY)
    {
        report.at(
            &resources.key("memory"),
            "must be at least 6Mi: leave it out for no limit",
        );
    }
    // The runtime takes signed numbers.
    if limits
        .memory
        .is_some_and(|memory| i64::try_from(memory.get()).is_err())
    {
        report.at(&resources.key("memory"), "is more than any machine has");
    }
    if limits.pids == Some(0) {
        report.at(
            &resources.key("pids"),
            "must be more than zero: leave it out for no limit",
        );
    }
}
