//! The manifests in etcd beside those in files: what differs, and how it is written.

use std::collections::BTreeMap;

use anyhow::bail;

use super::client::{Client, below};
use super::manifests::Manifest;
use crate::manifest::{self, AppName};
use crate::store::limit::{OPERATIONS, REQUEST_BYTES};
use crate::store::{Commit, Entry, Range, StoreError, Target, Txn};

/// What becomes of one app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Created,
    Changed,
    Unchanged,
    Pruned,
}

impl Fate {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Pruned => "deleted",
        }
    }
}

/// The manifests in etcd.
#[derive(Debug, Default)]
pub(super) struct Desired(BTreeMap<String, Entry>);

impl Desired {
    pub(super) async fn load(client: &Client) -> anyhow::Result<Self> {
        let prefix = client.keys.apps();
        let entries = client.entries(Range::Prefix(prefix.clone())).await?;
        let name = |entry: &Entry| below(&prefix, &entry.key).join("/");
        let entries = entries.into_iter();
        Ok(Self(entries.map(|entry| (name(&entry), entry)).collect()))
    }

    pub(super) fn get(&self, app: &AppName) -> Option<&Entry> {
        self.0.get(app.as_str())
    }

    /// What applying the manifest would do.
    pub(super) fn fate(&self, manifest: &Manifest) -> Fate {
        match self.get(&manifest.app.name) {
            None => Fate::Created,
            Some(entry) if entry.value == manifest.document.text => Fate::Unchanged,
            Some(_) => Fate::Changed,
        }
    }

    /// The apps with all of these labels that aren't among the manifests. One that
    /// can't be read has no labels.
    pub(super) fn outside(&self, manifests: &[Manifest], labels: &[Label]) -> Vec<AppName> {
        let is_kept = |name: &str| manifests.iter().any(|it| it.app.name.as_str() == name);
        let others = self.0.iter().filter(|(name, _)| !is_kept(name));
        let apps = others.filter_map(|(name, entry)| manifest::parse(name, &entry.value).ok());
        let has =
            |it: &manifest::App, label: &Label| it.labels.get(&label.name) == Some(&label.value);
        apps.filter(|app| labels.iter().all(|label| has(app, label)))
            .map(|app| app.name)
            .collect()
    }

    /// Writes manifests and deletes others, all or nothing: only if what is in etcd is
    /// still what was seen. Answers the revision.
    pub(super) async fn write(
        &self,
        client: &Client,
        put: &[&Manifest],
        delete: &[AppName],
    ) -> anyhow::Result<i64> {
        let mut txn = Txn::default();
        let mut bytes = 0;
        for manifest in put {
            let key = client.keys.app(&manifest.app.name);
            let text = manifest.document.text.clone();
            bytes += key.len() + text.len();
            txn = txn
                .when(key.clone(), self.seen(&manifest.app.name))
                .put(key, text);
        }
        for app in delete {
            let key = client.keys.app(app);
            txn = txn.when(key.clone(), self.seen(app)).delete(key);
        }
        let writes = txn.writes.len();
        if writes > OPERATIONS || bytes > REQUEST_BYTES {
            bail!(
                "{writes} changes of {bytes} bytes are more than one transaction of etcd takes \
                 ({OPERATIONS} and {REQUEST_BYTES}): apply them in parts"
            );
        }
        match client.store.commit(txn).await {
            Ok(Commit::Applied(revision)) => Ok(revision),
            Ok(Commit::Refused(keys)) => bail!(
                "somebody else changed {} meanwhile; nothing was done: look at it (podherd diff), and try again",
                keys.join(", ")
            ),
            Err(error) if error.is_ambiguous() => written(client, put, delete, error).await,
            Err(error) => Err(error.into()),
        }
    }

    fn seen(&self, app: &AppName) -> Target {
        self.get(app).map_or(Target::Absent, |entry| {
            Target::ModRevision(entry.mod_revision)
        })
    }
}

/// An answer that was lost isn't a failure: looks what is there.
async fn written(
    client: &Client,
    put: &[&Manifest],
    delete: &[AppName],
    error: StoreError,
) -> anyhow::Result<i64> {
    let now = Desired::load(client).await?;
    let is_put = |it: &&Manifest| now.fate(it) == Fate::Unchanged;
    if !put.iter().all(is_put) || delete.iter().any(|app| now.get(app).is_some()) {
        return Err(error.into());
    }
    let revisions = put.iter().filter_map(|it| now.get(&it.app.name));
    Ok(revisions
        .map(|entry| entry.mod_revision)
        .max()
        .unwrap_or_default())
}

/// A label that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Label {
    name: String,
    value: String,
}

impl std::str::FromStr for Label {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok(Self {
                name: name.to_owned(),
                value: value.to_owned(),
            }),
            _ => Err("say NAME=VALUE".to_owned()),
        }
    }
}
