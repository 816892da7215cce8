//! What people and GitOps watchers read.

use super::scene::{
    SERVED, app, at, down, failed, id, inhibit, intend_stopped, journal, operation, service,
    serving, wait_a_minute, wanted,
};
use crate::plan::{Desired, Phase, Snapshot, status};
use crate::state::{
    Condition, ConditionType, InhibitionReason, Status, StepKind, StepState, Truth, Verb, Warning,
};
use crate::store::Kept;
use Truth::{False, True};

fn condition(status: &Status, r#type: ConditionType) -> &Condition {
    let mut conditions = status.conditions.iter();
    conditions.find(|found| found.r#type == r#type).unwrap()
}

fn reasons(snapshot: &Snapshot, phase: &Phase) -> Vec<(Truth, String)> {
    let status = status(snapshot, phase, at(100));
    let conditions = status.conditions.into_iter();
    conditions.map(|it| (it.status, it.reason)).collect()
}

/// Accepted, Progressing, Ready, Degraded, Inhibited; and nothing is outdated.
fn check(snapshot: &Snapshot, phase: &Phase, expected: [(Truth, &str); 5]) {
    let all = expected.into_iter().chain([(False, "UpToDate")]);
    let all: Vec<_> = all
        .map(|(truth, reason)| (truth, reason.to_owned()))
        .collect();
    assert_eq!(reasons(snapshot, phase), all);
}

#[test]
fn an_app_that_serves() {
    check(
        &serving(&app(&[("web", "")])),
        &Phase::Settled,
        [
            (True, "Valid"),
            (False, "Settled"),
            (True, "Serving"),
            (False, "AsExpected"),
            (False, "None"),
        ],
    );
}

#[test]
fn a_first_deployment_under_way() {
    check(
        &wanted(&app(&[("web", "")])),
        &Phase::Working(Verb::Deploy),
        [
            (True, "Valid"),
            (True, "OperationInFlight"),
            (False, "Deploying"),
            (False, "AsExpected"),
            (False, "None"),
        ],
    );
}

/// A newer manifest failed, and what served before serves on.
fn failed_beside_what_serves() -> Snapshot {
    let mut snapshot = serving(&app(&[("web", "")]));
    snapshot.records.active.source = SERVED - 1;
    journal(
        &mut snapshot,
        failed(operation("o-2", Verb::Deploy, &[]), true),
    );
    snapshot
}

#[test]
fn a_failed_deployment_beside_a_generation_that_serves() {
    let retry = Phase::Retry {
        attempt: 2,
        at: at(110),
    };
    check(
        &failed_beside_what_serves(),
        &retry,
        [
            (True, "Valid"),
            (True, "RetryScheduled"),
            (False, "NotReady"),
            (False, "AsExpected"),
            (False, "None"),
        ],
    );
    let lasting = Phase::Settled;
    let status = status(&failed_beside_what_serves(), &lasting, at(100));
    let progressing = condition(&status, ConditionType::Progressing);
    assert_eq!(progressing.reason, "NotReady");
    assert!(
        progressing
            .message
            .ends_with("waiting for a changed manifest")
    );
    assert_eq!(status.observed_revision, SERVED);
}

#[test]
fn a_refused_manifest_beside_a_generation_that_serves() {
    let snapshot = Snapshot {
        desired: Desired::Invalid {
            source: 9,
            message: "spec.services: line 4".to_owned(),
        },
        ..serving(&app(&[("web", "")]))
    };
    check(
        &snapshot,
        &Phase::Settled,
        [
            (False, "InvalidManifest"),
            (False, "Settled"),
            (False, "InvalidManifest"),
            (False, "AsExpected"),
            (False, "None"),
        ],
    );
}

#[test]
fn a_service_that_is_down_and_one_that_crashes_again_and_again() {
    let mut snapshot = serving(&app(&[("web", "")]));
    down(&mut snapshot, 3);
    let now = status(&snapshot, &Phase::Settled, at(100));
    let degraded = condition(&now, ConditionType::Degraded);
    assert_eq!(degraded.reason, "ServiceNotVerified");
    assert_eq!(degraded.message, "service web ended with exit code 3");
    assert!(!now.services[&service("web")].ready);
    assert_eq!(
        now.services[&service("web")].last_error.as_ref(),
        Some(&degraded.message)
    );

    wait_a_minute(&mut snapshot);
    for (r#type, truth) in [
        (ConditionType::Ready, False),
        (ConditionType::Degraded, True),
    ] {
        let now = status(&snapshot, &Phase::Settled, at(100));
        let found = condition(&now, r#type);
        assert_eq!(
            (found.status, found.reason.as_str()),
            (truth, "CrashLoopBackOff")
        );
        assert!(found.message.contains("exit code 3"), "{}", found.message);
    }
}

#[test]
fn an_inhibition_a_stranger_and_a_leftover_are_told() {
    let mut inhibited = serving(&app(&[("web", "")]));
    inhibit(&mut inhibited, InhibitionReason::ReplacementPending);
    let found = reasons(&inhibited, &Phase::Settled);
    assert_eq!(found[4], (True, "ReplacementPending".to_owned()));

    let mut stranger = serving(&app(&[("web", "")]));
    stranger.strangers.push(id("c-stranger"));
    let found = reasons(&stranger, &Phase::Settled);
    assert_eq!(found[3], (True, "UnknownContainer".to_owned()));
    assert_eq!(found[2].0, True, "what serves does");

    let mut leftover = serving(&app(&[("web", "")]));
    leftover.records.operations[0]
        .record
        .warnings
        .push(Warning {
            service: None,
            leftover: "network n".to_owned(),
            detail: "in use".to_owned(),
        });
    assert_eq!(
        reasons(&leftover, &Phase::Settled)[3],
        (True, "CleanupWarning".to_owned())
    );
}

#[test]
fn an_app_that_is_stopped_or_held() {
    let mut stopped = serving(&app(&[("web", "")]));
    intend_stopped(&mut stopped, "o-1");
    assert_eq!(
        reasons(&stopped, &Phase::Settled)[2],
        (False, "Stopped".to_owned())
    );
    let held = Phase::Held {
        reason: "NewerGenerationRuns",
        message: "look".to_owned(),
    };
    let found = reasons(&serving(&app(&[("web", "")])), &held);
    assert_eq!(found[1], (False, "NewerGenerationRuns".to_owned()));
}

#[test]
fn an_unchanged_status_is_equal_to_the_one_before() {
    let mut snapshot = serving(&app(&[("web", "")]));
    let before = status(&snapshot, &Phase::Settled, at(100));
    snapshot.records.status = Some(Kept {
        record: before.clone(),
        mod_revision: 1,
    });
    assert_eq!(status(&snapshot, &Phase::Settled, at(200)), before);
    // Another reason alone doesn't move the time; another status does.
    let working = status(&snapshot, &Phase::Working(Verb::Recover), at(200));
    let time = |status: &Status, r#type| condition(status, r#type).last_transition_time;
    assert_eq!(time(&working, ConditionType::Ready), at(100));
    assert_eq!(time(&working, ConditionType::Progressing), at(200));
}

#[test]
fn the_error_of_a_service_is_that_of_its_own_step() {
    let mut snapshot = serving(&app(&[("db", ""), ("web", "")]));
    let steps = [(StepKind::Probe, StepState::Failed)];
    journal(
        &mut snapshot,
        failed(operation("o-2", Verb::Deploy, &steps), true),
    );
    let status = status(&snapshot, &Phase::Settled, at(100));
    let error = |name: &str| status.services[&service(name)].last_error.clone();
    assert_eq!(error("web").as_deref(), Some("it failed"));
    assert_eq!(error("db"), None);
}
