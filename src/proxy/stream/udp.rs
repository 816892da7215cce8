//! The sessions of one UDP socket: a client's address leads to one backend until
//! it is silent for a while, and what the backend says goes back to that client.
//!
//! Each session is counted in at its backend for as long as it lasts. A withdrawal
//! ends it: the client's next datagram begins another session, with whoever serves
//! then. What the withdrawn backend still answers is passed on until it is quiet, or
//! the drain is over. When the listener closes, its sessions end at once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SendFlags;
use tokio::net::UdpSocket;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Cutoff, Failure, Shared};
use crate::manifest::Protocol;
use crate::proxy::metrics::Counted;
use crate::proxy::route::Admission;
use crate::proxy::upstream::InFlight;
use crate::traffic::{Backend, Listener};

/// The largest datagram there is.
const LARGEST: usize = 65_535;
/// Replies that are passed on in one go, before others have their turn.
const AT_ONCE: usize = 32;
/// Pause after the socket failed.
const PAUSE: Duration = Duration::from_millis(100);

thread_local! {
    /// For replies: the many sessions that wait need no memory for theirs.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; LARGEST]);
}

/// Serves one socket until `close`.
pub(super) async fn serve(
    socket: UdpSocket,
    listener: Listener,
    shared: Arc<Shared>,
    close: CancellationToken,
) {
    let room = Semaphore::new(shared.limits.udp_sessions);
    let sessions = Arc::new(Sessions {
        socket,
        listener,
        shared,
        room: Arc::new(room),
        began: Instant::now(),
        table: Mutex::default(),
        tasks: TaskTracker::new(),
        close,
    });
    let mut datagram = vec![0; LARGEST];
    loop {
        let received = tokio::select! {
            () = sessions.close.cancelled() => break,
            received = sessions.socket.recv_from(&mut datagram) => received,
        };
        match received {
            Ok((length, client)) => {
                let datagram = datagram.get(..length).unwrap_or_default();
                if let Err(failure) = sessions.deliver(client, datagram) {
                    sessions.count(failure);
                }
            }
            Err(error) => {
                tracing::warn!(%listener, %error, "no datagram could be read");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    sessions.tasks.close();
    sessions.tasks.wait().await;
}

/// All sessions of one socket.
#[derive(Debug)]
struct Sessions {
    socket: UdpSocket,
    listener: Listener,
    shared: Arc<Shared>,
    /// Places for sessions.
    room: Arc<Semaphore>,
    /// When times began to be counted.
    began: Instant,
    /// By client. A session of a withdrawn backend may live on beside it.
    table: Mutex<HashMap<SocketAddr, Arc<Session>>>,
    tasks: TaskTracker,
    close: CancellationToken,
}

/// One client with its backend.
#[derive(Debug)]
struct Session {
    client: SocketAddr,
    /// Connected to the backend: nobody else's datagrams come in.
    socket: UdpSocket,
    in_flight: InFlight<Cutoff>,
    /// Milliseconds from the socket's beginning to the last datagram, either way.
    last: AtomicU64,
    ended: CancellationToken,
    /// Its place, which another session may take over.
    place: Mutex<Option<OwnedSemaphorePermit>>,
    _counted: Counted,
}

impl Sessions {
    /// Sends a client's datagram to its session's backend.
    ///
    /// All of it happens under the table's lock, which a session's end takes too:
    /// so nothing is sent to a backend whose session isn't counted in any more.
    fn deliver(self: &Arc<Self>, client: SocketAddr, datagram: &[u8]) -> Result<(), Failure> {
        let mut table = self.lock();
        let mut unreachable: Option<Backend> = None;
        loop {
            let living = table.get(&client).filter(|session| session.lives());
            let session = match living {
                Some(session) => Arc::clone(session),
                None => self.open(&mut table, client, unreachable.as_ref())?,
            };
            session.touch(self.began);
            // Not by tokio, which doesn't know yet that a new socket can be written to.
            match rustix::net::send(&session.socket, datagram, SendFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN) => return Err(Failure::Dropped),
                // What an earlier datagram brought about. This one wasn't sent.
                Err(_) => {
                    session.ended.cancel();
                    let backend = session.in_flight.upstream().backend.clone();
                    if unreachable.replace(backend).is_some() {
                        return Err(Failure::Refused);
                    }
                }
            }
        }
    }

    fn open(
        self: &Arc<Self>,
        table: &mut HashMap<SocketAddr, Arc<Session>>,
        client: SocketAddr,
        unreachable: Option<&Backend>,
    ) -> Result<Arc<Session>, Failure> {
        let place = self.place(table).ok_or(Failure::Sessions)?;
        let (in_flight, counted) = self.enter(unreachable)?;
        let socket = connect(in_flight.upstream().backend.address).map_err(|error| {
            tracing::warn!(listener = %self.listener, %error, "no socket for a session");
            Failure::Dropped
        })?;
        let session = Arc::new(Session {
            client,
            socket,
            in_flight,
            last: AtomicU64::new(0),
            ended: self.close.child_token(),
            place: Mutex::new(Some(place)),
            _counted: counted,
        });
        session.touch(self.began);
        table.insert(client, Arc::clone(&session));
        self.tasks
            .spawn(Arc::clone(self).reply(Arc::clone(&session)));
        Ok(session)
    }

    /// Counts a session in; at another backend than the unreachable one, if there is
    /// another.
    fn enter(&self, unreachable: Option<&Backend>) -> Result<(InFlight<Cutoff>, Counted), Failure> {
        let mut except = unreachable;
        loop {
            let route = self.shared.switch.stream(self.listener);
            let route = route.ok_or(Failure::NoBackend)?;
            match route.enter(except) {
                Admission::Entered(in_flight) => return Ok((in_flight, route.metrics.opened())),
                Admission::Withdrawn => {}
                Admission::NoBackend if except.is_some() => except = None,
                Admission::NoBackend => return Err(Failure::NoBackend),
            }
        }
    }

    /// A free place, or that of the session which has been quiet for longest, if it
    /// has been long enough to expect no answer.
    fn place(&self, table: &HashMap<SocketAddr, Arc<Session>>) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.room).try_acquire_owned() {
            return Some(place);
        }
        let quietest = table.values().min_by_key(|session| session.last())?;
        let quiet = quietest.since(self.began) + self.shared.limits.udp_quiet <= Instant::now();
        if !quiet {
            return None;
        }
        quietest.ended.cancel();
        lock(&quietest.place).take()
    }

    /// Passes a backend's datagrams on to its client until the session ends.
    async fn reply(self: Arc<Self>, session: Arc<Session>) {
        let upstream = session.in_flight.upstream();
        let failure = tokio::select! {
            () = session.ended.cancelled() => None,
            failure = self.pass_on(&session) => Some(failure),
            () = self.silence(&session) => None,
            () = upstream.link.expired() => Some(Failure::Drained),
        };
        if let Some(failure) = failure {
            self.count(failure);
        }
        let mut table = self.lock();
        let current = table.get(&session.client);
        if current.is_some_and(|current| Arc::ptr_eq(current, &session)) {
            table.remove(&session.client);
        }
    }

    async fn pass_on(&self, session: &Session) -> Failure {
        loop {
            if session.socket.readable().await.is_err() {
                return Failure::Broken;
            }
            let passed = BUFFER.with_borrow_mut(|buffer| self.pass_on_ready(session, buffer));
            if let Err(failure) = passed {
                return failure;
            }
            tokio::task::yield_now().await;
        }
    }

    /// What has come by now.
    fn pass_on_ready(&self, session: &Session, buffer: &mut [u8]) -> Result<(), Failure> {
        for _ in 0..AT_ONCE {
            let length = match session.socket.try_recv(buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err(Failure::Refused),
            };
            session.touch(self.began);
            let datagram = buffer.get(..length).unwrap_or_default();
            if self.socket.try_send_to(datagram, session.client).is_err() {
                self.count(Failure::Dropped);
            }
        }
        Ok(())
    }

    /// Returns when the session has been silent for its time: a short one once the
    /// backend is withdrawn.
    async fn silence(&self, session: &Session) {
        let limits = &self.shared.limits;
        let link = &session.in_flight.upstream().link;
        tokio::select! {
            () = session.silent(self.began, limits.udp_idle) => return,
            () = link.withdrawal() => {}
        }
        session.silent(self.began, limits.udp_quiet).await;
    }

    fn count(&self, failure: Failure) {
        let metrics = &self.shared.metrics;
        metrics.stream_failed(Protocol::Udp, failure.reason());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Arc<Session>>> {
        lock(&self.table)
    }
}

impl Session {
    /// Whether a client's datagram may still go here.
    fn lives(&self) -> bool {
        !self.ended.is_cancelled() && !self.in_flight.upstream().is_withdrawn()
    }

    fn touch(&self, began: Instant) {
        let now = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    fn since(&self, began: Instant) -> Instant {
        began + Duration::from_millis(self.last())
    }

    async fn silent(&self, began: Instant, time: Duration) {
        loop {
            let until = self.since(began) + time;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

/// A socket that speaks with this backend only.
fn connect(backend: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match backend {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = std::net::UdpSocket::bind(any)?;
    socket.connect(backend)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
