//! What the node's policy doesn't allow: nothing is touched for it, and what runs goes on.

use std::time::Duration;

use podherd::manifest::BindMount;
use podherd::runtime::Behaviour;
use podherd::state::{
    Condition, ConditionType, Operation, OperationId, Outcome, OutcomeKind, Truth, Verb,
};

use crate::support::{Manifest, World, app, blog};

const ALLOWED: &str = "binds: {media: {path: /srv/media, apps: [blog]}}";
const NOTHING: [&str; 0] = [];

fn with_bind(image: &str) -> Manifest {
    blog(image).with("web", "binds: [{source: /srv/media/in, path: /media}]")
}

async fn empty() -> World {
    let world = World::new().await.images(&["web:1", "web:2", "db:1"]);
    world.policy.set(ALLOWED);
    world
}

/// The app serves with a writable bind; the effects so far are forgotten.
async fn serving() -> World {
    let world = empty().await;
    world.deploy(&with_bind("web:1")).await;
    world.assert_serves("blog", &["web"]);
    world.effects();
    world
}

fn told(condition: &Condition) -> (Truth, &str) {
    (condition.status, condition.reason.as_str())
}

/// The manifest is refused before anything: no operation, no effect, the old one serves.
async fn refused(world: &World, manifest: &Manifest, says: &str) {
    let (active, operations) = (world.active("blog"), world.operations("blog"));
    let revision = world.put(manifest).await;
    world.pass("blog").await.unwrap();
    assert_eq!(world.effects(), NOTHING);
    assert_eq!(world.active("blog"), active);
    assert_eq!(world.operations("blog"), operations);
    assert_eq!(world.status("blog").unwrap().observed_revision, revision);
    for kind in [ConditionType::Accepted, ConditionType::Ready] {
        let condition = world.condition("blog", kind);
        assert_eq!(told(&condition), (Truth::False, "PolicyDenied"));
        assert!(condition.message.contains(says), "{}", condition.message);
    }
}

async fn ask(world: &World, id: &str, asked: &str) -> Outcome {
    operation(world, id, asked).await.outcome.unwrap()
}

async fn operation(world: &World, id: &str, asked: &str) -> Operation {
    world.request("blog", id, asked).await;
    world.pass("blog").await.unwrap();
    let id = OperationId::new(id);
    let mut operations = world.operations("blog").into_iter();
    operations.find(|operation| operation.id == id).unwrap()
}

/// The request is refused for the policy's sake, and nothing is done.
async fn ask_refused(world: &World, id: &str, asked: &str) {
    let operation = operation(world, id, asked).await;
    assert_eq!(operation.steps, Vec::new(), "{asked}");
    let outcome = operation.outcome.unwrap();
    assert_eq!(
        (outcome.result, outcome.reason.as_str()),
        (OutcomeKind::Failed, "PolicyDenied"),
        "{asked}"
    );
    assert_eq!(world.effects(), NOTHING, "{asked}");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_allowed_is_refused_before_anything_and_taken_up_once_it_is() {
    let world = empty().await;
    world.deploy(&blog("web:1")).await;
    world.effects();
    let elsewhere = blog("web:2").with("web", "binds: [{source: /etc, path: /media}]");
    refused(&world, &elsewhere, "bind /etc: it is in no root").await;
    let device = blog("web:2").with("web", "devices: [/dev/fuse]");
    refused(&world, &device, "device /dev/fuse").await;
    let capability = blog("web:2").with("web", "security: {capAdd: [SYS_ADMIN]}");
    refused(&world, &capability, "capability SYS_ADMIN").await;
    world.policy.link("/srv/media/in", "/etc");
    refused(&world, &with_bind("web:2"), "by a symlink").await;

    world.policy.link("/srv/media/in", "/srv/media/real");
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
    assert_eq!(
        world.container("web").binds,
        [BindMount {
            source: "/srv/media/real".to_owned(),
            path: "/media".to_owned(),
            read_only: false,
        }],
        "Podman gets the path without symlinks"
    );
    let accepted = world.condition("blog", ConditionType::Accepted);
    assert_eq!(accepted.status, Truth::True);
}

#[tokio::test(start_paused = true)]
async fn an_image_of_another_registry_is_never_pulled() {
    let world = World::new().await.images(&["web:1"]);
    world.policy.set("images: {allowed: [localhost]}");
    refused(&world, &blog("web:1"), "image registry.test/web:1").await;
    assert_eq!(world.effects.all(), NOTHING, "not even looked for");
}

#[tokio::test(start_paused = true)]
async fn a_writable_bind_has_one_writer() {
    let world = serving().await;
    world.deploy(&with_bind("web:2")).await;
    let effects = world.effects();
    let at = |effect: &str| {
        let found = effects.iter().position(|it| it.starts_with(effect));
        found.unwrap_or_else(|| panic!("{effect} in {effects:#?}"))
    };
    assert!(at("inhibit web") < at("signal web"), "{effects:#?}");
    assert!(at("remove web") < at("create web"), "{effects:#?}");
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_bind_runs_on_and_no_verb_touches_it() {
    let world = serving().await;
    let before = world.active("blog");
    world.policy.set("");
    world.pass("blog").await.unwrap();
    let degraded = world.condition("blog", ConditionType::Degraded);
    assert_eq!(told(&degraded), (Truth::True, "PolicyRevoked"));
    assert!(degraded.message.contains("service web: bind /srv/media/in"));
    let ready = world.condition("blog", ConditionType::Ready);
    assert_eq!(ready.status, Truth::True, "it serves: {ready:?}");

    for verb in ["restart", "deploy"] {
        ask_refused(&world, verb, &format!("verb: {verb}")).await;
    }
    refused(&world, &with_bind("web:2"), "bind /srv/media/in").await;
    assert_eq!(world.active("blog"), before);

    world.policy.set(ALLOWED);
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
    assert_eq!(world.active_revision("blog", "web"), 2);
    let restart = ask(&world, "again", "verb: restart").await;
    assert_eq!(restart.result, OutcomeKind::Success);
    let degraded = world.condition("blog", ConditionType::Degraded);
    assert_eq!(degraded.status, Truth::False);
}

#[tokio::test(start_paused = true)]
async fn what_goes_down_after_it_was_revoked_is_withdrawn_and_stays_down() {
    let world = serving().await;
    world.policy.set("");
    world.runtime.crash(world.container("web").id.as_str(), 1);
    world.pass("blog").await.unwrap();
    assert_eq!(world.effects(), ["withdraw web"]);
    ask_refused(&world, "start", "verb: start").await;
    ask_refused(&world, "restart", "verb: restart").await;

    let id = world.container("web").id;
    world.runtime.remove_by_hand(id.as_str());
    world.pass("blog").await.unwrap();
    assert_eq!(world.effects(), NOTHING, "it isn't made again");
    let recoveries = world.operations("blog").into_iter();
    let recoveries = recoveries.filter(|it| it.request.verb == Verb::Recover);
    assert_eq!(recoveries.count(), 1, "the withdrawal, and no vain try");

    world.policy.set(ALLOWED);
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_revoked_can_be_stopped_and_removed() {
    let world = serving().await;
    world.policy.set("");
    let stopped = ask(&world, "stop", "verb: stop").await;
    assert_eq!(stopped.result, OutcomeKind::Success);
    world.effects();
    ask_refused(&world, "start", "verb: start").await;
    let intent = world.condition("blog", ConditionType::Ready);
    assert_eq!(intent.reason, "Stopped", "the intent isn't cleared either");

    let removed = ask(&world, "remove", "verb: remove").await;
    assert_eq!(removed.result, OutcomeKind::Success);
    world.assert_gone("blog");
}

#[tokio::test(start_paused = true)]
async fn a_rollback_to_what_is_not_allowed_any_more_touches_nothing() {
    let world = serving().await;
    world.deploy(&blog("web:2")).await;
    world.policy.set("");
    world.effects();
    ask_refused(&world, "back", "{verb: rollback, revision: 1}").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_registry_that_is_not_allowed_any_more_forbids_to_pull_and_not_to_start() {
    let world = empty().await;
    world.deploy(&blog("web:1")).await;
    world.policy.set("images: {allowed: [localhost]}");
    world.runtime.crash(world.container("web").id.as_str(), 1);
    world.pass("blog").await.unwrap();
    world.assert_serves("blog", &["web"]);
    world.effects();

    let id = world.container("web").id;
    world.runtime.remove_by_hand(id.as_str());
    world.pass("blog").await.unwrap();
    assert_eq!(world.effects(), ["withdraw web"]);
    assert_eq!(world.runtime.containers(), Vec::new());
}

#[tokio::test(start_paused = true)]
async fn what_is_revoked_while_an_earlier_service_is_deployed_is_not_withdrawn() {
    let both = |image: &str| {
        app("blog")
            .service("db", image)
            .web(image)
            .with("web", "binds: [{source: /srv/media/in, path: /media}]")
            .with("web", "dependsOn: [db]")
    };
    let world = empty().await;
    world.deploy(&both("web:1")).await;
    world.effects();
    let slow = Behaviour::SlowReady(Duration::from_secs(10));
    let world = world.image("web:2", slow);
    world.put(&both("web:2")).await;
    let revoke = async || world.policy.set("");
    world
        .pass_while("blog", Duration::from_secs(5), revoke)
        .await;
    let effects = world.effects();
    assert!(effects.contains(&"create db".to_owned()), "{effects:#?}");
    assert!(
        effects.iter().all(|effect| !effect.contains(" web")),
        "{effects:#?}"
    );
    let outcome = world.last_deploy("blog").outcome.unwrap();
    assert_eq!(outcome.reason, "PolicyDenied");
    assert_eq!(world.active_revision("blog", "web"), 1);
    assert!(world.serving("blog", "web").verified.is_some(), "it serves");

    world.policy.set(ALLOWED);
    world.settle("blog").await;
    world.assert_serves("blog", &["db", "web"]);
    assert_eq!(world.active_revision("blog", "web"), 2);
}

/// While the old container of `web` leaves, the policy says something else.
async fn leaving(meanwhile: &str, act: impl AsyncFnOnce(&World)) -> World {
    let slow = Behaviour::SlowToLeave(Duration::from_secs(5));
    let world = empty().await.image("slow:1", slow);
    world.deploy(&with_bind("slow:1")).await;
    world.effects();
    act(&world).await;
    let change = async || world.policy.set(meanwhile);
    world
        .pass_while("blog", Duration::from_secs(2), change)
        .await;
    world
}

fn did(effects: &[String], effect: &str) -> bool {
    effects.iter().any(|it| it.starts_with(effect))
}

#[tokio::test(start_paused = true)]
async fn a_container_is_asked_for_once_more_before_it_is_made() {
    // A bind that is revoked, and a registry.
    let registry = format!("images: {{allowed: [localhost]}}\n{ALLOWED}");
    for meanwhile in ["", &registry] {
        let world = leaving(meanwhile, async |world| {
            world.put(&with_bind("web:2")).await;
        })
        .await;
        let effects = world.effects();
        assert!(did(&effects, "remove web"), "{effects:#?}");
        assert!(!did(&effects, "create"), "{effects:#?}");
        let outcome = world.last_deploy("blog").outcome.unwrap();
        assert_eq!(outcome.reason, "PolicyDenied");
        world.policy.set(ALLOWED);
        world.settle("blog").await;
        world.assert_serves("blog", &["web"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_is_asked_for_once_more_before_it_is_started() {
    let world = leaving("", async |world| {
        world.request("blog", "r-1", "verb: restart").await;
    })
    .await;
    let effects = world.effects();
    assert!(did(&effects, "signal web"), "{effects:#?}");
    assert!(!did(&effects, "start"), "{effects:#?}");
    let mut operations = world.operations("blog").into_iter();
    let restart = operations.find(|it| it.id == OperationId::new("r-1"));
    let outcome = restart.unwrap().outcome.unwrap();
    assert_eq!(outcome.reason, "PolicyDenied");
    world.policy.set(ALLOWED);
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_path_that_was_swapped_since_the_create_is_not_mounted_again() {
    let world = serving().await;
    // In the place of the mounted folder there is a symlink now, though not out of the root.
    world.policy.link("/srv/media/in", "/srv/media/other");
    ask_refused(&world, "restart", "verb: restart").await;
    world.runtime.crash(world.container("web").id.as_str(), 1);
    world.pass("blog").await.unwrap();
    assert_eq!(world.effects(), ["withdraw web"]);

    let deployed = ask(&world, "deploy", "verb: deploy").await;
    assert_eq!(deployed.result, OutcomeKind::Success);
    world.assert_serves("blog", &["web"]);
    assert_eq!(world.container("web").binds[0].source, "/srv/media/other");
}

#[tokio::test(start_paused = true)]
async fn a_broken_policy_allows_nothing_and_says_so() {
    let world = serving().await;
    world.policy.set("binds: [");
    world.pass("blog").await.unwrap();
    assert_eq!(world.effects(), NOTHING);
    let accepted = world.condition("blog", ConditionType::Accepted);
    assert_eq!(told(&accepted), (Truth::False, "PolicyUnreadable"));
    assert!(accepted.message.contains("line "), "{}", accepted.message);
    let degraded = world.condition("blog", ConditionType::Degraded);
    assert_eq!(told(&degraded), (Truth::True, "PolicyRevoked"));
    let outcome = ask(&world, "restart", "verb: restart").await;
    assert_eq!(outcome.reason, "PolicyUnreadable");
    assert_eq!(world.effects(), NOTHING);
    world.policy.set(ALLOWED);
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}
