//! What people write: the manifest's types, parsing, validation, JSON Schema.
//!
//! Nothing here does I/O. A text becomes an [`App`] or a [`ManifestError`] that
//! names the path in the document, the line and the column.

mod names;
mod probe;
mod quantity;
mod spec;

pub use names::{AppName, NameError, NetworkName, NodeName, PortName, ServiceName, VolumeName};
pub use probe::{Check, Liveness, Readiness, Startup, StatusRange};
pub use quantity::{Bytes, Cpus, Timespan};
pub use spec::{
    App, AppProtocol, AppSpec, BindMount, HttpRoute, LogDriver, Logging, OnFailure, Placement,
    Port, Protocol, PullPolicy, Resources, RestartPolicy, SecretFile, SecretRef, Security,
    ServiceSpec, SharedNetwork, Strategy, StreamRoute, Tls, Tmpfs, Update, Userns, VolumeMount,
};
