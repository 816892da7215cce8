//! What is written down stays bounded, and changes only when something changes.

use std::time::Duration;

use podherd::runtime::Behaviour;
use podherd::state::{ConditionType, EventType, Truth};

use crate::support::{World, blog};

#[tokio::test(start_paused = true)]
async fn the_journal_keeps_the_newest_twenty_operations() {
    let world = World::new().await.images(&["web:1"]);
    let mut newest = 0;
    for count in 0..30 {
        let manifest = blog("web:1").with("web", &format!("env: {{COUNT: \"{count}\"}}"));
        newest = world.put(&manifest).await;
        world.settle("blog").await;
    }
    let operations = world.operations("blog");
    assert_eq!(operations.len(), 20);
    assert_eq!(operations.last().unwrap().source, newest);
}

#[tokio::test(start_paused = true)]
async fn old_revisions_go_but_never_one_that_serves() {
    let world = World::new().await.images(&["web:1", "db:1"]);
    for count in 0..20 {
        let env = format!("env: {{COUNT: \"{count}\"}}");
        world
            .deploy(&blog("web:1").with("web", &env).service("db", "db:1"))
            .await;
    }
    let numbers: Vec<u64> = world
        .revisions("blog")
        .iter()
        .map(|it| it.number.0)
        .collect();
    assert_eq!(world.active_revision("blog", "db"), 1);
    assert_eq!(numbers[0], 1, "the one that db serves");
    assert_eq!(numbers[1..], (10..=20).collect::<Vec<u64>>());
    // And db is rebuilt from it.
    world
        .runtime
        .remove_by_hand(world.container("db").id.as_str());
    world.settle("blog").await;
    world.assert_serves("blog", &["db", "web"]);
}

#[tokio::test(start_paused = true)]
async fn going_back_to_an_earlier_content_is_a_new_revision() {
    let world = World::new().await.images(&["web:1", "web:2"]);
    for image in ["web:1", "web:2", "web:1"] {
        world.deploy(&blog(image)).await;
    }
    assert_eq!(world.active_revision("blog", "web"), 3);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_condition_keeps_its_time_until_its_status_changes() {
    let world = World::new().await.images(&["web:1", "web:2"]);
    world.deploy(&blog("web:1")).await;
    let (accepted, ready) = (
        world.condition("blog", ConditionType::Accepted),
        world.condition("blog", ConditionType::Ready),
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.deploy(&blog("web:2")).await;
    assert_eq!(world.condition("blog", ConditionType::Accepted), accepted);
    let again = world.condition("blog", ConditionType::Ready);
    assert_eq!(again.status, Truth::True);
    assert!(
        again.last_transition_time > ready.last_transition_time,
        "it was False between"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_a_warning_among_the_events_and_events_expire() {
    let world = World::new().await.image("web:1", Behaviour::ExitsAtOnce(2));
    world.put(&blog("web:1")).await;
    world.pass("blog").await.unwrap();
    let events = world.events("blog");
    assert_eq!((events.len(), events[0].reason.as_str()), (2, "Pulled"));
    assert_eq!(events[1].r#type, EventType::Warning);
    assert_eq!(events[1].reason, "ContainerExited");
    assert!(
        events[1]
            .message
            .starts_with("deploy ended as failed: service web: ")
    );
    tokio::time::sleep(Duration::from_secs(3601)).await;
    assert_eq!(world.events("blog").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_deployment_is_tried_again_at_once() {
    let mut world = World::new().await.images(&["web:1"]);
    world.put(&blog("web:1")).await;
    assert!(world.pass_cut("blog", 5, crate::support::Cut::After).await);
    world.restart().await;
    let began = tokio::time::Instant::now();
    world.settle("blog").await;
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(world.last("blog").attempt, 2);
    world.assert_serves("blog", &["web"]);
}

/// A service that crashes again and again doesn't make an answered request be done again.
#[tokio::test(start_paused = true)]
async fn recoveries_make_room_before_what_people_asked_for() {
    let world = World::new().await.images(&["web:1"]);
    world.deploy(&blog("web:1")).await;
    world.request("blog", "r-1", "verb: restart").await;
    world.settle("blog").await;
    for _ in 0..30 {
        world.runtime.crash(world.container("web").id.as_str(), 1);
        world.run_for("blog", Duration::from_secs(3600)).await;
    }
    assert_eq!(world.operations("blog").len(), 20);
    world.effects();
    world.request("blog", "r-1", "verb: restart").await;
    world.settle("blog").await;
    assert_eq!(world.effects(), Vec::<String>::new());
}

/// What the intent speaks of says how a removal goes on, however long that takes.
#[tokio::test(start_paused = true)]
async fn the_operation_that_the_intent_speaks_of_is_kept() {
    let world = World::new().await.images(&["web:1"]);
    world.deploy(&blog("web:1")).await;
    world.request("blog", "s-1", "verb: stop").await;
    world.settle("blog").await;
    for count in 0..130 {
        let id = format!("d-{count}");
        world.request("blog", &id, "verb: deploy").await;
        world.settle("blog").await;
    }
    let kept = world.operations("blog");
    assert!(kept.len() <= 122, "{}", kept.len());
    let stop = kept.iter().find(|it| it.id.as_str() == "s-1").unwrap();
    assert!(!stop.steps.is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_an_app_that_never_came_to_own_anything() {
    let world = World::new().await;
    world.put(&blog("web:nowhere")).await;
    world.pass("blog").await.unwrap();
    assert_eq!(world.operations("blog").len(), 1);
    world.delete("blog").await;
    world.settle("blog").await;
    let left = world.keys_with("/blog").into_iter();
    let left: Vec<_> = left.filter(|key| !key.contains("/events/")).collect();
    assert_eq!(left, Vec::<String>::new(), "events go with their lease");
}

/// The journal keeps twenty operations whole, and remembers many more answers.
#[tokio::test(start_paused = true)]
async fn a_request_that_was_answered_long_ago_is_not_done_again() {
    let world = World::new().await.images(&["web:1"]);
    world.deploy(&blog("web:1")).await;
    for count in 0..120 {
        let id = format!("r-{count}");
        world.request("blog", &id, "verb: restart").await;
        world.settle("blog").await;
    }
    let kept = world.operations("blog");
    let whole = kept.iter().filter(|it| !it.steps.is_empty()).count();
    assert!(whole <= 21, "{whole} kept whole");
    assert!(kept.len() <= 122, "{} in all", kept.len());
    world.effects();
    world.request("blog", "r-30", "verb: restart").await;
    world.settle("blog").await;
    assert_eq!(world.effects(), Vec::<String>::new());

    // They are no obstacle to a removal, and outlive it.
    world.request("blog", "gone-1", "verb: remove").await;
    world.settle("blog").await;
    world.assert_gone("blog");
    world.deploy(&blog("web:1")).await;
    world.effects();
    world.request("blog", "r-110", "verb: restart").await;
    world.settle("blog").await;
    assert_eq!(world.effects(), Vec::<String>::new());
}
