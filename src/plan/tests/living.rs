//! What fails its liveness probe, and what was stopped only to be started again.

use super::scene::{
    app, at, down, failed, id, inhibit, journal, operation, service, serving, told, unverify,
    wait_a_minute, web,
};
use crate::manifest::Check;
use crate::plan::{Health, Next, Snapshot, deploy, health, next, watched};
use crate::probe::Unhealthy;
use crate::runtime::ContainerState;
use crate::state::{InhibitionReason, StepKind, StepState, Verb};

const RESTART: &str = "stop web, start web, probe web, publish web, traffic web";

/// `web` serves; this execution of it failed.
fn failing(fields: &str, started_at: i64) -> Snapshot {
    let mut snapshot = serving(&app(&[("web", fields)]));
    snapshot.unhealthy = vec![Unhealthy {
        container: id("c-web"),
        started_at: at(started_at),
        message: "liveness probe tcp on port http failed 3 times in a row".to_owned(),
        answers: Vec::new(),
    }];
    snapshot
}

/// The execution that serves failed.
fn unhealthy(fields: &str) -> Snapshot {
    failing(fields, 10)
}

fn withdrawn(mut snapshot: Snapshot) -> Snapshot {
    unverify(&mut snapshot);
    super::scene::publish(&mut snapshot);
    snapshot
}

fn repairs(snapshot: &Snapshot) -> String {
    match next(snapshot) {
        Next::Repair(actions) => told(&actions).join(", "),
        other => format!("{other:?}"),
    }
}

fn health_of_web(snapshot: &Snapshot) -> Health {
    let active = &snapshot.records.active.services[&service("web")];
    health(snapshot, active)
}

#[test]
fn the_execution_that_failed_is_withdrawn_and_restarted_and_no_other() {
    assert_eq!(repairs(&unhealthy("")), format!("withdraw web, {RESTART}"));
    assert_eq!(repairs(&withdrawn(unhealthy(""))), RESTART);
    assert_eq!(repairs(&failing("", 9)), "Settled");
    let mut ended = unhealthy("");
    down(&mut ended, 1);
    assert_eq!(health_of_web(&ended), Health::Down { exit_code: Some(1) });
    let mut frozen = unhealthy("");
    web(&mut frozen).state = ContainerState::Paused;
    assert_eq!(repairs(&frozen), "withdraw web");
}

#[test]
fn its_turn_may_come_later_and_its_withdrawal_never_waits() {
    let mut waits = unhealthy("");
    wait_a_minute(&mut waits);
    assert_eq!(repairs(&waits), "withdraw web");
    assert_eq!(repairs(&withdrawn(waits)), "Wait(60s)");
}

#[test]
fn one_that_is_inhibited_or_never_restarted_is_only_withdrawn() {
    let mut inhibited = unhealthy("");
    inhibit(&mut inhibited, InhibitionReason::ReplacementPending);
    assert_eq!(repairs(&inhibited), "withdraw web");
    assert_eq!(repairs(&withdrawn(inhibited)), "Settled");
    assert_eq!(repairs(&unhealthy("restart: Never")), "withdraw web");
    assert_eq!(repairs(&withdrawn(unhealthy("restart: Never"))), "Settled");
    assert!(repairs(&unhealthy("restart: OnFailure")).contains("start web"));
}

#[test]
fn a_deployment_replaces_it_even_when_nothing_else_differs() {
    let snapshot = unhealthy("");
    let revision = snapshot.records.revisions[0].clone();
    assert!(told(&deploy(&snapshot, &revision)).contains(&"retire web".to_owned()));
    assert_eq!(told(&deploy(&failing("", 9), &revision)), [""; 0]);
}

/// Its exit code is our doing.
#[test]
fn what_was_stopped_to_be_started_again_is_started_again() {
    for (policy, steps, again) in [
        ("Never", &[][..], false),
        ("Never", &[(StepKind::Stop, StepState::Pending)], false),
        ("Never", &[(StepKind::Stop, StepState::Failed)], true),
        ("OnFailure", &[(StepKind::Stop, StepState::Succeeded)], true),
        (
            "OnFailure",
            &[
                (StepKind::Stop, StepState::Succeeded),
                (StepKind::Start, StepState::Failed),
            ],
            true,
        ),
        (
            "OnFailure",
            &[
                (StepKind::Stop, StepState::Succeeded),
                (StepKind::Start, StepState::Succeeded),
                (StepKind::Probe, StepState::Failed),
            ],
            false,
        ),
    ] {
        let mut snapshot = serving(&app(&[("web", &format!("restart: {policy}"))]));
        down(&mut snapshot, 0);
        journal(
            &mut snapshot,
            failed(operation("o-2", Verb::Restart, steps), true),
        );
        let found = repairs(&snapshot).contains("start web");
        assert_eq!(found, again, "{policy} after {steps:?}");
    }
}

#[test]
fn what_is_published_and_has_a_probe_is_watched() {
    let probed = "liveness: {tcp: {port: http}}";
    let snapshot = serving(&app(&[("db", ""), ("web", probed)]));
    let of = |snapshot: &Snapshot| {
        let records = &snapshot.records;
        watched(&records.active, &records.revisions)
    };
    let services = of(&snapshot);
    assert_eq!(services.len(), 2);
    assert_eq!(services[&service("db")], None);
    let web = services[&service("web")].as_ref().unwrap();
    assert_eq!((web.container.as_str(), web.started_at), ("c-web", at(10)));
    assert_eq!(web.binds.len(), 1);
    assert!(matches!(web.liveness.check, Check::Tcp { .. }));
    assert_eq!(of(&withdrawn(snapshot))[&service("web")], None);
}
