//! The calls, and how they follow from a seed.

use std::collections::BTreeSet;
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
const HANDS: [Hand; 8] = [
    Hand::Pause,
    Hand::Pause,
    Hand::Unpause,
    Hand::Unpause,
    Hand::Kill,
    Hand::Start,
    Hand::Restart,
    Hand::Remove,
];
const KINDS: [Kind; 7] = [
    Kind::Web,
    Kind::Web,
    Kind::Web,
    Kind::Stubborn,
    Kind::Exits,
    Kind::Healthy,
    Kind::Healthy,
];
const POLICIES: [PullPolicy; 4] = [
    PullPolicy::Never,
    PullPolicy::IfNotPresent,
    PullPolicy::IfTagChanged,
    PullPolicy::Always,
];
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
    let mut random = Rng::with_seed(seed);
    let count = random.usize(12..34);
    let mut writer = Writer {
        random,
        there: BTreeSet::new(),
        calls: Vec::new(),
    };
    for name in ["s0", "n0"] {
        if writer.random.bool() {
            writer.make(name);
        }
    }
    for name in &CONTAINERS[..2] {
        writer.create(name);
        writer.calls.push(Call::Start(name));
    }
    while writer.calls.len() < count {
        writer.call();
    }
    writer
        .calls
        .extend([Call::List(None), Call::Volumes, Call::Secrets]);
    writer.calls
}

/// Writes a sequence that is mostly about what is there.
struct Writer {
    random: Rng,
    /// What was made and not removed, as far as can be told beforehand.
    there: BTreeSet<&'static str>,
    calls: Vec<Call>,
}

impl Writer {
    fn call(&mut self) {
        let name = self.one_there(&CONTAINERS);
        let random = &mut self.random;
        let call = match random.u8(..100) {
            0..=9 => {
                let absent = CONTAINERS.iter().find(|name| !self.there.contains(*name));
                let name = absent.filter(|_| random.u8(..5) > 0).unwrap_or(&name);
                return self.create(name);
            }
            10..=27 => Call::Start(name),
            28..=38 => Call::Signal(name, one_of(random, &SIGNALS)),
            39..=40 => Call::WaitStopped(name),
            41..=47 => {
                let force = random.bool();
                if force {
                    self.there.remove(name);
                }
                Call::Remove(name, force)
            }
            48 => Call::Inspect(name),
            49..=50 => Call::List(one_of(random, &[None, Some("x"), Some("y")])),
            51..=54 => Call::Logs(name, random.usize(..4)),
            55..=56 => Call::Exec(name),
            57..=58 => Call::Healthcheck(name),
            59..=71 => return self.call_of_a_thing(),
            72..=75 => Call::PortIsFree(one_of(random, &PROTOCOLS), one_of(random, &PORTS)),
            76..=78 => Call::Occupy(one_of(random, &PROTOCOLS), one_of(random, &PORTS)),
            79 => Call::Leave(one_of(random, &PROTOCOLS), one_of(random, &PORTS)),
            80..=82 => image_call(random),
            _ => {
                let hand = one_of(random, &HANDS);
                if matches!(hand, Hand::Remove) {
                    self.there.remove(name);
                }
                Call::ByHand(hand, name)
            }
        };
        self.calls.push(call);
    }

    /// One of these that is there, mostly.
    fn one_there(&mut self, all: &[&'static str]) -> &'static str {
        let there = all.iter().copied();
        let there: Vec<_> = there.filter(|it| self.there.contains(it)).collect();
        if there.is_empty() || self.random.u8(..12) == 0 {
            one_of(&mut self.random, all)
        } else {
            one_of(&mut self.random, &there)
        }
    }

    fn create(&mut self, name: &'static str) {
        let made = self.made();
        self.there.insert(name);
        self.calls.push(Call::Create(name, made));
    }

    /// Makes a volume, a network or a secret.
    fn make(&mut self, name: &'static str) {
        self.there.insert(name);
        self.calls.push(match &name[..1] {
            "v" => Call::CreateVolume(name),
            "n" => Call::CreateNetwork(name, self.random.bool()),
            _ => Call::CreateSecret(name),
        });
    }

    fn call_of_a_thing(&mut self) {
        let volume = one_of(&mut self.random, &VOLUMES);
        let network = one_of(&mut self.random, &NETWORKS);
        let secret = one_of(&mut self.random, &SECRETS);
        self.calls.push(match self.random.u8(..14) {
            0..=2 => {
                let name = one_of(&mut self.random, &[volume, network, secret]);
                return self.make(name);
            }
            3 => Call::Volume(volume),
            4 => Call::Volumes,
            5..=7 => Call::RemoveVolume(volume),
            8 => Call::Secret(secret),
            9 => Call::Secrets,
            10 => {
                self.there.remove(secret);
                Call::RemoveSecret(secret)
            }
            11 => Call::Network(network),
            _ => Call::RemoveNetwork(network),
        });
    }

    fn made(&mut self) -> Made {
        let image = match self.random.u8(..30) {
            0 => Kind::None,
            _ => one_of(&mut self.random, &KINDS),
        };
        Made {
            image,
            label: one_of(&mut self.random, &["x", "y"]),
            volume: (self.random.u8(..3) == 0).then(|| one_of(&mut self.random, &VOLUMES)),
            networks: self.some_there(&NETWORKS),
            ports: ports(&mut self.random),
            secret_env: self.some_there(&SECRETS).first().copied(),
            secret_file: self.some_there(&SECRETS).first().copied(),
        }
    }

    /// Some of these that are there; rarely one that may not be.
    fn some_there(&mut self, all: &[&'static str]) -> Vec<&'static str> {
        match self.random.u8(..20) {
            0 => vec![one_of(&mut self.random, all)],
            1..=6 => {
                let there = all.iter().filter(|it| self.there.contains(*it));
                there.copied().collect()
            }
            _ => Vec::new(),
        }
    }
}

fn image_call(random: &mut Rng) -> Call {
    let references = [Kind::Web.reference(), NOBODY, FOREIGN, FOREIGN];
    let reference = one_of(random, &references);
    match random.u8(..6) {
        0..=2 => Call::Image(reference, one_of(random, &POLICIES)),
        3 => Call::Pinned(reference, random.bool()),
        4 => Call::Tag,
        _ => Call::Untag,
    }
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
