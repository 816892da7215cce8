//! The layout of the etcd keys (DESIGN: the etcd keys), in one place.

use jiff::Timestamp;

use crate::manifest::{AppName, NodeName, Protocol, ServiceName};

use super::ids::{ContainerId, Incarnation, OperationId, RevisionNumber};

/// Builds and reads keys under one prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    /// Keys under `prefix`; a trailing slash is dropped.
    pub fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.trim_end_matches('/').to_owned(),
        }
    }

    /// The prefix, without a trailing slash.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    fn at(&self, tail: std::fmt::Arguments<'_>) -> String {
        format!("{}/{tail}", self.prefix)
    }

    /// All manifests.
    pub fn apps(&self) -> String {
        self.at(format_args!("apps/"))
    }

    /// One manifest.
    pub fn app(&self, app: &AppName) -> String {
        self.at(format_args!("apps/{app}"))
    }

    /// The last part of a manifest's key; `None` for a key elsewhere.
    pub fn app_of<'k>(&self, key: &'k str) -> Option<&'k str> {
        key.strip_prefix(&self.prefix)?.strip_prefix("/apps/")
    }

    /// All requests of all apps.
    pub fn requests(&self) -> String {
        self.at(format_args!("requests/"))
    }

    /// The app of a request's key; `None` for a key elsewhere.
    pub fn requested_of<'k>(&self, key: &'k str) -> Option<&'k str> {
        let tail = key.strip_prefix(&self.prefix)?.strip_prefix("/requests/")?;
        tail.split_once('/').map(|(app, _)| app)
    }

    /// All requests of one app.
    pub fn requests_of(&self, app: &AppName) -> String {
        self.at(format_args!("requests/{app}/"))
    }

    /// One request.
    pub fn request(&self, app: &AppName, id: &OperationId) -> String {
        self.at(format_args!("requests/{app}/{id}"))
    }

    /// An app's status.
    pub fn status(&self, app: &AppName) -> String {
        self.at(format_args!("status/{app}"))
    }

    /// All statuses.
    pub fn statuses(&self) -> String {
        self.at(format_args!("status/"))
    }

    /// All ACTIVE records.
    pub fn actives(&self) -> String {
        self.at(format_args!("state/active/"))
    }

    /// An app's ACTIVE record.
    pub fn active(&self, app: &AppName) -> String {
        self.at(format_args!("state/active/{app}"))
    }

    /// All intents.
    pub fn intents(&self) -> String {
        self.at(format_args!("state/intent/"))
    }

    /// An app's intent.
    pub fn intent(&self, app: &AppName) -> String {
        self.at(format_args!("state/intent/{app}"))
    }

    /// All ownership records.
    pub fn ownerships(&self) -> String {
        self.at(format_args!("state/ownership/"))
    }

    /// An app's ownership record.
    pub fn ownership(&self, app: &AppName) -> String {
        self.at(format_args!("state/ownership/{app}"))
    }

    /// All ended incarnations.
    pub fn retained_all(&self) -> String {
        self.at(format_args!("state/retained/"))
    }

    /// What an ended incarnation left.
    pub fn retained(&self, incarnation: Incarnation) -> String {
        self.at(format_args!("state/retained/{incarnation}"))
    }

    /// All revisions of an app.
    pub fn revisions(&self, app: &AppName) -> String {
        self.at(format_args!("state/revisions/{app}/"))
    }

    /// One revision; numbers are padded so that keys sort by them.
    pub fn revision(&self, app: &AppName, number: RevisionNumber) -> String {
        self.at(format_args!("state/revisions/{app}/{:08}", number.0))
    }

    /// All revisions of all apps.
    pub fn revisions_all(&self) -> String {
        self.at(format_args!("state/revisions/"))
    }

    /// The journals of all apps.
    pub fn operations_all(&self) -> String {
        self.at(format_args!("state/operations/"))
    }

    /// The journal of an app, oldest first.
    pub fn operations(&self, app: &AppName) -> String {
        self.at(format_args!("state/operations/{app}/"))
    }

    /// One operation.
    pub fn operation(&self, app: &AppName, id: &OperationId) -> String {
        self.at(format_args!("state/operations/{app}/{id}"))
    }

    /// All inhibitions of all apps.
    pub fn inhibitions_all(&self) -> String {
        self.at(format_args!("state/inhibitions/"))
    }

    /// All inhibitions of an app.
    pub fn inhibitions(&self, app: &AppName) -> String {
        self.at(format_args!("state/inhibitions/{app}/"))
    }

    /// One inhibition.
    pub fn inhibition(
        &self,
        app: &AppName,
        service: &ServiceName,
        container: &ContainerId,
    ) -> String {
        self.at(format_args!(
            "state/inhibitions/{app}/{service}/{container}"
        ))
    }

    /// All claims on a host's ports.
    pub fn binds(&self, node: &NodeName) -> String {
        self.at(format_args!("state/binds/{node}/"))
    }

    /// The claim on one host port.
    pub fn bind(&self, node: &NodeName, protocol: Protocol, port: u16) -> String {
        self.at(format_args!(
            "state/binds/{node}/{}/{port}",
            protocol.as_str()
        ))
    }

    /// All published routes.
    pub fn routes(&self) -> String {
        self.at(format_args!("traffic/routes/"))
    }

    /// An app's published routes.
    pub fn route(&self, app: &AppName) -> String {
        self.at(format_args!("traffic/routes/{app}"))
    }

    /// All registered data planes.
    pub fn proxies(&self) -> String {
        self.at(format_args!("proxies/"))
    }

    /// One data plane of a host.
    pub fn proxy(&self, node: &NodeName, name: &str) -> String {
        self.at(format_args!("proxies/{node}/{name}"))
    }

    /// The events of all apps.
    pub fn events(&self) -> String {
        self.at(format_args!("events/"))
    }

    /// The events of an app, oldest first.
    pub fn events_of(&self, app: &AppName) -> String {
        self.at(format_args!("events/{app}/"))
    }

    /// One event; keys of an app sort by time.
    pub fn event(&self, app: &AppName, at: Timestamp, serial: u32) -> String {
        self.at(format_args!("events/{app}/{at:.6}-{serial:04}"))
    }

    /// All hosts.
    pub fn nodes(&self) -> String {
        self.at(format_args!("nodes/"))
    }

    /// One host's heartbeat.
    pub fn node(&self, node: &NodeName) -> String {
        self.at(format_args!("nodes/{node}"))
    }

    /// Who leads.
    pub fn leader(&self) -> String {
        self.at(format_args!("leader/controller"))
    }
}
