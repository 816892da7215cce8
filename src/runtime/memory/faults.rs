//! Faults that a test scripts: a call that fails, or one whose reply is lost.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use super::super::RuntimeError;

/// A call of the [`Runtime`](super::super::Runtime) trait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // Each is named after its method.
pub enum Call {
    Ping,
    PortIsFree,
    EnsureImage,
    EnsurePinned,
    FindImage,
    List,
    Inspect,
    CheckUserIds,
    Create,
    Start,
    Signal,
    WaitStopped,
    Remove,
    Logs,
    Exec,
    Healthcheck,
    Volume,
    CreateVolume,
    Volumes,
    RemoveVolume,
    Secrets,
    Secret,
    CreateSecret,
    RemoveSecret,
    Network,
    CreateNetwork,
    RemoveNetwork,
    Events,
}

impl Call {
    /// The call's name, as errors show it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::PortIsFree => "port_is_free",
            Self::EnsureImage => "ensure_image",
            Self::EnsurePinned => "ensure_pinned",
            Self::FindImage => "find_image",
            Self::List => "list",
            Self::Inspect => "inspect",
            Self::CheckUserIds => "check_user_ids",
            Self::Create => "create",
            Self::Start => "start",
            Self::Signal => "signal",
            Self::WaitStopped => "wait_stopped",
            Self::Remove => "remove",
            Self::Logs => "logs",
            Self::Exec => "exec",
            Self::Healthcheck => "healthcheck",
            Self::Volume => "volume",
            Self::CreateVolume => "create_volume",
            Self::Volumes => "volumes",
            Self::RemoveVolume => "remove_volume",
            Self::Secrets => "secrets",
            Self::Secret => "secret",
            Self::CreateSecret => "create_secret",
            Self::RemoveSecret => "remove_secret",
            Self::Network => "network",
            Self::CreateNetwork => "create_network",
            Self::RemoveNetwork => "remove_network",
            Self::Events => "events",
        }
    }
}

/// What a rule looks at: the container, image, volume, network or secret that the call is
/// about, as effects name it. Some error makes the call fail without effect.
pub(super) type Rule = Box<dyn FnMut(&str) -> Option<RuntimeError> + Send>;

pub(super) enum Fault {
    /// No effect; the caller gets this.
    Fails(RuntimeError),
    /// The effect happens; the caller doesn't learn of it.
    LosesReply,
}

#[derive(Default)]
pub(super) struct Faults {
    next: BTreeMap<Call, VecDeque<Fault>>,
    rules: BTreeMap<Call, Vec<Rule>>,
    down: bool,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults")
            .field("down", &self.down)
            .finish_non_exhaustive()
    }
}

impl Faults {
    pub(super) fn queue(&mut self, call: Call, fault: Fault) {
        self.next.entry(call).or_default().push_back(fault);
    }

    pub(super) fn add_rule(&mut self, call: Call, rule: Rule) {
        self.rules.entry(call).or_default().push(rule);
    }

    pub(super) fn set_down(&mut self, down: bool) {
        self.down = down;
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Decides this call's fate: an error, or whether its reply gets lost.
    pub(super) fn strike(&mut self, call: Call, target: &str) -> Result<bool, RuntimeError> {
        if self.down {
            return Err(unavailable(call));
        }
        for rule in self.rules.get_mut(&call).into_iter().flatten() {
            if let Some(error) = rule(target) {
                return Err(error);
            }
        }
        match self.next.get_mut(&call).and_then(VecDeque::pop_front) {
            None => Ok(false),
            Some(Fault::LosesReply) => Ok(true),
            Some(Fault::Fails(error)) => Err(error),
        }
    }
}

pub(super) fn unavailable(call: Call) -> RuntimeError {
    RuntimeError::Unavailable {
        call: call.name(),
        message: "connection refused".to_owned(),
    }
}
