//! A volume has one writer, and so has a host path: no two services of an app may write
//! it side by side.

use std::collections::BTreeMap;
use std::path::Path as HostPath;

use crate::manifest::error::Report;
use crate::manifest::names::{ServiceName, VolumeName};
use crate::manifest::path::Path;
use crate::manifest::spec::AppSpec;

pub(super) fn across_services(spec: &AppSpec, at: &Path, report: &mut Report<'_>) {
    volumes(spec, at, report);
    binds(spec, at, report);
}

fn binds(spec: &AppSpec, at: &Path, report: &mut Report<'_>) {
    let mut writers: Vec<(&HostPath, &ServiceName)> = Vec::new();
    for (name, service) in &spec.services {
        let written = service.binds.iter().enumerate();
        for (index, bind) in written.filter(|(_, bind)| !bind.read_only) {
            let source = HostPath::new(&bind.source);
            let meets = |(other, writer): &&(&HostPath, &ServiceName)| {
                *writer != name && (source.starts_with(other) || other.starts_with(source))
            };
            if let Some((_, writer)) = writers.iter().find(meets) {
                let message = format!(
                    "{} is written by service `{writer}` already, and a host path has one \
                     writer: mount it readOnly here or there",
                    bind.source
                );
                report.at(&at.key(name).key("binds").index(index), message);
            }
            writers.push((source, name));
        }
    }
}

fn volumes(spec: &AppSpec, at: &Path, report: &mut Report<'_>) {
    let mut writers: BTreeMap<&VolumeName, &str> = BTreeMap::new();
    for (name, service) in &spec.services {
        let written = service.volumes.iter().enumerate();
        for (index, volume) in written.filter(|(_, volume)| !volume.read_only) {
            let Some(writer) = writers.insert(&volume.name, name.as_str()) else {
                continue;
            };
            // Twice in one service is reported where it stands.
            if writer != name.as_str() {
                let message = format!(
                    "volume `{}` is written by service `{writer}` already, and a volume has one \
                     writer: mount it readOnly here or there",
                    volume.name
                );
                report.at(&at.key(name).key("volumes").index(index), message);
            }
        }
    }
}
