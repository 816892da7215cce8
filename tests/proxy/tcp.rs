//! TCP listeners.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use podherd::manifest::Timespan;
use podherd::proxy::Limits;
use podherd::state::ContainerId;
use podherd::traffic::{AppRoutes, Drain, Traffic, TrafficError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::stream::{Echo, at, echoed, free_port, metric, reach, rule, tcp, tcp_routes};
use crate::world::{RESERVED, World, app, eventually, nothing};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn bytes_go_both_ways_and_a_half_closed_connection_is_answered_to_its_end() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let port = free_port();
    // Answers only once it has heard everything.
    let late = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = late.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = late.accept().await.unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        heard.reverse();
        stream.write_all(&heard).await.unwrap();
    });
    let routes = AppRoutes {
        tcp: vec![rule(port, Timespan::from_secs(60), &[("late", address)])],
        ..nothing()
    };
    let applied = world.publisher.apply(&app("a"), &routes).await.unwrap();
    assert_eq!(applied.unserved, []);

    let mut client = TcpStream::connect(at(port)).await.unwrap();
    let said: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    client.write_all(&said).await.unwrap();
    client.shutdown().await.unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    heard.reverse();
    assert!(heard == said);
    let opened = metric(&plane.registry, "podherd_proxy_streams_total", ("app", "a"));
    assert_eq!(opened, 1);
    eventually("it is counted out", || {
        metric(&plane.registry, "podherd_proxy_streams", ("app", "a")) == 0
    })
    .await;
}

/// Clients that connect, talk and leave without a pause.
struct Load {
    served: Arc<AtomicU64>,
    stop: CancellationToken,
    clients: JoinSet<std::io::Result<()>>,
}

impl Load {
    fn start(clients: usize, port: u16) -> Self {
        let mut load = Self {
            served: Arc::default(),
            stop: CancellationToken::new(),
            clients: JoinSet::new(),
        };
        for _ in 0..clients {
            let (served, stop) = (Arc::clone(&load.served), load.stop.clone());
            load.clients.spawn(async move {
                while !stop.is_cancelled() {
                    let (mut stream, _) = reach(port).await?;
                    echoed(&mut stream, b"some words").await?;
                    served.fetch_add(1, Ordering::SeqCst);
                }
                Ok(())
            });
        }
        load
    }

    async fn more(&self, count: u64) {
        let wanted = self.served.load(Ordering::SeqCst) + count;
        eventually("the load goes on", || {
            self.served.load(Ordering::SeqCst) >= wanted
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replacing_the_backend_over_and_over_fails_no_connection() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let port = free_port();
    let mut serving = Echo::tcp("0").await;
    let first = tcp_routes(port, &[&serving]);
    world.publisher.apply(&app("a"), &first).await.unwrap();
    let mut load = Load::start(8, port);
    for generation in 1..=20 {
        load.more(40).await;
        let next = Echo::tcp(&generation.to_string()).await;
        let wanted = tcp_routes(port, &[&next]);
        world.publisher.apply(&app("a"), &wanted).await.unwrap();
        let old = ContainerId::new(serving.name.clone());
        let drained = world.publisher.drain(&old, PATIENCE).await.unwrap();
        assert_eq!(drained, Drain::Empty);
        serving = next;
    }
    load.stop.cancel();
    while let Some(client) = load.clients.join_next().await {
        client.unwrap().unwrap();
    }
    let failed = metric(
        &plane.registry,
        "podherd_proxy_stream_failures_total",
        ("protocol", "tcp"),
    );
    assert_eq!(failed, 0);
}

#[tokio::test]
async fn a_withdrawn_service_resets_new_connections_and_its_old_ones_are_counted() {
    let world = World::new().await;
    let _plane = world.plane("p").await;
    let port = free_port();
    let (echo, old) = (Echo::tcp("old").await, ContainerId::new("old"));
    let wanted = tcp_routes(port, &[&echo]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let (mut client, _) = reach(port).await.unwrap();

    let withdrawn = tcp_routes(port, &[]);
    world.publisher.apply(&app("a"), &withdrawn).await.unwrap();
    assert_eq!(world.planes()[0].draining.get(&old), Some(&1));
    let refused = reach(port).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionReset);
    assert_eq!(echo.connections(), 1);

    echoed(&mut client, b"still here").await.unwrap();
    let soon = Duration::from_millis(50);
    let drained = world.publisher.drain(&old, soon).await.unwrap();
    assert_eq!(drained, Drain::Expired { in_flight: 1 });
    drop(client);
    let drained = world.publisher.drain(&old, PATIENCE).await.unwrap();
    assert_eq!(drained, Drain::Empty);
}

#[tokio::test]
async fn what_is_left_at_the_end_of_the_drain_is_cut_and_what_serves_is_not() {
    let world = World::new().await;
    let _plane = world.plane("p").await;
    let (port, other) = (free_port(), free_port());
    let (echo, kept) = (Echo::tcp("old").await, Echo::tcp("kept").await);
    let short = Timespan::from_millis(100);
    let with = |backends: &[_]| AppRoutes {
        tcp: vec![
            rule(port, short, backends),
            rule(other, short, &[("kept", kept.address)]),
        ],
        ..nothing()
    };
    let wanted = with(&[("old", echo.address)]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let (mut client, _) = reach(port).await.unwrap();
    let (mut stays, _) = reach(other).await.unwrap();
    world.publisher.apply(&app("a"), &with(&[])).await.unwrap();

    let cut = client.read_u8().await.unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::ConnectionReset);
    let old = ContainerId::new("old");
    let drained = world.publisher.drain(&old, PATIENCE).await.unwrap();
    assert_eq!(drained, Drain::Empty);
    echoed(&mut stays, b"not me").await.unwrap();
}

#[tokio::test]
async fn a_listener_closes_with_its_rule_and_no_other_notices() {
    let world = World::new().await;
    let _plane = world.plane("p").await;
    let (one, two) = (free_port(), free_port());
    let echo = Echo::tcp("b").await;
    for (name, port) in [("one", one), ("two", two)] {
        let wanted = tcp_routes(port, &[&echo]);
        world.publisher.apply(&app(name), &wanted).await.unwrap();
    }
    let (mut client, _) = reach(two).await.unwrap();
    world.publisher.remove(&app("one")).await.unwrap();
    let refused = TcpStream::connect(at(one)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    echoed(&mut client, b"undisturbed").await.unwrap();
    let moved = tcp_routes(one, &[&echo]);
    world.publisher.apply(&app("two"), &moved).await.unwrap();
    assert_eq!(reach(one).await.unwrap().1, "b");
    TcpStream::connect(at(two)).await.unwrap_err();
    echoed(&mut client, b"still going").await.unwrap();
}

#[tokio::test]
async fn a_backend_that_refuses_is_passed_over() {
    let world = World::new().await;
    let _plane = world.plane("p").await;
    let port = free_port();
    let alive = Echo::tcp("alive").await;
    let routes = AppRoutes {
        tcp: vec![rule(
            port,
            Timespan::from_secs(60),
            &[("dead", at(free_port())), ("alive", alive.address)],
        )],
        ..nothing()
    };
    world.publisher.apply(&app("a"), &routes).await.unwrap();
    for _ in 0..4 {
        assert_eq!(reach(port).await.unwrap().1, "alive");
    }
}

#[tokio::test]
async fn a_port_that_is_taken_is_said_blocks_no_other_app_and_is_tried_again() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let (port, free) = (free_port(), free_port());
    let foreign = TcpListener::bind(at(port)).await.unwrap();
    let echo = Echo::tcp("b").await;
    let wanted = tcp_routes(port, &[&echo]);
    let applied = world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let [unserved] = applied.unserved.as_slice() else {
        panic!("{applied:?}")
    };
    assert_eq!(unserved.listener, tcp(port));
    let told = unserved.to_string();
    let expected = format!("host-a/p can't serve TCP listener {port}: Address already in use");
    assert!(told.starts_with(&expected), "{told}");
    let state = |state| metric(&plane.registry, "podherd_proxy_listeners", ("state", state));
    assert_eq!((state("open"), state("failed")), (0, 1));

    let other = tcp_routes(free, &[&echo]);
    let applied = world.publisher.apply(&app("other"), &other).await.unwrap();
    assert_eq!(applied.unserved, []);
    let withdrawn = tcp_routes(port, &[]);
    let applied = world.publisher.apply(&app("a"), &withdrawn).await.unwrap();
    assert_eq!(applied.unserved, [], "nothing is to be served");
    world.publisher.apply(&app("a"), &wanted).await.unwrap();

    drop(foreign);
    world
        .until("it is opened after all", |world| {
            world.planes()[0].failed.is_empty()
        })
        .await;
    assert_eq!(reach(port).await.unwrap().1, "b");
    let applied = world.publisher.apply(&app("a"), &wanted).await.unwrap();
    assert_eq!(applied.unserved, []);
}

#[tokio::test]
async fn one_data_plane_of_a_host_is_enough_to_serve_a_listener() {
    let world = World::new().await;
    let _planes = [world.plane("one").await, world.plane("two").await];
    let port = free_port();
    let echo = Echo::tcp("b").await;
    let wanted = tcp_routes(port, &[&echo]);
    let applied = world.publisher.apply(&app("a"), &wanted).await.unwrap();
    assert_eq!(applied.unserved, []);
    let failed = |world: &World| world.planes().iter().map(|p| p.failed.len()).sum::<usize>();
    assert_eq!(failed(&world), 1);
    assert_eq!(reach(port).await.unwrap().1, "b");
}

#[tokio::test]
async fn a_port_of_podherds_own_is_refused_by_name() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    for port in [plane.at().port(), RESERVED] {
        let claimed = tcp_routes(port, &[]);
        let refused = world.publisher.check(&app("a"), &claimed).await;
        let Err(error @ TrafficError::Reserved { .. }) = refused else {
            panic!("{refused:?}")
        };
        let expected = format!("TCP listener {port} is a port of Podherd's own");
        assert!(error.to_string().starts_with(&expected), "{error}");
        let udp = AppRoutes {
            udp: claimed.tcp,
            ..nothing()
        };
        world.publisher.check(&app("a"), &udp).await.unwrap();
    }
}

#[tokio::test]
async fn a_stopped_proxy_closes_its_listeners_at_once_and_its_connections_in_the_end() {
    let world = World::new().await;
    let limits = Limits {
        shutdown: Duration::from_millis(200),
        ..Limits::default()
    };
    let plane = world.begin("p", limits).await;
    plane.proxy.ready().await;
    let port = free_port();
    let echo = Echo::tcp("b").await;
    let wanted = tcp_routes(port, &[&echo]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let (mut client, _) = reach(port).await.unwrap();
    plane.cancel.cancel();
    let stopped = tokio::spawn(plane.proxy.stopped());
    while TcpStream::connect(at(port)).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let cut = client.read_u8().await.unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::ConnectionReset);
    stopped.await.unwrap();
    assert!(world.planes().is_empty());
}
