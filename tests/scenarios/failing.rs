//! A deployment that fails half way: what is undone, what is kept, what is said.

use std::time::Duration;

use podherd::reconcile::{ReconcileError, Verdict};
use podherd::runtime::{Behaviour, Call, RuntimeError};
use podherd::state::{ConditionType, OutcomeKind, StepKind, StepState, Truth};
use tokio_util::sync::CancellationToken;

use crate::support::{World, app, blog};

async fn serving(behaves: Behaviour) -> World {
    let world = World::new()
        .await
        .images(&["web:1"])
        .image("web:2", behaves);
    world.deploy(&blog("web:1")).await;
    world.effects();
    world
}

pub fn refuses() -> RuntimeError {
    RuntimeError::Refused {
        call: "remove",
        message: "device or resource busy".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_that_is_not_confirmed_touches_nothing() {
    let world = serving(Behaviour::Ready).await;
    let (before, active) = (world.container("web"), world.active("blog"));
    world.traffic.set_stuck(true);
    world.put(&blog("web:2")).await;
    let verdict = world.pass("blog").await.unwrap();
    assert_eq!(world.effects(), ["withdraw web (unconfirmed)"]);
    assert_eq!(world.container("web"), before);
    assert_eq!(world.active("blog"), active);
    assert!(matches!(verdict, Verdict::Again(_)));
    let deploy = world.last_deploy("blog");
    let outcome = deploy.outcome.unwrap();
    assert_eq!(outcome.reason, "TrafficUnconfirmed");
    assert!(outcome.message.contains("withdraw"), "{}", outcome.message);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_that_was_not_confirmed_is_confirmed_before_anything_is_published() {
    let world = serving(Behaviour::Ready).await;
    world.traffic.set_stuck(true);
    world.put(&blog("web:2")).await;
    world.run_for("blog", Duration::from_secs(5)).await;
    world.traffic.set_stuck(false);
    world.settle("blog").await;
    assert_eq!(
        world.effects()[..5],
        [
            "withdraw web (unconfirmed)",
            // Confirmed at last: what serves is verified and published again.
            "publish-active",
            "traffic web",
            // The deployment is tried again when it is due.
            "withdraw web",
            "signal web SIGTERM",
        ]
    );
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_publication_that_is_not_confirmed_is_confirmed_by_the_next_try() {
    let world = serving(Behaviour::Ready).await;
    world.traffic.fail_next_apply();
    world.put(&blog("web:2")).await;
    world.pass("blog").await.unwrap();
    let deployed = world.container("web").id;
    assert_eq!(
        world.serving("blog", "web").container,
        deployed,
        "ACTIVE is written before"
    );
    let failed = world.last_deploy("blog");
    assert_eq!(failed.outcome.unwrap().reason, "TrafficUnconfirmed");
    world.settle("blog").await;
    assert_eq!(
        world.container("web").id,
        deployed,
        "nothing is deployed twice"
    );
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_is_not_ready_is_removed_and_active_stays() {
    let world = serving(Behaviour::NeverReady).await;
    let old = world.serving("blog", "web").container;
    world.put(&blog("web:2")).await;
    world.pass("blog").await.unwrap();
    assert_eq!(
        world.effects(),
        [
            "withdraw web",
            "signal web SIGTERM",
            "remove web",
            "create web",
            "start web",
            "probe web",
            "remove web",
        ]
    );
    assert_eq!(
        world.containers("web"),
        Vec::new(),
        "the old one isn't made again"
    );
    assert_eq!(world.serving("blog", "web").container, old);
    assert_eq!(world.claims(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_failed_readiness_is_journaled_with_its_log_and_told_without_it() {
    let world = serving(Behaviour::NeverReady).await;
    let revision = world.put(&blog("web:2")).await;
    world.pass("blog").await.unwrap();
    let operation = world.last("blog");
    let outcome = operation.outcome.clone().unwrap();
    assert_eq!(
        (outcome.result, outcome.reason.as_str()),
        (OutcomeKind::Failed, "NotReady")
    );
    assert!(
        outcome.message.contains("readiness probe http /healthz"),
        "{}",
        outcome.message
    );
    let probe = operation
        .steps
        .iter()
        .find(|step| step.kind == StepKind::Probe)
        .unwrap();
    assert_eq!(probe.state, StepState::Failed);
    let diagnostics = probe.diagnostics.clone().unwrap();
    assert_eq!(diagnostics.log_tail, ["printed password=[redacted]"]);
    assert!(diagnostics.probe_answers.last().unwrap().contains("503"));
    let publish = operation
        .steps
        .iter()
        .find(|step| step.kind == StepKind::Publish)
        .unwrap();
    assert_eq!(publish.state, StepState::Pending);
    let ready = world.condition("blog", ConditionType::Ready);
    assert_eq!(
        (ready.status, ready.reason.as_str()),
        (Truth::False, "NotReady")
    );
    assert_eq!(world.status("blog").unwrap().observed_revision, revision);
    assert_eq!(
        world.condition("blog", ConditionType::Degraded).status,
        Truth::True
    );
    let told = world.events("blog").pop().unwrap();
    assert_eq!(told.reason, "NotReady");
    // That nothing printed is in any of it is checked after every pass.
}

#[tokio::test(start_paused = true)]
async fn a_container_that_exits_is_told_at_once_with_its_code() {
    let world = serving(Behaviour::ExitsAtOnce(3)).await;
    let began = tokio::time::Instant::now();
    world.put(&blog("web:2")).await;
    world.pass("blog").await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2));
    let outcome = world.last("blog").outcome.unwrap();
    assert_eq!(outcome.reason, "ContainerExited");
    assert!(
        outcome.message.contains("exited with code 3"),
        "{}",
        outcome.message
    );
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_can_not_be_removed_is_named_and_keeps_its_port() {
    let world = serving(Behaviour::NeverReady).await;
    let mut removals = 0;
    world.runtime.fail_when(Call::Remove, move |_| {
        removals += 1;
        (removals > 1).then(refuses)
    });
    world.put(&blog("web:2")).await;
    let verdict = world.pass("blog").await.unwrap();
    let candidate = world.container("web");
    let deploy = world.last_deploy("blog");
    assert_eq!(deploy.outcome.unwrap().result, OutcomeKind::Failed);
    assert_eq!(deploy.warnings.len(), 1);
    assert_eq!(deploy.warnings[0].leftover, candidate.id.as_str());
    assert!(deploy.warnings[0].detail.contains("could not be removed"));
    assert_eq!(world.claims(), [candidate.name.as_str()]);
    let told = world.events("blog");
    assert!(
        told.iter()
            .any(|event| event.message.contains(candidate.id.as_str()))
    );

    // Whatever is wanted by now waits until it is gone.
    assert!(matches!(verdict, Verdict::Again(_)));
    world.effects();
    world.put(&blog("web:1")).await;
    world.run_for("blog", Duration::from_secs(60)).await;
    assert_eq!(world.effects(), Vec::<String>::new());
    let last = world.last("blog").outcome.unwrap();
    assert_eq!(last.reason, "CleanupFailed");
    assert!(
        last.message.contains(candidate.id.as_str()),
        "{}",
        last.message
    );

    world.runtime.clear_faults();
    world.settle("blog").await;
    assert_eq!(world.effects()[..2], ["remove web", "create web"]);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_probe_leaves_the_operation_in_flight_for_the_next_holder() {
    let mut world = serving(Behaviour::SlowReady(Duration::from_secs(10))).await;
    let active = world.serving("blog", "web").container;
    world.put(&blog("web:2")).await;
    let cancel = CancellationToken::new();
    let cancels = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cancel.cancel();
    };
    let (ended, ()) = tokio::join!(world.pass_until("blog", &cancel), cancels);
    assert!(matches!(ended, Err(ReconcileError::Interrupted)));
    let cut = world.last("blog");
    assert!(cut.in_flight(), "nothing terminal is written");
    let probe = cut
        .steps
        .iter()
        .find(|step| step.kind == StepKind::Probe)
        .unwrap();
    assert_eq!(probe.state, StepState::Running);
    assert_eq!(world.serving("blog", "web").container, active);

    world.restart().await;
    world.effects();
    world.settle("blog").await;
    assert_eq!(world.effects()[..2], ["remove web", "create web"]);
    let operations = world.operations("blog");
    let cut = operations
        .iter()
        .find(|operation| operation.id == cut.id)
        .unwrap();
    let outcome = cut.outcome.as_ref().unwrap();
    assert_eq!(
        (outcome.result, outcome.reason.as_str()),
        (OutcomeKind::Failed, "Interrupted")
    );
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn several_services_stop_at_the_first_failure_and_keep_what_was_deployed() {
    let world = World::new()
        .await
        .images(&["web:1"])
        .image("bad:1", Behaviour::NeverReady);
    let manifest = app("blog")
        .service("alpha", "web:1")
        .service("beta", "bad:1");
    world.put(&manifest.service("gamma", "web:1")).await;
    world.pass("blog").await.unwrap();
    let effects = world.effects();
    assert!(
        !effects.iter().any(|effect| effect.ends_with("gamma")),
        "{effects:?}"
    );
    assert_eq!(world.containers("beta"), Vec::new());
    assert_eq!(
        world.serving("blog", "alpha").container,
        world.container("alpha").id
    );
    let outcome = world.last("blog").outcome.unwrap();
    assert_eq!(outcome.result, OutcomeKind::Partial);
    assert!(
        outcome.message.starts_with("service beta: readiness"),
        "{}",
        outcome.message
    );
    assert_eq!(world.active("blog").source, 0, "it isn't served whole");

    // The next try leaves alone what serves already.
    let alpha = world.container("alpha").id;
    world
        .put(
            &app("blog")
                .service("alpha", "web:1")
                .service("beta", "web:1"),
        )
        .await;
    world.settle("blog").await;
    assert_eq!(world.container("alpha").id, alpha);
    world.assert_serves("blog", &["alpha", "beta"]);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_ignores_the_stop_signal_is_killed_after_its_grace() {
    let world = World::new()
        .await
        .images(&["web:2"])
        .image("web:1", Behaviour::IgnoresTerm);
    world
        .deploy(&blog("web:1").with("web", "stopGrace: 7s"))
        .await;
    world.effects();
    let began = tokio::time::Instant::now();
    world.deploy(&blog("web:2")).await;
    let effects = world.effects();
    assert_eq!(
        effects[1..4],
        ["signal web SIGTERM", "signal web SIGKILL", "remove web"]
    );
    assert!(began.elapsed() >= Duration::from_secs(7));
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_generation_that_can_not_be_retired_lets_nothing_new_be_made() {
    let world = serving(Behaviour::Ready).await;
    world.runtime.fail_when(Call::Signal, |_| Some(refuses()));
    let old = world.container("web");
    world.put(&blog("web:2")).await;
    world.pass("blog").await.unwrap();
    assert_eq!(world.container("web").id, old.id);
    let outcome = world.last_deploy("blog").outcome.unwrap();
    assert_eq!(outcome.reason, "RetireFailed");
    assert!(
        outcome.message.contains(old.id.as_str()),
        "{}",
        outcome.message
    );
    // It has no volume, so it may serve again until the next try.
    assert_eq!(world.serving("blog", "web").verified, old.started_at);
    world.runtime.clear_faults();
    world.settle("blog").await;
    assert_ne!(world.container("web").id, old.id);
    world.assert_serves("blog", &["web"]);
}
