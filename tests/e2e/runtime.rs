//! The runtime trait on a real Podman.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use podherd::manifest::{BindMount, Bytes, Cpus, Protocol, PullPolicy, Resources, Security};
use podherd::runtime::{
    ContainerSpec, Deadlines, Labels, Network, NetworkAttachment, Podman, PortMapping, Runtime,
    RuntimeError, TmpfsMount, VolumeAttachment,
};
use podherd::state::ContainerId;
use serde_json::Value;

use crate::runtime_contract::{self, Host};
use crate::support::{Image, Net, Sandbox, podman};

/// A value that must never be seen anywhere.
const CANARY: &str = "canary-7f3a";

/// A Podman service of the test's own, and the client under test.
struct Subject {
    client: Podman,
    service: podman::Podman,
    sandbox: Sandbox,
}

impl Subject {
    fn start() -> Self {
        let sandbox = Sandbox::new(Net::Own);
        let service = podman::Podman::start(&sandbox);
        Self {
            client: Podman::connect(&service.url()).unwrap(),
            service,
            sandbox,
        }
    }

    async fn spec(&self, name: &str, image: Image) -> ContainerSpec {
        let image = self
            .client
            .ensure_image(image.reference(), PullPolicy::Never)
            .await;
        ContainerSpec {
            name: name.to_owned(),
            hostname: "web".to_owned(),
            image_id: image.unwrap().id,
            stop_timeout: Duration::from_secs(10),
            ..ContainerSpec::default()
        }
    }

    async fn started(&self, name: &str, image: Image) -> ContainerId {
        let spec = self.spec(name, image).await;
        let id = self.client.create(&spec).await.unwrap();
        self.client.start(&id).await.unwrap();
        id
    }

    /// What Podman's own command says about a container.
    fn inspect(&self, name: &str) -> Value {
        let text = self.service.run(&self.sandbox, &["inspect", name]);
        serde_json::from_str::<Value>(&text).unwrap()[0].take()
    }
}

#[tokio::test]
async fn it_does_what_a_runtime_must_do() {
    let Subject {
        client,
        service: _service,
        sandbox: _sandbox,
    } = Subject::start();
    runtime_contract::check_all(&Host {
        runtime: Arc::new(client),
        web: Image::Web1.reference(),
        stubborn: Image::IgnoresTerm.reference(),
        exits: Image::ExitsAtOnce.reference(),
        with_volume: Image::WithVolume.reference(),
        with_healthcheck: Image::WithHealthcheck.reference(),
    })
    .await;
}

/// A web server on port 9090 that has a value for everything.
fn with_every_setting(mut spec: ContainerSpec) -> ContainerSpec {
    spec.entrypoint = Some(vec!["/bin/sh".to_owned()]);
    spec.command = Some(vec!["-c".to_owned(), "exec /bin/demo web 1".to_owned()]);
    spec.working_dir = Some("/www".to_owned());
    spec.user = Some("1000:1000".to_owned());
    spec.env.insert("PORT".to_owned(), "9090".to_owned());
    spec.env.insert("TOKEN".to_owned(), CANARY.to_owned());
    spec.volumes = [("data", "/data", false), ("assets", "/assets", true)]
        .map(|(name, path, read_only)| VolumeAttachment {
            name: name.to_owned(),
            path: path.to_owned(),
            read_only,
        })
        .to_vec();
    spec.binds = vec![BindMount {
        source: "/usr/bin".to_owned(),
        path: "/host".to_owned(),
        read_only: true,
    }];
    spec.devices = ["/dev/null:/dev/sink:rw", "/dev/zero:/dev/nought"]
        .map(|device| device.parse().unwrap())
        .to_vec();
    spec.tmpfs = vec![TmpfsMount {
        path: "/tmp".to_owned(),
        size: Some(1 << 20),
    }];
    spec.networks = vec![NetworkAttachment {
        name: "app".to_owned(),
        aliases: vec!["web".to_owned(), "web.blog".to_owned()],
    }];
    spec.ports = vec![PortMapping {
        container: 9090,
        protocol: Protocol::Tcp,
        host_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
        host: 20_000,
    }];
    spec.stop_signal = Some("SIGQUIT".to_owned());
    spec.resources = Resources {
        cpus: Some(Cpus::from_millis(500)),
        memory: Some(Bytes::new(64 << 20)),
        pids: Some(100),
    };
    spec.security = Security {
        read_only_root: true,
        cap_drop: vec!["ALL".to_owned()],
        cap_add: vec!["NET_BIND_SERVICE".to_owned()],
        no_new_privileges: true,
        userns: None,
    };
    spec
}

#[tokio::test]
async fn every_setting_of_a_container_arrives() {
    let subject = Subject::start();
    let client = &subject.client;
    client
        .create_network("app", &Network::default())
        .await
        .unwrap();
    let spec = with_every_setting(subject.spec("web", Image::Web1).await);
    let id = client.create(&spec).await.unwrap();
    client.start(&id).await.unwrap();

    let seen = subject.inspect("web");
    let (config, host) = (&seen["Config"], &seen["HostConfig"]);
    assert_eq!(config["Hostname"], "web");
    assert_eq!(config["User"], "1000:1000");
    assert_eq!(config["WorkingDir"], "/www");
    assert_eq!(config["StopSignal"], 3);
    assert_eq!(config["StopTimeout"], 10);
    assert_eq!(host["RestartPolicy"]["Name"], "no");
    assert_eq!(host["CpuQuota"], 50_000);
    assert_eq!(host["CpuPeriod"], 100_000);
    assert_eq!(host["Memory"], 64 << 20);
    assert_eq!(host["PidsLimit"], 100);
    assert_eq!(host["ReadonlyRootfs"], true);
    assert_eq!(host["SecurityOpt"][0], "no-new-privileges");
    let caps = serde_json::json!(["CAP_NET_BIND_SERVICE"]);
    assert_eq!(
        (&seen["EffectiveCaps"], &seen["BoundingCaps"]),
        (&caps, &caps)
    );
    assert!(
        host["Tmpfs"]["/tmp"]
            .as_str()
            .unwrap()
            .contains("size=1048576")
    );
    let aliases = seen["NetworkSettings"]["Networks"]["app"]["Aliases"].to_string();
    assert!(aliases.contains("web.blog"), "{aliases}");
    let mut writable: Vec<_> = seen["Mounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| {
            (
                mount["Destination"].as_str().unwrap(),
                mount["RW"].as_bool().unwrap(),
            )
        })
        .collect();
    writable.sort_unstable();
    assert_eq!(
        writable,
        [("/assets", false), ("/data", true), ("/host", false)]
    );
    let uses =
        "test -c /dev/sink && test -c /dev/nought && test ! -e /dev/loop0 && test -e /host/env";
    let exec = ["exec", "web", "sh", "-c", uses];
    subject.service.run(&subject.sandbox, &exec);
    let get = [
        "--silent",
        "--retry",
        "20",
        "--retry-connrefused",
        "--retry-delay",
        "1",
    ];
    let page = subject
        .sandbox
        .run("curl", get.into_iter().chain(["http://127.0.0.1:20000/"]));
    assert_eq!(page, "demo-web version 1\n");

    // The canary is in there, and nothing of ours shows it.
    assert!(seen.to_string().contains(CANARY));
    let found = client.inspect("web").await.unwrap().unwrap();
    let again = client.create(&spec).await.unwrap_err();
    for text in [
        format!("{spec:?}"),
        format!("{found:?}"),
        format!("{again:?} {again}"),
        format!("{client:?}"),
        format!("{:?}", client.list(&Labels::new()).await),
    ] {
        assert!(!text.contains(CANARY), "{text}");
    }
}

#[tokio::test]
async fn the_image_s_own_volumes_are_not_created_unasked() {
    let subject = Subject::start();
    let id = subject.started("web", Image::WithVolume).await;
    subject.client.remove(&id, true).await.unwrap();
    assert!(subject.service.volumes(&subject.sandbox).is_empty());
}

#[tokio::test]
async fn a_command_s_exit_code_comes_back_and_a_late_one_is_a_deadline() {
    let subject = Subject::start();
    let id = subject.started("web", Image::Web1).await;
    let run = async |script: &str, within: u64| {
        let command = ["/bin/sh", "-c", script].map(str::to_owned);
        subject
            .client
            .exec(&id, &command, Duration::from_secs(within))
            .await
    };
    assert_eq!(run("exit 7", 20).await.unwrap(), 7);
    assert_eq!(run("echo some output; echo more >&2", 20).await.unwrap(), 0);
    let error = run("sleep 30", 1).await.unwrap_err();
    assert!(
        matches!(error, RuntimeError::Deadline { call: "exec", .. }),
        "{error}"
    );
    let command = ["/nobody".to_owned()];
    let limit = Duration::from_secs(20);
    let nobody = subject.client.exec(&id, &command, limit).await;
    assert!(
        !matches!(nobody, Ok(0) | Err(RuntimeError::Deadline { .. })),
        "{nobody:?}"
    );
}

#[tokio::test]
async fn the_log_s_tail_is_in_lines_and_bounded() {
    let subject = Subject::start();
    let mut spec = subject.spec("talker", Image::Web1).await;
    let script = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); \
                  echo \"$i 0123456789012345678901234567890123456789\"; done; \
                  echo error >&2; sleep 0.2; printf 'caf\\351\\n'; exec sleep 100";
    spec.entrypoint = Some(["/bin/sh", "-c", script].map(str::to_owned).to_vec());
    let id = subject.client.create(&spec).await.unwrap();
    subject.client.start(&id).await.unwrap();
    let mut lines = Vec::new();
    for _ in 0..200 {
        lines = subject.client.logs(&id, 1, None).await.unwrap();
        if lines == ["caf\u{fffd}"] {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(lines, ["caf\u{fffd}"], "what is no UTF-8 is replaced");
    for (asked, most) in [(4, 4), (10_000, 2_999)] {
        lines = subject.client.logs(&id, asked, None).await.unwrap();
        assert!(lines.len() <= most, "{}", lines.len());
        assert!(lines.iter().map(String::len).sum::<usize>() <= 64 * 1024);
    }
    let text = lines.join("\n");
    assert!(text.contains("3000 0123456789"));
    assert!(text.contains("error"));
}

#[tokio::test]
async fn an_image_that_moved_its_tag_is_still_found_by_its_digest() {
    let subject = Subject::start();
    let reference = Image::Web1.reference();
    let image = subject
        .client
        .ensure_image(reference, PullPolicy::Never)
        .await
        .unwrap();
    let run = |arguments: &[&str]| subject.service.run(&subject.sandbox, arguments);
    run(&["tag", Image::Web2.reference(), reference]);
    let moved = subject
        .client
        .ensure_image(reference, PullPolicy::IfTagChanged)
        .await
        .unwrap();
    assert_ne!(moved.digest, image.digest);
    let pinned = subject
        .client
        .ensure_pinned(reference, &image.digest)
        .await
        .unwrap();
    assert_eq!(pinned, image);
}

#[tokio::test]
async fn a_registry_that_can_t_be_reached_fails_the_pull_but_not_the_local_image() {
    let subject = Subject::start();
    let name = "127.0.0.1:1/web:1";
    let ensure = |policy| subject.client.ensure_image(name, policy);
    let error = ensure(PullPolicy::IfTagChanged).await.unwrap_err();
    assert!(matches!(error, RuntimeError::PullFailed { .. }), "{error}");
    assert!(error.is_retryable());
    let error = ensure(PullPolicy::Never).await.unwrap_err();
    assert!(matches!(error, RuntimeError::ImageAbsent { .. }), "{error}");
    subject
        .service
        .run(&subject.sandbox, &["tag", Image::Web1.reference(), name]);
    for policy in [
        PullPolicy::Never,
        PullPolicy::IfNotPresent,
        PullPolicy::IfTagChanged,
    ] {
        ensure(policy).await.unwrap();
    }
    let error = ensure(PullPolicy::Always).await.unwrap_err();
    assert!(matches!(error, RuntimeError::PullFailed { .. }), "{error}");
}

#[tokio::test]
async fn the_client_finds_a_restarted_service_again_by_itself() {
    let mut subject = Subject::start();
    let id = subject.started("web", Image::Web1).await;
    let looked = subject.client.inspect("web").await.unwrap();
    // A kept connection is broken now, and a new service listens.
    subject.service.restart_service(&subject.sandbox);
    assert_eq!(subject.client.inspect("web").await.unwrap(), looked);

    let mut events = subject
        .client
        .events(runtime_contract::LABEL)
        .await
        .unwrap();
    subject.service.kill_service();
    let end = tokio::time::timeout(Duration::from_secs(5), events.next())
        .await
        .unwrap();
    assert!(end.unwrap().unwrap_err().is_ambiguous());
    assert!(events.next().await.is_none());
    for error in [
        subject.client.ping().await.unwrap_err(),
        subject.client.inspect("web").await.unwrap_err(),
        subject.client.list(&Labels::new()).await.unwrap_err(),
        subject.client.start(&id).await.unwrap_err(),
        subject.client.signal(&id, "SIGTERM").await.unwrap_err(),
        subject.client.remove(&id, true).await.unwrap_err(),
        subject.client.volume("v").await.unwrap_err(),
        subject
            .client
            .create_network("n", &Network::default())
            .await
            .unwrap_err(),
        subject
            .client
            .ensure_image(Image::Web1.reference(), PullPolicy::Never)
            .await
            .unwrap_err(),
        subject.client.events("x").await.map(drop).unwrap_err(),
    ] {
        assert!(
            matches!(error, RuntimeError::Unavailable { .. }),
            "{error:?}"
        );
    }
    subject.service.start_service(&subject.sandbox);
    subject.client.ping().await.unwrap();
    assert_eq!(subject.client.inspect("web").await.unwrap(), looked);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_survives_a_restart_of_the_service() {
    let mut subject = Subject::start();
    let id = subject.started("web", Image::Web1).await;
    let client = Podman::connect(&subject.service.url()).unwrap();
    let waited = id.clone();
    let wait =
        tokio::spawn(async move { client.wait_stopped(&waited, Duration::from_secs(60)).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    subject.service.restart_service(&subject.sandbox);
    assert!(!wait.is_finished());
    subject.client.signal(&id, "SIGTERM").await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), wait).await;
    assert!(ended.unwrap().unwrap().unwrap());
}

#[tokio::test]
async fn a_wait_on_a_service_that_stays_away_ends_with_an_error() {
    let mut subject = Subject::start();
    let id = subject.started("web", Image::Web1).await;
    subject.service.kill_service();
    let start = Instant::now();
    let wait = subject
        .client
        .wait_stopped(&id, Duration::from_millis(500))
        .await;
    assert!(wait.unwrap_err().is_ambiguous());
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_service_that_accepts_and_never_answers_runs_into_the_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("podman.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let client = Podman::connect(&format!("unix://{}", path.display()))
        .unwrap()
        .with_deadlines(Deadlines::all(Duration::from_millis(100)));
    let id = ContainerId::new("0".repeat(64));
    let spec = ContainerSpec::default();
    let start = Instant::now();
    for error in [
        client.ping().await.unwrap_err(),
        client.inspect("web").await.unwrap_err(),
        client.list(&Labels::new()).await.unwrap_err(),
        client.create(&spec).await.unwrap_err(),
        client.start(&id).await.unwrap_err(),
        client.signal(&id, "SIGTERM").await.unwrap_err(),
        client
            .wait_stopped(&id, Duration::from_millis(100))
            .await
            .unwrap_err(),
        client.remove(&id, false).await.unwrap_err(),
        client.logs(&id, 1, None).await.unwrap_err(),
        client
            .exec(&id, &["x".to_owned()], Duration::from_millis(100))
            .await
            .unwrap_err(),
        client.volume("v").await.unwrap_err(),
        client.remove_network("n").await.unwrap_err(),
        client
            .ensure_image("r.example.com/web", PullPolicy::Always)
            .await
            .unwrap_err(),
        client.events("x").await.map(drop).unwrap_err(),
    ] {
        assert!(
            matches!(error, RuntimeError::Deadline { seconds: 1, .. }),
            "{error:?}"
        );
    }
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
}
