//! What a service does when its manifest doesn't say, where that depends on the rest.

use super::probe::{Check, Readiness};
use super::spec::ServiceSpec;
use super::status_range::StatusRange;

impl ServiceSpec {
    /// The readiness that decides: the one stated, or else a GET on the first HTTP
    /// route's port, a connection to the first TCP route's port, or nothing.
    pub fn effective_readiness(&self) -> Readiness {
        if let Some(readiness) = &self.readiness {
            return readiness.clone();
        }
        let check = if let Some(route) = self.http.first() {
            Check::Http {
                path: "/".to_owned(),
                port: route.port.clone(),
                status: StatusRange::default(),
            }
        } else if let Some(route) = self.tcp.first() {
            Check::Tcp {
                port: route.port.clone(),
            }
        } else {
            Check::None
        };
        Readiness::of(check)
    }
}
