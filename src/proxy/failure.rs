//! What the proxy answers by itself, one variant for each thing that can be
//! looked into: told apart by status, by text, and by the metric's reason.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use super::body::Answer;

/// Why a request got no answer of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// No host, several, or a malformed one.
    Host,
    /// A method that only a forward proxy serves.
    Connect,
    /// Nothing is routed there.
    NoRoute,
    /// The data plane hasn't read the graph yet.
    Starting,
    /// The service is withdrawn.
    NoBackend,
    /// The backend refused the connection, or can't be reached.
    Refused,
    /// The backend didn't accept the connection in time.
    ConnectTimeout,
    /// The backend broke off, or didn't speak HTTP.
    BadAnswer,
    /// The backend took the request and didn't begin to answer in time.
    Timeout,
    /// The client broke its request off.
    ClientBroke,
    /// The client didn't go on sending its request.
    ClientStalled,
}

impl Failure {
    /// The status code.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Host | Self::ClientBroke => StatusCode::BAD_REQUEST,
            Self::Connect => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::Starting | Self::NoBackend => StatusCode::SERVICE_UNAVAILABLE,
            Self::Refused | Self::BadAnswer => StatusCode::BAD_GATEWAY,
            Self::ConnectTimeout | Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::ClientStalled => StatusCode::REQUEST_TIMEOUT,
        }
    }

    /// The metric's label.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Connect => "connect",
            Self::NoRoute => "no_route",
            Self::Starting => "starting",
            Self::NoBackend => "no_backend",
            Self::Refused => "refused",
            Self::ConnectTimeout => "connect_timeout",
            Self::BadAnswer => "bad_answer",
            Self::Timeout => "timeout",
            Self::ClientBroke => "client_broke",
            Self::ClientStalled => "client_stalled",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Host => "the request must name exactly one host\n",
            Self::Connect => "this is no forward proxy\n",
            Self::NoRoute => "nothing is routed here\n",
            Self::Starting => "the proxy is starting\n",
            Self::NoBackend => "the service is not available at the moment\n",
            Self::Refused => "the service can't be reached\n",
            Self::ConnectTimeout => "the service didn't accept the connection in time\n",
            Self::BadAnswer => "the service broke off before it answered\n",
            Self::Timeout => "the service didn't answer in time\n",
            Self::ClientBroke => "the request ended early\n",
            Self::ClientStalled => "the request didn't go on\n",
        }
    }

    /// The answer.
    pub fn answer(self) -> Response<Answer> {
        let text = Bytes::from_static(self.text().as_bytes());
        let mut response = Response::new(Answer::Own(Some(text)));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        match self {
            Self::Starting | Self::NoBackend => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Self::Connect => {
                headers.insert(
                    ALLOW,
                    HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
                );
            }
            Self::Host
            | Self::NoRoute
            | Self::Refused
            | Self::ConnectTimeout
            | Self::BadAnswer
            | Self::Timeout
            | Self::ClientBroke
            | Self::ClientStalled => {}
        }
        response
    }
}
