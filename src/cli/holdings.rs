//! What live and ended incarnations own, for the commands that manage it; and the
//! etcd and the Podman that these work on.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, bail};

use super::client::Client;
use super::connect;
use crate::manifest::AppName;
use crate::runtime::Runtime;
use crate::settings::{ConfigOption, EtcdOptions, Host, PodmanOptions};
use crate::state::{Incarnation, Ownership, Record, Retained, decode};
use crate::store::{Entry, Kept, Range};
use crate::telemetry::Metrics;

/// Where etcd and Podman are.
#[derive(Debug, clap::Args)]
pub(super) struct Reach {
    #[command(flatten)]
    config: ConfigOption,
    #[command(flatten)]
    etcd: EtcdOptions,
    #[command(flatten)]
    podman: PodmanOptions,
}

/// The etcd and the Podman of this host.
pub(super) struct Place {
    pub client: Client,
    pub runtime: Arc<dyn Runtime>,
}

impl Reach {
    /// Connects. Somebody waits: what can't be reached now is an error.
    pub(super) async fn connect(self) -> anyhow::Result<Place> {
        let file = self.config.load()?;
        let etcd = self.etcd.resolve(&file)?;
        let socket = self.podman.resolve(&file, &Host::here())?;
        Ok(Place {
            client: Client::connect(&etcd).await?,
            runtime: connect::podman(&socket, &Metrics::new()?)?,
        })
    }
}

impl Place {
    /// Every incarnation, at one revision of the store.
    pub(super) async fn incarnations(&self) -> anyhow::Result<Incarnations> {
        let Client { store, keys } = &self.client;
        let prefix = keys.ownerships();
        let ranges = [prefix.clone(), keys.retained_all()].map(Range::Prefix);
        let mut view = store.read(&ranges).await?.ranges.into_iter();
        let mut all = Incarnations::default();
        for entry in view.next().unwrap_or_default() {
            let app = entry.key.strip_prefix(&prefix).unwrap_or_default();
            let app: AppName = app.parse().with_context(|| entry.key.clone())?;
            let live: Kept<Ownership> = read(&entry)?;
            all.live.insert(live.record.incarnation, (app, live.record));
        }
        for entry in view.next().unwrap_or_default() {
            let ended: Kept<Retained> = read(&entry)?;
            all.ended.insert(ended.record.incarnation, ended);
        }
        Ok(all)
    }
}

fn read<T: Record>(entry: &Entry) -> anyhow::Result<Kept<T>> {
    let record = decode(&entry.value).with_context(|| entry.key.clone())?;
    Ok(Kept {
        record,
        mod_revision: entry.mod_revision,
    })
}

/// Every incarnation that is known here.
#[derive(Debug, Default)]
pub(super) struct Incarnations {
    pub live: BTreeMap<Incarnation, (AppName, Ownership)>,
    pub ended: BTreeMap<Incarnation, Kept<Retained>>,
}

/// One that somebody named.
pub(super) enum Chosen<'i> {
    Live(&'i AppName, &'i Ownership),
    Ended(&'i Retained),
}

impl Incarnations {
    /// All of them; of one app, living and past; or the one of a UUID.
    pub(super) fn chosen(&self, named: Option<&str>) -> anyhow::Result<Vec<Chosen<'_>>> {
        let is_it = |app: &AppName, incarnation: Incarnation| {
            named.is_none_or(|named| named == app.as_str() || named == incarnation.to_string())
        };
        let live = self.live.values();
        let live = live.filter(|(app, live)| is_it(app, live.incarnation));
        let ended = self.ended.values().map(|kept| &kept.record);
        let ended = ended.filter(|ended| is_it(&ended.app, ended.incarnation));
        let chosen: Vec<_> = live
            .map(|(app, live)| Chosen::Live(app, live))
            .chain(ended.map(Chosen::Ended))
            .collect();
        match named {
            Some(named) if chosen.is_empty() => {
                bail!("{named} is neither an app nor an incarnation that is known here")
            }
            _ => Ok(chosen),
        }
    }
}
