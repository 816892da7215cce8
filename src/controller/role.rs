//! What this controller is to the others, for people and for `/readyz`.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use crate::telemetry::Check;

/// What this controller is now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Role {
    /// Another Podherd on this host acts on its Podman.
    #[default]
    WaitingForHost,
    /// It asks etcd whether this is the store that the host belongs to.
    AskingStore,
    /// It isn't, or that can't be found out.
    Refusing(String),
    /// Another controller leads.
    StandingBy,
    /// This one leads.
    Leading,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WaitingForHost => {
                f.write_str("standing by: another Podherd acts on this host's Podman")
            }
            Self::AskingStore => f.write_str("asking whether etcd is the one this host belongs to"),
            Self::Refusing(why) => f.write_str(why),
            Self::StandingBy => f.write_str("standing by: another controller leads"),
            Self::Leading => f.write_str("leading"),
        }
    }
}

/// The role, shared with who shows it.
#[derive(Debug, Clone, Default)]
pub struct SharedRole(Arc<Mutex<Role>>);

impl SharedRole {
    /// The role from now on.
    pub fn set(&self, role: Role) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = role;
    }

    /// The role now.
    pub fn get(&self) -> Role {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[async_trait]
impl Check for SharedRole {
    fn name(&self) -> &'static str {
        "controller"
    }

    async fn check(&self) -> Result<String, String> {
        let role = self.get();
        match role {
            Role::WaitingForHost | Role::StandingBy | Role::Leading => Ok(role.to_string()),
            Role::AskingStore | Role::Refusing(_) => Err(role.to_string()),
        }
    }
}
