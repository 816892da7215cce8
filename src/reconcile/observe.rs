//! Gathers what one pass decides from.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::{join_all, try_join};

use crate::manifest::{self, AppName};
use crate::plan::{Desired, Pending, Snapshot};
use crate::runtime::{Container, Labels};
use crate::state::{Asked, ContainerId, Incarnation, labels, parse_id};
use crate::store::{AppRecords, Entry};

use super::Reconciler;
use super::error::ReconcileError;

impl Reconciler {
    /// Everything about an app: its records at one revision, its routes, its
    /// containers.
    ///
    /// # Errors
    /// When any of it couldn't be read; then nothing is decided.
    pub async fn observe(&self, app: &AppName) -> Result<Snapshot, ReconcileError> {
        let records = async { Ok::<_, ReconcileError>(self.ctx.records.load(app).await?) };
        let (records, containers) = try_join(records, self.containers(app)).await?;
        let routes = self.ctx.traffic.current(app).await?;
        let secrets = self.ctx.secrets_of(app, &records).await?;
        let (containers, strangers) = self.sort_out(&records, containers).await?;
        let retry = self.pacing.deploy(app, records.manifest.as_ref());
        let mut snapshot = Snapshot {
            app: app.clone(),
            node: self.ctx.node.clone(),
            desired: desired(app, records.manifest.as_ref()),
            unhealthy: self.ctx.vitals.unhealthy(app),
            restarts: self.pacing.restarts(app),
            deploy_due: retry,
            requests: self.requests(app, &records),
            records,
            routes,
            containers,
            strangers,
            secrets,
            restart_due: BTreeMap::new(),
            denied: None,
            verdicts: BTreeMap::new(),
        };
        snapshot.restart_due = self.pacing.restart_due(&snapshot);
        self.judge(&mut snapshot).await;
        Ok(snapshot)
    }

    /// What people ask for, read.
    fn requests(&self, app: &AppName, records: &AppRecords) -> Vec<Pending> {
        let prefix = self.ctx.records.keys().requests_of(app);
        let read = |entry: &Entry| Pending {
            key: entry.key.clone(),
            asked: parse_id(entry.key.strip_prefix(&prefix).unwrap_or_default())
                .and_then(|id| Ok((id, Asked::parse(&entry.value)?))),
        };
        records.requests.iter().map(read).collect()
    }

    /// The containers that carry the app's name. One that goes between the list
    /// and its inspection is left out.
    async fn containers(&self, app: &AppName) -> Result<Vec<Container>, ReconcileError> {
        let wanted = Labels::from([(labels::APP.to_owned(), app.to_string())]);
        let listed = self.ctx.runtime.list(&wanted).await?;
        let inspected = join_all(
            listed
                .iter()
                .map(|found| self.ctx.runtime.inspect(found.id.as_str())),
        )
        .await;
        let mut containers = Vec::with_capacity(inspected.len());
        for found in inspected {
            containers.extend(found?);
        }
        Ok(containers)
    }

    /// Tells the containers of incarnations known here, live or ended, from
    /// those of unknown ones, which are left alone.
    async fn sort_out(
        &self,
        records: &AppRecords,
        containers: Vec<Container>,
    ) -> Result<(Vec<Container>, Vec<ContainerId>), ReconcileError> {
        let live = records.ownership.as_ref();
        let mut known: BTreeSet<Incarnation> =
            live.map(|live| live.incarnation).into_iter().collect();
        let found: BTreeSet<Incarnation> = containers.iter().filter_map(incarnation).collect();
        for other in found {
            if !known.contains(&other) && self.ctx.records.retained(other).await?.is_some() {
                known.insert(other);
            }
        }
        let is_known = |container: &Container| {
            incarnation(container).is_some_and(|incarnation| known.contains(&incarnation))
        };
        let (ours, strangers): (Vec<_>, Vec<_>) = containers.into_iter().partition(is_known);
        let strangers = strangers.into_iter().map(|container| container.id);
        Ok((ours, strangers.collect()))
    }
}

fn incarnation(container: &Container) -> Option<Incarnation> {
    container
        .labels
        .get(labels::INCARNATION)?
        .parse()
        .ok()
        .map(Incarnation)
}

fn desired(app: &AppName, entry: Option<&Entry>) -> Desired {
    let Some(entry) = entry else {
        return Desired::Absent;
    };
    let source = entry.mod_revision;
    match manifest::parse(app.as_str(), &entry.value) {
        Ok(app) => Desired::App {
            source,
            app: Box::new(app),
        },
        Err(error) => Desired::Invalid {
            source,
            message: error.to_string(),
        },
    }
}
