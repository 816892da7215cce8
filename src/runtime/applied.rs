//! What the runtime made of a container's limits and privileges. It accepts what it
//! doesn't know, and drops what the host can't do, without a word: so it is read back.

use crate::manifest::{Resources, Security, Userns};

/// Limits and privileges as an inspection shows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Limits; what isn't limited is absent.
    pub limits: Resources,
    /// Whether the root file system has no write access.
    pub read_only_root: bool,
    /// Whether nothing gains privileges.
    pub no_new_privileges: bool,
    /// Whether it has a user namespace of its own.
    pub own_users: bool,
    /// Capabilities that a process in it can ever have, as `CAP_CHOWN`.
    pub capabilities: Vec<String>,
}

impl Applied {
    /// Exactly what was asked for.
    pub fn wholly(limits: &Resources, security: &Security) -> Self {
        Self {
            limits: limits.clone(),
            read_only_root: security.read_only_root,
            no_new_privileges: security.no_new_privileges,
            own_users: security.userns == Some(Userns::Auto),
            capabilities: security.cap_add.iter().map(|name| full(name)).collect(),
        }
    }

    /// The limits that were asked for and aren't there, as the manifest calls them.
    pub fn missing_limits(&self, asked: &Resources) -> Vec<&'static str> {
        let differs = [
            (
                "cpus",
                asked.cpus.is_some() && asked.cpus != self.limits.cpus,
            ),
            (
                "memory",
                asked.memory.is_some() && asked.memory != self.limits.memory,
            ),
            (
                "pids",
                asked.pids.is_some() && asked.pids != self.limits.pids,
            ),
        ];
        named(differs)
    }

    /// The restrictions that were asked for and aren't there, as the manifest calls them.
    pub fn missing_restrictions(&self, asked: &Security) -> Vec<&'static str> {
        let own_users = asked.userns == Some(Userns::Auto);
        named([
            ("readOnlyRoot", asked.read_only_root && !self.read_only_root),
            ("capDrop", self.keeps_dropped(asked)),
            (
                "noNewPrivileges",
                asked.no_new_privileges && !self.no_new_privileges,
            ),
            ("userns", own_users && !self.own_users),
        ])
    }

    fn keeps_dropped(&self, asked: &Security) -> bool {
        let dropped = |held: &String| {
            let mut drops = asked.cap_drop.iter();
            drops.any(|drop| drop == "ALL" || full(drop) == *held)
        };
        let added = |held: &String| asked.cap_add.iter().any(|add| full(add) == *held);
        let mut held = self.capabilities.iter();
        held.any(|held| dropped(held) && !added(held))
    }
}

fn named<const N: usize>(differs: [(&'static str, bool); N]) -> Vec<&'static str> {
    let missing = differs.into_iter().filter(|(_, missing)| *missing);
    missing.map(|(name, _)| name).collect()
}

/// `CAP_CHOWN` for `CHOWN`.
fn full(capability: &str) -> String {
    let plain = capability.strip_prefix("CAP_").unwrap_or(capability);
    format!("CAP_{plain}")
}
