//! Probes over real connections.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use async_trait::async_trait;
use bytes::Bytes;
use http::Request;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::{NoAnswer, Prober};

/// Opens a connection of its own for every try, and closes it after the answer's head.
#[derive(Debug, Clone, Copy, Default)]
pub struct NetworkProber;

#[async_trait]
impl Prober for NetworkProber {
    async fn http(&self, address: SocketAddr, path: &str) -> Result<u16, NoAnswer> {
        let request = Request::get(path)
            .header(HOST, address.to_string())
            .header(USER_AGENT, concat!("podherd/", env!("CARGO_PKG_VERSION")))
            .header(CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .map_err(|_| NoAnswer::Ours("the path isn't one".to_owned()))?;
        let stream = connect(address).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| no_answer(&error))?;
        // Polled here rather than in a task, so that nothing outlives this future.
        let mut answer = std::pin::pin!(sender.send_request(request));
        tokio::select! {
            biased;
            _ = connection => {}
            early = &mut answer => return status(early),
        }
        // The connection may have ended just after it brought the answer.
        status(answer.await)
    }

    async fn tcp(&self, address: SocketAddr) -> Result<(), NoAnswer> {
        connect(address).await.map(drop)
    }
}

fn status<B>(answer: hyper::Result<http::Response<B>>) -> Result<u16, NoAnswer> {
    match answer {
        Ok(answer) => Ok(answer.status().as_u16()),
        Err(error) => Err(no_answer(&error)),
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, NoAnswer> {
    TcpStream::connect(address)
        .await
        .map_err(|error| no_connection(&error))
}

/// The cause in a few words; an answer's bytes are never among them.
fn no_answer(error: &hyper::Error) -> NoAnswer {
    let io = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
    let why = match io {
        Some(io) => return no_connection(io),
        None if error.is_parse() => "the answer isn't HTTP/1",
        None if error.is_incomplete_message() => "the connection was closed without an answer",
        None => "the connection broke",
    };
    NoAnswer::Theirs(why.to_owned())
}

/// Whose fault it is that there is no connection, or none any more.
pub(super) fn no_connection(error: &io::Error) -> NoAnswer {
    let why = io_in_words(error);
    if is_ours(error) {
        NoAnswer::Ours(why)
    } else {
        NoAnswer::Theirs(why)
    }
}

/// Whether this process or its host is out of something: files, ports, memory, rights.
fn is_ours(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let ours = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
        Errno::ADDRNOTAVAIL,
        Errno::NETDOWN,
        Errno::NETUNREACH,
        Errno::PERM,
        Errno::ACCESS,
    ];
    let code = error.raw_os_error();
    code.is_some_and(|code| ours.iter().any(|errno| errno.raw_os_error() == code))
}

fn io_in_words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        ErrorKind::ConnectionReset => "connection reset".to_owned(),
        kind => kind.to_string(),
    }
}
