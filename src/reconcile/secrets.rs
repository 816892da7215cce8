//! Secrets: looked up before anything is touched, and which versions a container
//! took. No value passes through here.

use std::collections::{BTreeMap, BTreeSet};

use crate::manifest::{AppName, SecretRef, ServiceName, ServiceSpec};
use crate::plan::{Desired, Snapshot};
use crate::runtime::{Container, RuntimeError, SecretEnv, SecretMount};
use crate::state::{
    Incarnation, NeededSecrets, Ownership, SecretVersion, labels, own_prefix, podman_name,
    references,
};
use crate::store::{AppRecords, Changes};

use super::error::{Failure, ReconcileError, StepError, runtime_failure};
use super::run::Run;
use super::{Context, Reconciler, names};

/// The versions of secrets, by Podman's names.
pub(super) type Versions = BTreeMap<String, SecretVersion>;

impl Context {
    /// The versions that these secrets have now; asks only where there are any.
    pub(super) async fn versions(
        &self,
        wanted: &BTreeSet<String>,
    ) -> Result<Versions, RuntimeError> {
        if wanted.is_empty() {
            return Ok(Versions::new());
        }
        let all = self.runtime.secrets().await?.into_iter();
        let wanted = all.filter(|secret| wanted.contains(&secret.name));
        Ok(wanted.map(|secret| (secret.name, secret.version)).collect())
    }

    /// The secrets that what serves was made with.
    pub(super) async fn secrets_of(
        &self,
        app: &AppName,
        records: &AppRecords,
    ) -> Result<Versions, RuntimeError> {
        let Some(live) = &records.ownership else {
            return Ok(Versions::new());
        };
        let mut wanted = BTreeSet::new();
        for name in records.active.services.keys() {
            if let Some(pinned) = records.active.pinned(name, &records.revisions) {
                let needed = NeededSecrets::of(app, live.incarnation, &pinned.spec);
                wanted.extend(needed.all().into_iter().map(str::to_owned));
            }
        }
        self.versions(&wanted).await
    }

    /// Whether every secret that these services ask for is there, and an app's own one
    /// belongs to this incarnation.
    pub(super) async fn check_secrets<'s>(
        &self,
        app: &AppName,
        incarnation: Incarnation,
        services: impl Iterator<Item = (&'s ServiceName, &'s ServiceSpec)> + Clone,
    ) -> Result<(), Failure> {
        let wanted: BTreeSet<String> = services
            .clone()
            .flat_map(|(_, spec)| references(spec))
            .map(|secret| podman_name(app, incarnation, secret))
            .collect();
        let there = self.versions(&wanted).await;
        let there = there.map_err(|error| runtime_failure(&error))?;
        for (service, spec) in services {
            for secret in references(spec) {
                let name = podman_name(app, incarnation, secret);
                if !there.contains_key(&name) {
                    return Err(missing(app, service, secret));
                }
                if matches!(secret, SecretRef::App(_)) {
                    self.check_own_secret(&name, incarnation).await?;
                }
            }
        }
        Ok(())
    }

    async fn check_own_secret(&self, name: &str, incarnation: Incarnation) -> Result<(), Failure> {
        let found = self.runtime.secret(name).await;
        let found = found.map_err(|error| runtime_failure(&error))?;
        names::check_owner("secret", name, incarnation, &found.unwrap_or_default())
    }

    /// The secrets that belong to this incarnation, whoever set them.
    pub(super) async fn own_secrets(
        &self,
        app: &AppName,
        incarnation: Incarnation,
    ) -> Result<BTreeSet<String>, RuntimeError> {
        let prefix = own_prefix(app, incarnation);
        let ours = incarnation.to_string();
        let mut own = BTreeSet::new();
        for secret in self.runtime.secrets().await? {
            if secret.name.starts_with(&prefix)
                && let Some(found) = self.runtime.secret(&secret.name).await?
                && found.get(labels::INCARNATION) == Some(&ours)
            {
                own.insert(secret.name);
            }
        }
        Ok(own)
    }
}

/// Says which, and how to create it.
fn missing(app: &AppName, service: &ServiceName, secret: &SecretRef) -> Failure {
    let message = match secret {
        SecretRef::Podman(name) => format!(
            "service {service}: there is no Podman secret {name}: create it on this host with \
             `podman secret create {name} FILE`"
        ),
        SecretRef::App(name) => format!(
            "service {service}: the app's secret {name} isn't set: set it on this host with \
             `podherd secret set {app} {name} < FILE`"
        ),
    };
    Failure::passing("SecretMissing", message)
}

impl Reconciler {
    /// Begins the incarnation of an app with secrets of its own before its first
    /// deployment, so that somebody can set them. Whether it was begun just now.
    pub(super) async fn begin_incarnation(
        &self,
        snapshot: &Snapshot,
        ownership: &Ownership,
    ) -> Result<bool, ReconcileError> {
        let Desired::App { app, .. } = &snapshot.desired else {
            return Ok(false);
        };
        let mut secrets = app.spec.services.values().flat_map(references);
        let has_own = secrets.any(|secret| matches!(secret, SecretRef::App(_)));
        if !has_own || snapshot.records.ownership.is_some() {
            return Ok(false);
        }
        let records = &self.ctx.records;
        let key = records.keys().ownership(&snapshot.app);
        records
            .commit(key, None, ownership, Changes::default())
            .await?;
        Ok(true)
    }
}

impl Run<'_> {
    /// What the service's secrets are called in Podman.
    pub(super) fn needed_secrets(&self, spec: &ServiceSpec) -> NeededSecrets {
        NeededSecrets::of(self.app, self.ownership.incarnation, spec)
    }

    /// Whether the container of this service gets any, be it the one that is being made
    /// or the one that serves; also when that can't be told.
    pub(super) fn has_secrets(&self, service: &ServiceName) -> bool {
        let made = self.candidates.get(service).map(|made| made.revision);
        let serves = self.active.services.get(service).map(|it| it.revision);
        let mut revisions = made.into_iter().chain(serves).peekable();
        revisions.peek().is_none()
            || revisions.any(|revision| {
                let pinned = self.pinned_at(service, revision);
                pinned.map_or(true, |pinned| references(&pinned.spec).next().is_some())
            })
    }

    /// The files' versions just before the create, which copies them. One that changes
    /// meanwhile shows as rotated: better once too often.
    pub(super) async fn note_files(&mut self, service: &ServiceName) -> Result<(), StepError> {
        let revision = self.candidate(service)?.revision;
        let wanted = self.needed_secrets(&self.pinned_at(service, revision)?.spec);
        let files = self.ctx.versions(&wanted.files).await;
        let files = files.map_err(|error| runtime_failure(&error))?;
        self.candidate_mut(service)?.secrets.files = files;
        Ok(())
    }

    /// The environment's versions just before a start, which looks them up.
    pub(super) async fn note_env(&mut self, service: &ServiceName) -> Result<(), StepError> {
        let env = self.env_versions(service).await?;
        self.candidate_mut(service)?.secrets.env = env;
        Ok(())
    }

    /// The same for a container that somebody else started: it took what was there
    /// then, which is what is there now unless that was set later.
    pub(super) async fn note_env_since(
        &mut self,
        service: &ServiceName,
        container: &Container,
    ) -> Result<(), StepError> {
        let Some(started_at) = container.started_at else {
            return Ok(());
        };
        let before = self
            .env_versions(service)
            .await?
            .into_iter()
            .filter(|(_, version)| version.updated_at <= started_at);
        self.candidate_mut(service)?.secrets.env.extend(before);
        Ok(())
    }

    async fn env_versions(&self, service: &ServiceName) -> Result<Versions, StepError> {
        let revision = self.candidate(service)?.revision;
        let wanted = self.needed_secrets(&self.pinned_at(service, revision)?.spec);
        let env = self.ctx.versions(&wanted.env).await;
        Ok(env.map_err(|error| runtime_failure(&error))?)
    }

    /// The service's secrets as the container gets them.
    pub(super) fn secrets_for(&self, spec: &ServiceSpec) -> (Vec<SecretEnv>, Vec<SecretMount>) {
        let name = |secret| podman_name(self.app, self.ownership.incarnation, secret);
        let env = spec.secrets.iter().map(|(variable, secret)| SecretEnv {
            variable: variable.clone(),
            secret: name(secret),
        });
        let (uid, gid) = owner(spec.user.as_deref());
        let files = spec.files.iter().map(|file| SecretMount {
            secret: name(&file.secret),
            path: file.path.clone(),
            mode: file.mode_bits(),
            uid,
            gid,
        });
        (env.collect(), files.collect())
    }
}

/// Whom the files belong to: the service's user where that is a number. Names are
/// known to the image only.
fn owner(user: Option<&str>) -> (u32, u32) {
    let (user, group) = user.map_or(("", ""), |user| user.split_once(':').unwrap_or((user, "")));
    let number = |text: &str| text.parse().unwrap_or(0);
    (number(user), number(group))
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn files_belong_to_the_user_where_it_is_a_number() {
        assert_eq!(owner(Some("1000:100")), (1000, 100));
        assert_eq!(owner(Some("1000")), (1000, 0));
        assert_eq!(owner(Some("web:web")), (0, 0));
        assert_eq!(owner(None), (0, 0));
    }
}
