//! The in-memory runtime and a real Podman give the same answers.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use podherd::clock::SystemClock;
use podherd::manifest::{Protocol, PullPolicy};
use podherd::runtime::{
    Behaviour, EffectLog, MemoryImage, MemoryRuntime, Podman, Runtime as ContainerRuntime,
};
use tokio::runtime::Builder;

use crate::model::runtime::{self, Backend, Call, Hand, Kind, Made};
use crate::model::{Played, agree, agree_on, seeds};
use crate::support::{Net, Sandbox, podman};

/// Sequences of an ordinary run.
const USUAL: u64 = 5;

#[test]
fn random_calls_are_answered_alike() {
    agree_on(seeds(USUAL), runtime::sequence, play);
}

#[test]
fn of_all_signals_only_a_kill_reaches_a_paused_container_before_it_goes_on() {
    let pause = || Call::ByHand(Hand::Pause, "c0");
    let calls = [
        pause(),
        Call::Signal("c0", "KILL"),
        Call::Start("c0"),
        pause(),
        Call::Signal("c0", "SIGTERM"),
        Call::ByHand(Hand::Unpause, "c0"),
    ];
    agree(&[web().as_slice(), &calls].concat(), play);
}

#[test]
fn a_start_of_a_running_container_asks_for_no_secret() {
    let made = Made {
        secret_env: Some("s0"),
        ..Made::default()
    };
    agree(
        &[
            Call::CreateSecret("s0"),
            Call::Create("c0", made),
            Call::Start("c0"),
            Call::RemoveSecret("s0"),
            Call::Start("c0"),
            Call::Signal("c0", "KILL"),
            Call::Start("c0"),
        ],
        play,
    );
}

#[test]
fn who_has_a_port_keeps_it_until_the_end() {
    let made = |host| Made {
        ports: vec![(Protocol::Tcp, host, 20_101)],
        ..Made::default()
    };
    let [loopback, any] = [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED].map(IpAddr::V4);
    agree(
        &[
            Call::Create("c0", made(loopback)),
            Call::Start("c0"),
            Call::Create("c1", made(any)),
            Call::Start("c1"),
            Call::Occupy(Protocol::Tcp, 20_101),
            Call::ByHand(Hand::Pause, "c0"),
            Call::Start("c1"),
            Call::Remove("c0", true),
            Call::PortIsFree(Protocol::Tcp, 20_101),
            Call::Start("c1"),
            Call::Signal("c1", "KILL"),
            Call::Occupy(Protocol::Tcp, 20_101),
            Call::Start("c1"),
            Call::Leave(Protocol::Tcp, 20_101),
            Call::Start("c1"),
        ],
        play,
    );
}

#[test]
fn an_image_is_there_as_long_as_it_has_a_name() {
    let foreign = |policy| Call::Image(runtime::FOREIGN, policy);
    agree(
        &[
            Call::Tag,
            foreign(PullPolicy::IfTagChanged),
            foreign(PullPolicy::Always),
            Call::Pinned(runtime::FOREIGN, true),
            Call::Untag,
            foreign(PullPolicy::Never),
            Call::Pinned(runtime::FOREIGN, true),
            Call::Image(Kind::Web.reference(), PullPolicy::Always),
            Call::Create("c0", Made::default()),
        ],
        play,
    );
}

/// The web image, run as it is.
fn web() -> [Call; 2] {
    [Call::Create("c0", Made::default()), Call::Start("c0")]
}

#[test]
fn of_all_that_a_create_misses_it_names_the_secret() {
    let wrong = Made {
        networks: vec!["n0"],
        secret_env: Some("s0"),
        ..Made::default()
    };
    let no_network = Made {
        secret_env: None,
        ..wrong.clone()
    };
    agree(
        &[
            Call::Create("c0", Made::default()),
            Call::Create("c0", wrong),
            Call::Create("c0", no_network),
            Call::Create("c0", Made::default()),
        ],
        play,
    );
}

#[test]
fn what_is_no_signal_is_refused_as_long_as_the_container_runs() {
    let signal = |name| Call::Signal("c0", name);
    let calls = [signal("NONE"), signal("KILL"), signal("NONE")];
    agree(&[web().as_slice(), &calls].concat(), play);
}

#[test]
fn a_paused_container_is_neither_started_nor_entered() {
    let calls = [
        Call::ByHand(Hand::Pause, "c0"),
        Call::ByHand(Hand::Restart, "c0"),
        Call::Start("c0"),
        Call::Exec("c0"),
        Call::ByHand(Hand::Unpause, "c0"),
        Call::Exec("c0"),
    ];
    agree(&[web().as_slice(), &calls].concat(), play);
}

fn play(calls: &[Call]) -> Played {
    Played {
        double: on_the_double(calls),
        real: on_the_real_one(calls),
    }
}

fn on_the_real_one(calls: &[Call]) -> Vec<String> {
    /// One Podman for all tests here; one sequence at a time.
    static REAL: LazyLock<Mutex<(podman::Podman, Sandbox)>> = LazyLock::new(|| {
        let sandbox = Sandbox::new(Net::Own);
        Mutex::new((podman::Podman::start(&sandbox), sandbox))
    });
    let (service, sandbox) = &*REAL.lock().unwrap_or_else(PoisonError::into_inner);
    sandbox.in_network(|| {
        let real = Real {
            client: Podman::connect(&service.url()).unwrap(),
            service,
            sandbox,
            listeners: Mutex::default(),
        };
        let tokio = Builder::new_current_thread().enable_all().build().unwrap();
        tokio.block_on(runtime::play(&real, calls))
    })
}

struct Real<'s> {
    client: Podman,
    service: &'s podman::Podman,
    sandbox: &'s Sandbox,
    /// Sockets that hold ports.
    listeners: Mutex<HashMap<(Protocol, u16), OwnedFd>>,
}

impl Real<'_> {
    fn listeners(&self) -> MutexGuard<'_, HashMap<(Protocol, u16), OwnedFd>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Backend for Real<'_> {
    fn runtime(&self) -> &dyn ContainerRuntime {
        &self.client
    }

    async fn by_hand(&self, hand: Hand, name: &str) {
        let arguments: &[&str] = match hand {
            Hand::Pause => &["pause", name],
            Hand::Unpause => &["unpause", name],
            Hand::Kill => &["kill", name],
            Hand::Start => &["start", name],
            Hand::Restart => &["restart", "--time", "1", name],
            Hand::Remove => &["rm", "--force", "--time", "0", name],
        };
        let done = self.service.output(self.sandbox, arguments);
        // Of a paused container to which a signal is on its way, the first may fail.
        if matches!(hand, Hand::Remove) && !done.status.success() {
            self.service.output(self.sandbox, arguments);
        }
    }

    fn occupy(&self, protocol: Protocol, port: u16) {
        let address = ("127.0.0.1", port);
        let listener = match protocol {
            Protocol::Tcp => TcpListener::bind(address).map(OwnedFd::from),
            Protocol::Udp => UdpSocket::bind(address).map(OwnedFd::from),
        };
        // A container may have the port.
        if let Ok(listener) = listener {
            self.listeners().insert((protocol, port), listener);
        }
    }

    fn leave(&self, protocol: Protocol, port: u16) {
        self.listeners().remove(&(protocol, port));
    }

    async fn tag(&self, reference: &str, name: &str) {
        self.service.run(self.sandbox, &["tag", reference, name]);
    }

    async fn untag(&self, name: &str) {
        // Of the image with that name just that name, and not all of its names.
        self.service.output(self.sandbox, &["untag", name, name]);
    }
}

/// In a time of its own, which moves only when there is nothing else to do.
fn on_the_double(calls: &[Call]) -> Vec<String> {
    let tokio = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let double = MemoryRuntime::new(Arc::new(SystemClock), EffectLog::new());
    for kind in Kind::ALL {
        double.load_image(kind.reference(), image(kind));
    }
    double.set_registry_down(true);
    let answers = async { runtime::play(&Double(double), calls).await };
    tokio.unwrap().block_on(answers)
}

fn image(kind: Kind) -> MemoryImage {
    let image = MemoryImage::new(kind.reference()).prints(kind.line());
    match kind {
        Kind::Web | Kind::None => image,
        Kind::Stubborn => image.behaves(Behaviour::IgnoresTerm),
        Kind::Exits => image.behaves(Behaviour::ExitsAtOnce(3)),
        Kind::Healthy => image.healthcheck(),
    }
}

struct Double(MemoryRuntime);

#[async_trait]
impl Backend for Double {
    fn runtime(&self) -> &dyn ContainerRuntime {
        &self.0
    }

    async fn by_hand(&self, hand: Hand, name: &str) {
        match hand {
            Hand::Pause => self.0.pause_by_hand(name),
            Hand::Unpause => self.0.unpause_by_hand(name),
            Hand::Kill => self.0.crash(name, 137),
            Hand::Start => self.0.start_by_hand(name),
            Hand::Restart => self.0.restart_by_hand(name, None),
            Hand::Remove => self.0.remove_by_hand(name),
        }
    }

    fn occupy(&self, protocol: Protocol, port: u16) {
        self.0.occupy_port(protocol, port);
    }

    fn leave(&self, protocol: Protocol, port: u16) {
        self.0.free_port(protocol, port);
    }

    async fn tag(&self, reference: &str, name: &str) {
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| kind.reference() == reference);
        self.0.load_image(name, image(kind.unwrap()));
    }

    async fn untag(&self, name: &str) {
        self.0.prune_image(name);
    }
}
