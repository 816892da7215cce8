//! The publisher and the data plane on a real etcd, in this process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use podherd::clock::SystemClock;
use podherd::manifest::{AppName, AppProtocol, NodeName, Tls};
use podherd::proxy::{Limits, Proxy, ProxyOptions, serve};
use podherd::state::{ContainerId, Incarnation, Keys};
use podherd::store::{
    AuthorityKeeper, Commit, EtcdOptions, EtcdStore, Fence, Range, Store, Txn, authority,
};
use podherd::traffic::{AppRoutes, Backend, Drain, HttpRule, Publisher, Traffic, TrafficError};
use prometheus::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::{Etcd, Net, Sandbox};

const PATIENCE: Duration = Duration::from_secs(40);

struct Fixture {
    etcd: Etcd,
    sandbox: Sandbox,
    keys: Keys,
    publisher: Publisher,
    proxy: Proxy,
    cancel: CancellationToken,
    _keeper: AuthorityKeeper,
}

impl Fixture {
    async fn start() -> Self {
        let sandbox = Sandbox::new(Net::Host);
        let etcd = Etcd::start(&sandbox, "etcd");
        let keys = Keys::new("/podherd");
        let store = connect(&etcd).await;
        let leads = Txn::default().put(keys.leader(), b"me".to_vec());
        let Commit::Applied(create_revision) = store.commit(leads).await.unwrap() else {
            panic!("no comparison was made");
        };
        let (keeper, authority) = authority();
        let fence = Fence {
            key: keys.leader(),
            create_revision,
        };
        keeper.hold(fence, Instant::now() + Duration::from_secs(3600));
        let cancel = CancellationToken::new();
        let publisher = Publisher::start(store, keys.clone(), authority, &cancel);
        let options = ProxyOptions {
            node: node(),
            name: "default".to_owned(),
            listeners: vec!["127.0.0.1:0".parse().unwrap()],
            l4_bind: "127.0.0.1".parse().unwrap(),
            reserved: std::collections::BTreeSet::new(),
            limits: Limits {
                lease: Duration::from_secs(3),
                ..Limits::default()
            },
        };
        let proxy = serve(
            options,
            connect(&etcd).await,
            keys.clone(),
            Arc::new(SystemClock),
            &Registry::new(),
            cancel.clone(),
        )
        .await
        .unwrap();
        proxy.ready().await;
        Self {
            etcd,
            sandbox,
            keys,
            publisher,
            proxy,
            cancel,
            _keeper: keeper,
        }
    }

    async fn ask(&self) -> String {
        ask(self.proxy.addresses()[0]).await
    }

    /// Publishes; tries again while etcd recovers.
    async fn apply(&self, routes: &AppRoutes) {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = self.publisher.apply(&blog(), routes).await {
            assert!(Instant::now() < deadline, "{error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn connect(etcd: &Etcd) -> Arc<dyn Store> {
    let options = EtcdOptions::new(vec![etcd.url()], "/podherd");
    Arc::new(EtcdStore::connect(&options).await.unwrap())
}

async fn ask(proxy: SocketAddr) -> String {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    let request = "GET / HTTP/1.1\r\nhost: blog.test\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A server that answers every request with its name.
async fn backend(name: &'static str) -> Backend {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let length = name.len();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{name}");
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    Backend {
        container: ContainerId::new(name),
        started_at: Timestamp::UNIX_EPOCH,
        node: node(),
        address,
    }
}

fn node() -> NodeName {
    "host-a".parse().unwrap()
}

fn blog() -> AppName {
    "blog".parse().unwrap()
}

fn routes(backends: &[&Backend]) -> AppRoutes {
    AppRoutes {
        incarnation: Incarnation(uuid::Uuid::nil()),
        http: vec![HttpRule {
            host: "blog.test".to_owned(),
            path: "/".to_owned(),
            service: "web".parse().unwrap(),
            tls: Tls::Off,
            protocol: AppProtocol::Http,
            backends: backends.iter().map(|backend| (*backend).clone()).collect(),
        }],
        tcp: Vec::new(),
        udp: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swap_is_confirmed_drained_and_serves_on_a_real_etcd() {
    let fixture = Fixture::start().await;
    let (one, two) = (backend("one").await, backend("two").await);
    for _ in 0..10 {
        for (old, new) in [(&two, &one), (&one, &two)] {
            fixture.apply(&routes(&[new])).await;
            let drained = fixture.publisher.drain(&old.container, PATIENCE).await;
            assert_eq!(drained.unwrap(), Drain::Empty);
            let answer = fixture.ask().await;
            assert!(answer.ends_with(new.container.as_str()), "{answer}");
        }
    }
    fixture.publisher.remove(&blog()).await.unwrap();
    assert!(fixture.ask().await.starts_with("HTTP/1.1 404"));
    fixture.cancel.cancel();
    fixture.proxy.stopped().await;
    let store = connect(&fixture.etcd).await;
    let left = store.read(&[Range::Prefix(fixture.keys.proxies())]).await;
    assert!(left.unwrap().ranges.concat().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_etcd_stops_publishing_and_no_traffic() {
    let mut fixture = Fixture::start().await;
    let (one, two) = (backend("one").await, backend("two").await);
    fixture.apply(&routes(&[&one])).await;
    fixture.etcd.pause();
    let applied = fixture.publisher.apply(&blog(), &routes(&[&two])).await;
    assert!(
        matches!(applied, Err(TrafficError::Store(_))),
        "{applied:?}"
    );
    assert!(fixture.ask().await.ends_with("one"));
    fixture.etcd.resume();
    fixture.apply(&routes(&[&two])).await;
    assert!(fixture.ask().await.ends_with("two"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_was_killed_and_compacted_is_followed_again() {
    let mut fixture = Fixture::start().await;
    let (one, two) = (backend("one").await, backend("two").await);
    fixture.apply(&routes(&[&one])).await;
    fixture.etcd.kill_9();
    assert!(fixture.ask().await.ends_with("one"));
    fixture.etcd.start_again(&fixture.sandbox);
    fixture
        .etcd
        .put(&fixture.sandbox, "/podherd/traffic/routes/junk", b"{");
    fixture
        .etcd
        .delete(&fixture.sandbox, "/podherd/traffic/routes/junk");
    fixture.etcd.compact(&fixture.sandbox);
    fixture.apply(&routes(&[&two])).await;
    assert!(fixture.ask().await.ends_with("two"));
}
