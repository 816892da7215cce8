//! The status that people and GitOps watchers read, computed from a snapshot.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::manifest::{RestartPolicy, ServiceName};
use crate::runtime::{Container, ContainerState};
use crate::state::{
    ActiveService, Condition, ConditionType, OutcomeKind, ServiceStatus, Status, StepState, Truth,
    Verb,
};

use super::health::{Health, health};
use super::repair::{restarts, wants_restart};
use super::secrets::outdated;
use super::{Desired, Due, Snapshot};

/// The reason of `Degraded` when the runtime dropped a limit.
pub(crate) const LIMIT_IGNORED: &str = "ResourceLimitIgnored";

/// What the controller is about to do with the app, for `Progressing`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Nothing to do.
    Settled,
    /// Checking a manifest before anything is touched.
    Preflight,
    /// The same, while images are pulled: which, and how far that is.
    Pulling(String),
    /// An operation is in flight.
    Working(Verb),
    /// A failed deployment is tried again.
    Retry {
        /// Which try that will be.
        attempt: u32,
        /// When.
        at: Timestamp,
    },
    /// Nothing, until a person has looked.
    Held {
        /// In CamelCase.
        reason: &'static str,
        /// What was found, and what to do.
        message: String,
    },
}

/// The app's status. Equal to the previous one when nothing changed, so that a
/// steady state writes nothing.
pub fn status(snapshot: &Snapshot, phase: &Phase, now: Timestamp) -> Status {
    let previous = snapshot.records.status.as_ref().map(|kept| &kept.record);
    let facts = [
        (ConditionType::Accepted, accepted(snapshot)),
        (ConditionType::Progressing, progressing(snapshot, phase)),
        (ConditionType::Ready, ready(snapshot, phase)),
        (ConditionType::Degraded, degraded(snapshot)),
        (ConditionType::Inhibited, inhibited(snapshot)),
        (ConditionType::Outdated, is_outdated(snapshot)),
    ];
    let conditions = facts.into_iter().map(|(r#type, fact)| {
        let before = previous.and_then(|status| condition(status, r#type));
        let since = before.filter(|before| before.status == fact.status);
        Condition {
            r#type,
            status: fact.status,
            reason: fact.reason,
            message: fact.message,
            last_transition_time: since.map_or(now, |before| before.last_transition_time),
        }
    });
    Status {
        observed_revision: snapshot.desired.source(),
        revision: serving_revision(snapshot),
        conditions: conditions.collect(),
        services: services(snapshot),
        operation: snapshot
            .operations()
            .next()
            .map(|operation| operation.id.clone()),
    }
}

fn condition(status: &Status, r#type: ConditionType) -> Option<&Condition> {
    status
        .conditions
        .iter()
        .find(|condition| condition.r#type == r#type)
}

struct Fact {
    status: Truth,
    reason: String,
    message: String,
}

fn fact(status: Truth, reason: &str, message: impl Into<String>) -> Fact {
    Fact {
        status,
        reason: reason.to_owned(),
        message: message.into(),
    }
}

fn accepted(snapshot: &Snapshot) -> Fact {
    let outcome = snapshot
        .last_deploy()
        .and_then(|operation| operation.outcome.as_ref());
    match (&snapshot.desired, outcome) {
        (Desired::Absent, _) => fact(Truth::False, "Deleted", "there is no manifest"),
        (Desired::Invalid { message, .. }, _) => {
            fact(Truth::False, "InvalidManifest", message.clone())
        }
        (Desired::App { .. }, Some(outcome))
            if matches!(
                outcome.reason.as_str(),
                "RouteConflict" | "ListenerReserved"
            ) =>
        {
            fact(Truth::False, &outcome.reason, outcome.message.clone())
        }
        (Desired::App { .. }, _) if let Some(denied) = &snapshot.denied => {
            fact(Truth::False, denied.denial.reason(), denied.message())
        }
        (Desired::App { .. }, _) => fact(Truth::True, "Valid", "the manifest is valid"),
    }
}

fn progressing(snapshot: &Snapshot, phase: &Phase) -> Fact {
    match phase {
        Phase::Preflight => fact(
            Truth::True,
            "Preflight",
            "checking images, ports, volumes and routes",
        ),
        Phase::Pulling(message) => fact(Truth::True, "Pulling", message.clone()),
        Phase::Working(verb) => fact(
            Truth::True,
            "OperationInFlight",
            format!("{} is in flight", verb.as_str()),
        ),
        Phase::Retry { attempt, at } => fact(
            Truth::True,
            "RetryScheduled",
            format!("attempt {attempt} begins at {at:.0}; a changed manifest begins at once"),
        ),
        Phase::Held { reason, message } => fact(Truth::False, reason, message.clone()),
        Phase::Settled
            if let Some(denied) = snapshot.denied.as_ref().filter(|_| snapshot.unserved()) =>
        {
            let message = format!("{}; waiting until it is allowed", denied.message());
            fact(Truth::False, denied.denial.reason(), message)
        }
        Phase::Settled => {
            let failed = snapshot
                .last_deploy()
                .and_then(|operation| operation.outcome.as_ref())
                .filter(|outcome| outcome.result != OutcomeKind::Success);
            match failed {
                Some(outcome) => fact(
                    Truth::False,
                    &outcome.reason,
                    format!("{}; waiting for a changed manifest", outcome.message),
                ),
                None => fact(Truth::False, "Settled", "nothing to do"),
            }
        }
    }
}

fn ready(snapshot: &Snapshot, phase: &Phase) -> Fact {
    if snapshot.stopped() {
        return fact(
            Truth::False,
            "Stopped",
            "the app is stopped; start it to serve again",
        );
    }
    match &snapshot.desired {
        Desired::Absent => return fact(Truth::False, "Deleted", "there is no manifest"),
        Desired::Invalid { .. } => {
            return fact(
                Truth::False,
                "InvalidManifest",
                "the newest manifest is refused; what served before goes on serving",
            );
        }
        Desired::App { .. } => {}
    }
    let rolled_back = snapshot
        .last_deploy()
        .filter(|last| last.request.verb == Verb::Rollback && last.succeeded());
    if let Some(rollback) = rolled_back {
        let outcome = rollback.outcome.as_ref();
        let message = outcome.map_or("", |outcome| outcome.message.as_str());
        return fact(
            Truth::False,
            "RolledBack",
            format!("the newest manifest was rolled back ({message}); change it to deploy again"),
        );
    }
    let served = !snapshot.unserved();
    if let Some(denied) = snapshot.denied.as_ref().filter(|_| !served) {
        return fact(Truth::False, denied.denial.reason(), denied.message());
    }
    let underway = matches!(
        phase,
        Phase::Preflight | Phase::Pulling(_) | Phase::Working(_)
    );
    let outcome = snapshot
        .last_deploy()
        .and_then(|operation| operation.outcome.as_ref());
    match (outcome, first_unverified(snapshot)) {
        // Why it didn't come to serve says more than what that left behind.
        (Some(outcome), _) if !served && !underway => {
            fact(Truth::False, &outcome.reason, outcome.message.clone())
        }
        (_, Some(why)) => fact(Truth::False, why.reason, why.message),
        (_, None) if !served => fact(
            Truth::False,
            "Deploying",
            "the newest manifest isn't served whole yet",
        ),
        (_, None) => fact(
            Truth::True,
            "Serving",
            "every service is verified and published",
        ),
    }
}

fn degraded(snapshot: &Snapshot) -> Fact {
    if let [stranger, ..] = snapshot.strangers.as_slice() {
        return fact(
            Truth::True,
            "UnknownContainer",
            format!(
                "container {stranger} carries this app's name and an incarnation unknown to this \
                 store; it is left alone: remove it by hand if nobody needs it"
            ),
        );
    }
    if let Some(revoked) = snapshot.revoked() {
        return fact(
            Truth::True,
            "PolicyRevoked",
            format!(
                "{}; what runs goes on, and isn't started or made again",
                revoked.message()
            ),
        );
    }
    if !snapshot.stopped()
        && let Some(why) = first_unverified(snapshot)
    {
        return fact(Truth::True, why.reason, why.message);
    }
    if let Some(message) = ignored_limits(snapshot) {
        return fact(Truth::True, LIMIT_IGNORED, message);
    }
    let warning = snapshot
        .operations()
        .next()
        .and_then(|operation| operation.warnings.first());
    match warning {
        Some(warning) => fact(
            Truth::True,
            "CleanupWarning",
            format!("{} is left: {}", warning.leftover, warning.detail),
        ),
        None => fact(Truth::False, "AsExpected", "what serves is as it should be"),
    }
}

/// Which limits the runtime dropped, of the first service where it did.
fn ignored_limits(snapshot: &Snapshot) -> Option<String> {
    let mut services = snapshot.records.active.services.iter();
    services.find_map(|(name, active)| {
        let container = snapshot.container(&active.container)?;
        let asked = &snapshot.pinned(name)?.spec.resources;
        let missing = container.applied.missing_limits(asked);
        let runs = container.state == ContainerState::Running;
        (runs && !missing.is_empty()).then(|| {
            format!(
                "service {name} runs without resources.{}: Podman can't limit it on this host; \
                 look at its cgroup controllers",
                missing.join(", resources.")
            )
        })
    })
}

fn inhibited(snapshot: &Snapshot) -> Fact {
    match snapshot.records.inhibitions.first() {
        Some(inhibition) => fact(
            Truth::True,
            inhibition.reason.as_str(),
            format!(
                "container {} of service {} is never started again",
                inhibition.container, inhibition.service
            ),
        ),
        None => fact(Truth::False, "None", "no container is inhibited"),
    }
}

fn is_outdated(snapshot: &Snapshot) -> Fact {
    let services = snapshot.records.active.services.iter();
    for (name, service) in services {
        let secrets = outdated(snapshot, name, service);
        if let Some(secret) = secrets.missing.first() {
            return fact(
                Truth::True,
                "SecretMissing",
                format!(
                    "the secret {secret} of service {name} is gone: its container can't be \
                     started again before somebody creates it anew"
                ),
            );
        }
        if let Some(secret) = secrets.env.first().or(secrets.files.first()) {
            return fact(
                Truth::True,
                "SecretRotated",
                format!(
                    "service {name} has the secret {secret} as it was: a restart or a \
                     deployment takes the new one"
                ),
            );
        }
    }
    fact(
        Truth::False,
        "UpToDate",
        "what serves took what it was made with as it is now",
    )
}

/// Why a service doesn't serve.
struct Unverified {
    reason: &'static str,
    message: String,
}

fn first_unverified(snapshot: &Snapshot) -> Option<Unverified> {
    let mut services = snapshot.records.active.services.iter();
    services.find_map(|(name, service)| why_unverified(snapshot, name, service))
}

fn why_unverified(
    snapshot: &Snapshot,
    name: &ServiceName,
    service: &ActiveService,
) -> Option<Unverified> {
    let health = health(snapshot, service);
    let what = match (health, snapshot.container(&service.container)) {
        (Health::Unhealthy, Some(container)) => unhealthy(snapshot, name, container),
        _ => unverified(name, health),
    };
    let waits = matches!(snapshot.restart_due.get(name), Some(Due::After(_)));
    let policy = restarts(snapshot, name);
    let (reason, rest) = match health {
        Health::Verified => return None,
        Health::Down { exit_code } if !wants_restart(snapshot, name, exit_code) => (
            match exit_code {
                Some(0) => "Completed",
                _ => "Exited",
            },
            format!(", and restart: {policy:?} leaves it down"),
        ),
        Health::Unhealthy if policy == RestartPolicy::Never => (
            "Unhealthy",
            format!("; it is withdrawn, and restart: {policy:?} leaves it so"),
        ),
        Health::Down { .. } | Health::Unverified | Health::Unhealthy if waits => (
            "CrashLoopBackOff",
            "; it came down again and again, and waits for its next start".to_owned(),
        ),
        Health::Unhealthy => ("Unhealthy", String::new()),
        Health::Unverified
        | Health::Down { .. }
        | Health::Missing
        | Health::Inhibited
        | Health::Unclear(_) => ("ServiceNotVerified", String::new()),
    };
    Some(Unverified {
        reason,
        message: format!("{what}{rest}"),
    })
}

fn unhealthy(snapshot: &Snapshot, name: &ServiceName, container: &Container) -> String {
    let failed = snapshot.failed(container);
    let why = failed.map_or("it fails", |failed| failed.message.as_str());
    format!("service {name} isn't healthy: {why}")
}

fn unverified(name: &ServiceName, health: Health) -> String {
    let what = match health {
        Health::Verified => "is verified".to_owned(),
        Health::Unverified => "runs, but isn't verified yet".to_owned(),
        Health::Unhealthy => "fails its liveness probe".to_owned(),
        Health::Down {
            exit_code: Some(code),
        } => format!("ended with exit code {code}"),
        Health::Down { exit_code: None } => "doesn't run".to_owned(),
        Health::Missing => "has lost its container".to_owned(),
        Health::Inhibited => "may not be started again; a deployment replaces it".to_owned(),
        Health::Unclear(state) => format!("is {state:?} in Podman").to_lowercase(),
    };
    format!("service {name} {what}")
}

fn serving_revision(snapshot: &Snapshot) -> Option<crate::state::RevisionNumber> {
    let mut numbers = snapshot
        .records
        .active
        .services
        .values()
        .map(|service| service.revision);
    let first = numbers.next()?;
    numbers.all(|number| number == first).then_some(first)
}

fn services(snapshot: &Snapshot) -> BTreeMap<ServiceName, ServiceStatus> {
    let mut services = BTreeMap::new();
    if let Desired::App { app, .. } = &snapshot.desired {
        for (name, spec) in &app.spec.services {
            services.insert(
                name.clone(),
                absent_service(snapshot, name, spec.image.clone()),
            );
        }
    }
    for (name, active) in &snapshot.records.active.services {
        let health = health(snapshot, active);
        let status = ServiceStatus {
            image: active.image.clone(),
            digest: Some(active.digest.clone()),
            container: Some(active.container.clone()),
            revision: Some(active.revision),
            ready: health == Health::Verified,
            restarts: snapshot.restarts.get(name).copied().unwrap_or(0),
            binds: active.binds.clone(),
            last_error: last_error(snapshot, name)
                .or_else(|| why_unverified(snapshot, name, active).map(|why| why.message)),
        };
        services.insert(name.clone(), status);
    }
    services
}

fn absent_service(snapshot: &Snapshot, name: &ServiceName, image: String) -> ServiceStatus {
    ServiceStatus {
        image,
        digest: None,
        container: None,
        revision: None,
        ready: false,
        restarts: 0,
        binds: Vec::new(),
        last_error: last_error(snapshot, name),
    }
}

/// The error of the service's step in the last operation, when that failed.
fn last_error(snapshot: &Snapshot, name: &ServiceName) -> Option<String> {
    let steps = &snapshot.operations().next()?.steps;
    let failed = steps
        .iter()
        .find(|step| step.service.as_ref() == Some(name) && step.state == StepState::Failed)?;
    failed.error.clone()
}
