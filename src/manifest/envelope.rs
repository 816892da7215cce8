//! The whole document around an app: version, kind, metadata, spec.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::names::AppName;
use super::spec::{App, AppSpec};

/// A Podherd app manifest.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Document {
    /// The version of the manifest's format.
    pub(super) api_version: ApiVersion,
    /// What the manifest describes.
    pub(super) kind: Kind,
    /// The app's name and labels.
    pub(super) metadata: Metadata,
    /// App-wide settings and the services.
    pub(super) spec: AppSpec,
}

/// The version of the manifest's format.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub(super) enum ApiVersion {
    /// The only version so far.
    #[serde(rename = "podherd/v1")]
    V1,
}

/// What the manifest describes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub(super) enum Kind {
    /// An app.
    App,
}

/// The app's name and labels.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Metadata {
    /// The app's name; equals the last part of the etcd key.
    pub(super) name: AppName,
    /// Free labels, also put on every container of the app.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) labels: BTreeMap<String, String>,
}

/// The app that a document's two parts describe.
pub(super) fn app(metadata: Metadata, spec: AppSpec) -> App {
    let Metadata { name, labels } = metadata;
    App { name, labels, spec }
}

/// An app is written as the whole document that parses to it again.
impl Serialize for App {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Document {
            api_version: ApiVersion::V1,
            kind: Kind::App,
            metadata: Metadata {
                name: self.name.clone(),
                labels: self.labels.clone(),
            },
            spec: self.spec.clone(),
        }
        .serialize(serializer)
    }
}
