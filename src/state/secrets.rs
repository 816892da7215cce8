//! Which versions of its secrets a generation took. Never a value: nothing here or
//! in any record holds one.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::manifest::{AppName, SecretRef, ServiceSpec};

use super::ids::Incarnation;

/// One version of a Podman secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretVersion {
    /// Podman's ID of it; another one when it was deleted and created again.
    pub id: String,
    /// When its value was last set.
    pub updated_at: Timestamp,
}

/// The versions that a container took, by Podman's names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TakenSecrets {
    /// Environment: Podman looks them up at each start.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, SecretVersion>,
    /// Files: Podman copies them when the container is created.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, SecretVersion>,
}

impl TakenSecrets {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.env.is_empty() && self.files.is_empty()
    }
}

/// Podman's names of the secrets that a service asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NeededSecrets {
    /// As environment.
    pub env: BTreeSet<String>,
    /// As files.
    pub files: BTreeSet<String>,
}

impl NeededSecrets {
    /// Those of a service.
    pub fn of(app: &AppName, incarnation: Incarnation, spec: &ServiceSpec) -> Self {
        let name = |secret: &SecretRef| podman_name(app, incarnation, secret);
        Self {
            env: spec.secrets.values().map(name).collect(),
            files: spec.files.iter().map(|file| name(&file.secret)).collect(),
        }
    }

    /// All of them, each once.
    pub fn all(&self) -> BTreeSet<&str> {
        let all = self.env.iter().chain(&self.files);
        all.map(String::as_str).collect()
    }
}

/// Every secret that a service refers to.
pub fn references(spec: &ServiceSpec) -> impl Iterator<Item = &SecretRef> {
    let files = spec.files.iter().map(|file| &file.secret);
    spec.secrets.values().chain(files)
}

/// What Podman calls a secret.
pub fn podman_name(app: &AppName, incarnation: Incarnation, secret: &SecretRef) -> String {
    match secret {
        SecretRef::Podman(name) => name.clone(),
        SecretRef::App(name) => format!("{}{name}", own_prefix(app, incarnation)),
    }
}

/// How the names begin of the secrets and volumes that belong to an incarnation.
/// Another app's may begin so too: the labels decide.
pub fn own_prefix(app: &AppName, incarnation: Incarnation) -> String {
    format!("podherd-{app}-{}-", incarnation.short())
}
