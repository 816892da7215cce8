#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::*;
use crate::clock::SystemClock;
use crate::manifest::{Check, Protocol, Readiness, StatusRange, Timespan};
use crate::runtime::{
    Behaviour, Call, ContainerSpec, EffectLog, MemoryImage, MemoryRuntime, PortMapping, Runtime,
    RuntimeError,
};
use crate::state::{Bind, ContainerId};

const HOST_PORT: u16 = 20_001;

/// One container that was started just now, and the bind of its port `http`.
struct Subject {
    runtime: Arc<MemoryRuntime>,
    id: ContainerId,
    binds: Vec<Bind>,
}

impl Subject {
    async fn that(behaves: Behaviour) -> Self {
        Self::of(MemoryImage::new("web").behaves(behaves)).await
    }

    async fn of(image: MemoryImage) -> Self {
        let runtime = MemoryRuntime::new(Arc::new(SystemClock), EffectLog::new());
        runtime.load_image("localhost/web", image);
        let image = runtime
            .ensure_image("localhost/web", crate::manifest::PullPolicy::Never)
            .await
            .unwrap();
        let spec = ContainerSpec {
            name: "web".to_owned(),
            image_id: image.id,
            ports: vec![PortMapping {
                container: 8080,
                protocol: Protocol::Tcp,
                host_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
                host: HOST_PORT,
            }],
            ..ContainerSpec::default()
        };
        let id = runtime.create(&spec).await.unwrap();
        runtime.start(&id).await.unwrap();
        let bind = Bind {
            port: "http".parse().unwrap(),
            container: 8080,
            protocol: Protocol::Tcp,
            host_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            host: HOST_PORT,
        };
        Self {
            runtime: Arc::new(runtime),
            id,
            binds: vec![bind],
        }
    }

    async fn wait(&self, readiness: &Readiness) -> Result<(), ProbeFailure> {
        let started_at = self.runtime.container("web").unwrap().started_at;
        self.wait_for(started_at, readiness).await
    }

    async fn wait_for(
        &self,
        started_at: Option<jiff::Timestamp>,
        readiness: &Readiness,
    ) -> Result<(), ProbeFailure> {
        let prober = MemoryProber::new(Arc::clone(&self.runtime));
        let subject = super::Subject {
            prober: &prober,
            runtime: &*self.runtime,
            container: &self.id,
            started_at,
            binds: &self.binds,
        };
        wait_ready(subject, readiness).await
    }
}

fn http() -> Readiness {
    Readiness::of(Check::Http {
        path: "/healthz?key=hidden".to_owned(),
        port: "http".parse().unwrap(),
        status: StatusRange::default(),
    })
}

fn tcp() -> Readiness {
    Readiness::of(Check::Tcp {
        port: "http".parse().unwrap(),
    })
}

#[tokio::test(start_paused = true)]
async fn a_container_that_answers_is_ready_at_once() {
    let subject = Subject::that(Behaviour::Ready).await;
    let start = Instant::now();
    subject.wait(&http()).await.unwrap();
    subject.wait(&tcp()).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    let effects = subject.runtime.effects().all();
    assert_eq!(effects, ["create web", "start web", "probe web"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_starter_is_ready_soon_after_it_listens() {
    let subject = Subject::that(Behaviour::SlowReady(Duration::from_secs(3))).await;
    let start = Instant::now();
    subject.wait(&http()).await.unwrap();
    let waited = start.elapsed();
    assert!(waited >= Duration::from_secs(3), "{waited:?}");
    assert!(waited <= Duration::from_millis(3_500), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn successes_must_come_in_a_row_an_interval_apart() {
    let subject = Subject::that(Behaviour::Ready).await;
    let start = Instant::now();
    let readiness = Readiness {
        successes: 3,
        ..http()
    };
    subject.wait(&readiness).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_is_named_with_its_last_answer_and_no_query() {
    let subject = Subject::that(Behaviour::NeverReady).await;
    let failure = subject.wait(&http()).await.unwrap_err();
    assert_eq!(failure.kind, ProbeFailureKind::TimedOut);
    assert_eq!(
        failure.to_string(),
        "readiness probe http /healthz on port http: last answer HTTP status 503, not 200-399 \
         after 30s"
    );
    assert_eq!(failure.answers.len(), 5);
    assert!(!format!("{failure:?}").contains("hidden"));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_exits_at_once_fails_without_waiting_for_the_timeout() {
    let subject = Subject::that(Behaviour::ExitsAtOnce(3)).await;
    let start = Instant::now();
    let failure = subject.wait(&http()).await.unwrap_err();
    assert_eq!(failure.kind, ProbeFailureKind::Exited);
    assert_eq!(failure.exited, Some(3));
    assert!(failure.message.contains("container exited with code 3"));
    assert!(start.elapsed() < Duration::from_millis(50));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_ends_during_a_long_pause_fails_at_that_moment() {
    let subject = Subject::that(Behaviour::Ready).await;
    let readiness = Readiness::of(Check::Delay(Timespan::from_secs(60)));
    let runtime = Arc::clone(&subject.runtime);
    let start = Instant::now();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(7)).await;
        runtime.run_out_of_memory("web");
    });
    let failure = subject.wait(&readiness).await.unwrap_err();
    assert!(failure.oom_killed);
    assert_eq!(failure.exited, Some(137));
    assert_eq!(start.elapsed(), Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_waited_out_even_beyond_the_timeout() {
    let subject = Subject::that(Behaviour::NeverReady).await;
    let start = Instant::now();
    let readiness = Readiness::of(Check::Delay(Timespan::from_secs(45)));
    subject.wait(&readiness).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(45));
}

#[tokio::test(start_paused = true)]
async fn another_execution_of_the_container_is_not_the_one_that_was_asked_for() {
    let subject = Subject::that(Behaviour::Ready).await;
    let before = subject.runtime.container("web").unwrap().started_at;
    subject.runtime.restart_by_hand("web", None);
    for readiness in [http(), Readiness::of(Check::None)] {
        let failure = subject.wait_for(before, &readiness).await.unwrap_err();
        assert_eq!(failure.kind, ProbeFailureKind::Restarted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_container_is_gone() {
    let subject = Subject::that(Behaviour::Ready).await;
    let before = subject.runtime.container("web").unwrap().started_at;
    subject.runtime.remove_by_hand("web");
    let failure = subject.wait_for(before, &http()).await.unwrap_err();
    assert_eq!(failure.kind, ProbeFailureKind::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_command_passes_by_its_exit_code_and_its_arguments_are_never_told() {
    let subject = Subject::that(Behaviour::Ready).await;
    let readiness = Readiness::of(Check::Exec {
        command: vec!["check".to_owned(), "--password=hunter2".to_owned()],
    });
    subject.wait(&readiness).await.unwrap();
    subject.runtime.set_exec_code("web", 7);
    let failure = subject.wait(&readiness).await.unwrap_err();
    assert!(
        failure
            .message
            .starts_with("readiness probe exec check: last answer exit code 7")
    );
    assert!(!format!("{failure:?}").contains("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn a_log_text_of_an_earlier_execution_does_not_count_and_none_is_told() {
    let subject = Subject::that(Behaviour::Ready).await;
    let readiness = Readiness::of(Check::Log {
        contains: "listening".to_owned(),
    });
    subject.runtime.print("web", "listening, password hunter2");
    subject.wait(&readiness).await.unwrap();
    subject.runtime.restart_by_hand("web", None);
    let failure = subject.wait(&readiness).await.unwrap_err();
    assert_eq!(failure.kind, ProbeFailureKind::TimedOut);
    assert!(!format!("{failure:?}").contains("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn an_inspection_that_fails_is_no_pass_and_no_failure() {
    let subject = Subject::that(Behaviour::Ready).await;
    let unavailable = || RuntimeError::Unavailable {
        call: "inspect",
        message: "gone".to_owned(),
    };
    subject.runtime.fail_next(Call::Inspect, unavailable());
    subject.runtime.fail_next(Call::Inspect, unavailable());
    subject.wait(&http()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_port_without_a_bind_fails_before_any_try() {
    let mut subject = Subject::that(Behaviour::Ready).await;
    subject.binds.clear();
    let failure = subject.wait(&tcp()).await.unwrap_err();
    assert_eq!(failure.kind, ProbeFailureKind::Impossible);
}

/// Answers one connection with these bytes and gives what it was asked.
async fn answer(bytes: &'static str) -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 1024];
        let count = stream.read(&mut buffer).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    });
    (address, asked)
}

#[tokio::test]
async fn http_is_asked_with_the_loopback_address_as_host_and_no_redirect_is_followed() {
    let (address, asked) =
        answer("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")
            .await;
    assert_eq!(NetworkProber.http(address, "/ready?x=1").await, Ok(302));
    let asked = asked.await.unwrap();
    assert!(asked.starts_with("GET /ready?x=1 HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains(&format!("host: {address}\r\n")), "{asked}");
}

#[tokio::test]
async fn an_answer_that_ends_with_the_connection_still_counts() {
    let (address, _asked) = answer("HTTP/1.0 204 No Content\r\n\r\n").await;
    assert_eq!(NetworkProber.http(address, "/").await, Ok(204));
}

#[tokio::test]
async fn what_is_not_http_is_told_without_its_bytes() {
    let (address, _asked) = answer("secret\r\n\r\n").await;
    let error = NetworkProber.http(address, "/").await.unwrap_err();
    assert_eq!(
        error,
        NoAnswer::Theirs("the answer isn't HTTP/1".to_owned())
    );
    let (address, _asked) = answer("").await;
    let error = NetworkProber.http(address, "/").await.unwrap_err();
    assert_eq!(
        error,
        NoAnswer::Theirs("the connection was closed without an answer".to_owned())
    );
}

#[tokio::test]
async fn a_closed_port_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    assert_eq!(NetworkProber.tcp(address).await, Ok(()));
    drop(listener);
    let refused = Err(NoAnswer::Theirs("connection refused".to_owned()));
    assert_eq!(NetworkProber.tcp(address).await, refused);
    assert!(NetworkProber.http(address, "/").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_port_that_accepts_and_never_answers_does_not_hold_up_the_timeout() {
    /// Connections hang.
    #[derive(Debug)]
    struct Hanging;

    #[async_trait]
    impl Prober for Hanging {
        async fn http(&self, _: SocketAddr, _: &str) -> Result<u16, NoAnswer> {
            std::future::pending().await
        }

        async fn tcp(&self, _: SocketAddr) -> Result<(), NoAnswer> {
            std::future::pending().await
        }
    }

    let subject = Subject::that(Behaviour::Ready).await;
    let start = Instant::now();
    let readiness = Readiness {
        timeout: Timespan::from_secs(5),
        ..http()
    };
    let started_at = subject.runtime.container("web").unwrap().started_at;
    let failure = wait_ready(
        super::Subject {
            prober: &Hanging,
            runtime: &*subject.runtime,
            container: &subject.id,
            started_at,
            binds: &subject.binds,
        },
        &readiness,
    )
    .await
    .unwrap_err();
    assert!(
        failure
            .message
            .contains("last answer no answer in time after 5s"),
        "{failure}"
    );
    assert!(start.elapsed() < Duration::from_millis(5_100));
    assert_eq!(failure.answers.len(), 2);
}
