//! A volume has one writer: no two services of an app may write it side by side.

use std::collections::BTreeMap;

use crate::manifest::error::Report;
use crate::manifest::names::VolumeName;
use crate::manifest::path::Path;
use crate::manifest::spec::AppSpec;

pub(super) fn across_services(spec: &AppSpec, at: &Path, report: &mut Report<'_>) {
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
