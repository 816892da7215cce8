//! What a client sees when no backend answers.

use std::time::Duration;

use podherd::proxy::Limits;
use podherd::store::MemoryStore;
use podherd::traffic::{AppRoutes, Traffic};
use prometheus::Registry;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::backend::{Backend, text};
use crate::client::{get, raw};
use crate::gate::Gate;
use crate::world::{World, app, nothing, record, routes, rule};

/// Routes to an address behind which something else than a [`Backend`] is.
fn routes_to(host: &str, address: std::net::SocketAddr) -> AppRoutes {
    let mut routes = routes(host, &[]);
    routes.http[0].backends.push(record("odd", address));
    routes
}

fn counted(registry: &Registry, metric: &str, label: &str) -> f64 {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == metric);
    let metrics = family.map_or(&[][..], |family| family.get_metric());
    metrics
        .iter()
        .filter(|metric| metric.get_label().iter().any(|pair| pair.value() == label))
        .map(|metric| metric.get_counter().get_value())
        .sum()
}

#[tokio::test]
async fn requests_reach_the_service_of_their_host_and_longest_path() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let (site, api) = (Backend::named("site").await, Backend::named("api").await);
    let wanted = AppRoutes {
        http: vec![
            rule("a.test", "/", &[&site]),
            rule("a.test", "/api", &[&api]),
        ],
        ..nothing()
    };
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    for (host, path, expected) in [
        ("a.test", "/", "site"),
        ("A.TEST:8080", "/api/x?y=1", "api"),
        ("a.test.", "/api", "api"),
        ("a.test", "/apix", "site"),
    ] {
        assert_eq!(
            get(plane.at(), host, path).await.text,
            expected,
            "{host}{path}"
        );
    }
}

#[tokio::test]
async fn no_route_no_backend_and_no_answer_are_told_apart() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = closed.local_addr().unwrap();
    drop(closed);
    let rude = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let broken = rude.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = rude.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
        }
    });
    for (name, wanted) in [
        ("withdrawn", routes("withdrawn.test", &[])),
        ("refused", routes_to("refused.test", refused)),
        ("broken", routes_to("broken.test", broken)),
    ] {
        world.publisher.apply(&app(name), &wanted).await.unwrap();
    }
    for (host, status, reason) in [
        ("nowhere.test", 404, "no_route"),
        ("withdrawn.test", 503, "no_backend"),
        ("refused.test", 502, "refused"),
        ("broken.test", 502, "bad_answer"),
    ] {
        let answer = get(plane.at(), host, "/").await;
        assert_eq!(answer.status, status, "{host}");
        let again = answer
            .headers
            .get("retry-after")
            .map(|value| value.to_str().unwrap());
        assert_eq!(again, (status == 503).then_some("1"), "{host}");
        let failures = counted(&plane.registry, "podherd_proxy_failures_total", reason);
        assert!(failures > 0.5, "{reason}");
    }
    let requests = counted(&plane.registry, "podherd_proxy_requests_total", "refused");
    assert!(requests > 0.5);
}

#[tokio::test]
async fn a_backend_that_never_begins_to_answer_is_a_gateway_timeout() {
    let world = World::new().await;
    let limits = Limits {
        response_head: Duration::from_millis(100),
        ..Limits::default()
    };
    let plane = world.begin("p", limits).await;
    plane.proxy.ready().await;
    let silent = Backend::serve("silent", |_| async {
        std::future::pending::<()>().await;
        text("never")
    })
    .await;
    let wanted = routes("silent.test", &[&silent]);
    world
        .publisher
        .apply(&app("silent"), &wanted)
        .await
        .unwrap();
    let answer = get(plane.at(), "silent.test", "/").await;
    assert_eq!(answer.status, 504);
    assert!(answer.text.contains("didn't answer"), "{}", answer.text);
}

#[tokio::test]
async fn a_backend_that_never_accepts_is_a_gateway_timeout_of_another_kind() {
    let world = World::new().await;
    let limits = Limits {
        connect: Duration::from_millis(100),
        ..Limits::default()
    };
    let plane = world.begin("p", limits).await;
    plane.proxy.ready().await;
    // A full accept queue: further connections hang.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = socket.listen(0).unwrap();
    let address = full.local_addr().unwrap();
    let mut waiting = Vec::new();
    let patience = Duration::from_millis(200);
    while let Ok(stream) = tokio::time::timeout(patience, TcpStream::connect(address)).await {
        waiting.push(stream.unwrap());
    }
    let wanted = routes_to("full.test", address);
    world.publisher.apply(&app("full"), &wanted).await.unwrap();
    let answer = get(plane.at(), "full.test", "/").await;
    assert_eq!(answer.status, 504);
    assert!(answer.text.contains("didn't accept"), "{}", answer.text);
}

#[tokio::test]
async fn a_backend_that_refuses_is_left_out_for_one_that_does_not() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let (gone, there) = (Backend::named("gone").await, Backend::named("there").await);
    let wanted = routes("a.test", &[&gone, &there]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    gone.kill();
    for _ in 0..20 {
        let answer = get(plane.at(), "a.test", "/").await;
        assert_eq!(
            (answer.status.as_u16(), answer.text.as_str()),
            (200, "there")
        );
    }
}

#[tokio::test]
async fn equally_busy_backends_take_turns() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let (one, two) = (Backend::named("one").await, Backend::named("two").await);
    let wanted = routes("a.test", &[&one, &two]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    for _ in 0..20 {
        get(plane.at(), "a.test", "/").await;
    }
    assert_eq!((one.hits(), two.hits()), (10, 10));
}

#[tokio::test]
async fn a_data_plane_that_has_not_read_the_graph_says_so() {
    let world = World::new().await;
    let gate = Gate::new(MemoryStore::new());
    gate.close();
    let plane = world.begin_behind(gate, "p", Limits::default()).await;
    assert!(!plane.proxy.is_ready());
    let answer = get(plane.at(), "a.test", "/").await;
    assert_eq!(answer.status, 503);
    assert!(answer.text.contains("starting"), "{}", answer.text);
}

#[tokio::test]
async fn what_names_no_host_or_wants_a_forward_proxy_is_refused() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    for (sent, status) in [
        ("GET / HTTP/1.1\r\nconnection: close\r\n\r\n", "400"),
        (
            "GET / HTTP/1.1\r\nhost: a.test\r\nhost: b.test\r\nconnection: close\r\n\r\n",
            "400",
        ),
        ("GET / HTTP/1.0\r\n\r\n", "400"),
        (
            "CONNECT a.test:443 HTTP/1.1\r\nhost: a.test:443\r\nconnection: close\r\n\r\n",
            "405",
        ),
    ] {
        let answer = raw(plane.at(), sent).await;
        assert_eq!(answer.split(' ').nth(1), Some(status), "{sent}: {answer}");
    }
}

#[tokio::test]
async fn a_client_that_never_finishes_its_head_is_let_go() {
    let world = World::new().await;
    let limits = Limits {
        request_head: Duration::from_millis(100),
        ..Limits::default()
    };
    let plane = world.begin("p", limits).await;
    for begun in ["", "PRI * HTTP", "GET / HTTP/1.1\r\nhost: "] {
        // Returns when the proxy has closed the connection.
        let answer = raw(plane.at(), begun).await;
        assert!(!answer.contains(" 200 "), "{begun}: {answer}");
    }
}

#[tokio::test]
async fn two_requests_in_one_are_not_smuggled_past_the_table() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let backend = Backend::named("b").await;
    let wanted = routes("a.test", &[&backend]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let both = "POST / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\
                content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n\
                0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a.test\r\n\r\n";
    raw(plane.at(), both).await;
    assert!(backend.hits() <= 1, "the rest of the connection isn't read");
}
