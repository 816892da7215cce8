//! The store's client against a real etcd: the contract, and what only a real
//! one can do to it.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use podherd::store::{
    Certificates, EtcdOptions, EtcdStore, Range, Store, StoreError, Txn, Watch, WatchEvent,
    deadline,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::store_contract;
use crate::support::{Etcd, Net, Process, Sandbox};

/// What a deadline may be missed by on a busy machine.
const SLACK: Duration = Duration::from_secs(2);

struct Fixture {
    etcd: Etcd,
    sandbox: Sandbox,
}

impl Fixture {
    fn start() -> Self {
        let sandbox = Sandbox::new(Net::Host);
        Self {
            etcd: Etcd::start(&sandbox, "etcd"),
            sandbox,
        }
    }

    fn options(&self) -> EtcdOptions {
        EtcdOptions::new(vec![self.etcd.url()], "/podherd")
    }

    async fn store(&self) -> EtcdStore {
        EtcdStore::connect(&self.options()).await.unwrap()
    }
}

async fn read(store: &EtcdStore) -> Result<(), StoreError> {
    store.read(&[Range::Key("/a".to_owned())]).await.map(drop)
}

/// Waits until the watch ends, and answers with what.
async fn end_of(mut watch: Watch) -> StoreError {
    loop {
        match watch.next().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => return error,
            None => panic!("the watch ended without an error"),
        }
    }
}

async fn until_it_answers(store: &EtcdStore) {
    let begin = Instant::now();
    while let Err(error) = read(store).await {
        assert!(begin.elapsed() < Duration::from_secs(30), "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn assert_unavailable_within<T: std::fmt::Debug>(
    begin: Instant,
    limit: Duration,
    answer: Result<T, StoreError>,
) {
    let error = answer.unwrap_err();
    assert!(error.is_ambiguous(), "{error:?}");
    assert!(begin.elapsed() < limit + SLACK, "{:?}", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_keeps_the_contract() {
    let fixture = Fixture::start();
    store_contract::holds(Arc::new(fixture.store().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_from_before_a_compaction_is_told_so() {
    let fixture = Fixture::start();
    let store = fixture.store().await;
    let first = store_contract::put(&store, "/compacted/a", b"1").await;
    let mut caught_up = store.watch("/compacted/", first).await.unwrap();
    store_contract::changes(&mut caught_up, 1).await;
    let second = store_contract::put(&store, "/compacted/a", b"2").await;
    fixture.etcd.compact(&fixture.sandbox);

    store_contract::tells_what_was_compacted(&store, first, second).await;
    // One that has seen what is compacted goes on.
    store_contract::put(&store, "/compacted/b", b"3").await;
    assert_eq!(store_contract::changes(&mut caught_up, 2).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_etcd_is_unavailable_and_the_same_client_finds_it_again() {
    let mut fixture = Fixture::start();
    let store = fixture.store().await;
    let identity = store.identity().await.unwrap();
    let lease = store.grant(Duration::from_secs(30)).await.unwrap();
    let watch = store.watch("/", 1).await.unwrap();
    fixture.etcd.stop();

    let begin = Instant::now();
    assert_unavailable_within(begin, deadline::READ, read(&store).await);
    let begin = Instant::now();
    let txn = Txn::default().put("/a", Vec::new());
    assert_unavailable_within(begin, deadline::COMMIT, store.commit(txn).await);
    let begin = Instant::now();
    assert_unavailable_within(begin, deadline::LEASE, store.keep_alive(lease).await);
    let begin = Instant::now();
    assert_unavailable_within(begin, deadline::WATCH, store.watch("/", 1).await.map(drop));
    let begin = Instant::now();
    assert!(end_of(watch).await.is_ambiguous());
    assert!(begin.elapsed() < deadline::WATCH_PROGRESS + deadline::WATCH_ANSWER + SLACK);

    fixture.etcd.start_again(&fixture.sandbox);
    until_it_answers(&store).await;
    assert_eq!(store.identity().await.unwrap(), identity);
    store.keep_alive(lease).await.unwrap();
    let mut watch = store.watch("/", 1).await.unwrap();
    store_contract::put(&store, "/a", b"").await;
    assert_eq!(store_contract::changes(&mut watch, 1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_etcd_costs_no_call_more_than_its_deadline_and_ends_the_watch() {
    let mut fixture = Fixture::start();
    let store = Arc::new(fixture.store().await);
    let mut watch = store.watch("/", 1).await.unwrap();
    assert!(matches!(
        watch.next().await,
        Some(Ok(WatchEvent::Progress(_)))
    ));
    fixture.etcd.pause();

    let begin = Instant::now();
    let watched = tokio::spawn(end_of(watch));
    assert_unavailable_within(begin, deadline::READ, read(&store).await);
    let error = watched.await.unwrap();
    assert!(error.is_ambiguous(), "{error:?}");
    let limit = deadline::WATCH_PROGRESS + deadline::WATCH_ANSWER + SLACK;
    assert!(begin.elapsed() < limit, "{:?}", begin.elapsed());

    let begin = Instant::now();
    let txn = Txn::default().put("/a", b"perhaps".to_vec());
    assert_unavailable_within(begin, deadline::COMMIT, store.commit(txn).await);

    fixture.etcd.resume();
    until_it_answers(&store).await;
    store_contract::put(&*store, "/a", b"surely").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_was_busy_finds_its_watch_alive() {
    let fixture = Fixture::start();
    let store = fixture.store().await;
    let mut watch = store.watch("/busy/", 1).await.unwrap();
    assert!(matches!(
        watch.next().await,
        Some(Ok(WatchEvent::Progress(_)))
    ));
    let silence = deadline::WATCH_PROGRESS + deadline::WATCH_ANSWER;
    tokio::time::sleep(silence + SLACK).await;
    store_contract::put(&store, "/busy/a", b"").await;
    assert_eq!(store_contract::changes(&mut watch, 1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_endpoints_is_enough() {
    let fixture = Fixture::start();
    let mut options = fixture.options();
    options.endpoints.insert(0, "http://127.0.0.1:1".to_owned());
    let store = EtcdStore::connect(&options).await.unwrap();
    for round in 0..50 {
        store_contract::put(&store, "/a", &[round]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_checked_and_a_token_that_etcd_forgot_is_renewed() {
    let mut fixture = Fixture::start();
    fixture.etcd.require_password(&fixture.sandbox, "right");
    let mut options = fixture.options();
    let nobody = EtcdStore::connect(&options).await.unwrap();
    let denied = read(&nobody).await;
    assert!(
        matches!(denied, Err(StoreError::Denied { .. })),
        "{denied:?}"
    );
    let denied = nobody.watch("/", 1).await.map(drop);
    assert!(
        matches!(denied, Err(StoreError::Denied { .. })),
        "{denied:?}"
    );

    options.user = Some("root".to_owned());
    options.password = Some("wrong".to_owned());
    let denied = EtcdStore::connect(&options).await.map(drop);
    assert!(
        matches!(denied, Err(StoreError::Denied { .. })),
        "{denied:?}"
    );

    options.password = Some("right".to_owned());
    let store = EtcdStore::connect(&options).await.unwrap();
    let watcher = EtcdStore::connect(&options).await.unwrap();
    store_contract::put(&store, "/a", b"1").await;
    // Its tokens are in memory: a restart forgets them all.
    fixture.etcd.stop();
    fixture.etcd.start_again(&fixture.sandbox);
    let mut watch = watcher.watch("/a", 1).await.unwrap();
    assert_eq!(store_contract::changes(&mut watch, 1).await.len(), 1);
    until_it_answers(&store).await;
    store_contract::put(&store, "/a", b"2").await;
}

/// An authority with a certificate that it signed for `name`.
struct Signed {
    ca: String,
    cert: String,
    key: String,
}

impl Signed {
    fn by_an_authority_of_its_own(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca = CertifiedIssuer::self_signed(params, key).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        Self {
            cert: params.signed_by(&key, &ca).unwrap().pem(),
            key: key.serialize_pem(),
            ca: ca.pem(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tls_both_sides_prove_who_they_are() {
    let sandbox = Sandbox::new(Net::Host);
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let url = format!("https://127.0.0.1:{port}");
    let server = Signed::by_an_authority_of_its_own("127.0.0.1");
    let client = Signed::by_an_authority_of_its_own("podherd");
    let write = |name: &str, text: &str| {
        let path = sandbox.dir().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let mut command = sandbox.command("etcd");
    command
        .arg("--cert-file")
        .arg(write("server.pem", &server.cert))
        .arg("--key-file")
        .arg(write("server.key", &server.key))
        .arg("--trusted-ca-file")
        .arg(write("clients.pem", &client.ca))
        .arg("--client-cert-auth")
        .arg("--data-dir")
        .arg(sandbox.dir().join("tls.data"))
        .args([
            "--listen-client-urls",
            &url,
            "--advertise-client-urls",
            &url,
        ])
        .args(["--listen-peer-urls", "http://127.0.0.1:0"]);
    let _etcd = Process::spawn(command, &sandbox.dir().join("tls.log"));

    let mut options = EtcdOptions::new(vec![url], "/podherd");
    options.certificates = Certificates {
        ca: Some(server.ca.clone().into()),
        cert: Some(client.cert.clone().into()),
        key: Some(client.key.clone().into()),
    };
    let store = EtcdStore::connect(&options).await.unwrap();
    until_it_answers(&store).await;
    store_contract::put(&store, "/a", b"1").await;

    let mut stranger = options.clone();
    stranger.certificates.ca = Some(client.ca.into());
    let stranger = EtcdStore::connect(&stranger).await.unwrap();
    let error = read(&stranger).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");

    let mut nobody = options.clone();
    nobody.certificates.cert = None;
    nobody.certificates.key = None;
    let nobody = EtcdStore::connect(&nobody).await.unwrap();
    read(&nobody).await.unwrap_err();

    options.certificates.ca = Some(b"no certificate".to_vec());
    let refused = EtcdStore::connect(&options).await.map(drop);
    assert!(
        matches!(refused, Err(StoreError::Refused { .. })),
        "{refused:?}"
    );
}
