//! How a service is replaced, and what forbids two generations side by side.

use super::bounded_timespan;
use crate::manifest::error::Report;
use crate::manifest::path::Path;
use crate::manifest::spec::{ServiceSpec, Strategy};

pub(super) fn check(service: &ServiceSpec, at: &Path, report: &mut Report<'_>) {
    let update = at.key("update");
    bounded_timespan(service.update.drain, &update.key("drain"), report);
    if service.update.strategy == Strategy::Overlap
        && let Some(held) = held_by_one_generation(service)
    {
        let message =
            format!("overlap would give {held} to two generations at once: use sequential");
        report.at(&update.key("strategy"), message);
    }
}

/// The first thing of a service that two containers can't hold at the same time.
fn held_by_one_generation(service: &ServiceSpec) -> Option<String> {
    if let Some(volume) = service.volumes.iter().find(|volume| !volume.read_only) {
        return Some(format!("writable volume `{}`", volume.name));
    }
    if let Some(bind) = service.binds.iter().find(|bind| !bind.read_only) {
        return Some(format!("writable path {:?}", bind.source));
    }
    let port = service.ports.iter().find_map(|port| port.host)?;
    Some(format!("host port {port}"))
}
