//! What people write: the manifest's types, parsing, validation, JSON Schema.
//!
//! Nothing here does I/O. A text becomes an [`App`] or a [`ManifestError`] that
//! names the path in the document, the line and the column of every problem:
//!
//! 1. `limits`: small enough, UTF-8;
//! 2. `positions`: one document, not too deep, no key twice; where everything stands;
//! 3. `document`: the text as a tree of plain values;
//! 4. `structure`: the tree as the types in `spec`, `probe`, `quantity`, `names`;
//! 5. `checks`: what the types can't say, such as a probe on an undeclared port;
//! 6. `unsupported`: what is well said and not done yet.

mod checks;
mod defaults;
mod device;
mod document;
mod envelope;
mod error;
mod limits;
mod names;
mod order;
mod path;
mod placement;
mod ports;
mod positions;
mod probe;
mod probe_form;
mod quantity;
mod reference;
mod schema;
mod secret;
mod signal;
mod spec;
mod status_range;
mod structure;
#[cfg(test)]
mod tests;
mod unsupported;

pub use device::{Device, DeviceAccess, DeviceAccessError, DeviceError};
pub use error::{ManifestError, Problem};
pub use limits::MAX_BYTES;
pub use names::{
    AppName, NameError, NetworkName, NodeName, PortName, SecretName, ServiceName, VolumeName,
};
pub use placement::{Placement, SharedNetwork};
pub use ports::{AppProtocol, HttpRoute, Port, Protocol, StreamRoute, Tls};
pub use probe::{Check, Liveness, Readiness, Startup};
pub use quantity::{Bytes, Cpus, QuantityError, Timespan};
pub use reference::ImageParts;
pub use schema::schema;
pub use secret::{SecretFile, SecretRef};
pub use signal::signal_number;
pub use spec::{
    App, AppSpec, BindMount, LogDriver, Logging, OnFailure, PullPolicy, Resources, RestartPolicy,
    Security, ServiceSpec, Strategy, Tmpfs, Update, Userns, VolumeMount,
};
pub use status_range::StatusRange;

use serde::de::DeserializeOwned;

use error::Report;

/// Reads the manifest that stands under an etcd key whose last part is `key_name`.
///
/// YAML and JSON are both taken. All problems that can be found are reported at
/// once; an app that is returned can be deployed as far as its text can tell.
pub fn parse(key_name: &str, text: &[u8]) -> Result<App, ManifestError> {
    read(key_name, text, Language::Supported)
}

/// Reads a document of another kind as strictly: every unknown field, duplicate key
/// and wrong value is reported with its path, line and column.
pub fn read_strictly<T: DeserializeOwned>(text: &[u8]) -> Result<T, ManifestError> {
    let document::Tree { value, positions } = document::read(text)?;
    let mut report = Report::new(&positions);
    let mut damage = structure::Damage::default();
    let typed = structure::salvage(&value, &path::Path::root(), &mut report, &mut damage);
    report.finish(typed)
}

/// Whether a YAML text has only comments and empty lines.
pub fn says_nothing(text: &str) -> bool {
    text.lines()
        .map(str::trim_start)
        .all(|line| line.is_empty() || line.starts_with('#'))
}

/// Whether this is a capability of Linux, with or without `CAP_`; `ALL` is none.
pub fn is_capability(name: &str) -> bool {
    checks::is_capability(name)
}

/// Whether a path is absolute, without `.`, `..`, doubled and trailing slashes.
pub fn is_plain_path(path: &str) -> bool {
    checks::is_absolute(path)
}

/// The name that a manifest gives itself, where its text can be read so far.
pub fn own_name(text: &[u8]) -> Option<String> {
    let tree = document::read(text).ok()?;
    Some(tree.value["metadata"]["name"].as_str()?.to_owned())
}

/// Reads a manifest in the whole language, with what is not supported yet.
#[cfg(test)]
fn parse_all(key_name: &str, text: &[u8]) -> Result<App, ManifestError> {
    read(key_name, text, Language::Whole)
}

/// How much of the manifest's language is accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    Supported,
    #[cfg(test)]
    Whole,
}

fn read(key_name: &str, text: &[u8], language: Language) -> Result<App, ManifestError> {
    let document::Tree { value, positions } = document::read(text)?;
    let mut report = Report::new(&positions);
    let structure::Typed {
        metadata,
        spec,
        damage,
    } = structure::typed(&value, &mut report);
    let mark = report.len();
    if let Some(metadata) = &metadata {
        checks::metadata(key_name, metadata, &mut report);
    }
    if let Some(spec) = &spec {
        checks::spec(spec, &mut report);
    }
    if let (Some(metadata), Some(spec)) = (&metadata, &spec) {
        checks::host_names(&metadata.name, spec, &mut report);
    }
    report.retain_after(mark, |path| damage.spares(path));
    if spec.is_some() && language == Language::Supported {
        unsupported::refuse(&value, &mut report);
    }
    report.finish(
        metadata
            .zip(spec)
            .map(|(metadata, spec)| envelope::app(metadata, spec)),
    )
}
