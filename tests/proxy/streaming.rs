//! Bodies, trailers and upgraded connections on their way through.

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use podherd::manifest::AppProtocol;
use podherd::traffic::Traffic;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::backend::{Backend, Body};
use crate::client::{connect, connect_http2, read, request};
use crate::world::{World, app, eventually, record, routes};

type Frames = mpsc::UnboundedSender<Frame<Bytes>>;

/// A body whose frames the test sends.
fn open_body() -> (Frames, Body) {
    let (sender, frames) = mpsc::unbounded_channel();
    let frames = UnboundedReceiverStream::new(frames).map(Ok);
    (sender, BodyExt::boxed(StreamBody::new(frames)))
}

fn data(text: &'static str) -> Frame<Bytes> {
    Frame::data(Bytes::from_static(text.as_bytes()))
}

async fn next_data(body: &mut Incoming) -> Bytes {
    body.frame().await.unwrap().unwrap().into_data().unwrap()
}

/// Sends back what it gets as it gets it, trailers and all.
async fn echo(name: &str) -> Backend {
    Backend::serve(name, |request: Request<Incoming>| async move {
        Response::new(BodyExt::boxed(request.into_body()))
    })
    .await
}

#[tokio::test]
async fn each_chunk_arrives_before_the_next_is_sent_in_both_directions() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let echo = echo("echo").await;
    let wanted = routes("a.test", &[&echo]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let (sender, body) = open_body();
    let mut client = connect(plane.at()).await;
    let request = Request::post("/")
        .header("host", "a.test")
        .body(body)
        .unwrap();
    let answering = client.send_request(request);
    sender.send(data("one")).unwrap();
    let mut answer = answering.await.unwrap().into_body();
    assert_eq!(next_data(&mut answer).await, "one");
    sender.send(data("two")).unwrap();
    assert_eq!(next_data(&mut answer).await, "two");
    drop(sender);
    assert!(answer.frame().await.is_none());
}

#[tokio::test]
async fn trailers_and_streams_pass_to_an_h2c_backend_and_back() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let echo = echo("grpc").await;
    let mut wanted = routes("grpc.test", &[&echo]);
    wanted.http[0].protocol = AppProtocol::H2c;
    world.publisher.apply(&app("grpc"), &wanted).await.unwrap();
    let mut client = connect_http2(plane.at()).await;
    for _ in 0..3 {
        let (sender, body) = open_body();
        let request = Request::post("http://grpc.test/pkg.Service/Call")
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(body)
            .unwrap();
        let answering = client.send_request(request);
        sender.send(data("message")).unwrap();
        let mut answer = answering.await.unwrap().into_body();
        assert_eq!(next_data(&mut answer).await, "message");
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        sender.send(Frame::trailers(trailers.clone())).unwrap();
        let last = answer.frame().await.unwrap().unwrap();
        assert_eq!(last.into_trailers().unwrap(), trailers);
    }
}

#[tokio::test]
async fn an_h2c_backend_sees_the_host_that_the_client_asked_for() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let mirror = Backend::serve("m", |request: Request<Incoming>| async move {
        crate::backend::text(format!("{:?} {}", request.version(), request.uri()))
    })
    .await;
    let mut wanted = routes("a.test", &[&mirror]);
    wanted.http[0].protocol = AppProtocol::H2c;
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let mut client = connect(plane.at()).await;
    let answer = client
        .send_request(request("a.test:81", "/x?y"))
        .await
        .unwrap();
    assert_eq!(read(answer).await.text, "HTTP/2.0 http://a.test:81/x?y");
}

/// Upgrades to WebSocket and echoes messages.
async fn websocket_echo() -> Backend {
    Backend::serve("ws", |mut request: Request<Incoming>| async move {
        let key = request.headers()["sec-websocket-key"].clone();
        let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let io = TokioIo::new(upgraded.await.unwrap());
            let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
            while let Some(Ok(message)) = socket.next().await {
                if message.is_text() {
                    socket.send(message).await.unwrap();
                }
            }
        });
        let mut response = crate::backend::text("");
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert("connection", "upgrade".parse().unwrap());
        headers.insert("upgrade", "websocket".parse().unwrap());
        headers.insert("sec-websocket-accept", accept.parse().unwrap());
        response
    })
    .await
}

#[tokio::test]
async fn a_websocket_goes_through_and_counts_as_in_flight_until_it_closes() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let backend = websocket_echo().await;
    let wanted = routes("ws.test", &[&backend]);
    world.publisher.apply(&app("ws"), &wanted).await.unwrap();
    let stream = TcpStream::connect(plane.at()).await.unwrap();
    let (mut socket, _) = client_async("ws://ws.test/chat", stream).await.unwrap();
    for word in ["one", "two"] {
        socket.send(Message::text(word)).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(word));
    }

    let withdrawn = routes("ws.test", &[]);
    world.publisher.apply(&app("ws"), &withdrawn).await.unwrap();
    let draining = |world: &World| world.planes()[0].draining.values().sum::<u64>();
    assert_eq!(draining(&world), 1);
    socket.send(Message::text("still")).await.unwrap();
    assert_eq!(
        socket.next().await.unwrap().unwrap(),
        Message::text("still")
    );

    socket.close(None).await.unwrap();
    drop(socket);
    world
        .until("the tunnel ends", |world| draining(world) == 0)
        .await;
}

#[tokio::test]
async fn a_backend_that_switches_unasked_is_a_bad_gateway() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let odd = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut wanted = routes("a.test", &[]);
    wanted.http[0]
        .backends
        .push(record("odd", odd.local_addr().unwrap()));
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = odd.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await;
        let switch =
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
        stream.write_all(switch.as_bytes()).await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await;
    });
    let answer = crate::client::get(plane.at(), "a.test", "/").await;
    assert_eq!(answer.status, 502);
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_request_at_the_backend() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let (began, mut beginning) = mpsc::unbounded_channel();
    let (ended, mut end) = mpsc::unbounded_channel();
    let backend = Backend::serve("b", move |_| {
        struct Ended(mpsc::UnboundedSender<()>);
        impl Drop for Ended {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        let ended = Ended(ended.clone());
        began.send(()).unwrap();
        async move {
            std::future::pending::<()>().await;
            drop(ended);
            crate::backend::text("never")
        }
    })
    .await;
    let wanted = routes("a.test", &[&backend]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let mut client = connect(plane.at()).await;
    let asking = tokio::spawn(client.send_request(request("a.test", "/")));
    beginning.recv().await.unwrap();
    asking.abort();
    drop(client);
    end.recv().await.unwrap();
}

#[tokio::test]
async fn a_kept_connection_that_the_backend_closes_costs_no_request() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    // Announces nothing and closes after each answer.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut wanted = routes("a.test", &[]);
    wanted.http[0]
        .backends
        .push(record("closer", listener.local_addr().unwrap()));
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let mut client = connect(plane.at()).await;
    for _ in 0..200 {
        let answer = client.send_request(request("a.test", "/")).await.unwrap();
        assert_eq!(read(answer).await.text, "ok");
        client.ready().await.unwrap();
    }
}

#[tokio::test]
async fn connections_to_a_backend_are_kept_and_shared() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let backend = Backend::named("b").await;
    let wanted = routes("a.test", &[&backend]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let mut client = connect(plane.at()).await;
    for _ in 0..50 {
        let answer = client.send_request(request("a.test", "/")).await.unwrap();
        assert_eq!(read(answer).await.text, "b");
    }
    eventually("all came in", || backend.hits() == 50).await;
    assert!(backend.connections() < 50, "{}", backend.connections());
}
