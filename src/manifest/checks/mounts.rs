//! What a container sees in its file system: paths are absolute, and no mount hides another.

use std::collections::{BTreeMap, BTreeSet};

use crate::manifest::device::Device;
use crate::manifest::error::Report;
use crate::manifest::path::Path;
use crate::manifest::spec::ServiceSpec;

use super::process;

/// The kernel's own limit.
const MAX_PATH: usize = 4096;

pub(super) fn check(service: &ServiceSpec, at: &Path, report: &mut Report<'_>) {
    let mut mounts = Mounts::default();
    let mut volumes = BTreeSet::new();
    for (index, volume) in service.volumes.iter().enumerate() {
        let at = at.key("volumes").index(index);
        if !volumes.insert(&volume.name) {
            let message = format!("volume `{}` is already mounted here: keep one", volume.name);
            report.at(&at.key("name"), message);
        }
        mounts.add(&volume.path, at.key("path"), report);
    }
    for (index, bind) in service.binds.iter().enumerate() {
        let at = at.key("binds").index(index);
        absolute(&bind.source, &at.key("source"), report);
        mounts.add(&bind.path, at.key("path"), report);
    }
    for (index, tmpfs) in service.tmpfs.iter().enumerate() {
        let at = at.key("tmpfs").index(index);
        mounts.add(&tmpfs.path, at.key("path"), report);
        if tmpfs.size.is_some_and(|size| size.get() == 0) {
            report.at(
                &at.key("size"),
                "must be more than zero: leave it out for no limit",
            );
        }
    }
    for (index, file) in service.files.iter().enumerate() {
        let at = at.key("files").index(index);
        mounts.add(&file.path, at.key("path"), report);
        process::secret(&file.secret, &at, report);
        if !is_mode(&file.mode) {
            report.at(
                &at.key("mode"),
                "a mode is three octal digits after an optional 0, as in \"0400\"",
            );
        }
    }
    mounts.check_overlaps(report);

    devices(service, at, report);
}

fn devices(service: &ServiceSpec, at: &Path, report: &mut Report<'_>) {
    let mut seen = BTreeSet::new();
    for (index, device) in service.devices.iter().enumerate() {
        let place = match device {
            Device::Node { container, .. } => container,
            Device::Cdi(name) => name,
        };
        if !seen.insert(place) {
            let message = format!("device {place:?} is already listed: keep one");
            report.at(&at.key("devices").index(index), message);
        }
    }
}

/// Refuses a path that isn't absolute and plain; true when it is.
pub(super) fn absolute(path: &str, at: &Path, report: &mut Report<'_>) -> bool {
    let good = is_absolute(path);
    if !good {
        let message = format!(
            "{path:?} is not a plain absolute path: start with '/', and leave out '.', '..', \
             doubled and trailing slashes"
        );
        report.at(at, message);
    }
    good
}

/// Whether a path is absolute and plain.
pub(in crate::manifest) fn is_absolute(path: &str) -> bool {
    path.len() <= MAX_PATH
        && !path.contains(char::is_control)
        && path.strip_prefix('/').is_some_and(|rest| {
            rest.is_empty() || rest.split('/').all(|part| !matches!(part, "" | "." | ".."))
        })
}

fn is_mode(mode: &str) -> bool {
    let digits = mode
        .strip_prefix('0')
        .filter(|rest| rest.len() == 3)
        .unwrap_or(mode);
    digits.len() == 3 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'7'))
}

/// The mount paths of one service, in the order they are written.
#[derive(Default)]
struct Mounts<'a> {
    places: BTreeMap<&'a str, Path>,
}

impl<'a> Mounts<'a> {
    fn add(&mut self, path: &'a str, at: Path, report: &mut Report<'_>) {
        if !absolute(path, &at, report) {
            return;
        }
        if path == "/" {
            report.at(
                &at,
                "nothing can be mounted over all of the container: name a directory",
            );
        } else if let Some(earlier) = self.places.get(path) {
            report.at(
                &at,
                format!("{path} is already mounted by {earlier}: choose another path"),
            );
        } else {
            self.places.insert(path, at);
        }
    }

    fn check_overlaps(&self, report: &mut Report<'_>) {
        for (path, at) in &self.places {
            let mut above = path
                .match_indices('/')
                .skip(1)
                .map(|(slash, _)| &path[..slash]);
            if let Some((outer, place)) = above.find_map(|dir| self.places.get_key_value(dir)) {
                let message = format!(
                    "{path} is inside {outer}, mounted by {place}: mount them side by side"
                );
                report.at(at, message);
            }
        }
    }
}
