//! How a data plane leaves.

use std::sync::Arc;
use std::time::Duration;

use podherd::proxy::Limits;
use podherd::traffic::Traffic;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::backend::{Backend, text};
use crate::client::{connect_http2, get, read};
use crate::world::{World, app, eventually, routes};

async fn slow() -> (Backend, Arc<Semaphore>) {
    let go = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&go);
    let backend = Backend::serve("slow", move |_| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.unwrap().forget();
            text("done")
        }
    })
    .await;
    (backend, go)
}

#[tokio::test]
async fn what_is_in_flight_is_finished_nothing_new_is_taken_and_the_registration_ends_last() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let (backend, go) = slow().await;
    let wanted = routes("a.test", &[&backend]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let at = plane.at();
    let over_http1 = tokio::spawn(async move { get(at, "a.test", "/").await });
    let mut client = connect_http2(at).await;
    let request = http::Request::get("http://a.test/")
        .body(http_body_util::Empty::<bytes::Bytes>::new())
        .unwrap();
    let over_http2 = client.send_request(request);
    let over_http2 = tokio::spawn(async move { read(over_http2.await.unwrap()).await });
    eventually("both have entered", || backend.hits() == 2).await;

    plane.cancel.cancel();
    let stopped = tokio::spawn(plane.proxy.stopped());
    loop {
        if TcpStream::connect(at).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(
        world.planes().len(),
        1,
        "what it drains is still waited for"
    );
    assert!(!stopped.is_finished());
    go.add_permits(2);
    assert_eq!(over_http1.await.unwrap().text, "done");
    assert_eq!(over_http2.await.unwrap().text, "done");
    stopped.await.unwrap();
    assert!(world.planes().is_empty());
}

#[tokio::test]
async fn what_does_not_finish_is_cut_off() {
    let world = World::new().await;
    let limits = Limits {
        shutdown: Duration::from_millis(100),
        ..Limits::default()
    };
    let plane = world.begin("p", limits).await;
    plane.proxy.ready().await;
    let (backend, _go) = slow().await;
    let wanted = routes("a.test", &[&backend]);
    world.publisher.apply(&app("a"), &wanted).await.unwrap();
    let at = plane.at();
    let asking = tokio::spawn(async move { get(at, "a.test", "/").await });
    eventually("it has entered", || backend.hits() == 1).await;
    plane.cancel.cancel();
    plane.proxy.stopped().await;
    assert!(asking.await.is_err());
}
