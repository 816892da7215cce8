//! What serves goes down, moves or vanishes: it is withdrawn, brought back, verified.

use std::time::Duration;

use podherd::reconcile::Verdict;
use podherd::runtime::{Behaviour, Call, MemoryImage, RuntimeError};
use podherd::state::{ConditionType, OutcomeKind, Truth, Verb};
use tokio::time::Instant;

use crate::support::{Manifest, World, blog};

async fn serving(manifest: Manifest) -> World {
    let world = World::new().await.images(&["web:1", "web:2", "db:1"]);
    world.deploy(&manifest).await;
    world.effects();
    world
}

fn crash(world: &World, service: &str, code: i32) {
    world
        .runtime
        .crash(world.container(service).id.as_str(), code);
}

fn behave(world: &World, service: &str, behaves: Behaviour) {
    let container = world.container(service).id;
    world.runtime.set_behaviour(container.as_str(), behaves);
}

#[tokio::test(start_paused = true)]
async fn a_killed_container_is_withdrawn_and_then_restarted_in_place() {
    let world = serving(blog("web:1").volume("web", "data")).await;
    let container = world.container("web").id;
    crash(&world, "web", 137);
    world.settle("blog").await;
    assert_eq!(
        world.effects(),
        [
            "withdraw web",
            "start web",
            "probe web",
            "publish-active",
            "traffic web",
        ]
    );
    assert_eq!(world.container("web").id, container);
    assert_eq!(world.last("blog").request.verb, Verb::Recover);
    assert_eq!(
        world
            .status("blog")
            .unwrap()
            .services
            .values()
            .next()
            .unwrap()
            .restarts,
        1
    );
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_container_removed_by_hand_is_rebuilt_from_its_pinned_digest() {
    let world = serving(blog("web:1")).await;
    let before = world.serving("blog", "web");
    // The tag has moved, and the local image is gone.
    world.push("web:1", MemoryImage::new("another"));
    world.runtime.prune_image("registry.test/web:1");
    world.runtime.remove_by_hand(before.container.as_str());
    world.settle("blog").await;
    assert_eq!(
        world.effects(),
        [
            "withdraw web",
            "create web",
            "start web",
            "probe web",
            "publish-active",
            "traffic web",
        ]
    );
    let after = world.serving("blog", "web");
    assert_eq!(
        (after.digest, after.revision),
        (before.digest, before.revision)
    );
    assert_ne!(after.container, before.container);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_container_restarted_by_hand_is_verified_on_the_ports_it_has_now() {
    let world = serving(blog("web:1")).await;
    let container = world.container("web").id;
    world
        .runtime
        .restart_by_hand(container.as_str(), Some(25_000));
    world.settle("blog").await;
    assert_eq!(
        world.effects(),
        ["withdraw web", "probe web", "publish-active", "traffic web"]
    );
    assert_eq!(world.serving("blog", "web").binds[0].host, 25_000);
    let routes = world.routes("blog").unwrap();
    assert_eq!(routes.http[0].backends[0].address.port(), 25_000);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_container_that_is_not_ready_stays_withdrawn() {
    let world = serving(blog("web:1")).await;
    behave(&world, "web", Behaviour::NeverReady);
    let container = world.container("web").id;
    world.runtime.restart_by_hand(container.as_str(), None);
    world.run_for("blog", Duration::from_secs(200)).await;
    assert_eq!(world.effects(), ["withdraw web", "probe web"]);
    assert_eq!(world.container("web").id, container, "it isn't replaced");
    assert_eq!(world.routes("blog").unwrap().containers().len(), 0);
    assert_eq!(
        world.condition("blog", ConditionType::Degraded).status,
        Truth::True
    );
    behave(&world, "web", Behaviour::Ready);
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_crashing_container_is_restarted_three_times_at_once_and_then_ever_more_slowly() {
    let world = serving(blog("web:1")).await;
    behave(&world, "web", Behaviour::ExitsAtOnce(1));
    crash(&world, "web", 1);
    let began = Instant::now();
    let mut starts: Vec<u64> = Vec::new();
    while began.elapsed() < Duration::from_secs(3000) {
        let verdict = world.pass("blog").await.unwrap();
        let started = world.effects().into_iter().filter(|it| it == "start web");
        starts.extend(started.map(|_| began.elapsed().as_secs()));
        match verdict {
            Verdict::Again(pause) => tokio::time::sleep(pause).await,
            Verdict::Settled => panic!("it gives up"),
        }
    }
    let minutes: Vec<u64> = starts
        .windows(2)
        .map(|pair| (pair[1] - pair[0]) / 60)
        .collect();
    assert_eq!(minutes[..8], [0, 0, 1, 2, 4, 8, 15, 15], "{starts:?}");
    let degraded = world.condition("blog", ConditionType::Degraded);
    assert_eq!(
        (degraded.status, degraded.reason.as_str()),
        (Truth::True, "CrashLoopBackOff")
    );
    assert_eq!(
        world.condition("blog", ConditionType::Ready).reason,
        "CrashLoopBackOff"
    );

    // Mended, it serves at its next turn, and after five minutes has a new budget.
    behave(&world, "web", Behaviour::Ready);
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
    tokio::time::sleep(Duration::from_secs(301)).await;
    crash(&world, "web", 1);
    let crashed = Instant::now();
    world.settle("blog").await;
    assert!(crashed.elapsed() < Duration::from_secs(2));
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_crashes_again_soon_after_each_restart_is_a_crash_loop_too() {
    let world = serving(blog("web:1")).await;
    for _ in 0..3 {
        crash(&world, "web", 1);
        world.settle("blog").await;
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    crash(&world, "web", 1);
    world.effects();
    world.pass("blog").await.unwrap();
    assert_eq!(
        world.effects(),
        ["withdraw web"],
        "the withdrawal never waits"
    );
    assert_eq!(
        world.condition("blog", ConditionType::Ready).reason,
        "CrashLoopBackOff"
    );
}

#[tokio::test(start_paused = true)]
async fn on_failure_restarts_only_what_ended_with_an_error() {
    let world = serving(blog("web:1").with("web", "restart: OnFailure")).await;
    crash(&world, "web", 1);
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
    world.effects();
    crash(&world, "web", 0);
    world.settle("blog").await;
    assert_eq!(world.effects(), ["withdraw web"]);
    let degraded = world.condition("blog", ConditionType::Degraded);
    assert_eq!(degraded.reason, "Completed");
    assert_eq!(
        degraded.message,
        "service web ended with exit code 0, and restart: OnFailure leaves it down"
    );
    assert_eq!(
        world.condition("blog", ConditionType::Ready).reason,
        "Completed"
    );
}

#[tokio::test(start_paused = true)]
async fn never_restarts_nothing() {
    let world = serving(blog("web:1").with("web", "restart: Never")).await;
    crash(&world, "web", 1);
    world.settle("blog").await;
    assert_eq!(world.effects(), ["withdraw web"]);
    let degraded = world.condition("blog", ConditionType::Degraded);
    assert_eq!(degraded.reason, "Exited");
    assert_eq!(
        degraded.message,
        "service web ended with exit code 1, and restart: Never leaves it down"
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_that_can_not_be_repaired_holds_up_no_other() {
    let world = serving(blog("web:1").service("db", "db:1")).await;
    behave(&world, "db", Behaviour::ExitsAtOnce(1));
    crash(&world, "db", 1);
    crash(&world, "web", 1);
    world.pass("blog").await.unwrap();
    assert_eq!(
        world.serving("blog", "web").verified,
        world.container("web").started_at
    );
    let outcome = world.last("blog").outcome.unwrap();
    assert_eq!(outcome.result, OutcomeKind::Partial);
    assert!(
        outcome.message.starts_with("service db: "),
        "{}",
        outcome.message
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_container_is_withdrawn_before_a_long_preflight() {
    let world = serving(blog("web:1")).await;
    crash(&world, "web", 1);
    world.pulls_take(Duration::from_secs(60));
    world.put(&blog("web:2")).await;
    let look = async || assert_eq!(world.effects(), ["withdraw web"]);
    world.pass_while("blog", Duration::from_secs(1), look).await;
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_dies_during_a_long_preflight_is_withdrawn_meanwhile() {
    let world = serving(blog("web:1")).await;
    world.pulls_take(Duration::from_secs(600));
    world.put(&blog("web:2")).await;
    let began = Instant::now();
    let dies = async || {
        crash(&world, "web", 1);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(world.effects(), ["withdraw web"]);
    };
    world
        .pass_while("blog", Duration::from_secs(100), dies)
        .await;
    assert!(
        began.elapsed() < Duration::from_secs(720),
        "the pull isn't begun twice more"
    );
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_dead_container_is_withdrawn_even_while_an_interrupted_operation_can_not_be_reconciled() {
    let mut world = World::new()
        .await
        .images(&["web:1", "db:1"])
        .image("db:2", Behaviour::SlowReady(Duration::from_secs(20)));
    world.deploy(&blog("web:1").service("db", "db:1")).await;
    world.put(&blog("web:1").service("db", "db:2")).await;
    let cancel = tokio_util::sync::CancellationToken::new();
    let cancels = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cancel.cancel();
    };
    let (ended, ()) = tokio::join!(world.pass_until("blog", &cancel), cancels);
    ended.unwrap_err();
    world.restart().await;
    world.effects();
    crash(&world, "web", 1);
    world.runtime.fail_when(Call::Remove, |_| {
        Some(RuntimeError::Refused {
            call: "remove",
            message: "busy".to_owned(),
        })
    });
    world.pass("blog").await.unwrap_err();
    assert_eq!(world.effects(), ["withdraw web"]);
    world.runtime.clear_faults();
    world.settle("blog").await;
    world.assert_serves("blog", &["db", "web"]);
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_observed_changes_nothing() {
    let world = serving(blog("web:1")).await;
    world.runtime.set_down(true);
    world.pass("blog").await.unwrap_err();
    world.runtime.set_down(false);
    world.runtime.fail_next(
        Call::Inspect,
        RuntimeError::Deadline {
            call: "inspect",
            seconds: 10,
        },
    );
    world.pass("blog").await.unwrap_err();
    assert_eq!(world.effects(), Vec::<String>::new());
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_controller_touches_nothing_that_serves() {
    let mut world = serving(blog("web:1").service("db", "db:1")).await;
    let writes = world.writes();
    world.restart().await;
    world.settle("blog").await;
    assert_eq!(world.effects(), Vec::<String>::new());
    assert_eq!(world.writes(), writes);
}

#[tokio::test(start_paused = true)]
async fn recovery_never_takes_up_a_newer_revision() {
    let world = serving(blog("web:1")).await;
    world.runtime.set_registry_down(true);
    world.put(&blog("web:2")).await;
    world.pass("blog").await.unwrap();
    world
        .runtime
        .remove_by_hand(world.container("web").id.as_str());
    world.run_for("blog", Duration::from_secs(2)).await;
    assert_eq!(world.serving("blog", "web").image, "registry.test/web:1");
    assert!(world.serving("blog", "web").verified.is_some());
}

/// A probe may take minutes, and the other services go on meanwhile.
#[tokio::test(start_paused = true)]
async fn a_service_that_dies_while_another_is_probed_is_withdrawn_at_once() {
    let world = World::new()
        .await
        .images(&["web:1", "api:1"])
        .image("api:slow", Behaviour::SlowReady(Duration::from_secs(25)));
    let route = "http: [{host: api.test, path: /, port: http}]";
    let two = |api: &str| blog("web:1").service("api", api).with("api", route);
    world.deploy(&two("api:1")).await;
    let web = world.container("web").id;
    world.put(&two("api:slow")).await;
    let dies = async || {
        world.runtime.crash(web.as_str(), 1);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!world.traffic.may_reach(&web), "while api is still probed");
    };
    Box::pin(world.pass_while("blog", Duration::from_secs(5), dies)).await;
    assert_eq!(world.serving("blog", "api").image, "registry.test/api:slow");
    world.settle("blog").await;
    world.assert_serves("blog", &["api", "web"]);
}
