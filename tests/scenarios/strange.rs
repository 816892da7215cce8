//! Replies that get lost, ports that are taken, containers and stores that aren't
//! what they should be.

use std::time::Duration;

use podherd::reconcile::Verdict;
use podherd::runtime::{Call, ContainerSpec, Labels, RuntimeError};
use podherd::state::{BindClaim, ConditionType, Incarnation, Truth, encode, labels};
use podherd::store::{Entry, Store, Txn};

use crate::support::{World, app, blog, name};

async fn serving() -> World {
    let world = World::new().await.images(&["web:1", "web:2"]);
    world.deploy(&blog("web:1")).await;
    world.effects();
    world
}

fn taken() -> RuntimeError {
    RuntimeError::PortInUse {
        message: "address already in use".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_reply_was_lost_is_found_by_name_and_not_repeated() {
    let world = World::new().await.images(&["web:1"]);
    world.runtime.lose_reply_of_next(Call::Create);
    world.deploy(&blog("web:1")).await;
    let created = world
        .effects()
        .into_iter()
        .filter(|effect| effect == "create web");
    assert_eq!(created.count(), 1);
    assert_eq!(world.operations("blog").len(), 1);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_reply_was_lost_is_looked_at_and_not_repeated() {
    let world = World::new().await.images(&["web:1"]);
    world.runtime.lose_reply_of_next(Call::Start);
    world.deploy(&blog("web:1")).await;
    assert_eq!(world.operations("blog").len(), 1);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_create_that_nobody_can_tell_of_leaves_nothing_behind_in_the_end() {
    let world = World::new().await.images(&["web:1"]);
    world.runtime.lose_reply_of_next(Call::Create);
    // Nor can anybody look for it.
    let unavailable = || RuntimeError::Deadline {
        call: "inspect",
        seconds: 10,
    };
    world.runtime.fail_next(Call::Inspect, unavailable());
    world.runtime.fail_next(Call::Inspect, unavailable());
    world.put(&blog("web:1")).await;
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_port_that_turns_out_taken_means_a_new_claim_and_a_new_candidate() {
    let world = World::new().await.images(&["web:1"]);
    world.runtime.fail_next(Call::Start, taken());
    world.deploy(&blog("web:1")).await;
    assert_eq!(
        world.effects()[1..5],
        ["create web", "remove web", "create web", "start web"]
    );
    assert_eq!(world.operations("blog").len(), 1, "within one operation");
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_container_with_a_fixed_port_beside_moves_all_the_same() {
    let ports = "ports: [{name: http, container: 8080}, {name: admin, container: 81, host: 9000}]";
    let world = World::new().await.images(&["web:1"]);
    world.runtime.fail_next(Call::Start, taken());
    world.deploy(&blog("web:1").with("web", ports)).await;
    assert_eq!(world.operations("blog").len(), 1, "within one operation");
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_port_that_was_taken_while_the_container_was_down_means_a_new_container() {
    let world = serving().await;
    let (old, bind) = (
        world.container("web").id,
        world.serving("blog", "web").binds,
    );
    world.runtime.crash(old.as_str(), 1);
    world.runtime.occupy_port(bind[0].protocol, bind[0].host);
    world.settle("blog").await;
    assert_eq!(
        world.effects()[..4],
        ["withdraw web", "remove web", "create web", "start web"]
    );
    assert_ne!(world.serving("blog", "web").binds, bind);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn ports_that_are_all_taken_fail_the_deployment_and_leave_no_claim() {
    let world = World::new().await.images(&["web:1"]);
    world.runtime.fail_when(Call::Start, |_| Some(taken()));
    world.put(&blog("web:1")).await;
    world.pass("blog").await.unwrap();
    assert_eq!(world.last("blog").outcome.unwrap().reason, "PortInUse");
    assert_eq!(world.claims(), Vec::<String>::new());
    assert_eq!(world.containers("web"), Vec::new());
    world.runtime.clear_faults();
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_port_that_another_controller_claimed_is_never_given_again() {
    let world = serving().await;
    let free = world.serving("blog", "web").binds[0].host;
    // The index was read; meanwhile all ports but one are claimed elsewhere.
    let node = "host-a".parse().unwrap();
    let last = if free == 20_099 { 20_098 } else { 20_099 };
    let claim = BindClaim {
        app: name("other"),
        incarnation: Incarnation(uuid::Uuid::nil()),
        service: "web".parse().unwrap(),
        container_name: "other".to_owned(),
        operation: podherd::state::OperationId::new("other"),
    };
    for port in (20_000..20_100).filter(|port| ![free, last].contains(port)) {
        let key = world
            .keys
            .bind(&node, podherd::manifest::Protocol::Tcp, port);
        let put = Txn::default().put(key, encode(&claim).unwrap());
        world.store.commit(put).await.unwrap();
    }
    world.put(&app("shop").web("web:1")).await;
    world.pass("shop").await.unwrap();
    assert_eq!(world.serving("shop", "web").binds[0].host, last);
    // With none left, the next one says so.
    world.put(&app("wiki").web("web:1")).await;
    world.pass("wiki").await.unwrap();
    let outcome = world.last("wiki").outcome.unwrap();
    assert_eq!(outcome.reason, "PortsExhausted");
    assert!(
        outcome.message.contains("--port-range"),
        "{}",
        outcome.message
    );
}

#[tokio::test(start_paused = true)]
async fn a_container_that_moves_while_it_is_probed_is_not_published() {
    let slow = podherd::runtime::Behaviour::SlowReady(Duration::from_secs(10));
    let world = World::new().await.image("web:1", slow);
    world.put(&blog("web:1")).await;
    let restart = async || {
        let container = world.container("web").id;
        world.runtime.restart_by_hand(container.as_str(), None);
    };
    world
        .pass_while("blog", Duration::from_secs(1), restart)
        .await;
    assert_eq!(world.last("blog").outcome.unwrap().reason, "ContainerMoved");
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

// Containers that aren't known.

fn container(incarnation: &str, revision: &str) -> ContainerSpec {
    let labels = [
        (labels::APP, "blog"),
        (labels::SERVICE, "web"),
        (labels::INCARNATION, incarnation),
        (labels::REVISION, revision),
        (labels::OPERATION, "elsewhere"),
    ];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    ContainerSpec {
        name: "found".to_owned(),
        labels: Labels::from(labels),
        ..ContainerSpec::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_of_an_unknown_incarnation_is_left_alone_and_reported() {
    let world = serving().await;
    let spec = container("7f2c1f7e-52f9-4a8c-9d0c-0a5f4c6d1e2b", "1");
    let stranger = world.runtime.run_by_hand(&spec);
    world.deploy(&blog("web:2")).await;
    assert!(world.runtime.container("found").is_some());
    let degraded = world.condition("blog", ConditionType::Degraded);
    assert_eq!(
        (degraded.status, degraded.reason.as_str()),
        (Truth::True, "UnknownContainer")
    );
    assert!(degraded.message.contains(stranger.as_str()));
    world.delete("blog").await;
    world.settle("blog").await;
    assert!(world.runtime.container("found").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_container_without_labels_is_never_touched() {
    let world = serving().await;
    let spec = ContainerSpec {
        name: "somebodys".to_owned(),
        ..ContainerSpec::default()
    };
    world.runtime.run_by_hand(&spec);
    world.delete("blog").await;
    world.settle("blog").await;
    assert!(world.runtime.container("somebodys").is_some());
}

#[tokio::test(start_paused = true)]
async fn an_orphan_of_an_ended_incarnation_is_swept() {
    let world = serving().await;
    let ended = world.ownership("blog").unwrap().incarnation.to_string();
    world.delete("blog").await;
    world.settle("blog").await;
    world.effects();
    world.runtime.run_by_hand(&container(&ended, "1"));
    world.settle("blog").await;
    assert_eq!(world.effects(), ["remove web"]);
    world.assert_gone("blog");
    // Beside a live incarnation as well, however new it claims to be.
    world.deploy(&blog("web:1")).await;
    world.runtime.run_by_hand(&container(&ended, "99"));
    world.settle("blog").await;
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn an_orphan_of_the_live_incarnation_is_swept() {
    let world = serving().await;
    let live = world.ownership("blog").unwrap().incarnation.to_string();
    world.runtime.run_by_hand(&container(&live, "1"));
    world.settle("blog").await;
    assert_eq!(world.effects(), ["remove web"]);
    world.assert_serves("blog", &["web"]);
}

// Stores that aren't what they were.

pub async fn restore(world: &World, backup: &[Entry]) {
    let leader = world.keys.leader();
    for entry in world.store.entries() {
        if entry.key != leader {
            let delete = Txn::default().delete(entry.key);
            world.store.commit(delete).await.unwrap();
        }
    }
    for entry in backup.iter().filter(|entry| entry.key != leader) {
        let put = Txn::default().put(entry.key.clone(), entry.value.clone());
        world.store.commit(put).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_restored_backup_is_held_for_a_person_and_stops_nothing() {
    let mut world = serving().await;
    let backup = world.store.entries();
    world.deploy(&blog("web:2")).await;
    let newer = world.container("web");
    restore(&world, &backup).await;
    world.restart().await;
    world.effects();
    for _ in 0..5 {
        assert_eq!(world.pass("blog").await.unwrap(), Verdict::Settled);
    }
    assert_eq!(world.container("web"), newer);
    let held = world.condition("blog", ConditionType::Progressing);
    assert_eq!(
        (held.status, held.reason.as_str()),
        (Truth::False, "NewerGenerationRuns")
    );
    assert!(held.message.contains(&newer.name), "{}", held.message);
}

#[tokio::test(start_paused = true)]
async fn an_empty_store_stops_nothing() {
    let mut world = serving().await;
    let container = world.container("web");
    restore(&world, &[]).await;
    world.restart().await;
    assert_eq!(world.pass("blog").await.unwrap(), Verdict::Settled);
    assert_eq!(world.effects(), Vec::<String>::new());
    assert_eq!(world.container("web"), container);
    assert_eq!(world.status("blog"), None);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_its_state_but_not_its_manifests_stops_nothing() {
    let mut world = serving().await;
    let container = world.container("web");
    let manifests: Vec<Entry> = world
        .store
        .entries()
        .into_iter()
        .filter(|entry| entry.key.contains("/apps/"))
        .collect();
    restore(&world, &manifests).await;
    world.restart().await;
    world.run_for("blog", Duration::from_secs(60)).await;
    assert_eq!(
        world.runtime.container(container.id.as_str()),
        Some(container)
    );
}

#[tokio::test(start_paused = true)]
async fn a_damaged_record_stops_nothing_and_is_named() {
    let world = serving().await;
    let key = world.keys.active(&name("blog"));
    let damage = Txn::default().put(key.clone(), b"{".to_vec());
    world.store.commit(damage).await.unwrap();
    let error = world.pass("blog").await.unwrap_err();
    assert!(error.to_string().contains(&key), "{error}");
    assert_eq!(world.effects(), Vec::<String>::new());
}
