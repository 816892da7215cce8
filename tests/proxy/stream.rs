//! What TCP and UDP tests share: free ports, echoing backends, rules.

use std::net::{SocketAddr, TcpListener as StdListener, UdpSocket as StdUdp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use podherd::manifest::{Protocol, Timespan};
use podherd::traffic::{AppRoutes, Listener, StreamRule};
use prometheus::Registry;
use prometheus::proto::{Metric, MetricFamily};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::world::{LOOPBACK, nothing, record};

/// A port that nobody has, out of the range from which clients get theirs.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let offset = u16::try_from(std::process::id() % 100).unwrap() * 100;
    loop {
        let port = 12_000 + offset + NEXT.fetch_add(1, Ordering::SeqCst);
        let at = at(port);
        if StdListener::bind(at).is_ok() && StdUdp::bind(at).is_ok() {
            return port;
        }
    }
}

pub fn at(port: u16) -> SocketAddr {
    SocketAddr::new(LOOPBACK, port)
}

pub fn tcp(port: u16) -> Listener {
    let protocol = Protocol::Tcp;
    Listener { protocol, port }
}

/// A backend that says its name and a line break, and then what it hears.
pub struct Echo {
    pub name: String,
    pub address: SocketAddr,
    connections: Arc<AtomicU64>,
    _stop: DropGuard,
}

impl Echo {
    pub async fn tcp(name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (echo, stop) = Self::at(name, address);
        let (name, connections) = (echo.name.clone(), Arc::clone(&echo.connections));
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                connections.fetch_add(1, Ordering::SeqCst);
                let greeting = format!("{name}\n");
                tokio::spawn(async move {
                    // A client may leave at any time.
                    let _ = stream.write_all(greeting.as_bytes()).await;
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        }));
        echo
    }

    /// Answers each datagram with its name, a colon, and the datagram.
    pub async fn udp(name: &str) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (echo, stop) = Self::at(name, socket.local_addr().unwrap());
        let name = echo.name.clone();
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            let mut buffer = [0; 2048];
            loop {
                let (length, client) = socket.recv_from(&mut buffer).await.unwrap();
                let said = String::from_utf8_lossy(&buffer[..length]);
                let answer = format!("{name}:{said}");
                socket.send_to(answer.as_bytes(), client).await.unwrap();
            }
        }));
        echo
    }

    fn at(name: &str, address: SocketAddr) -> (Self, CancellationToken) {
        let stop = CancellationToken::new();
        let echo = Self {
            name: name.to_owned(),
            address,
            connections: Arc::default(),
            _stop: stop.clone().drop_guard(),
        };
        (echo, stop)
    }

    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A rule whose withdrawn backends have this long.
pub fn rule(listen: u16, drain: Timespan, backends: &[(&str, SocketAddr)]) -> StreamRule {
    StreamRule {
        listen,
        service: "echo".parse().unwrap(),
        drain,
        backends: backends
            .iter()
            .map(|(name, address)| record(name, *address))
            .collect(),
    }
}

const DRAIN: Timespan = Timespan::from_secs(60);

pub fn tcp_routes(listen: u16, echoes: &[&Echo]) -> AppRoutes {
    AppRoutes {
        tcp: vec![rule(listen, DRAIN, &backends(echoes))],
        ..nothing()
    }
}

pub fn udp_routes(listen: u16, echoes: &[&Echo]) -> AppRoutes {
    AppRoutes {
        udp: vec![rule(listen, DRAIN, &backends(echoes))],
        ..nothing()
    }
}

fn backends<'e>(echoes: &[&'e Echo]) -> Vec<(&'e str, SocketAddr)> {
    let pair = |echo: &&'e Echo| (echo.name.as_str(), echo.address);
    echoes.iter().map(pair).collect()
}

/// A client's connection, with the name of the backend that it reached.
pub async fn reach(port: u16) -> std::io::Result<(TcpStream, String)> {
    let mut stream = TcpStream::connect(at(port)).await?;
    let mut name = Vec::new();
    loop {
        match stream.read_u8().await? {
            b'\n' => return Ok((stream, String::from_utf8(name).unwrap())),
            letter => name.push(letter),
        }
    }
}

/// Sends these bytes and reads as many back.
pub async fn echoed(stream: &mut TcpStream, said: &[u8]) -> std::io::Result<()> {
    stream.write_all(said).await?;
    let mut heard = vec![0; said.len()];
    stream.read_exact(&mut heard).await?;
    assert_eq!(heard, said);
    Ok(())
}

/// The sum of a whole-numbered metric over the label sets that have this label.
pub fn metric(registry: &Registry, name: &str, label: (&str, &str)) -> i64 {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name);
    let metrics = family.into_iter().flat_map(MetricFamily::get_metric);
    let has = |metric: &&Metric| {
        let mut labels = metric.get_label().iter();
        labels.any(|pair| (pair.name(), pair.value()) == label)
    };
    let value = |metric: &Metric| metric.get_counter().get_value() + metric.get_gauge().get_value();
    let sum: f64 = metrics.filter(has).map(value).sum();
    format!("{sum:.0}").parse().unwrap()
}
