//! Which privileges may be given.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Denial;
use super::scope::Scope;
use crate::manifest::{AppName, Security, ServiceName, Userns, is_capability};

/// What Podman gives to every container: to give it again to one that has dropped
/// all gives nothing that needs an allowance.
const ORDINARY: [&str; 11] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Which privileges may be given, beyond the ordinary ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Privileges {
    cap_add: BTreeMap<Capability, Privileged>,
    host_userns: Option<Privileged>,
}

/// Who may have it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Privileged {
    apps: Scope,
}

/// A capability, without `CAP_`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
struct Capability(String);

impl Privileges {
    pub(super) fn permit(
        &self,
        app: &AppName,
        service: &ServiceName,
        security: &Security,
    ) -> Result<(), Denial> {
        let covers = |given: Option<&Privileged>| {
            given.is_some_and(|privileged| privileged.apps.covers(app, service))
        };
        for name in &security.cap_add {
            let capability = Capability(plain(name).to_owned());
            let ordinary = ORDINARY.contains(&capability.0.as_str());
            if !ordinary && !covers(self.cap_add.get(&capability)) {
                return Err(denied(format!("capability {name}")));
            }
        }
        if security.userns == Some(Userns::Host) && !covers(self.host_userns.as_ref()) {
            return Err(denied("userns host".to_owned()));
        }
        Ok(())
    }
}

fn denied(privilege: String) -> Denial {
    Denial::Privilege { privilege }
}

fn plain(capability: &str) -> &str {
    capability.strip_prefix("CAP_").unwrap_or(capability)
}

impl TryFrom<String> for Capability {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if is_capability(&text) {
            return Ok(Self(plain(&text).to_owned()));
        }
        Err(format!(
            "{text:?} is not a capability: write one such as NET_ADMIN"
        ))
    }
}
