//! What people ask for by key: each verb, its replay, and what is refused.

use podherd::manifest::Protocol;
use podherd::reconcile::Verdict;
use podherd::runtime::{Behaviour, Call, ContainerState};
use podherd::state::{ConditionType, Operation, OperationId, OutcomeKind};

use crate::failing::refuses;
use crate::support::{Cut, World, app, blog};

async fn serving() -> World {
    let world = World::new().await.images(&["web:1", "web:2", "db:1"]);
    world.deploy(&blog("web:1")).await;
    world.effects();
    world
}

async fn ask(world: &World, id: &str, asked: &str) {
    world.request("blog", id, asked).await;
    world.settle("blog").await;
    let left = world.keys_with("/requests/");
    assert_eq!(left, Vec::<String>::new(), "an answered request is gone");
}

fn operation(world: &World, id: &str) -> Option<Operation> {
    let id = OperationId::new(id);
    let mut operations = world.operations("blog").into_iter();
    operations.find(|operation| operation.id == id)
}

fn outcome(world: &World, id: &str) -> (OutcomeKind, String) {
    let outcome = operation(world, id).unwrap().outcome.unwrap();
    (outcome.result, outcome.reason)
}

fn failed(reason: &str) -> (OutcomeKind, String) {
    (OutcomeKind::Failed, reason.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_restart_is_in_place_and_serves_only_what_was_probed_again() {
    let world = serving().await;
    let before = world.serving("blog", "web");
    ask(&world, "r-1", "{verb: restart, service: web}").await;
    assert_eq!(
        world.effects(),
        [
            "withdraw web",
            "signal web SIGTERM",
            "start web",
            "probe web",
            "publish-active",
            "traffic web",
        ]
    );
    let after = world.serving("blog", "web");
    assert_eq!(after.container, before.container);
    assert_eq!(after.digest, before.digest);
    assert_ne!(after.verified, before.verified);
    assert_eq!(outcome(&world, "r-1").0, OutcomeKind::Success);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_what_is_gone_builds_it_again_from_its_pin() {
    let world = serving().await;
    let before = world.serving("blog", "web");
    world.runtime.remove_by_hand(before.container.as_str());
    ask(&world, "r-1", "verb: restart").await;
    let after = world.serving("blog", "web");
    assert_ne!(after.container, before.container);
    assert_eq!(
        (after.digest, after.revision),
        (before.digest, before.revision)
    );
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn the_same_request_again_touches_nothing_and_another_under_its_id_is_dropped() {
    let world = serving().await;
    ask(&world, "r-1", "verb: restart").await;
    let recorded = operation(&world, "r-1");
    world.effects();
    ask(&world, "r-1", "verb: restart").await;
    ask(&world, "r-1", "verb: stop").await;
    assert_eq!(world.effects(), Vec::<String>::new());
    assert_eq!(operation(&world, "r-1"), recorded);
    let dropped = world.events("blog").into_iter();
    let dropped = dropped.filter(|event| event.reason == "RequestDropped");
    assert_eq!(dropped.count(), 1);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_read_or_is_of_an_unknown_app_leaves_no_operation() {
    let world = serving().await;
    for (id, asked) in [
        ("bad-1", "verb: fly"),
        ("bad-2", "{verb: stop, service: web}"),
        ("bad-3", "{verb: restart, force: true}"),
        ("bad-4", "{verb: rollback}"),
        ("bad-5", "{verb: stop, when: now}"),
        ("bad id", "verb: stop"),
    ] {
        ask(&world, id, asked).await;
        assert_eq!(operation(&world, id), None, "{asked}");
    }
    world.request("nobody", "r-1", "verb: stop").await;
    world.settle("nobody").await;
    assert_eq!(world.keys_with("nobody"), Vec::<String>::new());
    assert_eq!(world.effects(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_done_is_refused_with_its_reason_and_touches_nothing() {
    let world = serving().await;
    for (id, asked, reason) in [
        ("r-1", "{verb: restart, service: db}", "ServiceUnknown"),
        ("r-2", "{verb: rollback, revision: 7}", "RevisionUnknown"),
    ] {
        ask(&world, id, asked).await;
        assert_eq!(outcome(&world, id), failed(reason), "{asked}");
    }
    assert_eq!(world.effects(), Vec::<String>::new());

    ask(&world, "s-1", "verb: stop").await;
    world.effects();
    for (id, asked) in [
        ("r-3", "verb: restart"),
        ("r-4", "verb: deploy"),
        ("r-5", "{verb: rollback, revision: 1}"),
    ] {
        ask(&world, id, asked).await;
        assert_eq!(outcome(&world, id), failed("Stopped"), "{asked}");
    }
    assert_eq!(world.effects(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_rollback_serves_the_older_revision_until_the_manifest_changes() {
    let world = serving().await;
    world.deploy(&blog("web:2")).await;
    ask(&world, "r-1", "{verb: rollback, revision: 1}").await;
    assert_eq!(world.active_revision("blog", "web"), 1);
    let ready = world.condition("blog", ConditionType::Ready);
    assert_eq!(ready.reason, "RolledBack");
    world.effects();
    world.settle("blog").await;
    assert_eq!(world.effects(), Vec::<String>::new(), "it isn't undone");

    world.deploy(&blog("web:2").label("again: yes")).await;
    assert_eq!(world.serving("blog", "web").image, "registry.test/web:2");
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_deployment_that_is_asked_for_undoes_a_rollback() {
    let world = serving().await;
    world.deploy(&blog("web:2")).await;
    ask(&world, "r-1", "{verb: rollback, revision: 1}").await;
    ask(&world, "d-1", "verb: deploy").await;
    assert_eq!(outcome(&world, "d-1").0, OutcomeKind::Success);
    assert_eq!(world.serving("blog", "web").image, "registry.test/web:2");
}

/// The manifest of both waits for its next try when one is asked for alone.
#[tokio::test(start_paused = true)]
async fn one_service_is_deployed_only_if_all_that_differs_is_in_it() {
    let world = World::new()
        .await
        .images(&["web:1", "web:2", "db:1", "db:2"]);
    world.deploy(&blog("web:1").service("db", "db:1")).await;
    world.runtime.set_registry_down(true);
    world.put(&blog("web:2").service("db", "db:2")).await;
    world.pass("blog").await.unwrap();
    world.runtime.set_registry_down(false);
    world.effects();
    world
        .request("blog", "d-1", "{verb: deploy, service: web}")
        .await;
    let verdict = world.pass("blog").await.unwrap();
    assert_eq!(outcome(&world, "d-1"), failed("OtherServicesDiffer"));
    assert_eq!(world.effects(), Vec::<String>::new());
    assert!(
        matches!(verdict, Verdict::Again(_)),
        "what was to be tried again still is"
    );
    world.settle("blog").await;
    assert_eq!(world.serving("blog", "db").image, "registry.test/db:2");

    world.runtime.set_registry_down(true);
    world.put(&blog("web:1").service("db", "db:2")).await;
    world.pass("blog").await.unwrap();
    world.runtime.set_registry_down(false);
    ask(&world, "d-2", "{verb: deploy, service: web}").await;
    assert_eq!(outcome(&world, "d-2").0, OutcomeKind::Success);
    world.assert_serves("blog", &["db", "web"]);
}

#[tokio::test(start_paused = true)]
async fn a_rollback_to_what_serves_already_changes_nothing() {
    let world = serving().await;
    ask(&world, "r-1", "{verb: rollback, revision: 1}").await;
    assert_eq!(outcome(&world, "r-1").0, OutcomeKind::Success);
    assert_eq!(world.effects(), Vec::<String>::new());
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_rollback_to_what_is_taken_by_now_touches_nothing() {
    let fixed = "ports: [{name: http, container: 8080, host: 8443}]";
    let world = World::new().await.images(&["web:1", "web:2"]);
    world.deploy(&blog("web:1").with("web", fixed)).await;
    world.deploy(&blog("web:2")).await;
    world.runtime.occupy_port(Protocol::Tcp, 8443);
    world.effects();
    ask(&world, "r-1", "{verb: rollback, revision: 1}").await;
    assert_eq!(outcome(&world, "r-1"), failed("PortInUse"));
    assert_eq!(world.effects(), Vec::<String>::new());
    // The same again is the same.
    ask(&world, "r-1", "{verb: rollback, revision: 1}").await;
    assert!(
        !world
            .events("blog")
            .iter()
            .any(|it| it.reason == "RequestDropped")
    );
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_come_between_a_removal_and_its_end() {
    let world = serving().await;
    world.runtime.fail_when(Call::Remove, |_| Some(refuses()));
    world.request("blog", "r-1", "verb: remove").await;
    world.pass("blog").await.unwrap();
    world.put(&blog("web:2")).await;
    world.request("blog", "s-1", "verb: stop").await;
    world.pass("blog").await.unwrap();
    assert!(operation(&world, "s-1").is_none(), "it waits");
    let before = world.ownership("blog").unwrap().incarnation;
    world.runtime.clear_faults();
    world.settle("blog").await;
    assert_ne!(
        world.ownership("blog").map(|it| it.incarnation),
        Some(before)
    );
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_is_asked_for_takes_the_manifest_with_it() {
    let world = serving().await;
    ask(&world, "r-1", "verb: remove").await;
    world.assert_gone("blog");
    assert_eq!(world.keys_with("/apps/"), Vec::<String>::new());
    assert_eq!(outcome(&world, "r-1").0, OutcomeKind::Success);
}

#[tokio::test(start_paused = true)]
async fn a_protected_app_is_removed_only_by_force() {
    let world = World::new().await.images(&["web:1"]);
    world
        .deploy(&blog("web:1").spec("deletionProtection: true"))
        .await;
    world.effects();
    ask(&world, "r-1", "verb: remove").await;
    assert_eq!(outcome(&world, "r-1"), failed("DeletionProtected"));
    assert_eq!(world.effects(), Vec::<String>::new());
    ask(&world, "r-2", "{verb: remove, force: true}").await;
    world.assert_gone("blog");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_app_that_somebody_revived_is_stopped_again() {
    let world = serving().await;
    let spec = world
        .runtime
        .spec(world.container("web").name.as_str())
        .unwrap();
    ask(&world, "s-1", "verb: stop").await;
    assert_eq!(world.containers("web").len(), 0);
    world.effects();
    // By the same name and labels, as a restored container would come back.
    world.runtime.run_by_hand(&spec);
    world.settle("blog").await;
    assert_eq!(world.containers("web").len(), 0);
    assert_eq!(
        world.condition("blog", ConditionType::Ready).reason,
        "Stopped"
    );
}

/// Cuts the request at each effect in each way; a successor takes over.
async fn cut_everywhere(asked: &str, verify: impl Fn(&World)) {
    for cut in [Cut::Before, Cut::After, Cut::LosesReply, Cut::Breaks] {
        for number in 1.. {
            let mut world = serving().await;
            world.deploy(&blog("web:2")).await;
            world.request("blog", "r-1", asked).await;
            let reached = world.pass_cut("blog", number, cut).await;
            world.restart().await;
            world.settle("blog").await;
            world.check();
            assert_eq!(world.keys_with("/requests/"), Vec::<String>::new());
            assert!(!operation(&world, "r-1").unwrap().in_flight());
            verify(&world);
            if !reached {
                assert!(number > 4, "{number} effects");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_cut_anywhere_ends_with_the_app_serving() {
    cut_everywhere("verb: restart", |world| {
        world.assert_serves("blog", &["web"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_rollback_cut_anywhere_ends_with_one_of_the_two_serving() {
    cut_everywhere("{verb: rollback, revision: 1}", |world| {
        let ready = world.condition("blog", ConditionType::Ready);
        if world.active_revision("blog", "web") == 1 {
            assert_eq!(ready.reason, "RolledBack");
            assert_eq!(world.container("web").state, ContainerState::Running);
        } else {
            world.assert_serves("blog", &["web"]);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_cut_anywhere_ends_with_the_app_gone_and_its_manifest_too() {
    cut_everywhere("verb: remove", |world| {
        world.assert_gone("blog");
        assert_eq!(world.keys_with("/apps/"), Vec::<String>::new());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn other_apps_are_not_concerned() {
    let world = serving().await;
    world.deploy(&app("other").web("web:2")).await;
    world.effects();
    ask(&world, "s-1", "verb: stop").await;
    world.settle("other").await;
    world.assert_serves("other", &["web"]);
}

/// Asks while the app's deployment fails again and again, so that it never settles.
async fn ask_unsettled(world: &World, id: &str, asked: &str) {
    world.request("blog", id, asked).await;
    for _ in 0..10 {
        if world.keys_with("/requests/").is_empty() {
            return;
        }
        _ = world.pass("blog").await;
    }
    panic!("{id} isn't answered");
}

#[tokio::test(start_paused = true)]
async fn an_inhibition_is_cleared_by_somebody_who_answers_for_it() {
    let world = World::new().await.images(&["web:1"]);
    let world = world.image("web:sick", Behaviour::NeverReady);
    let volume = |image| blog(image).with("web", "volumes: [{name: data, path: /data}]");
    world.deploy(&volume("web:1")).await;
    let before = world.serving("blog", "web");
    world.put(&volume("web:sick")).await;
    _ = world.pass("blog").await;
    let inhibitions = || world.keys_with("/inhibitions/");
    assert_eq!(inhibitions().len(), 1, "the old one may not come back");

    let clear = |container: &str| {
        format!("{{verb: clearInhibition, container: '{container}', note: 'ann@host: a copy'}}")
    };
    ask_unsettled(&world, "c-0", &clear("another")).await;
    assert_eq!(outcome(&world, "c-0"), failed("NotInhibited"));
    let nobodys = "{verb: clearInhibition, container: another}";
    ask_unsettled(&world, "c-1", nobodys).await;
    assert_eq!(operation(&world, "c-1"), None, "nobody answers for it");
    assert_eq!(inhibitions().len(), 1);

    ask_unsettled(&world, "c-2", &clear(before.container.as_str())).await;
    assert_eq!(outcome(&world, "c-2").0, OutcomeKind::Success);
    let note = operation(&world, "c-2").unwrap().request.note;
    assert_eq!(note.as_deref(), Some("ann@host: a copy"));
    assert_eq!(inhibitions(), Vec::<String>::new());
}
