//! Secrets by reference: their values are never written in a manifest.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use super::names::SecretName;

/// Why a reference could not be told.
const EXACTLY_ONE: &str = "say exactly one of podman or app";

/// A secret by reference: one of the host's, or one of the app's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "RawRef", into = "RawRef")]
pub enum SecretRef {
    /// A Podman secret of the host, by its name.
    Podman(String),
    /// A secret that belongs to this incarnation of the app.
    App(SecretName),
}

/// A secret mounted as a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "RawFile", into = "RawFile")]
pub struct SecretFile {
    /// Absolute path in the container.
    pub path: String,
    /// The secret.
    pub secret: SecretRef,
    /// Octal file mode.
    pub mode: String,
}

impl SecretFile {
    /// The mode as a number; 0400 where the text is none.
    pub fn mode_bits(&self) -> u32 {
        u32::from_str_radix(&self.mode, 8).unwrap_or(0o400)
    }
}

/// As it is written. An enum would be a tag in YAML.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(transform = exactly_one_secret)]
struct RawRef {
    /// Name of a Podman secret of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    podman: Option<String>,
    /// Name of a secret of the app's own, as set by `podherd secret set`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    app: Option<SecretName>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(transform = exactly_one_secret)]
struct RawFile {
    /// Absolute path in the container.
    path: String,
    /// Name of a Podman secret of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    podman: Option<String>,
    /// Name of a secret of the app's own, as set by `podherd secret set`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    app: Option<SecretName>,
    /// Octal file mode. Default 0400. The file belongs to the service's `user` where
    /// that is a number, and to root otherwise.
    #[serde(default = "default_file_mode")]
    mode: String,
}

fn default_file_mode() -> String {
    "0400".to_owned()
}

fn exactly_one_secret(schema: &mut Schema) {
    let choices = ["podman", "app"].map(|word| serde_json::json!({ "required": [word] }));
    schema.insert("oneOf".to_owned(), choices.to_vec().into());
}

impl TryFrom<RawRef> for SecretRef {
    type Error = &'static str;

    fn try_from(raw: RawRef) -> Result<Self, &'static str> {
        match (raw.podman, raw.app) {
            (Some(name), None) => Ok(Self::Podman(name)),
            (None, Some(name)) => Ok(Self::App(name)),
            (None, None) | (Some(_), Some(_)) => Err(EXACTLY_ONE),
        }
    }
}

impl From<SecretRef> for RawRef {
    fn from(secret: SecretRef) -> Self {
        let (podman, app) = match secret {
            SecretRef::Podman(name) => (Some(name), None),
            SecretRef::App(name) => (None, Some(name)),
        };
        Self { podman, app }
    }
}

impl TryFrom<RawFile> for SecretFile {
    type Error = &'static str;

    fn try_from(raw: RawFile) -> Result<Self, &'static str> {
        let secret = RawRef {
            podman: raw.podman,
            app: raw.app,
        };
        Ok(Self {
            path: raw.path,
            secret: secret.try_into()?,
            mode: raw.mode,
        })
    }
}

impl From<SecretFile> for RawFile {
    fn from(file: SecretFile) -> Self {
        let RawRef { podman, app } = file.secret.into();
        Self {
            path: file.path,
            podman,
            app,
            mode: file.mode,
        }
    }
}
