//! A store, a leading publisher, and data planes.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use podherd::clock::SystemClock;
use podherd::manifest::{AppName, AppProtocol, NodeName, Tls};
use podherd::proxy::{Limits, Proxy, ProxyOptions, serve};
use podherd::state::{ContainerId, Incarnation, Keys, decode, encode};
use podherd::store::{AuthorityKeeper, Commit, Fence, MemoryStore, Store, Txn, authority};
use podherd::traffic::{
    AppRoutes, Backend as Record, CONFIRM_TIMEOUT, DataPlane, HttpRule, Publisher, RETURN_WITHIN,
    Waits,
};
use prometheus::Registry;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backend::Backend;
use crate::gate::Gate;

/// Where data planes listen.
pub const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// A TCP port that data planes have for themselves.
pub const RESERVED: u16 = 9616;

pub struct World {
    pub store: MemoryStore,
    pub keys: Keys,
    pub keeper: AuthorityKeeper,
    /// The publisher's way to the store.
    pub gate: Arc<Gate>,
    pub publisher: Publisher,
    cancel: CancellationToken,
}

/// A data plane with its own way to the store.
pub struct Plane {
    pub proxy: Proxy,
    pub gate: Arc<Gate>,
    pub registry: Registry,
    pub cancel: CancellationToken,
}

impl Plane {
    pub fn at(&self) -> SocketAddr {
        self.proxy.addresses()[0]
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl World {
    pub async fn new() -> Self {
        Self::waiting(Waits {
            confirm: CONFIRM_TIMEOUT,
            return_within: RETURN_WITHIN,
        })
        .await
    }

    pub async fn confirming_within(confirm: Duration) -> Self {
        Self::waiting(Waits {
            confirm,
            return_within: RETURN_WITHIN,
        })
        .await
    }

    pub async fn waiting(waits: Waits) -> Self {
        let store = MemoryStore::new();
        let keys = Keys::new("/podherd");
        let (keeper, authority) = authority();
        let leads = Txn::default().put(keys.leader(), b"me".to_vec());
        let Commit::Applied(create_revision) = store.commit(leads).await.unwrap() else {
            panic!("no comparison was made");
        };
        let fence = Fence {
            key: keys.leader(),
            create_revision,
        };
        keeper.hold(fence, Instant::now() + Duration::from_secs(3600));
        let cancel = CancellationToken::new();
        let gate = Gate::new(store.clone());
        let publisher =
            Publisher::start_with(gate.clone(), keys.clone(), authority, waits, &cancel);
        Self {
            store,
            keys,
            keeper,
            gate,
            publisher,
            cancel,
        }
    }

    /// A ready data plane with the usual limits.
    pub async fn plane(&self, name: &str) -> Plane {
        let plane = self.begin(name, Limits::default()).await;
        plane.proxy.ready().await;
        plane
    }

    /// A data plane that has just been started.
    pub async fn begin(&self, name: &str, limits: Limits) -> Plane {
        self.begin_behind(Gate::new(self.store.clone()), name, limits)
            .await
    }

    pub async fn begin_behind(&self, gate: Arc<Gate>, name: &str, limits: Limits) -> Plane {
        let registry = Registry::new();
        let cancel = self.cancel.child_token();
        let options = ProxyOptions {
            node: node(),
            name: name.to_owned(),
            listeners: vec!["127.0.0.1:0".parse().unwrap()],
            l4_bind: LOOPBACK,
            reserved: BTreeSet::from([RESERVED]),
            limits,
        };
        let proxy = serve(
            options,
            gate.clone(),
            self.keys.clone(),
            Arc::new(SystemClock),
            &registry,
            cancel.clone(),
        )
        .await
        .unwrap();
        Plane {
            proxy,
            gate,
            registry,
            cancel,
        }
    }

    /// The registered data planes, as the store has them.
    pub fn planes(&self) -> Vec<DataPlane> {
        let entries = self.store.entries().into_iter();
        entries
            .filter(|entry| entry.key.starts_with(&self.keys.proxies()))
            .map(|entry| decode(&entry.value).unwrap())
            .collect()
    }

    /// Writes a data plane's record by hand; its revision.
    pub async fn register(&self, name: &str, applied: i64, draining: &[(&str, u64)]) -> i64 {
        let record = DataPlane {
            node: node(),
            name: name.to_owned(),
            since: Timestamp::UNIX_EPOCH,
            applied,
            draining: draining
                .iter()
                .map(|(container, count)| (ContainerId::new(*container), *count))
                .collect(),
            reserved: BTreeSet::new(),
            failed: Vec::new(),
        };
        let key = self.keys.proxy(&node(), name);
        self.put(key, encode(&record).unwrap()).await
    }

    pub async fn put(&self, key: String, value: Vec<u8>) -> i64 {
        match self.store.commit(Txn::default().put(key, value)).await {
            Ok(Commit::Applied(revision)) => revision,
            other => panic!("not written: {other:?}"),
        }
    }

    pub async fn delete(&self, key: String) {
        let deleted = self.store.commit(Txn::default().delete(key)).await;
        assert!(matches!(deleted, Ok(Commit::Applied(_))));
    }

    /// Waits until `done`, as long as the test's own patience lasts.
    pub async fn until(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        eventually(what, || done(self)).await;
    }
}

/// Waits until `done`; fails after half a minute.
pub async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "{what}: never happened");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub fn node() -> NodeName {
    "host-a".parse().unwrap()
}

pub fn app(name: &str) -> AppName {
    name.parse().unwrap()
}

/// Routes nothing.
pub fn nothing() -> AppRoutes {
    AppRoutes {
        incarnation: Incarnation(uuid::Uuid::nil()),
        http: Vec::new(),
        tcp: Vec::new(),
        udp: Vec::new(),
    }
}

/// One rule, spoken in HTTP/1.1.
pub fn rule(host: &str, path: &str, backends: &[&Backend]) -> HttpRule {
    HttpRule {
        host: host.to_owned(),
        path: path.to_owned(),
        service: "web".parse().unwrap(),
        tls: Tls::Off,
        protocol: AppProtocol::Http,
        backends: backends
            .iter()
            .map(|backend| record(&backend.name, backend.address))
            .collect(),
    }
}

pub fn record(container: &str, address: SocketAddr) -> Record {
    Record {
        container: ContainerId::new(container),
        started_at: Timestamp::UNIX_EPOCH,
        node: node(),
        address,
    }
}

/// Routes a whole host to these backends.
pub fn routes(host: &str, backends: &[&Backend]) -> AppRoutes {
    AppRoutes {
        http: vec![rule(host, "/", backends)],
        ..nothing()
    }
}
