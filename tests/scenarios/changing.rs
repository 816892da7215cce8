//! Manifests that change while something is done: refused ones, and newer ones.

use std::time::Duration;

use podherd::reconcile::Verdict;
use podherd::runtime::Behaviour;
use podherd::state::{ConditionType, OutcomeKind, Truth};
use tokio::time::Instant;

use crate::support::{World, blog};

const BROKEN: &str =
    "apiVersion: podherd/v1\nkind: App\nmetadata: {name: blog}\nspec: {servces: {}}";

#[tokio::test(start_paused = true)]
async fn a_refused_manifest_says_where_it_is_wrong_and_the_old_spec_serves_on() {
    let world = World::new().await.images(&["web:1"]);
    world.deploy(&blog("web:1")).await;
    let container = world.container("web").id;
    world.effects();
    let revision = world.put_text("blog", BROKEN).await;
    world.settle("blog").await;
    assert_eq!(world.effects(), Vec::<String>::new());
    let accepted = world.condition("blog", ConditionType::Accepted);
    assert_eq!(
        (accepted.status, accepted.reason.as_str()),
        (Truth::False, "InvalidManifest")
    );
    assert!(accepted.message.contains("line 4"), "{}", accepted.message);
    assert_eq!(world.status("blog").unwrap().observed_revision, revision);
    assert_eq!(
        world.condition("blog", ConditionType::Ready).status,
        Truth::False
    );
    assert_eq!(
        world.condition("blog", ConditionType::Degraded).status,
        Truth::False
    );
    // It is still looked after.
    world.runtime.crash(container.as_str(), 1);
    world.settle("blog").await;
    assert_eq!(world.effects()[..2], ["withdraw web", "start web"]);
    assert_eq!(world.container("web").id, container);
    // And mended by a right one.
    world.deploy(&blog("web:1")).await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_newer_manifest_ends_a_probe_at_once() {
    let world = World::new()
        .await
        .images(&["web:1", "web:3"])
        .image("web:2", Behaviour::NeverReady);
    world.deploy(&blog("web:1")).await;
    let patient = "readiness: {http: {path: /, port: http}, timeout: 600s}";
    world.put(&blog("web:2").with("web", patient)).await;
    world.effects();
    let began = Instant::now();
    let mend = async || world.put(&blog("web:3")).await;
    world.pass_while("blog", Duration::from_secs(1), mend).await;
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    let effects = world.effects();
    assert_eq!(effects[5..8], ["probe web", "remove web", "create web"]);
    let superseded = &world.operations("blog")[1];
    let outcome = superseded.outcome.as_ref().unwrap();
    assert_eq!(
        (outcome.result, outcome.reason.as_str()),
        (OutcomeKind::Failed, "Superseded")
    );
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_newer_manifest_ends_a_preflight_at_once_and_nothing_was_touched() {
    let world = World::new().await.images(&["web:1", "web:2", "web:3"]);
    world.deploy(&blog("web:1")).await;
    let deployed = world.operations("blog").len();
    world.pulls_take(Duration::from_secs(100));
    world.put(&blog("web:2")).await;
    let began = Instant::now();
    let newer = async || {
        world.pulls_take(Duration::ZERO);
        world.put(&blog("web:3")).await;
    };
    world
        .pass_while("blog", Duration::from_secs(1), newer)
        .await;
    assert!(began.elapsed() < Duration::from_secs(3));
    assert_eq!(
        world.operations("blog").len(),
        deployed + 1,
        "only the newer one ran"
    );
    assert_eq!(world.serving("blog", "web").image, "registry.test/web:3");
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_newer_manifest_is_taken_up_before_the_next_service_is_withdrawn() {
    let slow = Behaviour::SlowToLeave(Duration::from_secs(5));
    let world = World::new()
        .await
        .images(&["web:1", "web:2", "web:3"])
        .image("db:1", slow);
    world.deploy(&blog("web:1").service("db", "db:1")).await;
    let web = world.container("web").id;
    world.effects();
    world.put(&blog("web:2")).await;
    let newer = async || {
        assert_eq!(world.effects(), ["inhibit db", "signal db SIGTERM"]);
        world.put(&blog("web:3")).await;
    };
    world
        .pass_while("blog", Duration::from_secs(1), newer)
        .await;
    let superseded = &world.operations("blog")[1];
    assert_eq!(superseded.outcome.as_ref().unwrap().reason, "Superseded");
    // The service went from the first straight to the third.
    let effects = world.effects();
    let removed = effects
        .iter()
        .filter(|effect| *effect == "remove web")
        .count();
    assert_eq!(removed, 1, "{effects:?}");
    assert_ne!(world.container("web").id, web);
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_manifest_ends_a_probe_at_once() {
    let world = World::new().await.image("web:1", Behaviour::NeverReady);
    let patient = "readiness: {http: {path: /, port: http}, timeout: 600s}";
    world.put(&blog("web:1").with("web", patient)).await;
    let began = Instant::now();
    let delete = async || world.delete("blog").await;
    world
        .pass_while("blog", Duration::from_secs(1), delete)
        .await;
    world.settle("blog").await;
    assert!(began.elapsed() < Duration::from_secs(5));
    world.assert_gone("blog");
}

#[tokio::test(start_paused = true)]
async fn a_refused_manifest_supersedes_nothing_half_way() {
    let slow = Behaviour::SlowReady(Duration::from_secs(5));
    let world = World::new().await.images(&["web:1"]).image("web:2", slow);
    world.deploy(&blog("web:1")).await;
    world.put(&blog("web:2")).await;
    let typo = async || world.put_text("blog", BROKEN).await;
    world.pass_while("blog", Duration::from_secs(1), typo).await;
    world.settle("blog").await;
    assert_eq!(world.serving("blog", "web").image, "registry.test/web:2");
    assert!(world.serving("blog", "web").verified.is_some());
    assert_eq!(
        world.condition("blog", ConditionType::Accepted).status,
        Truth::False
    );
}

// Tries that are repeated.

fn pause(verdict: Verdict) -> f64 {
    match verdict {
        Verdict::Again(pause) => pause.as_secs_f64(),
        Verdict::Settled => panic!("nothing will be tried again"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_deployment_is_tried_again_after_ten_seconds_to_ten_minutes() {
    let world = World::new()
        .await
        .images(&["web:1"])
        .image("web:2", Behaviour::ExitsAtOnce(1));
    world.put(&blog("web:2")).await;
    for (attempt, seconds) in [
        (1, 10.0),
        (2, 20.0),
        (3, 40.0),
        (4, 80.0),
        (5, 160.0),
        (6, 320.0),
        (7, 600.0),
        (8, 600.0),
    ] {
        let wait = pause(world.pass("blog").await.unwrap());
        assert!(
            (seconds * 0.79..=seconds * 1.21).contains(&wait),
            "{attempt}: {wait}"
        );
        assert_eq!(world.last("blog").attempt, attempt);
        let progressing = world.condition("blog", ConditionType::Progressing);
        assert_eq!(progressing.reason, "RetryScheduled");
        let next = format!("attempt {} begins at ", attempt + 1);
        assert!(
            progressing.message.starts_with(&next),
            "{}",
            progressing.message
        );
        // Looked at too early, nothing is done.
        let (tried, writes) = (world.operations("blog").len(), world.writes());
        tokio::time::sleep(Duration::from_secs_f64(wait / 2.0)).await;
        world.pass("blog").await.unwrap();
        assert_eq!(
            (world.operations("blog").len(), world.writes()),
            (tried, writes)
        );
        tokio::time::sleep(Duration::from_secs_f64(wait / 2.0 + 0.01)).await;
    }
    // A changed manifest begins anew, at once.
    world.put(&blog("web:2").label("a: b")).await;
    let wait = pause(world.pass("blog").await.unwrap());
    assert!((8.0..=12.0).contains(&wait), "{wait}");
    assert_eq!(world.last("blog").attempt, 1);
    world.deploy(&blog("web:1")).await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_no_try_can_mend_waits_for_a_change() {
    let world = World::new().await.images(&["web:1"]);
    world.put(&blog("web:2")).await;
    assert_eq!(world.pass("blog").await.unwrap(), Verdict::Settled);
    world.push("web:2", podherd::runtime::MemoryImage::new("late"));
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    assert_eq!(world.pass("blog").await.unwrap(), Verdict::Settled);
    assert_eq!(world.operations("blog").len(), 1);
    world.deploy(&blog("web:2")).await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_no_try_can_mend_is_remembered_over_many_repairs() {
    let world = World::new().await.images(&["web:1"]);
    world.deploy(&blog("web:1")).await;
    let revision = world.put(&blog("web:9")).await;
    world.settle("blog").await;
    for _ in 0..25 {
        tokio::time::sleep(Duration::from_secs(400)).await;
        world.runtime.crash(world.container("web").id.as_str(), 1);
        world.settle("blog").await;
    }
    let operations = world.operations("blog");
    assert!(operations.len() <= 20, "{}", operations.len());
    let tried = operations.iter().filter(|it| it.source == revision);
    assert_eq!(tried.count(), 1);
}
