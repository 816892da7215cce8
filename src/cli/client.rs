//! etcd as the commands of people see it: they read records, and write manifests and
//! requests, like anybody with `etcdctl`.

use std::sync::Arc;

use anyhow::bail;

use crate::manifest::AppName;
use crate::settings::{ConfigOption, EtcdOptions};
use crate::state::{Keys, Leader, Record, decode};
use crate::store::{self, Entry, EtcdStore, Kept, Range, Records, Store, authority};

/// Where etcd is.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Reach {
    #[command(flatten)]
    config: ConfigOption,
    #[command(flatten)]
    etcd: EtcdOptions,
}

impl Reach {
    /// Connects. Somebody waits: what can't be reached now is an error.
    pub(super) async fn connect(self) -> anyhow::Result<Client> {
        let file = self.config.load()?;
        Client::connect(&self.etcd.resolve(&file)?).await
    }
}

/// A connection to etcd.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub store: Arc<dyn Store>,
    pub keys: Keys,
}

/// A record that was found below a prefix.
#[derive(Debug)]
pub(super) struct Found<T> {
    /// The parts of its key below that prefix.
    pub path: Vec<String>,
    pub record: T,
    pub create_revision: i64,
}

impl<T> Found<T> {
    /// The first part of its key below the prefix; of most records, the app.
    pub(super) fn app(&self) -> &str {
        self.path.first().map_or("", String::as_str)
    }
}

impl Client {
    pub(super) async fn connect(etcd: &store::EtcdOptions) -> anyhow::Result<Self> {
        Ok(Self {
            store: Arc::new(EtcdStore::connect(etcd).await?),
            keys: Keys::new(&etcd.prefix),
        })
    }

    /// The records, to read: without authority nothing is written through them.
    pub(super) fn records(&self) -> Records {
        let (_keeper, nobody) = authority();
        Records::new(Arc::clone(&self.store), self.keys.clone(), nobody)
    }

    /// All entries of a range.
    pub(super) async fn entries(&self, range: Range) -> anyhow::Result<Vec<Entry>> {
        let view = self.store.read(&[range]).await?;
        Ok(view.ranges.into_iter().flatten().collect())
    }

    /// One record; `None` when there is none.
    pub(super) async fn one<T: Record>(&self, key: String) -> anyhow::Result<Option<Kept<T>>> {
        let entries = self.entries(Range::Key(key)).await?;
        Ok(entries.first().and_then(|entry| {
            let record = read(entry)?;
            let mod_revision = entry.mod_revision;
            Some(Kept {
                record,
                mod_revision,
            })
        }))
    }

    /// All records below a prefix. One that can't be read is told about and left out:
    /// it belongs to one app, and mustn't hide all others.
    pub(super) async fn list<T: Record>(&self, prefix: String) -> anyhow::Result<Vec<Found<T>>> {
        let entries = self.entries(Range::Prefix(prefix.clone())).await?;
        let found = entries.iter().filter_map(|entry| {
            Some(Found {
                path: below(&prefix, &entry.key),
                record: read(entry)?,
                create_revision: entry.create_revision,
            })
        });
        Ok(found.collect())
    }

    /// Who leads; `None` when no controller runs.
    pub(super) async fn leader(&self) -> anyhow::Result<Option<Leader>> {
        let leaders = self.list(self.keys.leader()).await?;
        Ok(leaders.into_iter().next().map(|found| found.record))
    }

    /// The names of all apps that have a manifest or a status.
    pub(super) async fn names(&self) -> anyhow::Result<Vec<String>> {
        let prefixes = [self.keys.apps(), self.keys.statuses()];
        let view = self
            .store
            .read(&prefixes.clone().map(Range::Prefix))
            .await?;
        let mut names: Vec<String> = (prefixes.iter().zip(&view.ranges))
            .flat_map(|(prefix, entries)| entries.iter().map(|entry| below(prefix, &entry.key)))
            .filter_map(|path| path.into_iter().next())
            .collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// An error that names the apps there are, unless this is one of them.
    pub(super) async fn must_know(&self, app: &AppName) -> anyhow::Result<()> {
        let names = self.names().await?;
        if names.iter().any(|name| name == app.as_str()) {
            return Ok(());
        }
        let prefix = self.keys.prefix();
        match names.as_slice() {
            [] => bail!("there is no app {app}, and no other in {prefix}: apply a manifest first"),
            names => bail!(
                "there is no app {app} in {prefix}; there are {}",
                names.join(", ")
            ),
        }
    }
}

/// The record in an entry; one that can't be read is told about.
pub(super) fn read<T: Record>(entry: &Entry) -> Option<T> {
    match decode(&entry.value) {
        Ok(record) => Some(record),
        Err(error) => {
            super::note(&format!("{}: {error}", entry.key));
            None
        }
    }
}

/// The parts of a key below a prefix.
pub(super) fn below(prefix: &str, key: &str) -> Vec<String> {
    let tail = key.strip_prefix(prefix).unwrap_or_default();
    tail.split('/').map(str::to_owned).collect()
}
