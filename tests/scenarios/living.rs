//! What serves goes on running and stops doing what it is there for: its liveness
//! probe fails, and it is withdrawn, restarted, verified. And what comes before
//! readiness: the startup probe and the image's own health check.

use std::time::Duration;

use podherd::runtime::{Behaviour, Call, MemoryImage, RuntimeError};
use podherd::state::{
    ConditionType, EventType, InhibitionReason, StepKind, StepState, Truth, Verb,
};
use tokio::time::Instant;

use crate::support::{Manifest, World, blog};

/// Twenty seconds to be found dead, and up to ten before the first look.
const LIVENESS: &str =
    "liveness: {http: {path: /live, port: http}, interval: 10s, failures: 3, timeout: 1s}";
/// Long enough to be found dead.
const LONG: Duration = Duration::from_secs(40);

fn watched() -> Manifest {
    blog("web:1").with("web", LIVENESS)
}

async fn serving(manifest: Manifest) -> World {
    let world = World::new().await.images(&["web:1", "web:2", "db:1"]);
    world.deploy(&manifest).await;
    world.effects();
    world
}

fn behave(world: &World, behaves: Behaviour) {
    let container = world.container("web").id;
    world.runtime.set_behaviour(container.as_str(), behaves);
}

/// The container does as it is told at its next start, not before.
fn sick_until_restarted(world: &World) {
    let container = world.container("web").id;
    world.runtime.sicken(container.as_str());
}

const RESTARTED: [&str; 6] = [
    "withdraw web",
    "signal web SIGTERM",
    "start web",
    "probe web",
    "publish-active",
    "traffic web",
];

#[tokio::test(start_paused = true)]
async fn a_container_that_fails_its_liveness_is_withdrawn_and_then_restarted_in_place() {
    let world = serving(watched()).await;
    let before = world.container("web");
    sick_until_restarted(&world);
    world.run_for("blog", LONG).await;
    assert_eq!(world.effects(), RESTARTED);
    let after = world.container("web");
    assert_eq!(after.id, before.id);
    assert_ne!(after.started_at, before.started_at);
    world.assert_serves("blog", &["web"]);
    assert_eq!(world.unhealthy("blog"), []);
    assert_eq!(world.followed(), 1, "the new execution is asked");
    let status = world.status("blog").unwrap();
    assert_eq!(status.services.values().next().unwrap().restarts, 1);
}

#[tokio::test(start_paused = true)]
async fn the_journal_and_an_event_say_why() {
    let world = serving(watched()).await;
    sick_until_restarted(&world);
    world.run_for("blog", LONG).await;
    let operation = world.last("blog");
    assert_eq!(operation.request.verb, Verb::Recover);
    let stop = operation
        .steps
        .iter()
        .find(|step| step.kind == StepKind::Stop)
        .unwrap();
    assert_eq!(stop.state, StepState::Succeeded);
    let diagnostics = stop.diagnostics.as_ref().unwrap();
    assert_eq!(diagnostics.log_tail, ["printed password=[redacted]"]);
    assert_eq!(
        diagnostics.probe_answers,
        ["HTTP status 503, not 200-399"; 3]
    );
    let events = world.events("blog");
    let event = events
        .iter()
        .find(|event| event.reason == "Unhealthy")
        .unwrap();
    assert_eq!(event.r#type, EventType::Warning);
    assert_eq!(
        event.message,
        "service web is withdrawn: liveness probe http /live on port http failed 3 times in a row: \
         HTTP status 503, not 200-399"
    );
}

#[tokio::test(start_paused = true)]
async fn failing_less_often_than_that_changes_nothing() {
    let world = serving(watched()).await;
    let writes = world.writes();
    for _ in 0..5 {
        behave(&world, Behaviour::NeverReady);
        world.run_for("blog", Duration::from_secs(19)).await;
        behave(&world, Behaviour::Ready);
        world.run_for("blog", Duration::from_secs(11)).await;
    }
    assert_eq!(world.effects(), Vec::<String>::new());
    assert_eq!(world.writes(), writes);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn what_podman_does_not_say_changes_nothing() {
    let liveness = "liveness: {exec: {command: [/live]}, interval: 10s, failures: 2}";
    let world = serving(blog("web:1").with("web", liveness)).await;
    world.runtime.fail_when(Call::Exec, |_| {
        Some(RuntimeError::Refused {
            call: "exec",
            message: "out of locks".to_owned(),
        })
    });
    world.run_for("blog", Duration::from_secs(300)).await;
    world.runtime.clear_faults();
    // It hangs, and so does everything else.
    let hangs = |call| RuntimeError::Deadline { call, seconds: 2 };
    world
        .runtime
        .fail_when(Call::Exec, move |_| Some(hangs("exec")));
    world
        .runtime
        .fail_when(Call::Ping, move |_| Some(hangs("ping")));
    world.run_for("blog", Duration::from_secs(300)).await;
    assert_eq!(world.effects(), Vec::<String>::new());

    // Podman answers, and what it runs in the container doesn't.
    world.runtime.clear_faults();
    world
        .runtime
        .fail_when(Call::Exec, move |_| Some(hangs("exec")));
    world.run_for("blog", Duration::from_secs(29)).await;
    assert_eq!(world.effects()[..3], RESTARTED[..3]);
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_again_and_again_has_the_budget_of_a_crash() {
    let world = serving(watched()).await;
    let began = Instant::now();
    let mut starts: Vec<u64> = Vec::new();
    while began.elapsed() < Duration::from_secs(4000) {
        sick_until_restarted(&world);
        world.run_for("blog", Duration::from_secs(10)).await;
        let started = world.effects().into_iter().filter(|it| it == "start web");
        starts.extend(started.map(|_| began.elapsed().as_secs()));
    }
    let minutes: Vec<u64> = starts
        .windows(2)
        .map(|pair| (pair[1] - pair[0]) / 60)
        .collect();
    assert_eq!(minutes[..7], [0, 0, 1, 2, 4, 8, 15], "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn while_it_waits_for_its_restart_it_is_withdrawn_and_left_alone() {
    let world = serving(watched()).await;
    for _ in 0..3 {
        sick_until_restarted(&world);
        world.run_for("blog", LONG).await;
    }
    world.effects();
    sick_until_restarted(&world);
    world.run_for("blog", LONG).await;
    assert_eq!(world.effects(), ["withdraw web"]);
    assert_eq!(world.followed(), 0, "what isn't published isn't asked");
    assert_eq!(world.routes("blog").unwrap().containers().len(), 0);
    let degraded = world.condition("blog", ConditionType::Degraded);
    assert_eq!(degraded.reason, "CrashLoopBackOff");
    assert!(
        degraded.message.starts_with(
            "service web isn't healthy: liveness probe http /live on port http failed"
        ),
        "{}",
        degraded.message
    );
    // It isn't taken for healthy because it answers again.
    behave(&world, Behaviour::Ready);
    world.run_for("blog", Duration::from_secs(120)).await;
    assert_eq!(world.effects(), RESTARTED[1..]);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_recovers_for_five_minutes_has_a_new_budget() {
    let world = serving(watched()).await;
    for _ in 0..8 {
        sick_until_restarted(&world);
        world.run_for("blog", LONG).await;
        assert_eq!(world.effects(), RESTARTED);
        world.run_for("blog", Duration::from_secs(301)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_dies_while_its_app_is_deployed_is_replaced_or_restarted_after_it() {
    let world = serving(watched().service("db", "db:1")).await;
    world.push(
        "db:2",
        MemoryImage::new("db:2").behaves(Behaviour::SlowReady(Duration::from_secs(29))),
    );
    sick_until_restarted(&world);
    world.put(&watched().service("db", "db:2")).await;
    world.run_for("blog", Duration::from_secs(60)).await;
    let effects = world.effects();
    let at = |effect: &str| effects.iter().position(|it| it == effect).unwrap();
    assert!(at("publish-active") < at("withdraw web"), "{effects:?}");
    assert!(at("withdraw web") < at("signal web SIGTERM"), "{effects:?}");
    world.assert_serves("blog", &["db", "web"]);

    // The other way round: it is dead before, and what replaces it is another matter.
    behave(&world, Behaviour::NeverReady);
    tokio::time::sleep(LONG).await;
    assert_eq!(world.unhealthy("blog").len(), 1);
    let newer = watched()
        .web("web:2")
        .with("web", LIVENESS)
        .service("db", "db:2");
    world.put(&newer).await;
    world.run_for("blog", LONG).await;
    let effects = world.effects();
    assert_eq!(effects[0], "withdraw web");
    assert!(effects.contains(&"remove web".to_owned()), "{effects:?}");
    assert_eq!(world.unhealthy("blog"), []);
    world.assert_serves("blog", &["db", "web"]);
}

#[tokio::test(start_paused = true)]
async fn a_dead_container_is_withdrawn_during_a_long_preflight() {
    let world = serving(watched()).await;
    sick_until_restarted(&world);
    world.pulls_take(Duration::from_secs(600));
    world.put(&blog("web:2")).await;
    let look = async || assert_eq!(world.effects()[..1], ["withdraw web"]);
    world.pass_while("blog", LONG, look).await;
}

#[tokio::test(start_paused = true)]
async fn an_inhibited_container_is_never_restarted() {
    let world = serving(watched().volume("web", "data")).await;
    world.runtime.fail_when(Call::Signal, |_| {
        Some(RuntimeError::Refused {
            call: "signal",
            message: "it hangs".to_owned(),
        })
    });
    world.runtime.fail_when(Call::Remove, |_| {
        Some(RuntimeError::Refused {
            call: "remove",
            message: "busy".to_owned(),
        })
    });
    // Its replacement comes as far as the inhibition.
    let newer = blog("web:2").with("web", LIVENESS).volume("web", "data");
    world.put(&newer).await;
    world.pass("blog").await.unwrap();
    assert_eq!(
        world.inhibitions("blog")[0].reason,
        InhibitionReason::ReplacementPending
    );
    behave(&world, Behaviour::NeverReady);
    world.run_for("blog", Duration::from_secs(300)).await;
    let effects = world.effects();
    assert!(!effects.contains(&"start web".to_owned()), "{effects:?}");
    assert_eq!(world.followed(), 0);
}

#[tokio::test(start_paused = true)]
async fn restart_never_withdraws_it_and_says_so() {
    let world = serving(watched().with("web", "restart: Never")).await;
    behave(&world, Behaviour::NeverReady);
    world.run_for("blog", LONG).await;
    assert_eq!(world.effects(), ["withdraw web"]);
    let ready = world.condition("blog", ConditionType::Ready);
    assert_eq!(
        (ready.status, ready.reason.as_str()),
        (Truth::False, "Unhealthy")
    );
    assert!(
        ready
            .message
            .ends_with("it is withdrawn, and restart: Never leaves it so"),
        "{}",
        ready.message
    );
}

#[tokio::test(start_paused = true)]
async fn restart_on_failure_takes_it_for_a_failure_whatever_its_exit_code() {
    let manifest = watched().with("web", "restart: OnFailure");
    let mut world = serving(manifest).await;
    sick_until_restarted(&world);
    // The controller dies between the stop and the start.
    tokio::time::sleep(LONG).await;
    world.runtime.fail_next(
        Call::Start,
        RuntimeError::Unavailable {
            call: "start",
            message: "the connection broke".to_owned(),
        },
    );
    world.pass("blog").await.unwrap();
    assert_eq!(world.container("web").exit_code, Some(0));
    world.restart().await;
    world.run_for("blog", LONG).await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn another_term_or_controller_asks_anew_and_a_stopped_app_is_not_asked() {
    let mut world = serving(watched()).await;
    assert_eq!(world.followed(), 1);
    world.end_term();
    assert_eq!(world.followed(), 0);
    world.settle("blog").await;
    assert_eq!(world.followed(), 1);
    world.restart().await;
    assert_eq!(world.followed(), 0);
    world.settle("blog").await;
    assert_eq!(world.followed(), 1);
    sick_until_restarted(&world);
    world.run_for("blog", LONG).await;
    assert_eq!(world.effects(), RESTARTED);

    world.request("blog", "r-1", "{verb: stop}").await;
    world.settle("blog").await;
    assert_eq!(world.followed(), 0);
    world.request("blog", "r-2", "{verb: start}").await;
    world.settle("blog").await;
    assert_eq!(world.followed(), 1);
    world.delete("blog").await;
    world.settle("blog").await;
    assert_eq!(world.followed(), 0);
    world.assert_gone("blog");
}

#[tokio::test(start_paused = true)]
async fn what_is_stopped_on_purpose_is_not_found_dead() {
    let world = serving(watched().with("web", "stopGrace: 10m")).await;
    behave(&world, Behaviour::SlowToLeave(Duration::from_secs(500)));
    world.request("blog", "r-1", "{verb: restart}").await;
    let looks = async || {
        assert_eq!((world.followed(), world.unhealthy("blog")), (0, Vec::new()));
    };
    world
        .pass_while("blog", Duration::from_secs(400), looks)
        .await;
    assert_eq!(world.followed(), 1);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn readiness_begins_to_count_once_startup_has_passed() {
    let slow = Behaviour::SlowReady(Duration::from_secs(100));
    let world = World::new().await.image("web:1", slow);
    let started = "startup: {http: {path: /started, port: http}, timeout: 120s}";
    world.deploy(&blog("web:1").with("web", started)).await;
    world.assert_serves("blog", &["web"]);
    assert_eq!(world.last("blog").attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn a_startup_that_takes_too_long_fails_the_candidate_and_is_named() {
    let slow = Behaviour::SlowReady(Duration::from_secs(100));
    let world = World::new().await.image("web:1", slow);
    let started = "startup: {http: {path: /started, port: http}, timeout: 60s}";
    world.put(&blog("web:1").with("web", started)).await;
    world.pass("blog").await.unwrap();
    let outcome = world.last("blog").outcome.unwrap();
    assert_eq!(outcome.reason, "NotStarted");
    assert_eq!(
        outcome.message,
        "service web: startup probe http /started on port http: last answer connection refused \
         after 60s"
    );
    assert_eq!(world.containers("web").len(), 0, "the candidate is removed");
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_place_waits_for_startup_too() {
    let world =
        serving(blog("web:1").with("web", "startup: {tcp: {port: http}, timeout: 120s}")).await;
    behave(&world, Behaviour::SlowReady(Duration::from_secs(100)));
    world.runtime.crash(world.container("web").id.as_str(), 1);
    world.settle("blog").await;
    assert_eq!(world.operations("blog").len(), 2);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn the_image_s_own_health_check_is_run_for_readiness_and_liveness() {
    let world = World::new().await;
    let slow = Behaviour::SlowReady(Duration::from_secs(5));
    world.push(
        "web:1",
        MemoryImage::new("web:1").healthcheck().behaves(slow),
    );
    let manifest = blog("web:1")
        .with("web", "readiness: {health: {}}")
        .with("web", "liveness: {health: {}, interval: 5s, failures: 2}");
    let began = Instant::now();
    world.deploy(&manifest).await;
    assert!(began.elapsed() >= Duration::from_secs(5));
    world.assert_serves("blog", &["web"]);
    world.effects();
    sick_until_restarted(&world);
    world.run_for("blog", LONG).await;
    let effects = world.effects();
    assert_eq!(effects[..3], RESTARTED[..3], "{effects:?}");
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn an_image_without_a_health_check_is_refused_before_anything_is_touched() {
    for probe in ["readiness", "startup", "liveness"] {
        let world = serving(blog("web:1")).await;
        let asks = format!("{probe}: {{health: {{}}}}");
        world.put(&blog("web:2").with("web", &asks)).await;
        world.pass("blog").await.unwrap();
        let outcome = world.last("blog").outcome.unwrap();
        assert_eq!(outcome.reason, "ImageWithoutHealthcheck");
        assert!(!outcome.retryable);
        assert!(
            outcome.message.starts_with(&format!(
                "service web: its {probe} asks for the image's own health check, and the image \
                 registry.test/web:2 declares none"
            )),
            "{}",
            outcome.message
        );
        assert_eq!(world.effects(), Vec::<String>::new());
        assert_eq!(world.serving("blog", "web").image, "registry.test/web:1");
    }
}
