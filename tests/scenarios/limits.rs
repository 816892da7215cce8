//! Limits and privileges that the runtime drops without a word are told, or refused.

use podherd::runtime::{Call, RuntimeError};
use podherd::state::{Condition, ConditionType, EventType, Truth};

use crate::support::{Manifest, World, blog};

const LIMITS: &str = "resources: {cpus: \"0.5\", memory: 64Mi, pids: 50}";

async fn world() -> World {
    World::new().await.images(&["web:1", "web:2"])
}

fn limited(image: &str) -> Manifest {
    blog(image).with("web", LIMITS)
}

fn degraded(world: &World) -> Condition {
    world.condition("blog", ConditionType::Degraded)
}

/// How often people were told of an ignored limit.
fn told(world: &World) -> usize {
    let events = world.events("blog").into_iter();
    let told = events.filter(|event| event.reason == "ResourceLimitIgnored");
    told.inspect(|event| assert_eq!(event.r#type, EventType::Warning))
        .count()
}

#[tokio::test(start_paused = true)]
async fn limits_that_are_in_force_are_nothing_to_tell() {
    let world = world().await;
    world.deploy(&limited("web:1")).await;
    assert_eq!(degraded(&world).status, Truth::False);
    assert_eq!(told(&world), 0);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn ignored_limits_are_a_condition_and_an_event_and_the_service_serves() {
    let world = world().await;
    world.runtime.set_ignores_limits(true);
    world.deploy(&limited("web:1")).await;
    world.assert_serves("blog", &["web"]);
    let found = degraded(&world);
    assert_eq!(
        (found.status, found.reason.as_str()),
        (Truth::True, "ResourceLimitIgnored")
    );
    assert!(
        found.message.starts_with(
            "service web runs without resources.cpus, resources.memory, resources.pids"
        ),
        "{found:?}"
    );
    assert_eq!(told(&world), 1);
    let writes = world.writes();
    world.settle("blog").await;
    assert_eq!((told(&world), world.writes()), (1, writes), "once");

    world.runtime.set_ignores_limits(false);
    world.deploy(&limited("web:2")).await;
    assert_eq!(degraded(&world).status, Truth::False);
    // And a host that can do nothing matters only to those who ask.
    world.runtime.set_ignores_limits(true);
    world.deploy(&blog("web:1")).await;
    assert_eq!(degraded(&world).status, Truth::False);
}

#[tokio::test(start_paused = true)]
async fn a_container_with_more_privileges_than_asked_for_never_serves() {
    for (security, missing) in [
        ("{readOnlyRoot: true}", "security.readOnlyRoot"),
        ("{noNewPrivileges: true}", "security.noNewPrivileges"),
        ("{userns: auto}", "security.userns"),
    ] {
        let world = world().await;
        let secured = blog("web:1").with("web", &format!("security: {security}"));
        world.deploy(&secured).await;
        world.assert_serves("blog", &["web"]);
        world.delete("blog").await;
        world.settle("blog").await;

        world.runtime.set_ignores_limits(true);
        world.put(&secured).await;
        world.settle("blog").await;
        assert_eq!(world.containers("web"), []);
        assert_eq!(world.active("blog").services.len(), 0);
        let ready = world.condition("blog", ConditionType::Ready);
        assert_eq!(ready.reason, "SecurityIgnored");
        assert!(ready.message.contains(missing), "{ready:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_without_user_ids_is_found_out_before_anything_is_touched() {
    let world = world().await;
    world.deploy(&blog("web:1")).await;
    world.effects();
    let refuses = |_: &str| Some(RuntimeError::NoUserIds);
    world.runtime.fail_when(Call::CheckUserIds, refuses);
    world
        .put(&blog("web:1").with("web", "security: {userns: auto}"))
        .await;
    world.pass("blog").await.unwrap();
    assert_eq!(world.effects(), Vec::<String>::new());
    let ready = world.condition("blog", ConditionType::Ready);
    assert_eq!(ready.reason, "NoUserIds");
    assert!(ready.message.contains("/etc/subuid"), "{ready:?}");
    assert!(world.container("web").started_at.is_some());
}
