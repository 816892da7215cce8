//! What comes first.

use std::time::Duration;

use super::scene::{
    SERVED, app, at, container, down, empty, failed, inhibit, intend_stopped, journal, missing,
    operation, publish, service, serving, succeeded, told, unverify, wait_a_minute, web,
};
use crate::plan::{Desired, Due, Next, Snapshot, next};
use crate::runtime::ContainerState;
use crate::state::{InhibitionReason, OperationId, StepKind, StepState, Verb, labels};

fn web_app() -> Snapshot {
    serving(&app(&[("web", "")]))
}

/// A newer manifest is wanted than the one that serves.
fn changed() -> Snapshot {
    let mut snapshot = web_app();
    snapshot.records.active.source = SERVED - 1;
    snapshot.records.operations[0].record.source = SERVED - 1;
    snapshot
}

/// Every container is gone, as a stop leaves it.
fn retired(snapshot: &mut Snapshot) {
    snapshot.containers.clear();
    for service in snapshot.records.active.services.values_mut() {
        service.verified = None;
    }
}

/// What comes first, in short.
fn first(snapshot: &Snapshot) -> String {
    match next(snapshot) {
        Next::Recover(id) => format!("recover {id}"),
        Next::Sweep(actions) => format!("sweep: {}", told(&actions).join(", ")),
        Next::Hold { reason, .. } => format!("hold {reason}"),
        Next::Remove(actions) => format!("remove: {}", told(&actions).join(", ")),
        Next::Answer(_, answer) => format!("answer {answer:?}"),
        Next::RollBack(actions) => format!("roll back: {}", told(&actions).join(", ")),
        Next::Forget => "forget".to_owned(),
        Next::Deploy => "deploy".to_owned(),
        Next::Repair(actions) => format!("repair: {}", told(&actions).join(", ")),
        Next::Wait(time) => format!("wait {}", time.as_secs()),
        Next::Settled => "settled".to_owned(),
    }
}

type Case = (&'static str, &'static str, fn(&mut Snapshot));

fn check(begin: fn() -> Snapshot, cases: &[Case]) {
    for (what, expected, change) in cases {
        let mut snapshot = begin();
        change(&mut snapshot);
        assert_eq!(first(&snapshot), *expected, "{what}");
    }
}

#[test]
fn a_manifest_that_is_served_whole_leaves_nothing_to_do() {
    assert_eq!(first(&web_app()), "settled");
    assert_eq!(first(&empty()), "settled");
}

#[test]
fn what_a_changed_manifest_leads_to() {
    check(
        changed,
        &[
            ("never tried", "deploy", |_| {}),
            ("the last try is over its pause", "deploy", |snapshot| {
                journal(snapshot, failed(operation("o-2", Verb::Deploy, &[]), true));
            }),
            ("the last try was just now", "wait 10", |snapshot| {
                journal(snapshot, failed(operation("o-2", Verb::Deploy, &[]), true));
                snapshot.deploy_due = Due::After(Duration::from_secs(10));
            }),
            ("no try can help", "settled", |snapshot| {
                journal(snapshot, failed(operation("o-2", Verb::Deploy, &[]), false));
            }),
            ("a success that ACTIVE doesn't know", "deploy", |snapshot| {
                journal(snapshot, succeeded(operation("o-2", Verb::Deploy, &[])));
            }),
            ("stopped", "settled", |snapshot| {
                intend_stopped(snapshot, "o-1");
                retired(snapshot);
            }),
            (
                "stopped, and revived",
                "repair: withdraw web, retire web",
                |snapshot| {
                    intend_stopped(snapshot, "o-1");
                },
            ),
            ("something is in flight", "recover o-2", |snapshot| {
                journal(snapshot, operation("o-2", Verb::Deploy, &[]));
            }),
            ("what serves is down", "repair: withdraw web", |snapshot| {
                down(snapshot, 1);
            }),
            ("a candidate is left", "sweep: sweep web", |snapshot| {
                let left = container(&service("web"), "c-left", 20_001);
                snapshot.containers.push(left);
            }),
            (
                "a candidate is left and what serves is down",
                "repair: withdraw web",
                |snapshot| {
                    let left = container(&service("web"), "c-left", 20_001);
                    snapshot.containers.push(left);
                    down(snapshot, 1);
                },
            ),
        ],
    );
}

#[test]
fn what_a_missing_manifest_leads_to() {
    let removal = "remove: intent, withdraw, retire web, reclaim, end";
    let deleted = || Snapshot {
        desired: Desired::Absent,
        ..web_app()
    };
    assert_eq!(first(&deleted()), removal);
    let mut protected = deleted();
    if let Some(ownership) = &mut protected.records.ownership {
        ownership.deletion_protection = true;
    }
    assert_eq!(first(&protected), "hold DeletionProtected");
    down(&mut protected, 1);
    assert_eq!(
        first(&protected),
        "repair: withdraw web, start web, probe web, publish web, traffic web"
    );
    let mut never_owned = empty();
    never_owned.records.status = Some(crate::store::Kept {
        record: crate::state::Status::default(),
        mod_revision: 1,
    });
    assert_eq!(first(&never_owned), "forget");
}

#[test]
fn a_removal_that_began_goes_on_although_the_manifest_is_back() {
    let mut snapshot = changed();
    journal(
        &mut snapshot,
        failed(operation("o-2", Verb::Remove, &[]), true),
    );
    intend_stopped(&mut snapshot, "o-2");
    assert!(first(&snapshot).starts_with("remove: "));
    // One that somebody stopped only waits.
    intend_stopped(&mut snapshot, "o-1");
    retired(&mut snapshot);
    assert_eq!(first(&snapshot), "settled");
}

#[test]
fn a_refused_manifest_leads_to_nothing_but_upkeep() {
    let refused = || Snapshot {
        desired: Desired::Invalid {
            source: SERVED + 1,
            message: "line 3".to_owned(),
        },
        ..web_app()
    };
    assert_eq!(first(&refused()), "settled");
    let mut crashed = refused();
    down(&mut crashed, 1);
    assert!(first(&crashed).starts_with("repair: withdraw web, start web"));
}

#[test]
fn what_serves_is_deployed_again_after_a_rollback_of_it_failed_half_way() {
    let mut snapshot = web_app();
    journal(
        &mut snapshot,
        failed(operation("o-2", Verb::Rollback, &[]), true),
    );
    assert_eq!(first(&snapshot), "deploy");
    journal(
        &mut snapshot,
        succeeded(operation("o-3", Verb::Rollback, &[])),
    );
    assert_eq!(first(&snapshot), "settled");
}

/// What follows once a container runs.
const VERIFY: &str = "probe web, publish web, traffic web";

/// The same, for a snapshot in which the service has to be brought back by this first.
fn brings_back(what: &str, by: &str, change: impl Fn(&mut Snapshot)) {
    let mut snapshot = web_app();
    change(&mut snapshot);
    assert_eq!(
        first(&snapshot),
        format!("repair: {by}, {VERIFY}"),
        "{what}"
    );
}

/// The service is withdrawn, and nothing more for now.
fn only_withdraws(what: &str, change: impl Fn(&mut Snapshot)) {
    let mut snapshot = web_app();
    change(&mut snapshot);
    assert_eq!(first(&snapshot), "repair: withdraw web", "{what}");
}

const REBUILD: &str = "provision web, create web, start web";

#[test]
fn what_brings_back_a_service_depends_on_its_container() {
    brings_back("down", "withdraw web, start web", |it| down(it, 1));
    brings_back("another execution", "withdraw web, inspect web", |it| {
        web(it).started_at = Some(at(11));
    });
    brings_back("another port", "withdraw web, inspect web", |it| {
        web(it).ports[0].host = 30_000;
    });
    brings_back("gone", &format!("withdraw web, {REBUILD}"), missing);
    brings_back("gone, and withdrawn already", REBUILD, |it| {
        missing(it);
        unverify(it);
    });
}

#[test]
fn what_must_not_or_can_not_be_brought_back_now_is_withdrawn_all_the_same() {
    only_withdraws("its turn comes later", |it| {
        down(it, 1);
        wait_a_minute(it);
    });
    only_withdraws("down and inhibited", |it| {
        down(it, 1);
        inhibit(it, InhibitionReason::ReplacementPending);
    });
    only_withdraws("running and inhibited", |it| {
        inhibit(it, InhibitionReason::Removed);
    });
    only_withdraws("frozen", |it| web(it).state = ContainerState::Paused);
}

#[test]
fn what_a_deployment_retired_only_a_deployment_brings_back() {
    let after = |steps: &'static [(StepKind, StepState)]| {
        move |it: &mut Snapshot| {
            missing(it);
            journal(it, failed(operation("o-2", Verb::Deploy, steps), false));
        }
    };
    only_withdraws(
        "retired",
        after(&[(StepKind::Retire, StepState::Succeeded)]),
    );
    only_withdraws(
        "interrupted",
        after(&[(StepKind::Retire, StepState::Failed)]),
    );
    let never = after(&[(StepKind::Retire, StepState::Pending)]);
    brings_back("never begun", &format!("withdraw web, {REBUILD}"), never);
    let published = after(&[
        (StepKind::Retire, StepState::Succeeded),
        (StepKind::Publish, StepState::Succeeded),
    ]);
    brings_back("replaced", &format!("withdraw web, {REBUILD}"), published);
}

#[test]
fn a_graph_that_is_not_what_follows_from_active_is_published_again() {
    check(
        web_app,
        &[
            ("lost", "repair: traffic", |it| it.routes = None),
            ("not confirmed", "repair: traffic", |it| {
                let steps = [(StepKind::Traffic, StepState::Failed)];
                journal(it, failed(operation("o-2", Verb::Recover, &steps), true));
            }),
        ],
    );
}

#[test]
fn a_withdrawal_that_was_not_confirmed_comes_before_everything_of_its_service() {
    let withdrawn = |id: &str, state| operation(id, Verb::Recover, &[(StepKind::Withdraw, state)]);
    brings_back("not confirmed", "withdraw web, inspect web", |it| {
        journal(it, failed(withdrawn("o-2", StepState::Failed), true));
    });
    let mut later = web_app();
    journal(
        &mut later,
        failed(withdrawn("o-2", StepState::Failed), true),
    );
    journal(
        &mut later,
        succeeded(withdrawn("o-3", StepState::Succeeded)),
    );
    assert_eq!(first(&later), "settled");
    let mut never_begun = web_app();
    let mut operation = failed(withdrawn("o-2", StepState::Failed), true);
    operation.steps[0].started_at = None;
    journal(&mut never_begun, operation);
    assert_eq!(first(&never_begun), "settled");
}

#[test]
fn a_withdrawn_service_waits_without_asking_again_and_again() {
    let withdrawn = |mut snapshot: Snapshot| {
        unverify(&mut snapshot);
        publish(&mut snapshot);
        snapshot
    };
    let mut waits = withdrawn(web_app());
    down(&mut waits, 1);
    wait_a_minute(&mut waits);
    assert_eq!(first(&waits), "wait 60");
    let mut frozen = withdrawn(web_app());
    web(&mut frozen).state = ContainerState::Paused;
    assert_eq!(first(&frozen), "wait 2");
    let mut inhibited = withdrawn(web_app());
    inhibit(&mut inhibited, InhibitionReason::ReplacementPending);
    assert_eq!(first(&inhibited), "settled");
}

#[test]
fn the_restart_policy_decides_whether_a_container_that_ended_is_started_again() {
    for (policy, code, again) in [
        ("Always", 0, true),
        ("Always", 1, true),
        ("OnFailure", 0, false),
        ("OnFailure", 1, true),
        ("Never", 0, false),
        ("Never", 1, false),
    ] {
        let mut snapshot = serving(&app(&[("web", &format!("restart: {policy}"))]));
        down(&mut snapshot, code);
        assert_eq!(
            first(&snapshot).contains("start web"),
            again,
            "{policy} after {code}"
        );
    }
}

#[test]
fn a_newer_generation_that_no_record_knows_is_held_for_a_person() {
    let newer = |change: fn(&mut crate::runtime::Container)| {
        let mut snapshot = web_app();
        missing(&mut snapshot);
        let mut newer = container(&service("web"), "c-newer", 20_001);
        newer
            .labels
            .insert(labels::REVISION.to_owned(), "2".to_owned());
        newer
            .labels
            .insert(labels::OPERATION.to_owned(), "o-9".to_owned());
        change(&mut newer);
        snapshot.containers.push(newer);
        unverify(&mut snapshot);
        first(&snapshot)
    };
    assert_eq!(newer(|_| {}), "hold NewerGenerationRuns");
    assert_eq!(
        newer(|it| it.state = ContainerState::Exited),
        "sweep: sweep web"
    );
    let known = |it: &mut crate::runtime::Container| {
        it.labels
            .insert(labels::OPERATION.to_owned(), "o-1".to_owned());
    };
    assert_eq!(newer(known), "sweep: sweep web");
    let ended = |it: &mut crate::runtime::Container| {
        let other = "00000000-0000-0000-0000-000000000002";
        it.labels
            .insert(labels::INCARNATION.to_owned(), other.to_owned());
    };
    assert_eq!(newer(ended), "sweep: sweep web");
}

#[test]
fn an_operation_in_flight_comes_before_all_else() {
    let mut snapshot = web_app();
    snapshot.desired = Desired::Absent;
    down(&mut snapshot, 1);
    journal(&mut snapshot, operation("o-2", Verb::Recover, &[]));
    assert_eq!(next(&snapshot), Next::Recover(OperationId::new("o-2")));
}
