//! Pulls: what is told of them, what doesn't wait for them, and what ends them.

use std::time::Duration;

use podherd::runtime::{MemoryImage, RuntimeError};
use podherd::state::{ConditionType, OutcomeKind, Truth, Verb};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::{World, blog, reference};

/// `web` and `db` serve; then `web` loses its container and its image, and from now on
/// a pull takes ten minutes.
async fn without_the_image_of_web() -> World {
    let world = World::new().await.images(&["web:1", "web:2", "db:1"]);
    world.deploy(&blog("web:1").service("db", "db:1")).await;
    let web = world.container("web").id;
    world.runtime.remove_by_hand(web.as_str());
    world.runtime.prune_image(&reference("web:1"));
    world.pulls_take(Duration::from_secs(600));
    world.effects();
    world
}

#[tokio::test(start_paused = true)]
async fn a_container_that_dies_during_the_pull_of_a_recovery_comes_back_meanwhile() {
    let world = without_the_image_of_web().await;
    let dies = async || {
        assert_eq!(world.effects(), ["withdraw web"]);
        let db = world.container("db").id;
        world.runtime.crash(db.as_str(), 1);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(world.effects()[..2], ["start db", "probe db"]);
        assert!(world.serving("blog", "db").verified.is_some());
    };
    world
        .pass_while("blog", Duration::from_secs(60), dies)
        .await;
    world.settle("blog").await;
    world.assert_serves("blog", &["db", "web"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_whose_image_is_here_does_not_wait_for_one_that_is_pulled() {
    let world = without_the_image_of_web().await;
    let db = world.container("db").id;
    world.runtime.remove_by_hand(db.as_str());
    let look = async || assert!(world.serving("blog", "db").verified.is_some());
    world.pass_while("blog", Duration::from_secs(5), look).await;
    world.settle("blog").await;
    world.assert_serves("blog", &["db", "web"]);
}

#[tokio::test(start_paused = true)]
async fn a_newer_manifest_ends_the_pull_of_a_recovery() {
    let world = without_the_image_of_web().await;
    let began = Instant::now();
    let mend = async || {
        world.pulls_take(Duration::ZERO);
        world.put(&blog("web:2").service("db", "db:1")).await
    };
    world
        .pass_while("blog", Duration::from_secs(60), mend)
        .await;
    world.settle("blog").await;
    assert!(began.elapsed() < Duration::from_secs(90));
    world.assert_serves("blog", &["db", "web"]);
    assert_eq!(world.serving("blog", "web").image, reference("web:2"));
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_stops_ends_the_pull_of_a_recovery_with_nothing_in_flight() {
    let world = without_the_image_of_web().await;
    // Takes it out of the graph first.
    let cancel = CancellationToken::new();
    let stops = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        cancel.cancel();
    };
    let began = Instant::now();
    let (ended, ()) = tokio::join!(world.pass_until("blog", &cancel), stops);
    ended.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(62));
    let unfinished = |operation: &podherd::state::Operation| operation.outcome.is_none();
    assert!(!world.operations("blog").iter().any(unfinished));
}

#[tokio::test(start_paused = true)]
async fn a_recovery_that_can_not_pull_says_so_and_is_tried_again() {
    let world = without_the_image_of_web().await;
    world.pulls_take(Duration::ZERO);
    world.runtime.set_registry_down(true);
    world.pass("blog").await.unwrap();
    let failed = world.last("blog");
    assert_eq!(failed.request.verb, Verb::Recover);
    let outcome = failed.outcome.unwrap();
    assert_eq!(
        (outcome.result, outcome.reason.as_str()),
        (OutcomeKind::Failed, "ImagePullFailed")
    );
    assert!(outcome.message.starts_with("service web: "));
    world.runtime.set_registry_down(false);
    world.settle("blog").await;
    world.assert_serves("blog", &["db", "web"]);
}

#[tokio::test(start_paused = true)]
async fn an_app_that_goes_on_without_its_manifest_is_pulled_for_as_well() {
    let world = World::new().await.images(&["web:1"]);
    world
        .deploy(&blog("web:1").spec("deletionProtection: true"))
        .await;
    world.delete("blog").await;
    world.settle("blog").await;
    let web = world.container("web").id;
    world.runtime.remove_by_hand(web.as_str());
    world.runtime.prune_image(&reference("web:1"));
    world.pulls_take(Duration::from_secs(30));
    world.settle("blog").await;
    assert!(world.serving("blog", "web").verified.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_pull_of_a_rollback_gives_way_to_a_withdrawal_and_goes_on_after_it() {
    let world = World::new().await.images(&["web:1", "web:2"]);
    world.deploy(&blog("web:1")).await;
    world.deploy(&blog("web:2")).await;
    world.runtime.prune_image(&reference("web:1"));
    world.pulls_take(Duration::from_secs(600));
    world.effects();
    world
        .request("blog", "back", "{verb: rollback, revision: 1}")
        .await;
    let dies = async || {
        let web = world.container("web").id;
        world.runtime.crash(web.as_str(), 1);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(world.effects(), ["withdraw web"]);
    };
    world
        .pass_while("blog", Duration::from_secs(60), dies)
        .await;
    world.settle("blog").await;
    let serving = world.serving("blog", "web");
    assert_eq!(serving.image, reference("web:1"));
    assert!(serving.verified.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_recovery_tries_a_refused_login_slowly() {
    let world = without_the_image_of_web().await;
    world.pulls_take(Duration::ZERO);
    world
        .runtime
        .fail_when(podherd::runtime::Call::EnsurePinned, |_| {
            Some(RuntimeError::ImageDenied {
                image: reference("web:1"),
            })
        });
    world.run_for("blog", Duration::from_secs(60)).await;
    let denied = |operation: &podherd::state::Operation| {
        let outcome = operation.outcome.as_ref();
        outcome.is_some_and(|outcome| outcome.reason == "ImageDenied")
    };
    let tries = world.operations("blog").into_iter().filter(denied).count();
    assert_eq!(tries, 1);
    world.runtime.clear_faults();
    world.run_for("blog", Duration::from_secs(600)).await;
    world.assert_serves("blog", &["db", "web"]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_login_is_tried_again_slowly_and_at_once_when_asked_to() {
    let world = World::new().await.images(&["web:1"]);
    let denied = |times: usize| {
        for _ in 0..times {
            let error = RuntimeError::ImageDenied {
                image: reference("web:1"),
            };
            world
                .runtime
                .fail_next(podherd::runtime::Call::EnsureImage, error);
        }
    };
    denied(3);
    world.put(&blog("web:1")).await;
    world.run_for("blog", Duration::from_secs(60)).await;
    assert_eq!(world.operations("blog").len(), 1, "one try in a minute");
    let progressing = world.condition("blog", ConditionType::Progressing);
    assert_eq!(
        (progressing.status, progressing.reason.as_str()),
        (Truth::True, "RetryScheduled")
    );
    let ready = world.condition("blog", ConditionType::Ready);
    assert_eq!(ready.reason, "ImageDenied");
    assert!(ready.message.contains("podman login"), "{}", ready.message);
    world.run_for("blog", Duration::from_secs(600)).await;
    let tries = world.operations("blog").len();
    assert!((2..=4).contains(&tries), "{tries} tries in eleven minutes");
    // Somebody logged in, and says so.
    world.runtime.clear_faults();
    world.request("blog", "now", "{verb: deploy}").await;
    world.pass("blog").await.unwrap();
    world.assert_serves("blog", &["web"]);
}

/// As after an upgrade of Podman, or of an index that was made anew around it.
#[tokio::test(start_paused = true)]
async fn an_image_that_gets_another_digest_beside_the_pinned_one_stays_pinned_to_it() {
    let world = World::new().await;
    let of_index = MemoryImage::new("index");
    world.push("web:1", of_index.clone());
    world.deploy(&blog("web:1")).await;
    let (before, container) = (world.serving("blog", "web"), world.container("web").id);
    let mut of_platform = MemoryImage::new("platform");
    of_platform.index = Some(of_index.digest);
    world.push("web:1", of_platform);
    world.deploy(&blog("web:1")).await;
    assert_eq!(world.serving("blog", "web"), before);
    assert_eq!(world.container("web").id, container);
    // Another image is another matter.
    world.push("web:1", MemoryImage::new("two"));
    world.deploy(&blog("web:1")).await;
    assert_ne!(world.serving("blog", "web").digest, before.digest);
}
