//! Secrets, and what containers see of them: environment is looked up at each start,
//! files are copied when the container is created, as Podman does.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::super::{ContainerSpec, Labels, Secret};
use crate::state::SecretVersion;

#[derive(Debug)]
struct Stored {
    version: SecretVersion,
    value: String,
    labels: Labels,
}

#[derive(Debug, Default)]
pub(super) struct Secrets {
    stored: BTreeMap<String, Stored>,
    created: u64,
}

/// What a container sees, by variable and by path.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) env: BTreeMap<String, String>,
    files: BTreeMap<String, String>,
}

impl Seen {
    pub(super) fn value(&self, variable_or_path: &str) -> Option<String> {
        let found = self.env.get(variable_or_path);
        found.or_else(|| self.files.get(variable_or_path)).cloned()
    }
}

impl Secrets {
    pub(super) fn list(&self) -> Vec<Secret> {
        let stored = self.stored.iter();
        let shown = stored.map(|(name, stored)| Secret {
            name: name.clone(),
            version: stored.version.clone(),
        });
        shown.collect()
    }

    pub(super) fn labels(&self, name: &str) -> Option<Labels> {
        self.stored.get(name).map(|stored| stored.labels.clone())
    }

    /// Whether the name was free.
    pub(super) fn create(
        &mut self,
        name: &str,
        value: &[u8],
        labels: &Labels,
        now: Timestamp,
    ) -> bool {
        if self.stored.contains_key(name) {
            return false;
        }
        self.created += 1;
        let stored = Stored {
            version: SecretVersion {
                id: format!("{:025x}", self.created),
                updated_at: now,
            },
            value: String::from_utf8_lossy(value).into_owned(),
            labels: labels.clone(),
        };
        self.stored.insert(name.to_owned(), stored);
        true
    }

    /// Whether there was one.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.stored.remove(name).is_some()
    }

    /// A secret that a create of this container would miss.
    pub(super) fn missing(&self, spec: &ContainerSpec) -> Option<String> {
        let mut files = spec.secret_files.iter().map(|file| &file.secret);
        let missing = files.find(|name| !self.stored.contains_key(*name)).cloned();
        missing.or_else(|| self.missing_env(spec))
    }

    /// A secret that a start of this container would miss.
    pub(super) fn missing_env(&self, spec: &ContainerSpec) -> Option<String> {
        let mut env = spec.secret_env.iter().map(|env| &env.secret);
        env.find(|name| !self.stored.contains_key(*name)).cloned()
    }

    pub(super) fn at_create(&self, spec: &ContainerSpec) -> Seen {
        let files = spec.secret_files.iter();
        let copied = files.filter_map(|file| {
            let stored = self.stored.get(&file.secret)?;
            Some((file.path.clone(), stored.value.clone()))
        });
        Seen {
            env: BTreeMap::new(),
            files: copied.collect(),
        }
    }

    pub(super) fn at_start(&self, spec: &ContainerSpec) -> BTreeMap<String, String> {
        let env = spec.secret_env.iter();
        let looked_up = env.filter_map(|env| {
            let stored = self.stored.get(&env.secret)?;
            Some((env.variable.clone(), stored.value.clone()))
        });
        looked_up.collect()
    }
}
