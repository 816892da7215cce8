//! The YAML file. Every key is optional; an unknown one is an error.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

use super::controller::PortRange;
use super::{SettingsError, read};
use crate::manifest::{NodeName, Timespan, says_nothing};
use crate::telemetry::LogFormat;

/// What the YAML file says: the flags, under their names without the dashes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[allow(missing_docs)] // Each is the flag of its name, documented in `--help`.
pub struct File {
    #[serde(deserialize_with = "list")]
    pub etcd: Option<Vec<String>>,
    pub local_etcd: Option<bool>,
    pub etcd_binary: Option<PathBuf>,
    pub local_etcd_port: Option<u16>,
    pub etcd_user: Option<String>,
    pub etcd_password_file: Option<PathBuf>,
    pub etcd_ca: Option<PathBuf>,
    pub etcd_cert: Option<PathBuf>,
    pub etcd_key: Option<PathBuf>,
    pub prefix: Option<String>,
    pub podman: Option<String>,
    pub auth_file: Option<PathBuf>,
    pub pull_timeout: Option<Timespan>,
    pub pull_stall: Option<Timespan>,
    pub node: Option<NodeName>,
    pub state_dir: Option<PathBuf>,
    pub policy: Option<PathBuf>,
    pub port_range: Option<PortRange>,
    pub workers: Option<usize>,
    pub resync: Option<Timespan>,
    #[serde(deserialize_with = "list")]
    pub http: Option<Vec<SocketAddr>>,
    pub l4_bind: Option<IpAddr>,
    pub proxy_name: Option<String>,
    pub listen: Option<SocketAddr>,
    pub log: Option<String>,
    pub log_format: Option<LogFormat>,
}

impl File {
    pub(super) fn read(path: &Path) -> Result<Self, SettingsError> {
        let bytes = read("--config", path)?;
        let refused = |place, message| SettingsError::File {
            path: path.to_owned(),
            place,
            message,
        };
        let text = std::str::from_utf8(&bytes)
            .map_err(|error| refused(None, format!("not UTF-8: {error}")))?;
        if says_nothing(text) {
            return Ok(Self::default());
        }
        serde_yaml::from_str(text).map_err(|error| {
            let place = error.location();
            refused(
                place.map(|place| (place.line(), place.column())),
                plain(&error),
            )
        })
    }
}

/// The message without the place, which stands before it already.
fn plain(error: &serde_yaml::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// One value, several with commas between them, or a list.
fn list<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: std::str::FromStr<Err: fmt::Display>,
{
    struct List<T>(std::marker::PhantomData<T>);

    impl<'de, T: std::str::FromStr<Err: fmt::Display>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value or a list of values")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            text.split(',').map(|part| parse(part.trim())).collect()
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(part) = parts.next_element::<String>()? {
                list.push(parse(&part)?);
            }
            Ok(list)
        }
    }

    fn parse<T: std::str::FromStr<Err: fmt::Display>, E: de::Error>(text: &str) -> Result<T, E> {
        text.parse()
            .map_err(|error| E::custom(format_args!("{text:?}: {error}")))
    }

    deserializer
        .deserialize_any(List(std::marker::PhantomData))
        .map(Some)
}
