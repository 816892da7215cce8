//! TCP and UDP listeners: who may have one, and what is said when it isn't served.

use podherd::manifest::Protocol;
use podherd::reconcile::Verdict;
use podherd::state::{ConditionType, Truth};
use podherd::traffic::Listener;

use crate::support::{Manifest, World, app};

const PG: Listener = Listener {
    protocol: Protocol::Tcp,
    port: 5432,
};

/// An app with a database that listens there; its readiness is the default.
fn database(name: &str, listen: u16) -> Manifest {
    app(name)
        .service("db", "web:1")
        .with("db", "readiness:")
        .with("db", "ports: [{name: pg, container: 5432}]")
        .with("db", &format!("tcp: [{{listen: {listen}, port: pg}}]"))
}

async fn world() -> World {
    World::new().await.images(&["web:1", "web:2"])
}

#[tokio::test(start_paused = true)]
async fn a_service_is_published_with_its_listeners_and_withdrawn_with_them() {
    let world = world().await;
    let both = database("pg", 5432)
        .with(
            "db",
            "ports: [{name: pg, container: 5432}, {name: u, container: 53, protocol: udp}]",
        )
        .with("db", "udp: [{listen: 53, port: u}]")
        .with("db", "update: {drain: 3s}");
    world.deploy(&both).await;
    assert_eq!(
        world.effects(),
        [
            "create-network pg",
            "create db",
            "start db",
            "probe db",
            "publish-active",
            "traffic db"
        ]
    );
    let routes = world.traffic.routes(&"pg".parse().unwrap()).unwrap();
    let listeners: Vec<_> = routes.listeners().collect();
    assert_eq!(listeners.len(), 2);
    for (listener, rule) in listeners {
        let [backend] = rule.backends.as_slice() else {
            panic!("{listener}: {rule:?}")
        };
        assert_eq!(backend.container, world.container("db").id);
        assert_eq!(rule.drain.get().as_secs(), 3);
    }
    world.delete("pg").await;
    world.settle("pg").await;
    assert_eq!(world.traffic.routes(&"pg".parse().unwrap()), None);
    let order = ["intend-stopped", "inhibit db", "withdraw db"];
    assert_eq!(world.effects()[..3], order);
}

/// Asserts that the app is turned away with this reason and these words.
async fn turned_away(world: &World, manifest: &Manifest, reason: &str, words: &str) {
    world.put(manifest).await;
    world.pass(&manifest.name).await.unwrap();
    assert_eq!(world.effects(), Vec::<String>::new());
    let outcome = world.last_deploy(&manifest.name).outcome.unwrap();
    assert_eq!(outcome.reason, reason);
    assert!(outcome.message.contains(words), "{}", outcome.message);
    let accepted = world.condition(&manifest.name, ConditionType::Accepted);
    assert_eq!(
        (accepted.status, accepted.reason.as_str()),
        (Truth::False, reason)
    );
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_another_app_or_podherd_itself_has_is_refused() {
    let world = world().await;
    world.deploy(&database("pg", 5432)).await;
    world.effects();
    let taken = "TCP listener 5432 is held by app pg";
    turned_away(&world, &database("one", 5432), "RouteConflict", taken).await;
    world.traffic.reserve(8080);
    let own = "TCP listener 8080 is a port of Podherd's own";
    turned_away(&world, &database("two", 8080), "ListenerReserved", own).await;
    let given = "port 20005 is of --port-range";
    turned_away(
        &world,
        &database("three", 20_005),
        "ListenerReserved",
        given,
    )
    .await;
    world.assert_serves("pg", &["db"]);
}

#[tokio::test(start_paused = true)]
async fn a_listener_on_another_apps_fixed_port_is_refused_until_it_is_released() {
    let world = world().await;
    let fixed = "ports: [{name: http, container: 8080, host: 5432}]";
    let holder = app("holder").service("web", "web:1").with("web", fixed);
    world.deploy(&holder).await;
    world.put(&database("pg", 5432)).await;
    let verdict = world.pass("pg").await.unwrap();
    assert!(matches!(verdict, Verdict::Again(_)));
    assert_eq!(world.last_deploy("pg").outcome.unwrap().reason, "PortInUse");
    world.delete("holder").await;
    world.settle("holder").await;
    world.settle("pg").await;
    world.assert_serves("pg", &["db"]);
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_cannot_be_opened_is_said_and_tried_again() {
    let world = world().await;
    world.traffic.set_blocked(PG, true);
    world.put(&database("pg", 5432)).await;
    let verdict = world.pass("pg").await.unwrap();
    assert!(matches!(verdict, Verdict::Again(_)));
    let deployed = world.container("db").id;
    let ready = world.condition("pg", ConditionType::Ready);
    assert_eq!(
        (ready.status, ready.reason.as_str()),
        (Truth::False, "ListenerUnavailable")
    );
    let expected = "host-a/proxy can't serve TCP listener 5432: address in use";
    assert!(ready.message.contains(expected), "{}", ready.message);

    world.traffic.set_blocked(PG, false);
    world.settle("pg").await;
    let ready = world.condition("pg", ConditionType::Ready);
    assert_eq!(ready.status, Truth::True);
    assert_eq!(world.container("db").id, deployed, "it is not made again");
    world.assert_serves("pg", &["db"]);
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_cannot_be_opened_holds_up_no_withdrawal() {
    let world = world().await;
    world.deploy(&database("pg", 5432)).await;
    world.traffic.set_blocked(PG, true);
    world.effects();
    world
        .put(&database("pg", 5432).with("db", "env: {A: b}"))
        .await;
    world.pass("pg").await.unwrap();
    let effects = world.effects();
    assert_eq!(effects[..2], ["withdraw db", "signal db SIGTERM"]);
    assert_eq!(effects.last().unwrap(), "traffic db");
    world.delete("pg").await;
    world.settle("pg").await;
    assert_eq!(world.containers("db"), Vec::new());
}
