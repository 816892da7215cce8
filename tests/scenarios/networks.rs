//! Shared networks: every app that names one is in it, the last to leave removes it.

use std::time::Duration;

use podherd::reconcile::Verdict;
use podherd::runtime::{Call, ContainerSpec, Labels, Network, NetworkAttachment, RuntimeError};
use podherd::state::{ConditionType, OutcomeKind, Stake, StepKind, Truth, labels};

use crate::support::{Manifest, World, app, blog};

const SHARED: &str = "networks: [{name: db-shared}]";
const INTERNAL: &str = "networks: [{name: db-shared, internal: true}]";

async fn world() -> World {
    World::new().await.images(&["web:1", "web:2", "db:1"])
}

fn shop() -> Manifest {
    app("shop").service("db", "db:1")
}

/// `blog` and `shop`, both in the network.
async fn sharing() -> World {
    let world = world().await;
    world.deploy(&blog("web:1").spec(SHARED)).await;
    world.deploy(&shop().spec(SHARED)).await;
    world.effects();
    world
}

fn has_shared(world: &World) -> bool {
    world.runtime.networks().contains(&"db-shared".to_owned())
}

/// The effects on networks alone.
fn network_effects(world: &World) -> Vec<String> {
    let effects = world.effects().into_iter();
    effects
        .filter(|effect| effect.contains("-network "))
        .collect()
}

/// The networks of a service's container, each with its aliases.
fn attachments(world: &World, service: &str) -> Vec<(String, Vec<String>)> {
    let spec = world
        .runtime
        .spec(world.container(service).id.as_str())
        .unwrap();
    let attached = spec.networks.into_iter();
    attached.map(|it| (it.name, it.aliases)).collect()
}

/// Begins after the others have had so many turns.
async fn late(turns: usize, then: impl Future<Output = ()>) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
    then.await;
}

/// Somebody's own container in the network.
fn run_in(world: &World, network: &str) {
    world.runtime.run_by_hand(&ContainerSpec {
        name: "by-hand".to_owned(),
        networks: vec![NetworkAttachment {
            name: network.to_owned(),
            aliases: Vec::new(),
        }],
        ..ContainerSpec::default()
    });
}

#[tokio::test(start_paused = true)]
async fn it_is_created_before_the_container_that_joins_it_beside_the_private_one() {
    let world = world().await;
    world.deploy(&blog("web:1").spec(SHARED)).await;
    assert_eq!(
        world.effects()[..3],
        [
            "create-network blog",
            "create-network db-shared",
            "create web"
        ]
    );
    let [private, shared] = &attachments(&world, "web")[..] else {
        panic!("{:?}", attachments(&world, "web"));
    };
    assert!(private.0.starts_with("podherd-blog-"), "{private:?}");
    assert_eq!(private.1, ["web"]);
    assert_eq!(
        *shared,
        ("db-shared".to_owned(), vec!["web.blog".to_owned()])
    );
    let spec = world.runtime.spec(world.container("web").id.as_str());
    assert_eq!(spec.unwrap().hostname, "web.blog");
    let made = world.runtime.network_of("db-shared").unwrap();
    let label = (labels::NETWORK.to_owned(), "db-shared".to_owned());
    assert_eq!(made.labels, Labels::from([label]), "no app's own");
    assert!(!made.internal);
    world.deploy(&shop().spec(SHARED)).await;
    assert_eq!(network_effects(&world), ["create-network shop"]);
    world.assert_only_serves(&[("blog", "web"), ("shop", "db")]);
}

#[tokio::test(start_paused = true)]
async fn a_network_that_is_not_podherd_s_is_refused_and_left_alone() {
    let world = world().await;
    world.runtime.add_network("db-shared", &Network::default());
    world.put(&blog("web:1").spec(SHARED)).await;
    assert_eq!(world.pass("blog").await.unwrap(), Verdict::Settled);
    assert_eq!(world.effects(), Vec::<String>::new());
    let ready = world.condition("blog", ConditionType::Ready);
    assert_eq!(
        (ready.status, ready.reason.as_str()),
        (Truth::False, "ForeignResource")
    );
    assert!(
        ready.message.contains("podman network rm db-shared"),
        "{ready:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_whose_label_changed_is_not_removed() {
    let world = world().await;
    world.deploy(&blog("web:1").spec(SHARED)).await;
    world.runtime.add_network("db-shared", &Network::default());
    world.delete("blog").await;
    world.settle("blog").await;
    assert_eq!(world.runtime.networks(), ["db-shared"]);
    let warnings = world.last("blog").warnings;
    assert!(warnings[0].detail.contains("left alone"), "{warnings:?}");
}

#[tokio::test(start_paused = true)]
async fn one_of_the_other_kind_is_refused() {
    let world = world().await;
    world.deploy(&blog("web:1").spec(INTERNAL)).await;
    assert!(world.runtime.network_of("db-shared").unwrap().internal);
    world.effects();
    world.put(&shop().spec(SHARED)).await;
    world.settle("shop").await;
    assert_eq!(world.effects(), Vec::<String>::new());
    let ready = world.condition("shop", ConditionType::Ready);
    assert_eq!(ready.reason, "NetworkConflict");
    assert!(ready.message.contains("say internal: true"), "{ready:?}");
    // Nor does the app itself change it.
    world.put(&blog("web:1").spec(SHARED)).await;
    world.settle("blog").await;
    assert_eq!(world.effects(), Vec::<String>::new());
    let ready = world.condition("blog", ConditionType::Ready);
    assert_eq!(ready.reason, "NetworkConflict");
    world.deploy(&shop().spec(INTERNAL)).await;
    let ready = world.condition("shop", ConditionType::Ready);
    assert_eq!(ready.status, Truth::True, "{ready:?}");
}

#[tokio::test(start_paused = true)]
async fn it_is_kept_while_another_app_is_in_it_and_goes_with_the_last() {
    let world = sharing().await;
    world.delete("blog").await;
    world.settle("blog").await;
    assert_eq!(network_effects(&world), ["remove-network blog"]);
    assert_eq!(world.last("blog").warnings, []);
    assert!(world.ownership("blog").is_none());
    world.assert_only_serves(&[("shop", "db")]);

    world.delete("shop").await;
    world.settle("shop").await;
    assert_eq!(
        world.effects(),
        [
            "intend-stopped",
            "inhibit db",
            "signal db SIGTERM",
            "remove db",
            "clear-inhibition db",
            "remove-network db-shared",
            "remove-network shop",
            "end",
        ]
    );
    world.assert_gone("shop");
}

#[tokio::test(start_paused = true)]
async fn two_apps_removed_at_the_same_moment_leave_no_network_and_no_warning() {
    for turns in 0..30 {
        let world = sharing().await;
        world.delete("blog").await;
        world.delete("shop").await;
        tokio::join!(world.settle("blog"), late(turns, world.settle("shop")));
        for app in ["blog", "shop"] {
            world.assert_gone(app);
            let last = world.last(app);
            assert_eq!(last.outcome.unwrap().result, OutcomeKind::Success);
            assert_eq!(last.warnings, [], "{app}, {turns}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_app_that_joins_while_the_last_one_leaves_has_its_network() {
    let world = world().await;
    world.deploy(&blog("web:1").spec(SHARED)).await;
    world.pulls_take(Duration::from_secs(5));
    world.network_removals_take(Duration::from_secs(10));
    world.delete("blog").await;
    world.put(&shop().spec(SHARED)).await;
    tokio::join!(world.settle("blog"), world.settle("shop"));
    assert!(has_shared(&world));
    let deploys = world.operations("shop");
    assert_eq!(deploys.len(), 1, "at the first try: {deploys:#?}");
    assert_eq!(world.last("blog").warnings, [], "it was nobody's by then");
    world.assert_only_serves(&[("shop", "db")]);
}

#[tokio::test(start_paused = true)]
async fn one_that_somebody_still_uses_is_a_warning_and_never_forced() {
    let world = world().await;
    world.deploy(&blog("web:1").spec(SHARED)).await;
    run_in(&world, "db-shared");
    world.delete("blog").await;
    world.settle("blog").await;
    let last = world.last("blog");
    assert_eq!(last.outcome.unwrap().result, OutcomeKind::Success);
    assert_eq!(last.warnings[0].leftover, "network db-shared");
    assert!(last.warnings[0].detail.contains("still in use"));
    assert!(world.runtime.container("by-hand").is_some());
    // Whoever names it next takes it up, and removes it when it is free.
    world.deploy(&shop().spec(SHARED)).await;
    world.runtime.remove_by_hand("by-hand");
    world.delete("shop").await;
    world.settle("shop").await;
    world.assert_gone("shop");
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_names_it_no_more_leaves_it_after_the_old_generation_is_gone() {
    let world = world().await;
    world.deploy(&blog("web:1").spec(SHARED)).await;
    world.effects();
    world.deploy(&blog("web:1")).await;
    let effects = world.effects();
    assert_eq!(effects.last().unwrap(), "remove-network db-shared");
    assert_eq!(attachments(&world, "web").len(), 1);
    assert!(world.ownership("blog").unwrap().shared_networks.is_empty());
    let steps = world.last("blog").steps;
    assert_eq!(steps.last().unwrap().kind, StepKind::Reclaim);
    world.assert_only_serves(&[("blog", "web")]);
}

#[tokio::test(start_paused = true)]
async fn one_that_could_not_be_left_is_left_with_the_next_deployment() {
    let world = world().await;
    world.deploy(&blog("web:1").spec(SHARED)).await;
    world.runtime.fail_next(
        Call::RemoveNetwork,
        RuntimeError::Refused {
            call: "remove_network",
            message: "no".to_owned(),
        },
    );
    world.deploy(&blog("web:1")).await;
    assert!(has_shared(&world));
    let stakes = world.ownership("blog").unwrap().shared_networks;
    assert_eq!(stakes.into_values().collect::<Vec<_>>(), [Stake::Leaving]);
    world.deploy(&blog("web:2")).await;
    assert!(!has_shared(&world));
    assert!(world.ownership("blog").unwrap().shared_networks.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_order_in_the_manifest_makes_no_difference() {
    let world = world().await;
    let networks = |list: &str| blog("web:1").spec(&format!("networks: [{list}]"));
    world.deploy(&networks("{name: a}, {name: b}")).await;
    world.effects();
    world.deploy(&networks("{name: b}, {name: a}")).await;
    assert_eq!(world.effects(), Vec::<String>::new());
}

/// A network that somebody removed is made again with the container.
#[tokio::test(start_paused = true)]
async fn a_container_that_is_rebuilt_finds_its_network_again() {
    let world = world().await;
    world.deploy(&blog("web:1").spec(SHARED)).await;
    world
        .runtime
        .remove_by_hand(world.container("web").id.as_str());
    world.runtime.remove_network_by_hand("db-shared");
    world.run_for("blog", Duration::from_secs(5)).await;
    assert!(has_shared(&world));
    world.assert_only_serves(&[("blog", "web")]);
}
