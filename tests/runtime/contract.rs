//! What every runtime must do, asked of the in-memory one and of a real Podman.
//!
//! A [`Host`] is a runtime with three images on it; each check begins with names of
//! its own, so that all of them can share one host.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use podherd::manifest::{BindMount, Protocol, PullPolicy};
use podherd::runtime::{
    Container, ContainerSpec, ContainerState, Labels, Network, NetworkAttachment, PortMapping,
    Runtime, RuntimeError, RuntimeEventKind, SecretEnv, SecretMount, SecretValue, VolumeAttachment,
};
use podherd::state::{ContainerId, Digest, SecretVersion};

/// A label that every container of the checks carries.
pub const LABEL: &str = "podherd.test/check";
/// How long something may take that isn't measured.
const SOON: Duration = Duration::from_secs(20);

/// A runtime under test, and references of images on it.
pub struct Host {
    /// The runtime.
    pub runtime: Arc<dyn Runtime>,
    /// Serves, prints a line, and leaves at once on SIGTERM.
    pub web: &'static str,
    /// Doesn't leave on SIGTERM.
    pub stubborn: &'static str,
    /// Ends at once with exit code 3.
    pub exits: &'static str,
    /// Like web, and declares the volume /data.
    pub with_volume: &'static str,
    /// Like web, and declares a health check that passes.
    pub with_healthcheck: &'static str,
}

impl Host {
    async fn spec(&self, name: &str, image: &str) -> ContainerSpec {
        let image = self
            .runtime
            .ensure_image(image, PullPolicy::IfNotPresent)
            .await
            .unwrap();
        ContainerSpec {
            name: name.to_owned(),
            hostname: "web".to_owned(),
            image_id: image.id,
            labels: label(name),
            networks: vec![NetworkAttachment {
                name: self.network().await,
                aliases: vec!["web".to_owned()],
            }],
            stop_timeout: Duration::from_secs(30),
            ..ContainerSpec::default()
        }
    }

    async fn network(&self) -> String {
        let name = "contract".to_owned();
        if self.runtime.network(&name).await.unwrap().is_none() {
            self.runtime
                .create_network(&name, &Network::default())
                .await
                .unwrap();
        }
        name
    }

    async fn created(&self, name: &str, image: &str) -> ContainerId {
        self.runtime
            .create(&self.spec(name, image).await)
            .await
            .unwrap()
    }

    async fn started(&self, name: &str, image: &str) -> ContainerId {
        let id = self.created(name, image).await;
        self.runtime.start(&id).await.unwrap();
        id
    }

    async fn look(&self, id: &ContainerId) -> Container {
        self.runtime
            .inspect(id.as_str())
            .await
            .unwrap()
            .expect("the container")
    }

    async fn ended(&self, id: &ContainerId) -> Container {
        assert!(self.runtime.wait_stopped(id, SOON).await.unwrap());
        self.look(id).await
    }
}

fn label(value: &str) -> Labels {
    Labels::from([(LABEL.to_owned(), value.to_owned())])
}

fn port(host: u16) -> PortMapping {
    PortMapping {
        container: 8080,
        protocol: Protocol::Tcp,
        host_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
        host,
    }
}

/// All checks, one after the other.
pub async fn check_all(host: &Host) {
    host.runtime.ping().await.unwrap();
    images(host).await;
    life(host).await;
    names(host).await;
    removal(host).await;
    exit_at_once(host).await;
    ports(host).await;
    volumes(host).await;
    host_paths(host).await;
    secrets(host).await;
    networks(host).await;
    lists(host).await;
    events(host).await;
    logs(host).await;
    exec(host).await;
    healthcheck(host).await;
    waits(host).await;
}

async fn images(host: &Host) {
    let runtime = &host.runtime;
    let policies = [
        PullPolicy::Never,
        PullPolicy::IfNotPresent,
        PullPolicy::IfTagChanged,
        PullPolicy::Always,
    ];
    let first = runtime
        .ensure_image(host.with_volume, PullPolicy::Never)
        .await
        .unwrap();
    assert_eq!(first.volumes, ["/data"]);
    assert!(
        first.digest.as_str().starts_with("sha256:"),
        "{}",
        first.digest
    );
    for policy in policies {
        let again = runtime
            .ensure_image(host.with_volume, policy)
            .await
            .unwrap();
        assert_eq!(again, first, "{policy:?}");
        // A local name never needs a registry.
        let error = runtime
            .ensure_image("localhost/nobody:1", policy)
            .await
            .unwrap_err();
        assert!(
            matches!(error, RuntimeError::ImageAbsent { .. }),
            "{policy:?}: {error}"
        );
    }
    let pinned = runtime
        .ensure_pinned(host.with_volume, &first.digest)
        .await
        .unwrap();
    assert_eq!(pinned, first);
    let other = Digest::new(format!("sha256:{:064}", 7));
    let error = runtime.ensure_pinned(host.web, &other).await.unwrap_err();
    assert!(matches!(error, RuntimeError::ImageAbsent { .. }), "{error}");
}

async fn life(host: &Host) {
    let runtime = &host.runtime;
    let id = host.created("life", host.web).await;
    let created = host.look(&id).await;
    assert_eq!(created.id, id);
    assert_eq!(created.name, "life");
    assert_eq!(created.labels.get(LABEL).map(String::as_str), Some("life"));
    assert_eq!(created.state, ContainerState::Created);
    assert_eq!((created.started_at, created.exit_code), (None, None));
    assert_eq!(runtime.inspect("life").await.unwrap(), Some(created));
    assert_eq!(runtime.inspect("nobody").await.unwrap(), None);
    // The first digits of an ID are no name.
    assert_eq!(runtime.inspect(&id.as_str()[..12]).await.unwrap(), None);
    assert!(
        runtime.wait_stopped(&id, Duration::ZERO).await.unwrap(),
        "it never ran"
    );

    runtime.start(&id).await.unwrap();
    let first = host.look(&id).await;
    assert_eq!(first.state, ContainerState::Running);
    runtime.start(&id).await.unwrap();
    assert_eq!(
        host.look(&id).await.started_at,
        first.started_at,
        "a second start is nothing"
    );
    assert!(!runtime.wait_stopped(&id, Duration::ZERO).await.unwrap());

    runtime.signal(&id, "SIGTERM").await.unwrap();
    let ended = host.ended(&id).await;
    assert_eq!(ended.state, ContainerState::Exited);
    assert_eq!(ended.exit_code, Some(0));
    assert!(!ended.oom_killed);
    assert_eq!(ended.started_at, first.started_at);
    runtime.signal(&id, "SIGTERM").await.unwrap();

    runtime.start(&id).await.unwrap();
    let second = host.look(&id).await;
    assert_eq!(second.state, ContainerState::Running);
    assert_ne!(second.started_at, first.started_at, "another execution");
    assert_eq!(second.exit_code, None);

    runtime.signal(&id, "SIGKILL").await.unwrap();
    assert_eq!(host.ended(&id).await.exit_code, Some(137));
    runtime.remove(&id, false).await.unwrap();
    assert_eq!(runtime.inspect("life").await.unwrap(), None);
    runtime.remove(&id, false).await.unwrap();
    runtime.remove(&id, true).await.unwrap();
    assert!(
        runtime.wait_stopped(&id, SOON).await.unwrap(),
        "gone is stopped"
    );
    runtime.signal(&id, "SIGTERM").await.unwrap();
    let error = runtime.start(&id).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
}

async fn names(host: &Host) {
    let spec = host.spec("names", host.web).await;
    let id = host.runtime.create(&spec).await.unwrap();
    let error = host.runtime.create(&spec).await.unwrap_err();
    assert!(
        matches!(&error, RuntimeError::NameInUse { what: "container", name } if name == "names"),
        "{error}"
    );
    let image_id = "0123456789abcdef".repeat(4);
    let nobody = ContainerSpec {
        name: "names-2".to_owned(),
        image_id,
        ..spec.clone()
    };
    let error = host.runtime.create(&nobody).await.unwrap_err();
    assert!(
        matches!(error, RuntimeError::NotFound { what: "image", .. }),
        "{error}"
    );
    let mut nowhere = ContainerSpec {
        name: "names-2".to_owned(),
        ..spec
    };
    "nowhere".clone_into(&mut nowhere.networks[0].name);
    let error = host.runtime.create(&nowhere).await.unwrap_err();
    assert!(
        matches!(
            error,
            RuntimeError::NotFound {
                what: "network",
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(host.runtime.inspect("names-2").await.unwrap(), None);
    host.runtime.remove(&id, false).await.unwrap();
}

async fn removal(host: &Host) {
    let runtime = &host.runtime;
    let id = host.started("removal", host.stubborn).await;
    let error = runtime.remove(&id, false).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Refused { .. }), "{error}");
    assert_eq!(host.look(&id).await.state, ContainerState::Running);
    let start = std::time::Instant::now();
    runtime.remove(&id, true).await.unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(8),
        "force waits for no grace"
    );
    assert_eq!(runtime.inspect(id.as_str()).await.unwrap(), None);
}

async fn exit_at_once(host: &Host) {
    let id = host.started("exits", host.exits).await;
    let ended = host.ended(&id).await;
    assert_eq!(
        (ended.state, ended.exit_code),
        (ContainerState::Exited, Some(3))
    );
    host.runtime.remove(&id, false).await.unwrap();
}

async fn ports(host: &Host) {
    let runtime = &host.runtime;
    let mut spec = host.spec("ports-1", host.web).await;
    let dns = PortMapping {
        container: 5353,
        protocol: Protocol::Udp,
        host_ip: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        host: 20_101,
    };
    spec.ports = vec![port(20_101), dns];
    let one = runtime.create(&spec).await.unwrap();
    runtime.start(&one).await.unwrap();
    let mut found = host.look(&one).await.ports;
    found.sort_by_key(|port| port.protocol);
    assert_eq!(found, spec.ports);

    let mut spec = host.spec("ports-2", host.web).await;
    spec.ports = vec![port(20_101)];
    let two = runtime.create(&spec).await.unwrap();
    let error = runtime.start(&two).await.unwrap_err();
    assert!(matches!(error, RuntimeError::PortInUse { .. }), "{error}");
    assert_ne!(host.look(&two).await.state, ContainerState::Running);

    let mut spec = host.spec("ports-3", host.web).await;
    spec.ports = vec![port(0)];
    let three = runtime.create(&spec).await.unwrap();
    runtime.start(&three).await.unwrap();
    assert!(host.look(&three).await.ports[0].host > 1024);
    for id in [one, two, three] {
        runtime.remove(&id, true).await.unwrap();
    }
}

async fn volumes(host: &Host) {
    let runtime = &host.runtime;
    let labels = label("volume");
    assert_eq!(runtime.volume("vol").await.unwrap(), None);
    runtime.create_volume("vol", &labels).await.unwrap();
    assert_eq!(runtime.volume("vol").await.unwrap(), Some(labels));
    let error = runtime
        .create_volume("vol", &Labels::new())
        .await
        .unwrap_err();
    assert!(
        matches!(error, RuntimeError::NameInUse { what: "volume", .. }),
        "{error}"
    );

    let mut spec = host.spec("volumes", host.with_volume).await;
    spec.volumes = vec![VolumeAttachment {
        name: "vol".to_owned(),
        path: "/data".to_owned(),
        read_only: false,
    }];
    let id = runtime.create(&spec).await.unwrap();
    runtime.start(&id).await.unwrap();
    assert_eq!(listed_volume(host, "vol").await, Some(true), "in use");
    let error = runtime.remove_volume("vol").await.unwrap_err();
    assert!(
        matches!(error, RuntimeError::InUse { what: "volume", .. }),
        "{error}"
    );
    runtime.remove(&id, true).await.unwrap();
    assert!(
        runtime.volume("vol").await.unwrap().is_some(),
        "a named volume stays"
    );
    assert_eq!(listed_volume(host, "vol").await, Some(false), "free");
    runtime.remove_volume("vol").await.unwrap();
    runtime.remove_volume("vol").await.unwrap();
    assert_eq!(listed_volume(host, "vol").await, None, "gone");
}

/// Whether the volume is in use, as the list has it.
async fn listed_volume(host: &Host, name: &str) -> Option<bool> {
    let volumes = host.runtime.volumes().await.unwrap().into_iter();
    let mut found = volumes.filter(|volume| volume.name == name);
    found.next().map(|volume| volume.in_use)
}

async fn secrets(host: &Host) {
    let runtime = &host.runtime;
    let labels = label("secret");
    let value = SecretValue::new(b"{\"quoted\": 1}".to_vec()).unwrap();
    assert_eq!(runtime.secret("sec").await.unwrap(), None);
    runtime.create_secret("sec", &value, &labels).await.unwrap();
    assert_eq!(runtime.secret("sec").await.unwrap(), Some(labels));
    let unlabelled = Labels::new();
    let error = runtime.create_secret("sec", &value, &unlabelled).await;
    let error = error.unwrap_err();
    assert!(
        matches!(error, RuntimeError::NameInUse { what: "secret", .. }),
        "{error}"
    );
    let first = version(host, "sec").await.unwrap();
    assert_eq!(version(host, "sec").await.unwrap(), first);

    let mut spec = host.spec("secrets", host.web).await;
    spec.secret_env = vec![SecretEnv {
        variable: "SECRET".to_owned(),
        secret: "sec".to_owned(),
    }];
    spec.secret_files = vec![SecretMount {
        secret: "sec".to_owned(),
        path: "/etc/sec".to_owned(),
        mode: 0o400,
        uid: 0,
        gid: 0,
    }];
    let id = runtime.create(&spec).await.unwrap();
    runtime.start(&id).await.unwrap();
    runtime.signal(&id, "SIGKILL").await.unwrap();
    assert!(runtime.wait_stopped(&id, SOON).await.unwrap());

    runtime.remove_secret("sec").await.unwrap();
    runtime.remove_secret("sec").await.unwrap();
    assert_eq!(version(host, "sec").await, None);
    let of_start = runtime.start(&id).await.unwrap_err();
    "secrets-2".clone_into(&mut spec.name);
    let of_create = runtime.create(&spec).await.unwrap_err();
    for error in [of_start, of_create] {
        assert!(
            matches!(&error, RuntimeError::NotFound { what: "secret", name } if name == "sec"),
            "{error}"
        );
    }
    assert_eq!(runtime.inspect("secrets-2").await.unwrap(), None);
    runtime
        .create_secret("sec", &value, &Labels::new())
        .await
        .unwrap();
    assert_ne!(version(host, "sec").await.unwrap(), first);
    runtime.start(&id).await.unwrap();
    runtime.remove(&id, true).await.unwrap();
    runtime.remove_secret("sec").await.unwrap();
}

async fn version(host: &Host, name: &str) -> Option<SecretVersion> {
    let secrets = host.runtime.secrets().await.unwrap().into_iter();
    let mut found = secrets.filter(|secret| secret.name == name);
    found.next().map(|secret| secret.version)
}

async fn host_paths(host: &Host) {
    let mut spec = host.spec("with-host-paths", host.web).await;
    let bind = |path: &str, read_only| BindMount {
        source: "/usr".to_owned(),
        path: path.to_owned(),
        read_only,
    };
    spec.binds = vec![bind("/read", true), bind("/write", false)];
    let id = host.runtime.create(&spec).await.unwrap();
    let mut binds = host.look(&id).await.binds;
    binds.sort_by(|one, other| one.path.cmp(&other.path));
    assert_eq!(binds, spec.binds);
    host.runtime.remove(&id, true).await.unwrap();
}

async fn networks(host: &Host) {
    let runtime = &host.runtime;
    let network = Network {
        labels: label("network"),
        internal: true,
    };
    assert_eq!(runtime.network("net").await.unwrap(), None);
    runtime.create_network("net", &network).await.unwrap();
    assert_eq!(runtime.network("net").await.unwrap(), Some(network));
    let error = runtime
        .create_network("net", &Network::default())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            RuntimeError::NameInUse {
                what: "network",
                ..
            }
        ),
        "{error}"
    );

    let mut spec = host.spec("networks", host.web).await;
    "net".clone_into(&mut spec.networks[0].name);
    let id = runtime.create(&spec).await.unwrap();
    let error = runtime.remove_network("net").await.unwrap_err();
    assert!(
        matches!(
            error,
            RuntimeError::InUse {
                what: "network",
                ..
            }
        ),
        "{error}"
    );
    assert!(runtime.inspect("networks").await.unwrap().is_some());
    runtime.remove(&id, false).await.unwrap();
    runtime.remove_network("net").await.unwrap();
    assert_eq!(runtime.network("net").await.unwrap(), None);
    runtime.remove_network("net").await.unwrap();
}

async fn lists(host: &Host) {
    let runtime = &host.runtime;
    let mut specs = Vec::new();
    for name in ["list-1", "list-2", "list-3"] {
        let mut spec = host.spec(name, host.web).await;
        spec.labels = label("list");
        spec.labels.insert("name".to_owned(), name.to_owned());
        specs.push(spec);
    }
    let mut ids = Vec::new();
    for spec in &specs {
        ids.push(runtime.create(spec).await.unwrap());
    }
    runtime.start(&ids[1]).await.unwrap();
    let mut found = runtime.list(&label("list")).await.unwrap();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let names: Vec<_> = found.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["list-1", "list-2", "list-3"]);
    let states: Vec<_> = found.iter().map(|one| one.state).collect();
    let created = ContainerState::Created;
    assert_eq!(states, [created, ContainerState::Running, created]);
    assert_eq!(found[0].labels, specs[0].labels);
    assert_eq!(found[0].id, ids[0]);
    // All of the labels count, not any of them.
    let found = runtime.list(&specs[2].labels).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].name, "list-3");
    assert!(runtime.list(&label("nobody")).await.unwrap().is_empty());
    assert!(runtime.list(&Labels::new()).await.unwrap().len() >= 3);
    for id in ids {
        runtime.remove(&id, true).await.unwrap();
    }
}

async fn events(host: &Host) {
    let runtime = &host.runtime;
    let mut events = runtime.events(LABEL).await.unwrap();
    let mut spec = host.spec("events-none", host.web).await;
    spec.labels = Labels::from([("other".to_owned(), "x".to_owned())]);
    let none = runtime.create(&spec).await.unwrap();
    runtime.start(&none).await.unwrap();
    let id = host.started("events", host.web).await;
    runtime.signal(&id, "SIGTERM").await.unwrap();
    host.ended(&id).await;
    runtime.remove(&id, false).await.unwrap();
    runtime.remove(&none, true).await.unwrap();

    let mut kinds = Vec::new();
    while kinds.len() < 3 {
        let next = tokio::time::timeout(SOON, events.next())
            .await
            .expect("an event");
        let event = next.expect("the stream goes on").unwrap();
        assert_eq!(event.container, id);
        assert_eq!(event.labels.get(LABEL).map(String::as_str), Some("events"));
        if event.kind != RuntimeEventKind::Other {
            kinds.push(event.kind);
        }
    }
    // They may come in any order.
    for kind in [
        RuntimeEventKind::Started,
        RuntimeEventKind::Died,
        RuntimeEventKind::Removed,
    ] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
}

async fn logs(host: &Host) {
    let runtime = &host.runtime;
    let id = host.started("logs", host.web).await;
    let mut lines = Vec::new();
    for _ in 0..200 {
        lines = runtime.logs(&id, 10, None).await.unwrap();
        if !lines.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(lines, ["serving 1"]);
    runtime.signal(&id, "SIGKILL").await.unwrap();
    host.ended(&id).await;
    runtime.start(&id).await.unwrap();
    let again = host.look(&id).await.started_at;
    for _ in 0..200 {
        lines = runtime.logs(&id, 10, None).await.unwrap();
        if lines.len() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(lines.len(), 2, "an execution goes on in the same log");
    assert_eq!(runtime.logs(&id, 10, again).await.unwrap().len(), 1);
    assert_eq!(runtime.logs(&id, 1, None).await.unwrap().len(), 1);
    runtime.remove(&id, true).await.unwrap();
    let error = runtime.logs(&id, 1, None).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
}

async fn exec(host: &Host) {
    let runtime = &host.runtime;
    let id = host.created("exec", host.web).await;
    let command = ["/bin/test", "-e", "/bin/sh"].map(str::to_owned);
    let error = runtime.exec(&id, &command, SOON).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Refused { .. }), "{error}");
    runtime.start(&id).await.unwrap();
    assert_eq!(runtime.exec(&id, &command, SOON).await.unwrap(), 0);
    runtime.remove(&id, true).await.unwrap();
    let error = runtime.exec(&id, &command, SOON).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
}

async fn healthcheck(host: &Host) {
    let runtime = &host.runtime;
    let image = runtime
        .ensure_image(host.with_healthcheck, PullPolicy::Never)
        .await
        .unwrap();
    assert!(image.healthcheck);
    let plain = runtime.ensure_image(host.web, PullPolicy::Never).await;
    assert!(!plain.unwrap().healthcheck);

    let id = host.created("health", host.with_healthcheck).await;
    let error = runtime.healthcheck(&id, SOON).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Refused { .. }), "{error}");
    runtime.start(&id).await.unwrap();
    assert!(runtime.healthcheck(&id, SOON).await.unwrap());
    runtime.remove(&id, true).await.unwrap();
    let error = runtime.healthcheck(&id, SOON).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");

    let id = host.started("unhealthy", host.web).await;
    let error = runtime.healthcheck(&id, SOON).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Refused { .. }), "{error}");
    runtime.remove(&id, true).await.unwrap();
}

async fn waits(host: &Host) {
    let runtime = &host.runtime;
    let id = host.started("waits", host.stubborn).await;
    let within = Duration::from_millis(300);
    let start = tokio::time::Instant::now();
    runtime.signal(&id, "SIGTERM").await.unwrap();
    assert!(!runtime.wait_stopped(&id, within).await.unwrap());
    assert!(start.elapsed() >= within);
    let ended = runtime.wait_stopped(&id, SOON);
    let kill = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        runtime.signal(&id, "SIGKILL").await.unwrap();
    };
    let (ended, ()) = tokio::join!(ended, kill);
    assert!(ended.unwrap());
    let removed = runtime.wait_stopped(&id, SOON);
    runtime.remove(&id, false).await.unwrap();
    assert!(removed.await.unwrap());
}
