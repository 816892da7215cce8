//! What arrives at the backend and at the client, over real connections.

use std::fmt::Write;

use http::Request;
use http_body_util::Empty;
use hyper::body::Incoming;
use podherd::traffic::Traffic;

use crate::backend::{Backend, text};
use crate::client::{connect, raw, read};
use crate::world::{World, app, routes};

/// Answers with the head that it got.
async fn mirror() -> Backend {
    Backend::serve("mirror", |request: Request<Incoming>| async move {
        let mut head = format!("{} {}\n", request.method(), request.uri());
        for (name, value) in request.headers() {
            writeln!(head, "{name}: {}", value.to_str().unwrap()).unwrap();
        }
        let mut response = text(head);
        let headers = response.headers_mut();
        headers.insert("connection", "x-private".parse().unwrap());
        headers.insert("x-private", "1".parse().unwrap());
        headers.insert("keep-alive", "timeout=5".parse().unwrap());
        headers.insert("x-public", "1".parse().unwrap());
        response
    })
    .await
}

#[tokio::test]
async fn the_backend_learns_of_the_client_and_nothing_of_its_connection() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let mirror = mirror().await;
    let wanted = routes("a.test", &[&mirror]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let request = Request::get("/path?q=1")
        .header("host", "A.test:8080")
        .header("connection", "x-mine")
        .header("x-mine", "1")
        .header("x-forwarded-for", "198.51.100.1")
        .header("x-forwarded-proto", "https")
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    let mut client = connect(plane.at()).await;
    let answer = read(client.send_request(request).await.unwrap()).await;
    let mut lines: Vec<_> = answer.text.lines().collect();
    lines.sort_unstable();
    let expected = [
        "GET /path?q=1",
        "host: A.test:8080",
        "via: 1.1 podherd",
        "x-forwarded-for: 198.51.100.1, 127.0.0.1",
        "x-forwarded-host: A.test:8080",
        "x-forwarded-proto: http",
    ];
    assert_eq!(lines, expected);
    for gone in ["connection", "x-private", "keep-alive"] {
        assert!(!answer.headers.contains_key(gone), "{gone}");
    }
    assert!(answer.headers.contains_key("x-public"));
}

#[tokio::test]
async fn the_host_of_an_absolute_target_wins_over_the_header() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let mirror = mirror().await;
    let wanted = routes("a.test", &[&mirror]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let sent = "GET http://a.test/x HTTP/1.1\r\nhost: b.test\r\nconnection: close\r\n\r\n";
    let answer = raw(plane.at(), sent).await;
    assert!(answer.contains("GET /x\n"), "{answer}");
    assert!(answer.contains("host: a.test\n"), "{answer}");
    assert!(!answer.contains("b.test"), "{answer}");
}

#[tokio::test]
async fn an_http_1_0_client_gets_an_answer_that_it_understands() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let backend = Backend::named("old friend").await;
    let wanted = routes("a.test", &[&backend]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let answer = raw(plane.at(), "GET / HTTP/1.0\r\nhost: a.test\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nold friend"), "{answer}");
}
