//! Names people choose, parsed once at the edge.
//!
//! A name is a DNS label (RFC 1123): 1 to 63 characters of `a-z`, `0-9` and
//! `-`, starting and ending with a letter or digit.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Longest DNS label that RFC 1123 allows.
const MAX_LABEL: usize = 63;

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a DNS label: use 1 to 63 characters of a-z, 0-9 and '-', starting and ending with a letter or digit"
)]
pub struct NameError {
    text: String,
}

fn is_dns_label(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    (1..=MAX_LABEL).contains(&bytes.len())
        && bytes.iter().all(|&byte| plain(byte) || byte == b'-')
        && bytes.first().is_some_and(|&byte| plain(byte))
        && bytes.last().is_some_and(|&byte| plain(byte))
}

macro_rules! dns_label {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::try_from(text.to_owned())
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                if is_dns_label(&text) { Ok(Self(text)) } else { Err(NameError { text }) }
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string",
                    "maxLength": MAX_LABEL,
                    "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
                })
            }
        }
    };
}

dns_label! {
    /// The name of an app; the last part of its etcd key.
    AppName
}
dns_label! {
    /// The name of a service, unique within its app.
    ServiceName
}
dns_label! {
    /// The name of a declared container port, unique within its service.
    PortName
}
dns_label! {
    /// The name of a volume, unique within its app.
    VolumeName
}
dns_label! {
    /// The name of an app's own secret, unique within its app.
    SecretName
}
dns_label! {
    /// The name of a shared network.
    NetworkName
}
dns_label! {
    /// The name of a host that runs Podherd.
    NodeName
}
