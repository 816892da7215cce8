//! Replacements under load: no request fails, and none enters what is withdrawn.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use podherd::state::ContainerId;
use podherd::traffic::{Drain, Traffic};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::backend::{Backend, text};
use crate::client::{Answer, connect, get, read, request};
use crate::world::{World, app, eventually, nothing, routes};

const PATIENCE: Duration = Duration::from_secs(30);

/// Clients that ask without a pause until stopped.
struct Load {
    answered: Arc<AtomicU64>,
    stop: CancellationToken,
    clients: JoinSet<()>,
}

impl Load {
    /// Each of them judges every answer with `judge`.
    fn start(clients: usize, to: SocketAddr, judge: fn(&Answer)) -> Self {
        let mut load = Self {
            answered: Arc::default(),
            stop: CancellationToken::new(),
            clients: JoinSet::new(),
        };
        for _ in 0..clients {
            let (answered, stop) = (Arc::clone(&load.answered), load.stop.clone());
            load.clients.spawn(async move {
                let mut client = connect(to).await;
                while !stop.is_cancelled() {
                    client.ready().await.unwrap();
                    let answer = client.send_request(request("a.test", "/")).await.unwrap();
                    judge(&read(answer).await);
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        load
    }

    /// Waits until this many more answers have come.
    async fn more(&self, count: u64) {
        let wanted = self.answered.load(Ordering::SeqCst) + count;
        eventually("the load goes on", || {
            self.answered.load(Ordering::SeqCst) >= wanted
        })
        .await;
    }

    async fn finish(mut self) -> u64 {
        self.stop.cancel();
        while let Some(client) = self.clients.join_next().await {
            client.unwrap();
        }
        self.answered.load(Ordering::SeqCst)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replacing_the_backend_over_and_over_fails_no_request() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let blog = app("blog");
    let mut serving = Backend::named("0").await;
    let first = routes("a.test", &[&serving]);
    world.publisher.apply(&blog, &first).await.unwrap();
    let load = Load::start(8, plane.at(), |answer| assert_eq!(answer.status, 200));
    for generation in 1..=30 {
        load.more(50).await;
        let next = Backend::named(&generation.to_string()).await;
        let wanted = routes("a.test", &[&next]);
        world.publisher.apply(&blog, &wanted).await.unwrap();
        let old = ContainerId::new(serving.name.clone());
        let drained = world.publisher.drain(&old, PATIENCE).await.unwrap();
        assert_eq!(drained, Drain::Empty);
        serving.kill();
        serving = next;
    }
    load.more(50).await;
    let answered = load.finish().await;
    assert!(answered >= 1500, "{answered}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_gets_no_request_after_its_withdrawal_is_confirmed() {
    let world = World::new().await;
    let planes = [world.plane("one").await, world.plane("two").await];
    let blog = app("blog");
    let loads = planes.each_ref().map(|plane| {
        Load::start(4, plane.at(), |answer| {
            assert!(
                [200, 404, 503].contains(&answer.status.as_u16()),
                "{answer:?}"
            );
        })
    });
    for round in 0..25 {
        let backend = Backend::named(&format!("{round}")).await;
        let wanted = routes("a.test", &[&backend]);
        world.publisher.apply(&blog, &wanted).await.unwrap();
        for load in &loads {
            load.more(20).await;
        }
        let withdrawn = routes("a.test", &[]);
        world.publisher.apply(&blog, &withdrawn).await.unwrap();
        // What had entered may still be on its way to the backend until it is drained.
        let container = ContainerId::new(backend.name.clone());
        let drained = world.publisher.drain(&container, PATIENCE).await.unwrap();
        assert_eq!(drained, Drain::Empty);
        let hits = backend.hits();
        assert!(hits > 0);
        for load in &loads {
            load.more(20).await;
        }
        assert_eq!(backend.hits(), hits);
    }
    for load in loads {
        load.finish().await;
    }
}

/// A backend that answers when the test lets it.
async fn slow(name: &str) -> (Backend, Arc<Semaphore>) {
    let go = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&go);
    let backend = Backend::serve(name, move |_| {
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
async fn what_a_withdrawn_backend_still_answers_is_counted_until_it_has() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let (backend, go) = slow("old").await;
    let (blog, old) = (app("blog"), ContainerId::new("old"));
    let wanted = routes("a.test", &[&backend]);
    world.publisher.apply(&blog, &wanted).await.unwrap();
    let at = plane.at();
    let mut asking = JoinSet::new();
    for _ in 0..3 {
        asking.spawn(async move { get(at, "a.test", "/").await });
    }
    eventually("all have entered", || backend.hits() == 3).await;

    world.publisher.apply(&blog, &nothing()).await.unwrap();
    // The acknowledgement itself carries the count.
    assert_eq!(world.planes()[0].draining.get(&old), Some(&3));
    let soon = Duration::from_millis(50);
    let drained = world.publisher.drain(&old, soon).await.unwrap();
    assert_eq!(drained, Drain::Expired { in_flight: 3 });

    go.add_permits(3);
    let drained = world.publisher.drain(&old, PATIENCE).await.unwrap();
    assert_eq!(drained, Drain::Empty);
    while let Some(answer) = asking.join_next().await {
        assert_eq!(answer.unwrap().status, 200);
    }
    assert_eq!(backend.hits(), 3);
}

#[tokio::test]
async fn a_container_that_serves_again_is_not_reported_as_draining() {
    let world = World::new().await;
    let plane = world.plane("p").await;
    let (backend, go) = slow("same").await;
    let blog = app("blog");
    let wanted = routes("a.test", &[&backend]);
    world.publisher.apply(&blog, &wanted).await.unwrap();
    let at = plane.at();
    let asking = tokio::spawn(async move { get(at, "a.test", "/").await });
    eventually("it has entered", || backend.hits() == 1).await;
    world.publisher.apply(&blog, &nothing()).await.unwrap();
    world.publisher.apply(&blog, &wanted).await.unwrap();
    world
        .until("nothing drains", |world| {
            world.planes()[0].draining.is_empty()
        })
        .await;
    go.add_permits(2);
    assert_eq!(asking.await.unwrap().status, 200);
    assert_eq!(get(at, "a.test", "/").await.status, 200);
}
