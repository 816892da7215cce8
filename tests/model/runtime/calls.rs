//! The calls, and how they follow from a seed.

use std::net::{IpAddr, Ipv4Addr};

use fastrand::Rng;
use podherd::manifest::{Protocol, PullPolicy};

use crate::model::one_of;

const CONTAINERS: [&str; 3] = ["c0", "c1", "c2"];
pub const VOLUMES: [&str; 2] = ["v0", "v1"];
pub const NETWORKS: [&str; 2] = ["n0", "n1"];
pub const SECRETS: [&str; 2] = ["s0", "s1"];
const PORTS: [u16; 2] = [20_101, 20_102];
const SIGNALS: [&str; 5] = ["SIGTERM", "SIGTERM", "SIGKILL", "KILL", "NONE"];
const PROTOCOLS: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];
/// A reference to a registry that can't be reached; people tag a local image with it.
pub const FOREIGN: &str = "127.0.0.1:1/web:1";
const NOBODY: &str = "localhost/nobody:1";

/// A call. What it is about is said by name, so that it still means something when
/// calls before it are left out: the container that was last made under that name.
#[derive(Debug, Clone)]
pub enum Call {
    Create(&'static str, Made),
    Start(&'static str),
    Signal(&'static str, &'static str),
    WaitStopped(&'static str),
    Remove(&'static str, bool),
    Inspect(&'static str),
    List(Option<&'static str>),
    Logs(&'static str, usize),
    Exec(&'static str),
    Healthcheck(&'static str),
    CreateVolume(&'static str),
    Volume(&'static str),
    Volumes,
    RemoveVolume(&'static str),
    CreateSecret(&'static str),
    Secret(&'static str),
    Secrets,
    RemoveSecret(&'static str),
    CreateNetwork(&'static str, bool),
    Network(&'static str),
    RemoveNetwork(&'static str),
    PortIsFree(Protocol, u16),
    Image(&'static str, PullPolicy),
    /// By the digest of the web image, or by one that nobody has.
    Pinned(&'static str, bool),
    ByHand(Hand, &'static str),
    /// A process outside of all containers takes the port, and leaves it.
    Occupy(Protocol, u16),
    Leave(Protocol, u16),
    /// Somebody gives the web image the foreign name, and takes it away.
    Tag,
    Untag,
}

/// What somebody does to a container behind the controller's back.
#[derive(Debug, Clone, Copy)]
pub enum Hand {
    Pause,
    Unpause,
    Kill,
    Start,
    Restart,
    Remove,
}

/// An image, by what its containers do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// Serves, prints a line, and leaves on SIGTERM.
    #[default]
    Web,
    /// Doesn't leave on SIGTERM.
    Stubborn,
    /// Ends at once with exit code 3.
    Exits,
    /// Declares a health check that passes.
    Healthy,
    /// No image at all.
    None,
}

/// What a container is made from.
#[derive(Debug, Clone, Default)]
pub struct Made {
    pub image: Kind,
    pub label: &'static str,
    pub volume: Option<&'static str>,
    pub networks: Vec<&'static str>,
    pub ports: Vec<(Protocol, IpAddr, u16)>,
    pub secret_env: Option<&'static str>,
    pub secret_file: Option<&'static str>,
}

/// The calls that follow from a seed.
pub fn sequence(seed: u64) -> Vec<Call> {
    let random = &mut Rng::with_seed(seed);
    let count = random.usize(8..30);
    let mut calls = Vec::new();
    for name in &CONTAINERS[..2] {
        calls.extend([Call::Create(name, made(random)), Call::Start(name)]);
    }
    calls.extend((0..count).map(|_| call(random)));
    calls.extend([Call::List(None), Call::Volumes, Call::Secrets]);
    calls
}

fn call(random: &mut Rng) -> Call {
    let name = one_of(random, &CONTAINERS);
    match random.u8(..100) {
        0..=11 => Call::Create(name, made(random)),
        12..=27 => Call::Start(name),
        28..=37 => Call::Signal(name, one_of(random, &SIGNALS)),
        38..=39 => Call::WaitStopped(name),
        40..=49 => Call::Remove(name, random.bool()),
        50 => Call::Inspect(name),
        51..=53 => Call::List(one_of(random, &[None, Some("x"), Some("y")])),
        54..=57 => Call::Logs(name, random.usize(..4)),
        58..=60 => Call::Exec(name),
        61..=62 => Call::Healthcheck(name),
        63..=78 => call_of_a_thing(random),
        79..=81 => Call::PortIsFree(one_of(random, &PROTOCOLS), one_of(random, &PORTS)),
        82..=83 => Call::Occupy(one_of(random, &PROTOCOLS), one_of(random, &PORTS)),
        84 => Call::Leave(one_of(random, &PROTOCOLS), one_of(random, &PORTS)),
        85..=87 => image_call(random),
        _ => {
            let hands = [
                Hand::Pause,
                Hand::Pause,
                Hand::Unpause,
                Hand::Kill,
                Hand::Start,
                Hand::Restart,
                Hand::Remove,
            ];
            Call::ByHand(one_of(random, &hands), name)
        }
    }
}

fn call_of_a_thing(random: &mut Rng) -> Call {
    let volume = one_of(random, &VOLUMES);
    let network = one_of(random, &NETWORKS);
    let secret = one_of(random, &SECRETS);
    match random.u8(..16) {
        0..=1 => Call::CreateVolume(volume),
        2 => Call::Volume(volume),
        3 => Call::Volumes,
        4..=5 => Call::RemoveVolume(volume),
        6..=7 => Call::CreateSecret(secret),
        8 => Call::Secret(secret),
        9 => Call::Secrets,
        10 => Call::RemoveSecret(secret),
        11..=12 => Call::CreateNetwork(network, random.bool()),
        13 => Call::Network(network),
        _ => Call::RemoveNetwork(network),
    }
}

fn image_call(random: &mut Rng) -> Call {
    let policies = [
        PullPolicy::Never,
        PullPolicy::IfNotPresent,
        PullPolicy::IfTagChanged,
        PullPolicy::Always,
    ];
    let reference = one_of(random, &[Kind::Web.reference(), NOBODY, FOREIGN, FOREIGN]);
    match random.u8(..6) {
        0..=2 => Call::Image(reference, one_of(random, &policies)),
        3 => Call::Pinned(reference, random.bool()),
        4 => Call::Tag,
        _ => Call::Untag,
    }
}

fn made(random: &mut Rng) -> Made {
    let kinds = [
        Kind::Web,
        Kind::Web,
        Kind::Web,
        Kind::Stubborn,
        Kind::Exits,
        Kind::Healthy,
    ];
    let image = if random.u8(..20) == 0 {
        Kind::None
    } else {
        one_of(random, &kinds)
    };
    let networks = match random.u8(..6) {
        0..=3 => Vec::new(),
        4 => vec![one_of(random, &NETWORKS)],
        _ => NETWORKS.to_vec(),
    };
    Made {
        image,
        label: one_of(random, &["x", "y"]),
        volume: maybe(random, 3, &VOLUMES),
        networks,
        ports: ports(random),
        secret_env: maybe(random, 6, &SECRETS),
        secret_file: maybe(random, 6, &SECRETS),
    }
}

/// One of these, once in so many times.
fn maybe(random: &mut Rng, times: u8, all: &[&'static str]) -> Option<&'static str> {
    (random.u8(..times) == 0).then(|| one_of(random, all))
}

fn ports(random: &mut Rng) -> Vec<(Protocol, IpAddr, u16)> {
    if random.bool() {
        return Vec::new();
    }
    let ips = [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED].map(IpAddr::V4);
    let host = one_of(random, &[0, PORTS[0], PORTS[0], PORTS[1]]);
    vec![(one_of(random, &PROTOCOLS), one_of(random, &ips), host)]
}

impl Kind {
    /// All that there are images of.
    pub const ALL: [Self; 4] = [Self::Web, Self::Stubborn, Self::Exits, Self::Healthy];

    /// Its reference, on the double and on the real one.
    pub const fn reference(self) -> &'static str {
        match self {
            Self::Web => "localhost/demo-web:1",
            Self::Stubborn => "localhost/demo-web:ignores-term",
            Self::Exits => "localhost/demo-web:exits-at-once",
            Self::Healthy => "localhost/demo-web:with-healthcheck",
            Self::None => NOBODY,
        }
    }

    /// The line that its containers print at each start.
    pub const fn line(self) -> &'static str {
        match self {
            Self::Exits => "leaving at once",
            _ => "serving 1",
        }
    }
}
