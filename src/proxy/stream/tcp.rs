//! One TCP connection's way: look up, count in, connect, copy both ways.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

use super::{Cutoff, Failure, Shared};
use crate::manifest::Protocol;
use crate::proxy::route::{Admission, StreamRoute};
use crate::proxy::upstream::InFlight;
use crate::traffic::{Backend, Listener};

/// After how long a silent peer is asked whether it still lives, and how often then.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(10));
/// After how many questions without an answer it doesn't.
const KEEP_ALIVE_TRIES: u32 = 6;

/// Serves a client's connection to its end.
pub(super) async fn serve(mut client: TcpStream, listener: Listener, shared: Arc<Shared>) {
    set_up(&client);
    if let Err(failure) = pass(&mut client, listener, &shared).await {
        shared
            .metrics
            .stream_failed(Protocol::Tcp, failure.reason());
        // An orderly end would tell the client that it has got everything.
        reset_at_close(&client);
    }
}

async fn pass(client: &mut TcpStream, listener: Listener, shared: &Shared) -> Result<(), Failure> {
    let (route, in_flight, mut backend) = connect(listener, shared).await?;
    let _counted = route.metrics.opened();
    let ended = tokio::select! {
        // Half-closed is still open: it ends when both sides have ended.
        copied = tokio::io::copy_bidirectional(client, &mut backend) => {
            copied.map(drop).map_err(|_| Failure::Broken)
        }
        () = in_flight.upstream().link.expired() => Err(Failure::Drained),
        () = shared.hard_stop.cancelled() => Err(Failure::Stopped),
    };
    if ended.is_err() {
        reset_at_close(&backend);
    }
    ended
}

/// A connection to the least busy backend; when that one can't be reached, to one
/// other.
async fn connect(
    listener: Listener,
    shared: &Shared,
) -> Result<(Arc<StreamRoute>, InFlight<Cutoff>, TcpStream), Failure> {
    let mut unreachable: Option<(Backend, Failure)> = None;
    loop {
        let route = shared.switch.stream(listener).ok_or(Failure::NoBackend)?;
        let except = unreachable.as_ref().map(|(backend, _)| backend);
        let in_flight = match route.enter(except) {
            Admission::Entered(in_flight) => in_flight,
            Admission::Withdrawn => continue,
            Admission::NoBackend => {
                return Err(unreachable.map_or(Failure::NoBackend, |(_, failure)| failure));
            }
        };
        let backend = &in_flight.upstream().backend;
        let opened = TcpStream::connect(backend.address);
        let failure = match tokio::time::timeout(shared.limits.connect, opened).await {
            Ok(Ok(stream)) => {
                set_up(&stream);
                return Ok((route, in_flight, stream));
            }
            Ok(Err(error)) => {
                tracing::debug!(backend = %backend.address, %error, "no connection");
                Failure::Refused
            }
            Err(_) => Failure::ConnectTimeout,
        };
        if unreachable.is_some() {
            return Err(failure);
        }
        unreachable = Some((backend.clone(), failure));
    }
}

/// Bytes go on at once, and a peer that has vanished is noticed.
fn set_up(stream: &TcpStream) {
    let (idle, interval) = KEEP_ALIVE;
    let set = || -> io::Result<()> {
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, idle)?;
        sockopt::set_tcp_keepintvl(stream, interval)?;
        Ok(sockopt::set_tcp_keepcnt(stream, KEEP_ALIVE_TRIES)?)
    };
    // Fails only on a connection that is closed already.
    let _ = set();
}

fn reset_at_close(stream: &TcpStream) {
    // As above.
    let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}
