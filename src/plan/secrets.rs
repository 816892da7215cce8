//! Whether what serves took the secrets as they are now.

use crate::manifest::ServiceName;
use crate::state::{ActiveService, NeededSecrets, SecretVersion};

use super::Snapshot;

/// How the secrets of an effective generation differ from those of the host, by
/// Podman's names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Outdated {
    /// Gone from the host: the container can't be started again.
    pub missing: Vec<String>,
    /// Environment that the next start takes.
    pub env: Vec<String>,
    /// Files that only a new container takes.
    pub files: Vec<String>,
}

impl Outdated {
    /// Whether a new value waits to be taken.
    pub(super) fn is_rotated(&self) -> bool {
        !self.env.is_empty() || !self.files.is_empty()
    }
}

/// Compares what the generation took with what there is.
pub(super) fn outdated(
    snapshot: &Snapshot,
    name: &ServiceName,
    service: &ActiveService,
) -> Outdated {
    let (Some(pinned), Some(incarnation)) = (snapshot.pinned(name), snapshot.incarnation()) else {
        return Outdated::default();
    };
    let needed = NeededSecrets::of(&snapshot.app, incarnation, &pinned.spec);
    let now = |secret: &str| snapshot.secrets.get(secret);
    let all = needed.all().into_iter();
    let missing = all.filter(|secret| now(secret).is_none());
    let changed = |secret: &&String, taken: Option<&SecretVersion>| {
        now(secret).is_some_and(|now| taken != Some(now))
    };
    let env = needed.env.iter();
    let files = needed.files.iter();
    Outdated {
        missing: missing.map(str::to_owned).collect(),
        env: env
            .filter(|secret| changed(secret, service.secrets.env.get(*secret)))
            .cloned()
            .collect(),
        files: files
            .filter(|secret| changed(secret, service.secrets.files.get(*secret)))
            .cloned()
            .collect(),
    }
}
