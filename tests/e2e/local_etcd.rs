//! The etcd that Podherd starts for itself.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use podherd::store::{
    Commit, EtcdOptions, EtcdStore, LocalEtcd, LocalEtcdError, LocalEtcdOptions, Range, Store,
    StoreError, Txn,
};
use tempfile::TempDir;

use crate::store_contract;

struct Fixture {
    dir: TempDir,
    options: LocalEtcdOptions,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = LocalEtcdOptions::new(dir.path());
        options.port = free_port();
        Self { dir, options }
    }

    async fn start(&self) -> LocalEtcd {
        LocalEtcd::start(self.options.clone()).await.unwrap()
    }

    async fn error(&self) -> LocalEtcdError {
        LocalEtcd::start(self.options.clone())
            .await
            .map(drop)
            .unwrap_err()
    }

    async fn store(&self) -> EtcdStore {
        let url = format!("http://127.0.0.1:{}", self.options.port);
        EtcdStore::connect(&EtcdOptions::new(vec![url], "/podherd"))
            .await
            .unwrap()
    }

    /// Numbers of the etcds that run on these data.
    fn running(&self) -> Vec<i32> {
        let data = self.dir.path().join("etcd").display().to_string();
        let of = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
        std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|pid| of(pid).is_ok_and(|line| line.contains(&data)))
            .collect()
    }

    /// What a Podherd leaves that was killed: an etcd that nobody looks after.
    fn orphan(&self, data: &Path) -> Child {
        let url = format!("http://127.0.0.1:{}", self.options.port);
        Command::new("etcd")
            .arg("--data-dir")
            .arg(data)
            .args([
                "--listen-client-urls",
                &url,
                "--advertise-client-urls",
                &url,
            ])
            .args(["--listen-peer-urls", "http://127.0.0.1:0"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }
}

/// A port that nobody has and that no other test is given. Below the range from which
/// the kernel gives ports to everybody who asks for any.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(14_000);
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut ports = std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed));
    ports.find(free).unwrap()
}

fn kill_9(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

async fn put_when_it_answers(store: &EtcdStore, key: &str) {
    let begin = Instant::now();
    loop {
        match store.commit(Txn::default().put(key, Vec::new())).await {
            Ok(_) => return,
            Err(error) => assert!(begin.elapsed() < Duration::from_secs(30), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_its_data_and_its_identity_over_a_stop_and_leaves_nothing_running() {
    let fixture = Fixture::new();
    let etcd = fixture.start().await;
    let store = fixture.store().await;
    store_contract::put(&store, "/a", b"1").await;
    let identity = store.identity().await.unwrap();
    drop(store);
    etcd.stop().await;
    assert_eq!(fixture.running().len(), 0);

    let etcd = fixture.start().await;
    let store = fixture.store().await;
    assert_eq!(store.identity().await.unwrap(), identity);
    drop(store);
    etcd.stop().await;

    // Another one is another cluster.
    let other = Fixture::new();
    let etcd = other.start().await;
    assert_ne!(other.store().await.identity().await.unwrap().0, identity.0);
    etcd.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_killed_is_started_again() {
    let fixture = Fixture::new();
    let etcd = fixture.start().await;
    let store = fixture.store().await;
    for round in 0..2 {
        let running = fixture.running();
        let [pid] = running[..] else {
            panic!("{running:?}")
        };
        kill_9(pid);
        put_when_it_answers(&store, &format!("/{round}")).await;
    }
    drop(store);
    etcd.stop().await;
    assert_eq!(fixture.running().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_podherd_left_is_ended_and_its_data_are_taken_over() {
    let fixture = Fixture::new();
    let mut orphan = fixture.orphan(&fixture.dir.path().join("etcd"));
    let store = fixture.store().await;
    put_when_it_answers(&store, "/a").await;

    let etcd = fixture.start().await;
    assert!(orphan.wait().unwrap().code().is_none(), "ended by a signal");
    let found = store.read(&[Range::Key("/a".to_owned())]).await.unwrap();
    assert_eq!(found.ranges[0].len(), 1);
    drop(store);
    etcd.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_of_somebody_else_is_left_alone_and_the_port_is_named() {
    let fixture = Fixture::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let mut other = fixture.orphan(elsewhere.path());
    put_when_it_answers(&fixture.store().await, "/a").await;
    let error = fixture.error().await;
    assert!(matches!(error, LocalEtcdError::PortTaken { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains(&fixture.options.port.to_string())
    );
    put_when_it_answers(&fixture.store().await, "/b").await;
    other.kill().unwrap();
    other.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_podherd_does_not_end_the_etcd_of_the_first() {
    let fixture = Fixture::new();
    let etcd = fixture.start().await;
    let error = fixture.error().await;
    assert!(
        matches!(error, LocalEtcdError::AlreadyRuns { .. }),
        "{error}"
    );
    assert!(error.to_string().contains(&std::process::id().to_string()));
    assert_eq!(fixture.running().len(), 1);
    etcd.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_program_and_one_that_fails_are_told_apart() {
    let mut fixture = Fixture::new();
    fixture.options.binary = "no-such-etcd".into();
    let error = fixture.error().await;
    assert!(error.to_string().contains("etcd-server"), "{error}");

    fixture.options.binary = "etcd".into();
    let data = fixture.dir.path().join("etcd");
    std::fs::create_dir_all(data.join("member/snap")).unwrap();
    std::fs::write(data.join("member/snap/db"), "not a database").unwrap();
    let error = fixture.error().await;
    assert!(matches!(error, LocalEtcdError::NotReady { .. }), "{error}");
    assert!(error.to_string().contains("invalid database"), "{error}");
    assert_eq!(fixture.running().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_etcd_says_so_and_reading_and_deleting_go_on() {
    let mut fixture = Fixture::new();
    fixture.options.quota_bytes = 2 << 20;
    let etcd = fixture.start().await;
    let store = fixture.store().await;
    let large = || Txn::default().put("/large", vec![0xA5; 256 * 1024]);
    let mut last = store.commit(large()).await;
    // etcd looks at the size of its file, which lags behind what it has taken.
    for _ in 0..400 {
        if last.is_err() {
            break;
        }
        last = store.commit(large()).await;
    }
    assert!(matches!(last, Err(StoreError::NoSpace)), "{last:?}");
    store
        .read(&[Range::Key("/large".to_owned())])
        .await
        .unwrap();
    let deleted = store.commit(Txn::default().delete("/large")).await;
    assert!(matches!(deleted, Ok(Commit::Applied(_))), "{deleted:?}");
    drop(store);
    etcd.stop().await;
}
