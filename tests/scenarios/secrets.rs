//! Secrets: looked up before anything is touched, taken by version, and an app's own
//! ones never inherited.

use podherd::runtime::{Behaviour, Call, Labels, Runtime as _, SecretValue};
use podherd::state::{ConditionType, Incarnation, OutcomeKind, Truth, labels, own_prefix};

use crate::support::{Cut, Manifest, PRINTED, SECRET, World, blog, name};

const ENV: &str = "secrets: {DATABASE_URL: {podman: db-url}}";
const FILE: &str = "files: [{path: /run/tls.key, podman: tls-key, mode: \"0440\"}]";
const OWN: &str = "secrets: {TOKEN: {app: token}}";

fn value(text: &str) -> String {
    format!("{SECRET}-{text}")
}

/// A serving app with a secret as environment and one as a file.
async fn serving() -> World {
    let world = World::new().await.images(&["web:1", "web:2"]);
    world.runtime.set_secret("db-url", &value("url-1"));
    world.runtime.set_secret("tls-key", &value("key-1"));
    world.deploy(&manifest("web:1")).await;
    world.effects();
    world
}

fn manifest(image: &str) -> Manifest {
    blog(image).with("web", ENV).with("web", FILE)
}

fn seen(world: &World) -> [Option<String>; 2] {
    let id = world.container("web").id;
    ["DATABASE_URL", "/run/tls.key"].map(|it| world.runtime.seen(id.as_str(), it))
}

fn sees(url: &str, key: &str) -> [Option<String>; 2] {
    [Some(value(url)), Some(value(key))]
}

fn outdated(world: &World) -> (Truth, String) {
    let condition = world.condition("blog", ConditionType::Outdated);
    (condition.status, condition.reason)
}

fn is_outdated(reason: &str) -> (Truth, String) {
    (Truth::True, reason.to_owned())
}

fn up_to_date() -> (Truth, String) {
    (Truth::False, "UpToDate".to_owned())
}

async fn ask(world: &World, id: &str, asked: &str) -> (OutcomeKind, String) {
    world.request("blog", id, asked).await;
    world.settle("blog").await;
    let operation = world.operations("blog").into_iter();
    let mut operation = operation.filter(|operation| operation.id.as_str() == id);
    let outcome = operation.next().unwrap().outcome.unwrap();
    (outcome.result, outcome.reason)
}

/// `podherd secret set`, as far as Podman sees it.
async fn set_own(world: &World, incarnation: Incarnation, secret: &str, text: &str) -> String {
    let podman = format!("{}{secret}", own_prefix(&name("blog"), incarnation));
    let owned = Labels::from([(labels::INCARNATION.to_owned(), incarnation.to_string())]);
    let value = SecretValue::new(value(text).into_bytes()).unwrap();
    let created = world.runtime.create_secret(&podman, &value, &owned);
    created.await.unwrap();
    podman
}

#[tokio::test(start_paused = true)]
async fn a_service_gets_its_secrets_and_active_names_their_versions() {
    let world = serving().await;
    assert_eq!(seen(&world), sees("url-1", "key-1"));
    let taken = world.serving("blog", "web").secrets;
    assert_eq!(taken.env.keys().collect::<Vec<_>>(), ["db-url"]);
    assert_eq!(taken.files.keys().collect::<Vec<_>>(), ["tls-key"]);
    let mounts = world
        .runtime
        .spec(world.container("web").id.as_str())
        .unwrap()
        .secret_files;
    assert_eq!((mounts[0].mode, mounts[0].uid), (0o440, 0));
    assert_eq!(outdated(&world), up_to_date());
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_secret_is_named_and_nothing_is_touched() {
    let world = serving().await;
    world.runtime.delete_secret("tls-key");
    world.put(&manifest("web:2")).await;
    world.pass("blog").await.unwrap();
    assert_eq!(world.effects(), Vec::<String>::new());
    let outcome = world.last("blog").outcome.unwrap();
    assert_eq!(outcome.reason, "SecretMissing");
    assert!(
        outcome
            .message
            .contains("`podman secret create tls-key FILE`"),
        "{}",
        outcome.message
    );
    assert_eq!(world.last("blog").steps, Vec::new());

    world.runtime.set_secret("tls-key", &value("key-2"));
    world.settle("blog").await;
    assert_eq!(seen(&world), sees("url-1", "key-2"));
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_rotated_environment_shows_and_a_restart_in_place_takes_it() {
    let world = serving().await;
    let before = world.serving("blog", "web").container;
    world.runtime.set_secret("db-url", &value("url-2"));
    world.settle("blog").await;
    assert_eq!(world.effects(), Vec::<String>::new(), "it waits");
    assert_eq!(outdated(&world), is_outdated("SecretRotated"));
    let ready = world.condition("blog", ConditionType::Ready);
    assert_eq!(ready.status, Truth::True, "it serves all the same");

    let outcome = ask(&world, "r-1", "verb: restart").await;
    assert_eq!(outcome.0, OutcomeKind::Success);
    assert_eq!(world.serving("blog", "web").container, before);
    assert_eq!(seen(&world), sees("url-2", "key-1"));
    assert_eq!(outdated(&world), up_to_date());
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_rotated_file_is_taken_by_a_restart_that_builds_the_container_again() {
    let world = serving().await;
    let before = world.serving("blog", "web");
    world.runtime.set_secret("tls-key", &value("key-2"));
    world.settle("blog").await;
    assert_eq!(outdated(&world), is_outdated("SecretRotated"));

    let outcome = ask(&world, "r-1", "verb: restart").await;
    assert_eq!(outcome.0, OutcomeKind::Success);
    assert_eq!(
        world.effects(),
        [
            "withdraw web",
            "signal web SIGTERM",
            "remove web",
            "create web",
            "start web",
            "probe web",
            "publish-active",
            "traffic web",
        ]
    );
    let after = world.serving("blog", "web");
    assert_ne!(after.container, before.container);
    assert_eq!(
        (after.digest, after.revision),
        (before.digest, before.revision)
    );
    assert_eq!(seen(&world), sees("url-1", "key-2"));
    assert_eq!(outdated(&world), up_to_date());
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_deployment_that_is_asked_for_takes_what_was_rotated() {
    let world = serving().await;
    world.runtime.set_secret("tls-key", &value("key-2"));
    let outcome = ask(&world, "d-1", "verb: deploy").await;
    assert_eq!(outcome.0, OutcomeKind::Success);
    assert_eq!(world.active_revision("blog", "web"), 1, "the same revision");
    assert_eq!(seen(&world), sees("url-1", "key-2"));
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_restart_without_its_secret_is_refused_before_anything_is_touched() {
    let world = serving().await;
    world.runtime.delete_secret("db-url");
    let outcome = ask(&world, "r-1", "verb: restart").await;
    assert_eq!(outcome, (OutcomeKind::Failed, "SecretMissing".to_owned()));
    assert_eq!(world.effects(), Vec::<String>::new());
    assert_eq!(outdated(&world), is_outdated("SecretMissing"));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_went_down_takes_the_new_environment_when_it_is_brought_back() {
    let world = serving().await;
    world.runtime.set_secret("db-url", &value("url-2"));
    world.runtime.crash(world.container("web").id.as_str(), 1);
    world.settle("blog").await;
    assert_eq!(seen(&world), sees("url-2", "key-1"));
    assert_eq!(outdated(&world), up_to_date());
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_somebody_restarts_is_known_to_have_the_new_environment() {
    let world = serving().await;
    world.runtime.set_secret("db-url", &value("url-2"));
    world.settle("blog").await;
    let id = world.container("web").id;
    world.runtime.restart_by_hand(id.as_str(), None);
    world.settle("blog").await;
    assert_eq!(seen(&world), sees("url-2", "key-1"));
    assert_eq!(outdated(&world), up_to_date());
}

#[tokio::test(start_paused = true)]
async fn the_log_of_what_failed_with_secrets_is_not_kept() {
    let world = serving().await;
    let world = world.image("web:sick", Behaviour::NeverReady);
    world.put(&manifest("web:sick")).await;
    world.pass("blog").await.unwrap();
    let operation = world.last_deploy("blog");
    let diagnostics = operation.steps.iter().find_map(|it| it.diagnostics.clone());
    let tail = diagnostics.unwrap().log_tail.concat();
    assert!(!tail.contains(PRINTED), "{tail}");
    assert!(tail.contains("podman logs"), "{tail}");
}

#[tokio::test(start_paused = true)]
async fn a_rollback_without_its_secret_touches_nothing() {
    let world = serving().await;
    world.deploy(&blog("web:2")).await;
    world.runtime.delete_secret("db-url");
    world.effects();
    let outcome = ask(&world, "b-1", "{verb: rollback, revision: 1}").await;
    assert_eq!(outcome, (OutcomeKind::Failed, "SecretMissing".to_owned()));
    assert_eq!(world.effects(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn only_an_app_that_has_secrets_asks_for_them() {
    let world = World::new().await.images(&["web:1"]);
    world.runtime.fail_when(Call::Secrets, |_| {
        panic!("nobody asked for secrets");
    });
    world.deploy(&blog("web:1")).await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn an_app_waits_for_its_own_secret_with_its_incarnation_begun() {
    let world = World::new().await.images(&["web:1"]);
    world.put(&blog("web:1").with("web", OWN)).await;
    world.pass("blog").await.unwrap();
    assert_eq!(world.effects(), Vec::<String>::new());
    let outcome = world.last("blog").outcome.unwrap();
    assert_eq!(outcome.reason, "SecretMissing");
    assert!(
        outcome
            .message
            .contains("`podherd secret set blog token < FILE`"),
        "{}",
        outcome.message
    );
    let incarnation = world.ownership("blog").unwrap().incarnation;
    set_own(&world, incarnation, "token", "t-1").await;
    world.settle("blog").await;
    assert_eq!(
        world.ownership("blog").unwrap().incarnation,
        incarnation,
        "the one that it was set for"
    );
    let id = world.container("web").id;
    let token = world.runtime.seen(id.as_str(), "TOKEN");
    assert_eq!(token, Some(value("t-1")));
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn an_apps_own_secrets_are_retained_and_never_inherited() {
    let world = World::new().await.images(&["web:1"]);
    let wanted = blog("web:1").with("web", OWN);
    world.put(&wanted).await;
    world.pass("blog").await.unwrap();
    let first = world.ownership("blog").unwrap().incarnation;
    let token = set_own(&world, first, "token", "t-1").await;
    // Set and never used: it is the incarnation's all the same.
    let spare = set_own(&world, first, "spare", "t-2").await;
    world.settle("blog").await;
    world.delete("blog").await;
    world.settle("blog").await;
    world.assert_gone("blog");
    let secrets = world.retained().remove(0).resources.secrets;
    assert_eq!(secrets.into_iter().collect::<Vec<_>>(), [&*spare, &*token]);
    let mut there = world.runtime.secret_names();
    there.sort();
    assert_eq!(there, [spare, token]);

    world.put(&wanted).await;
    world.pass("blog").await.unwrap();
    assert_ne!(world.ownership("blog").unwrap().incarnation, first);
    assert_eq!(world.containers("web").len(), 0);
    let outcome = world.last("blog").outcome.unwrap();
    assert_eq!(outcome.reason, "SecretMissing");
}

#[tokio::test(start_paused = true)]
async fn a_secret_under_an_apps_own_name_without_its_label_is_not_taken() {
    let world = World::new().await.images(&["web:1"]);
    world.put(&blog("web:1").with("web", OWN)).await;
    world.pass("blog").await.unwrap();
    let incarnation = world.ownership("blog").unwrap().incarnation;
    let podman = format!("{}token", own_prefix(&name("blog"), incarnation));
    world.runtime.set_secret(&podman, &value("foreign"));
    world.settle("blog").await;
    assert_eq!(world.effects(), Vec::<String>::new());
    let outcome = world.last("blog").outcome.unwrap();
    assert_eq!(outcome.reason, "ForeignResource");
}

#[tokio::test(start_paused = true)]
async fn an_app_that_only_waited_for_its_secret_is_removed_with_its_manifest() {
    let world = World::new().await.images(&["web:1"]);
    world.put(&blog("web:1").with("web", OWN)).await;
    world.pass("blog").await.unwrap();
    world.delete("blog").await;
    world.settle("blog").await;
    world.assert_gone("blog");
    assert_eq!(world.retained().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_rebuilding_restart_cut_anywhere_ends_with_the_app_serving() {
    for cut in [Cut::Before, Cut::After, Cut::LosesReply] {
        for number in 1.. {
            let mut world = World::new().await.images(&["web:1"]);
            world.runtime.set_secret("tls-key", &value("key-1"));
            let writer = blog("web:1").with("web", FILE).volume("web", "data");
            world.deploy(&writer).await;
            world.runtime.set_secret("tls-key", &value("key-2"));
            world.request("blog", "r-1", "verb: restart").await;
            let reached = world.pass_cut("blog", number, cut).await;
            world.restart().await;
            world.settle("blog").await;
            world.assert_serves("blog", &["web"]);
            if !reached {
                assert!(number > 6, "{number} effects");
                break;
            }
        }
    }
}
