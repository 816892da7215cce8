//! Secrets and the list of volumes. `podman-api` would send a secret's value as JSON,
//! quotes and all; and its volume list can't tell which are in use.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Deserialize;

use super::super::{Labels, Runtime as _, RuntimeError, Secret, SecretValue, Volume};
use super::fault::Fault;
use super::socket::{Socket, encoded};
use super::{Podman, bounded};
use crate::state::SecretVersion;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Told {
    #[serde(rename = "ID")]
    id: String,
    updated_at: Timestamp,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    name: String,
    labels: Option<Labels>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedVolume {
    name: String,
    labels: Option<Labels>,
}

impl Podman {
    pub(super) async fn list_secrets(&self) -> Result<Vec<Secret>, RuntimeError> {
        let call = "list secrets";
        let list = self.socket.get::<Option<Vec<Told>>>("/secrets/json");
        let list = bounded(call, self.deadlines.look, list).await?;
        let list = list.map_err(|fault| fault.of_call(call))?;
        let shown = |told: Told| Secret {
            name: told.spec.name,
            version: SecretVersion {
                id: told.id,
                updated_at: told.updated_at,
            },
        };
        Ok(list.into_iter().flatten().map(shown).collect())
    }

    pub(super) async fn look_at_secret(&self, name: &str) -> Result<Option<Labels>, RuntimeError> {
        let call = "inspect secret";
        let path = format!("/secrets/{}/json", encoded(name));
        let told = bounded(call, self.deadlines.look, self.socket.get::<Told>(&path)).await?;
        match told {
            // Podman also answers to the first digits of an ID.
            Ok(told) if told.spec.name != name => Ok(None),
            Ok(told) => Ok(Some(told.spec.labels.unwrap_or_default())),
            Err(fault) if fault.is_missing() => Ok(None),
            Err(fault) => Err(fault.of_call(call)),
        }
    }

    pub(super) async fn make_secret(
        &self,
        name: &str,
        value: &SecretValue,
        labels: &Labels,
    ) -> Result<(), RuntimeError> {
        let call = "create secret";
        let labels = serde_json::to_string(labels).unwrap_or_default();
        let path = format!(
            "/secrets/create?name={}&labels={}",
            encoded(name),
            encoded(&labels)
        );
        let made = self.socket.upload(&path, value.reveal());
        match bounded(call, self.deadlines.create, made).await? {
            Ok(()) => Ok(()),
            // A 500, as for most of Podman's refusals.
            Err(fault) if fault.says(&["name in use"]) => Err(RuntimeError::NameInUse {
                what: "secret",
                name: name.to_owned(),
            }),
            Err(fault) => Err(fault.of_call(call)),
        }
    }

    pub(super) async fn delete_secret(&self, name: &str) -> Result<(), RuntimeError> {
        // Exactly this one, and never the one whose ID begins so.
        if self.look_at_secret(name).await?.is_none() {
            return Ok(());
        }
        let path = format!("/secrets/{}", encoded(name));
        self.delete("remove secret", &path).await
    }

    pub(super) async fn list_volumes(&self) -> Result<Vec<Volume>, RuntimeError> {
        let all = volumes(&self.socket, "");
        let used = volumes(
            &self.socket,
            "?filters=%7B%22dangling%22%3A%5B%22false%22%5D%7D",
        );
        let lists = async { futures::future::try_join(all, used).await };
        let lists = Box::pin(bounded("list volumes", self.deadlines.look, lists)).await?;
        let (all, used) = lists.map_err(|fault| fault.of_call("list volumes"))?;
        let used: BTreeSet<String> = used.into_iter().map(|volume| volume.name).collect();
        let shown = |volume: ListedVolume| Volume {
            in_use: used.contains(&volume.name),
            name: volume.name,
            labels: volume.labels.unwrap_or_default(),
        };
        Ok(all.into_iter().map(shown).collect())
    }

    pub(super) async fn delete_volume(&self, name: &str) -> Result<(), RuntimeError> {
        // Exactly this one: Podman also takes the beginning of a name.
        if self.volume(name).await?.is_none() {
            return Ok(());
        }
        let path = format!("/volumes/{}?force=false", encoded(name));
        self.delete("remove volume", &path).await.map_err(|error| {
            let used = matches!(&error, RuntimeError::Refused { message, .. }
                if message.contains("being used"));
            if used {
                RuntimeError::InUse {
                    what: "volume",
                    name: name.to_owned(),
                }
            } else {
                error
            }
        })
    }

    /// Deletes by path; what is gone already is a success.
    async fn delete(&self, call: &'static str, path: &str) -> Result<(), RuntimeError> {
        match bounded(call, self.deadlines.remove, self.socket.delete(path)).await? {
            Ok(()) => Ok(()),
            Err(fault) if fault.is_missing() => Ok(()),
            Err(fault) => Err(fault.of_call(call)),
        }
    }
}

async fn volumes(socket: &Socket, filter: &str) -> Result<Vec<ListedVolume>, Fault> {
    let path = format!("/volumes/json{filter}");
    let list = socket.get::<Option<Vec<ListedVolume>>>(&path).await?;
    Ok(list.unwrap_or_default())
}
