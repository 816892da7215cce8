//! Where the logs go: somewhere that whoever needs them can read.

use crate::manifest::error::Report;
use crate::manifest::path::Path;
use crate::manifest::probe::Check;
use crate::manifest::spec::{LogDriver, Logging, ServiceSpec};

pub(super) fn check(service: &ServiceSpec, at: &Path, report: &mut Report<'_>) {
    let Some(logging) = &service.logging else {
        return;
    };
    max_size(logging, &at.key("logging").key("maxSize"), report);
    if logging.driver != LogDriver::None {
        return;
    }
    let readiness = service.readiness.as_ref().map(|probe| &probe.check);
    let startup = service.startup.as_ref().map(|probe| &probe.check);
    for (field, check) in [("readiness", readiness), ("startup", startup)] {
        if matches!(check, Some(Check::Log { .. })) {
            report.at_key(
                &at.key(field).key("log"),
                "the driver `none` keeps no log to look into: use another driver or probe",
            );
        }
    }
}

fn max_size(logging: &Logging, at: &Path, report: &mut Report<'_>) {
    let Some(size) = logging.max_size else { return };
    match logging.driver {
        LogDriver::K8sFile | LogDriver::JsonFile => {}
        LogDriver::Journald | LogDriver::None => report.at_key(
            at,
            format!(
                "the driver `{}` has no file to limit: leave it out",
                logging.driver.as_str()
            ),
        ),
    }
    if size.get() == 0 {
        report.at(at, "must be more than zero: leave it out for no limit");
    }
    // The runtime takes signed numbers.
    if i64::try_from(size.get()).is_err() {
        report.at(at, "is more than any machine has");
    }
}
