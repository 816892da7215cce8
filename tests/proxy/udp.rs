//! UDP listeners.

use std::time::Duration;

use podherd::manifest::Timespan;
use podherd::proxy::Limits;
use podherd::state::ContainerId;
use podherd::traffic::{AppRoutes, Drain, Traffic};
use prometheus::Registry;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::stream::{Echo, at, free_port, metric, rule, udp_routes};
use crate::world::{Plane, World, app, eventually, nothing};

const PATIENCE: Duration = Duration::from_secs(30);

/// A client of one listener.
struct Client(UdpSocket);

impl Client {
    async fn of(port: u16) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(at(port)).await.unwrap();
        Self(socket)
    }

    async fn say(&self, text: &str) {
        self.0.send(text.as_bytes()).await.unwrap();
    }

    async fn hear(&self) -> String {
        let mut buffer = [0; 2048];
        let heard = tokio::time::timeout(PATIENCE, self.0.recv(&mut buffer));
        let length = heard.await.expect("an answer").unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    async fn ask(&self, text: &str) -> String {
        self.say(text).await;
        self.hear().await
    }
}

async fn plane(world: &World, limits: Limits) -> Plane {
    let plane = world.begin("p", limits).await;
    plane.proxy.ready().await;
    plane
}

fn failures(registry: &Registry, reason: &str) -> i64 {
    metric(
        registry,
        "podherd_proxy_stream_failures_total",
        ("reason", reason),
    )
}

fn sessions(registry: &Registry) -> i64 {
    metric(registry, "podherd_proxy_streams", ("protocol", "udp"))
}

#[tokio::test]
async fn each_client_hears_its_own_answers() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let port = free_port();
    let echo = Echo::udp("b").await;
    let wanted = udp_routes(port, &[&echo]);
    let applied = world.publisher.apply(&app("a"), &wanted).await.unwrap();
    assert_eq!(applied.unserved, []);
    let (one, two) = (Client::of(port).await, Client::of(port).await);
    for round in 0..20 {
        one.say(&format!("one {round}")).await;
        two.say(&format!("two {round}")).await;
        assert_eq!(two.hear().await, format!("b:two {round}"));
        assert_eq!(one.hear().await, format!("b:one {round}"));
    }
    assert_eq!(sessions(&plane.registry), 2);
    let opened = metric(&plane.registry, "podherd_proxy_streams_total", ("app", "a"));
    assert_eq!(opened, 2);
}

#[tokio::test]
async fn a_replaced_backend_gets_nothing_new_and_its_late_answer_still_arrives() {
    let world = World::new().await;
    let _plane = world.plane("p").await;
    let port = free_port();
    let slow = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let old = ContainerId::new("slow");
    let routes = AppRoutes {
        udp: vec![rule(
            port,
            Timespan::from_secs(60),
            &[("slow", slow.local_addr().unwrap())],
        )],
        ..nothing()
    };
    world.publisher.apply(&app("a"), &routes).await.unwrap();
    let client = Client::of(port).await;
    client.say("first").await;
    let mut buffer = [0; 64];
    let (_, session) = slow.recv_from(&mut buffer).await.unwrap();

    let next = Echo::udp("next").await;
    let wanted = udp_routes(port, &[&next]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    assert_eq!(world.planes()[0].draining.get(&old), Some(&1));
    assert_eq!(client.ask("second").await, "next:second");
    slow.send_to(b"late", session).await.unwrap();
    assert_eq!(client.hear().await, "late");
    let drained = world.publisher.drain(&old, PATIENCE).await.unwrap();
    assert_eq!(drained, Drain::Empty, "quiet is drained");
    slow.try_recv(&mut buffer).unwrap_err();
}

#[tokio::test]
async fn a_withdrawn_service_drops_datagrams_and_a_session_that_talks_on_is_cut() {
    let world = World::new().await;
    let limits = Limits {
        udp_quiet: Duration::from_secs(3600),
        ..Limits::default()
    };
    let plane = plane(&world, limits).await;
    let port = free_port();
    let echo = Echo::udp("b").await;
    let with = |backends: &[_]| AppRoutes {
        udp: vec![rule(port, Timespan::from_millis(100), backends)],
        ..nothing()
    };
    let wanted = with(&[("b", echo.address)]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let client = Client::of(port).await;
    assert_eq!(client.ask("x").await, "b:x");
    world.publisher.apply(&app("a"), &with(&[])).await.unwrap();
    client.say("nobody").await;
    eventually("it is dropped", || {
        failures(&plane.registry, "no_backend") == 1
    })
    .await;
    let old = ContainerId::new("b");
    let drained = world.publisher.drain(&old, PATIENCE).await.unwrap();
    assert_eq!(drained, Drain::Empty);
    assert_eq!(failures(&plane.registry, "drain_deadline"), 1);
}

#[tokio::test]
async fn an_idle_session_ends() {
    let world = World::new().await;
    let limits = Limits {
        udp_idle: Duration::from_millis(50),
        ..Limits::default()
    };
    let plane = plane(&world, limits).await;
    let port = free_port();
    let echo = Echo::udp("b").await;
    let wanted = udp_routes(port, &[&echo]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let client = Client::of(port).await;
    assert_eq!(client.ask("x").await, "b:x");
    eventually("it ends", || sessions(&plane.registry) == 0).await;
    assert_eq!(client.ask("y").await, "b:y");
}

#[tokio::test]
async fn sessions_are_bounded_and_the_quietest_makes_room() {
    let world = World::new().await;
    let limits = Limits {
        udp_sessions: 2,
        udp_quiet: Duration::from_millis(1),
        ..Limits::default()
    };
    let plane = plane(&world, limits).await;
    let port = free_port();
    let echo = Echo::udp("b").await;
    let wanted = udp_routes(port, &[&echo]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let mut clients = Vec::new();
    for number in 0..10 {
        let client = Client::of(port).await;
        assert_eq!(client.ask(&number.to_string()).await, format!("b:{number}"));
        clients.push(client);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    eventually("there are two", || sessions(&plane.registry) == 2).await;
    assert_eq!(failures(&plane.registry, "session_limit"), 0);
}

#[tokio::test]
async fn without_a_quiet_session_one_more_is_refused_and_the_others_go_on() {
    let world = World::new().await;
    let limits = Limits {
        udp_sessions: 2,
        udp_quiet: Duration::from_secs(3600),
        ..Limits::default()
    };
    let plane = plane(&world, limits).await;
    let port = free_port();
    let echo = Echo::udp("b").await;
    let wanted = udp_routes(port, &[&echo]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let clients = [Client::of(port).await, Client::of(port).await];
    for client in &clients {
        assert_eq!(client.ask("x").await, "b:x");
    }
    Client::of(port).await.say("one too many").await;
    eventually("it is refused", || {
        failures(&plane.registry, "session_limit") == 1
    })
    .await;
    for client in &clients {
        assert_eq!(client.ask("y").await, "b:y");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replacing_the_backend_over_and_over_loses_no_datagram() {
    let world = World::new().await;
    let _plane = world.plane("p").await;
    let port = free_port();
    let mut serving = Echo::udp("0").await;
    let first = udp_routes(port, &[&serving]);
    world.publisher.apply(&app("a"), &first).await.unwrap();
    let stop = CancellationToken::new();
    let mut load = JoinSet::new();
    for _ in 0..4 {
        let (client, stop) = (Client::of(port).await, stop.clone());
        load.spawn(async move {
            let mut answered = 0_u64;
            while !stop.is_cancelled() {
                let said = answered.to_string();
                let heard = client.ask(&said).await;
                assert_eq!(heard.split_once(':').unwrap().1, said);
                answered += 1;
            }
            answered
        });
    }
    for generation in 1..=5 {
        let next = Echo::udp(&generation.to_string()).await;
        let wanted = udp_routes(port, &[&next]);
        world.publisher.apply(&app("a"), &wanted).await.unwrap();
        let old = ContainerId::new(serving.name.clone());
        let drained = world.publisher.drain(&old, PATIENCE).await.unwrap();
        assert_eq!(drained, Drain::Empty);
        serving = next;
    }
    stop.cancel();
    while let Some(answered) = load.join_next().await {
        assert!(answered.unwrap() > 50);
    }
}

#[tokio::test]
async fn a_listener_that_leaves_the_graph_is_closed_with_its_sessions() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let port = free_port();
    let echo = Echo::udp("b").await;
    let wanted = udp_routes(port, &[&echo]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    assert_eq!(Client::of(port).await.ask("x").await, "b:x");
    world.publisher.remove(&app("a")).await.unwrap();
    std::net::UdpSocket::bind(at(port)).unwrap();
    assert_eq!(sessions(&plane.registry), 0);
    let old = ContainerId::new("b");
    let drained = world.publisher.drain(&old, PATIENCE).await.unwrap();
    assert_eq!(drained, Drain::Empty);
}
