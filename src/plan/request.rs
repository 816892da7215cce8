//! What a request leads to.

use crate::manifest::{OnFailure, ServiceName};
use crate::sabotage::{self, Defect};
use crate::state::{
    Asked, ContainerId, InhibitionReason, OperationId, OutcomeKind, Request, RequestError,
    RevisionNumber, StepState, Verb, Wish, labels,
};

use super::health::{Health, health};
use super::secrets::outdated;
use super::sequence::{
    create, leftovers, remove, retire, start_again, stop_and_start, verify, withdraw,
};
use super::{Action, Desired, Snapshot};

/// A request that waits for its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Its key.
    pub key: String,
    /// Its ID and what it asks, or why it can't be read.
    pub asked: Result<(OperationId, Asked), RequestError>,
}

impl Pending {
    /// Whether it asks to stop or to remove.
    pub(super) fn ends(&self) -> bool {
        self.asked.as_ref().is_ok_and(|(_, asked)| asked.ends())
    }
}

/// What a request leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Nothing may be written about it: it can't be read, the app is unknown, or
    /// its ID stands for another request. People are told why.
    Dropped(String),
    /// It was answered before: what is recorded stands.
    Recorded,
    /// It can't be done. Nothing is touched.
    Refused {
        /// In CamelCase.
        reason: &'static str,
        /// Why, and what to do.
        message: String,
    },
    /// Perform these.
    Perform(Vec<Action>),
    /// Pin the manifest anew and make it serve.
    Deploy,
    /// Make an older revision serve.
    RollBack(RevisionNumber),
}

fn refused(reason: &'static str, message: impl Into<String>) -> Answer {
    Answer::Refused {
        reason,
        message: message.into(),
    }
}

/// Decides what a request leads to.
pub fn answer(snapshot: &Snapshot, pending: &Pending) -> Answer {
    let (id, asked) = match &pending.asked {
        Ok(asked) => asked,
        Err(error) => return Answer::Dropped(error.to_string()),
    };
    let request = asked.request();
    if let Some(earlier) = snapshot.operations().find(|operation| &operation.id == id)
        && !sabotage::has(Defect::ReplayRunsAgain)
    {
        return if replays(&earlier.request, &request) {
            Answer::Recorded
        } else {
            Answer::Dropped(format!(
                "ID {id} stands for another request: choose a new one"
            ))
        };
    }
    match (request.verb, &snapshot.records.ownership) {
        (Verb::Deploy, _) => deploy(snapshot),
        (_, None) => Answer::Dropped("there is no such app".to_owned()),
        (Verb::Stop, _) => Answer::Perform(stop(snapshot)),
        (Verb::Start, _) => start(snapshot),
        (Verb::Restart, _) => restart(snapshot, asked.service.as_ref()),
        (Verb::Remove, Some(ownership)) if ownership.deletion_protection && !asked.force => {
            refused(
                "DeletionProtected",
                "the app is protected: ask with force: true to remove it all the same",
            )
        }
        (Verb::Remove, _) => Answer::Perform(remove(snapshot, manifest(snapshot))),
        (Verb::Rollback, _) => roll_back(snapshot, asked.revision),
        (Verb::ClearInhibition, _) => clear(snapshot, asked.container.as_ref()),
        (Verb::Recover, _) => refused("Unknown", "recovery can't be asked for"),
    }
}

/// Whether the request is the recorded one again. A deployment's record also says
/// which revision it came to.
fn replays(recorded: &Request, asked: &Request) -> bool {
    recorded.verb == asked.verb
        && recorded.service == asked.service
        && recorded.container == asked.container
        && (asked.verb == Verb::Deploy || recorded.revision == asked.revision)
}

fn deploy(snapshot: &Snapshot) -> Answer {
    match &snapshot.desired {
        Desired::App { .. } if snapshot.stopped() => {
            refused("Stopped", "the app is stopped: start it first")
        }
        Desired::App { .. } => match &snapshot.denied {
            Some(denied) => denied.clone().into(),
            None => Answer::Deploy,
        },
        Desired::Invalid { message, .. } => refused("InvalidManifest", message.clone()),
        Desired::Absent if snapshot.records.ownership.is_none() => {
            Answer::Dropped("there is no such app".to_owned())
        }
        Desired::Absent => refused("NoManifest", "there is no manifest to deploy"),
    }
}

/// The manifest that a requested removal takes with it.
fn manifest(snapshot: &Snapshot) -> Option<i64> {
    let entry = snapshot.records.manifest.as_ref();
    entry.map(|entry| entry.mod_revision)
}

fn roll_back(snapshot: &Snapshot, number: Option<RevisionNumber>) -> Answer {
    if snapshot.stopped() {
        return refused("Stopped", "the app is stopped: start it first");
    }
    if let Some(number) = number.filter(|number| snapshot.revision(*number).is_some()) {
        return Answer::RollBack(number);
    }
    let revisions = snapshot.records.revisions.iter();
    let known: Vec<String> = revisions.map(|it| it.number.to_string()).collect();
    let known = known.join(", ");
    let message = format!("no such revision; there are {known}");
    refused("RevisionUnknown", message)
}

/// Clears one inhibition, unless that could make two generations run, or nobody needs it:
/// what is being retired or removed loses its marker by itself.
fn clear(snapshot: &Snapshot, container: Option<&ContainerId>) -> Answer {
    let mut inhibitions = snapshot.records.inhibitions.iter();
    let Some(found) = inhibitions.find(|it| Some(&it.container) == container) else {
        return refused("NotInhibited", "no such container is inhibited");
    };
    let service = &found.service;
    match found.reason {
        InhibitionReason::ReplacementPending => {}
        InhibitionReason::RetirementPending | InhibitionReason::Removed => {
            return refused(
                found.reason.as_str(),
                "it is being retired, and its inhibition goes with it: nothing is to be cleared",
            );
        }
    }
    let label = Some(service.as_str());
    let other = snapshot.containers.iter().find(|it| {
        it.id != found.container
            && it.state.may_run()
            && it.labels.get(labels::SERVICE).map(String::as_str) == label
    });
    if let Some(other) = other {
        return refused(
            "OtherGenerationRuns",
            format!(
                "container {} of service {service} may run beside it: deploy instead, or remove \
                 that one first",
                other.id
            ),
        );
    }
    Answer::Perform(vec![Action::Clear {
        service: service.clone(),
        container: found.container.clone(),
    }])
}

/// Writes the intent, then takes every service out and retires its container, and
/// the predecessors that still run.
fn stop(snapshot: &Snapshot) -> Vec<Action> {
    let mut actions = vec![Action::Intent {
        wish: Wish::Stopped,
        inhibited: Vec::new(),
    }];
    for (name, service) in &snapshot.records.active.services {
        actions.push(withdraw(name, Some(&service.container)));
        actions.push(retire(name, service, false));
    }
    actions.extend(leftovers(snapshot));
    actions
}

/// Retires again what somebody revived while the app is stopped, and what couldn't be
/// removed then.
pub(super) fn keep_stopped(snapshot: &Snapshot) -> Vec<Action> {
    let mut actions = Vec::new();
    for (name, service) in &snapshot.records.active.services {
        // One that ended and wasn't removed is what a stop left half done.
        if snapshot.container(&service.container).is_some() {
            actions.push(withdraw(name, None));
            actions.push(retire(name, service, false));
        }
    }
    actions
}

/// Clears the intent, then brings back what ACTIVE names, waiting for nothing.
fn start(snapshot: &Snapshot) -> Answer {
    let mut actions = vec![Action::Intent {
        wish: Wish::Running,
        inhibited: Vec::new(),
    }];
    let services = &snapshot.records.active.services;
    let mut denied = services
        .iter()
        .filter_map(|(name, service)| snapshot.return_denied(name, health(snapshot, service)));
    if let Some(denied) = denied.next() {
        return denied.into();
    }
    for (name, service) in services {
        match health(snapshot, service) {
            Health::Verified => {}
            Health::Unverified => {
                actions.push(withdraw(name, None));
                actions.push(Action::Inspect {
                    service: name.clone(),
                    container: service.container.clone(),
                });
                actions.extend(verify(name));
            }
            Health::Missing => {
                actions.push(withdraw(name, None));
                actions.extend(create(name, service.revision));
            }
            Health::Unhealthy => {
                actions.push(withdraw(name, None));
                actions.extend(stop_and_start(name, service));
            }
            // One that is inhibited is refused by the step itself, for it alone.
            Health::Down { .. } | Health::Inhibited | Health::Unclear(_) => {
                actions.push(withdraw(name, None));
                actions.extend(start_again(name, service));
            }
        }
    }
    Answer::Perform(actions)
}

/// Restarts the exact containers in place; rebuilds one that is gone, and one whose
/// secret files were rotated: Podman copies these when a container is created.
fn restart(snapshot: &Snapshot, only: Option<&ServiceName>) -> Answer {
    let active = &snapshot.records.active.services;
    if snapshot.stopped() {
        return refused("Stopped", "the app is stopped: start it first");
    }
    if active.is_empty() {
        return refused("NeverDeployed", "nothing of the app serves yet");
    }
    if let Some(service) = only.filter(|service| !active.contains_key(*service)) {
        return refused(
            "ServiceUnknown",
            format!("ACTIVE names no service {service}"),
        );
    }
    let chosen = active
        .iter()
        .filter(|(name, _)| only.is_none_or(|only| only == *name));
    let mut actions = Vec::new();
    for (name, service) in chosen {
        let secrets = outdated(snapshot, name, service);
        if let Some(secret) = secrets.missing.first() {
            return refused(
                "SecretMissing",
                format!(
                    "the secret {secret} of service {name} is gone, without which it can't be \
                     started again: create it first"
                ),
            );
        }
        let now = health(snapshot, service);
        let denied = match now {
            Health::Missing => snapshot.rebuild_denied(name),
            _ if !secrets.files.is_empty() => snapshot.rebuild_denied(name),
            _ => snapshot.start_denied(name),
        };
        if let Some(denied) = denied {
            return denied.into();
        }
        actions.push(withdraw(name, Some(&service.container)));
        match now {
            Health::Missing => actions.extend(create(name, service.revision)),
            Health::Inhibited => {
                return refused(
                    "Inhibited",
                    format!("the container of service {name} may never be started again: deploy"),
                );
            }
            _ if !secrets.files.is_empty() => {
                actions.push(retire(name, service, false));
                actions.extend(create(name, service.revision));
            }
            Health::Verified
            | Health::Unverified
            | Health::Unhealthy
            | Health::Down { .. }
            | Health::Unclear(_) => actions.extend(stop_and_start(name, service)),
        }
    }
    Answer::Perform(actions)
}

/// Brings back the effective generation of the one service whose replacement
/// failed, where its manifest says so: once a manifest, and never one that serves.
pub(super) fn roll_back_failed(snapshot: &Snapshot) -> Option<Vec<Action>> {
    let Desired::App { source, app } = &snapshot.desired else {
        return None;
    };
    let last = snapshot
        .last_deploy()
        .filter(|last| last.request.verb == Verb::Deploy)?;
    let outcome = last.outcome.as_ref()?;
    let tried = outcome.result != OutcomeKind::Success
        && !matches!(outcome.reason.as_str(), "Superseded" | "Interrupted");
    let before = snapshot
        .operations()
        .any(|operation| operation.source == *source && operation.request.verb == Verb::Rollback);
    if !tried || before {
        return None;
    }
    let failed = last
        .steps
        .iter()
        .find(|step| step.state == StepState::Failed)?;
    let name = failed.service.as_ref()?;
    let wanted = app.spec.services.get(name)?;
    let service = snapshot.records.active.services.get(name)?;
    let gone = matches!(
        health(snapshot, service),
        Health::Missing | Health::Inhibited
    );
    let replaced = snapshot.container(&service.container).is_none();
    let allowed = snapshot.rebuild_denied(name).is_none();
    (wanted.update.on_failure == OnFailure::Rollback && gone && replaced && allowed)
        .then(|| create(name, service.revision))
}
