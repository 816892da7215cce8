//! What is made in the runtime is called, and by which labels it is known again.

use crate::manifest::{AppName, ServiceName};
use crate::runtime::Labels;
use crate::state::{Incarnation, OperationId, PinnedService, labels, own_prefix};

use super::error::Failure;

/// Labels of what an incarnation owns.
pub(super) fn labels(
    app: &AppName,
    incarnation: Incarnation,
    service: Option<&ServiceName>,
) -> Labels {
    let mut owned = Labels::from([
        (labels::APP.to_owned(), app.to_string()),
        (labels::INCARNATION.to_owned(), incarnation.to_string()),
    ]);
    if let Some(service) = service {
        owned.insert(labels::SERVICE.to_owned(), service.to_string());
    }
    owned
}

/// The private network: readable, and unlike an earlier incarnation's.
pub(super) fn network(app: &AppName, incarnation: Incarnation) -> String {
    format!("podherd-{app}-{}", incarnation.short())
}

/// The name of a service on shared networks. A name of a service or an app has no dot,
/// so no other service has the same.
pub(super) fn shared_alias(app: &AppName, service: &ServiceName) -> String {
    format!("{service}.{app}")
}

/// The host name in a container. Podman 4.6 and newer make it an alias on every
/// network, so on a shared one it has to say whose it is.
pub(super) fn hostname(app: &AppName, service: &ServiceName, pinned: &PinnedService) -> String {
    if pinned.networks.is_empty() {
        service.to_string()
    } else {
        shared_alias(app, service)
    }
}

/// A volume on the host.
pub(super) fn volume(app: &AppName, incarnation: Incarnation, name: &str) -> String {
    format!("{}{name}", own_prefix(app, incarnation))
}

/// A candidate: by its name a create whose reply was lost is found again. Names of apps
/// and services have no dot, so no two of them can make the same one.
pub(super) fn container(
    app: &AppName,
    service: &ServiceName,
    operation: &OperationId,
    attempt: u32,
) -> String {
    let again = if attempt == 1 {
        String::new()
    } else {
        format!("-{attempt}")
    };
    format!("podherd-{app}.{service}.{operation}{again}")
}

/// Refuses something that exists and isn't this incarnation's.
pub(super) fn check_owner(
    what: &str,
    name: &str,
    incarnation: Incarnation,
    found: &Labels,
) -> Result<(), Failure> {
    if found.get(labels::INCARNATION) == Some(&incarnation.to_string()) {
        return Ok(());
    }
    Err(Failure::lasting(
        "ForeignResource",
        format!(
            "{what} {name} exists without this app's labels; it is never taken over: rename or \
             remove it by hand"
        ),
    ))
}
