//! What an answer of etcd or a broken connection means to us.
//!
//! An error is a refusal only when etcd itself said so, in words we know. All
//! else may hide a write that happened, and is [`StoreError::Unavailable`].

use std::error::Error as _;
use std::io;

use etcd_client::Error;
use tonic::{Code, Status};

use super::super::StoreError;

/// Turns the client's error into ours.
pub(super) fn classify(call: &'static str, error: &Error) -> StoreError {
    let refused = |message: &str| StoreError::Refused {
        call,
        message: message.trim_start_matches("etcdserver: ").to_owned(),
    };
    match error {
        Error::GRpcStatus(status) => classify_status(call, status),
        // The client's own word for a renewal that was answered with TTL 0.
        Error::LeaseKeepAliveError(message) if message == "lease not found" => {
            StoreError::LeaseExpired
        }
        Error::InvalidArgs(_)
        | Error::InvalidUri(_)
        | Error::InvalidMetadataValue(_)
        | Error::Utf8Error(_)
        | Error::EndpointsNotManaged
        | Error::EndpointError(_)
        | Error::ElectError(_) => refused(&error.to_string()),
        // Before a connection is tried, this is a certificate that can't be used.
        Error::TransportError(_) if call == "connect" => refused(&chain(error)),
        Error::IoError(_)
        | Error::TransportError(_)
        | Error::WatchError(_)
        | Error::LeaseKeepAliveError(_)
        | Error::Internal(_) => unavailable(call, chain(error)),
    }
}

fn classify_status(call: &'static str, status: &Status) -> StoreError {
    let message = status.message();
    let refused = || StoreError::Refused {
        call,
        message: message.trim_start_matches("etcdserver: ").to_owned(),
    };
    match status.code() {
        Code::ResourceExhausted if message.contains("database space exceeded") => {
            StoreError::NoSpace
        }
        Code::ResourceExhausted if message.contains("larger than max") => refused(),
        Code::InvalidArgument
            if message.contains("authentication failed")
                || message.contains("user name is empty") =>
        {
            StoreError::Denied { call }
        }
        Code::PermissionDenied | Code::Unauthenticated => StoreError::Denied { call },
        Code::NotFound if message.contains("lease not found") => StoreError::LeaseExpired,
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented => refused(),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => unavailable(call, status_chain(status)),
    }
}

/// An ambiguous failure.
pub(super) fn unavailable(call: &'static str, message: impl Into<String>) -> StoreError {
    StoreError::Unavailable {
        call,
        message: message.into(),
    }
}

/// Whether the revision that was asked for is compacted.
pub(super) fn is_compacted(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status)
        if status.code() == Code::OutOfRange && status.message().contains("compacted"))
}

/// Whether the token is of an older set of users and roles: etcd did nothing,
/// and a new token helps. The client itself only renews a token that has expired.
pub(super) fn is_token_outdated(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.message().contains("auth store is old"))
}

/// Whether no connection was made: certainly nothing was sent, and another
/// endpoint may answer.
pub(super) fn was_not_sent(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else {
        return false;
    };
    let mut source = status.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
            );
        }
        source = error.source();
    }
    false
}

/// Whether the call may succeed when it is simply made again.
pub(super) fn is_passing(error: &Error) -> bool {
    matches!(classify("", error), StoreError::Unavailable { .. })
}

/// An error with its causes, which the client's messages leave out.
fn chain(error: &Error) -> String {
    match error {
        Error::GRpcStatus(status) => status_chain(status),
        Error::TransportError(error) => with_causes(error.to_string(), error.source()),
        other => other.to_string(),
    }
}

fn status_chain(status: &Status) -> String {
    with_causes(status.message().to_owned(), status.source())
}

fn with_causes(mut text: String, mut cause: Option<&(dyn std::error::Error + 'static)>) -> String {
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: Code, message: &str) -> StoreError {
        classify("commit", &Error::GRpcStatus(Status::new(code, message)))
    }

    #[test]
    fn only_what_etcd_refuses_in_known_words_is_certain() {
        let lost = [
            (Code::Unknown, "transport error"),
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::ResourceExhausted, "etcdserver: too many requests"),
            (Code::Cancelled, "operation was canceled"),
            (Code::Internal, "h2 protocol error"),
        ];
        for (code, message) in lost {
            assert!(of(code, message).is_ambiguous(), "{message}");
        }
    }

    #[test]
    fn each_refusal_is_told_from_the_others() {
        assert!(matches!(
            of(
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded"
            ),
            StoreError::NoSpace
        ));
        assert!(matches!(
            of(Code::NotFound, "etcdserver: requested lease not found"),
            StoreError::LeaseExpired
        ));
        assert!(matches!(
            of(
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password"
            ),
            StoreError::Denied { .. }
        ));
        assert!(matches!(
            of(Code::PermissionDenied, "etcdserver: permission denied"),
            StoreError::Denied { .. }
        ));
        let StoreError::Refused { message, .. } =
            of(Code::InvalidArgument, "etcdserver: request is too large")
        else {
            unreachable!("not a refusal");
        };
        assert_eq!(message, "request is too large");
    }

    #[test]
    fn a_lost_renewal_is_not_an_expired_lease() {
        let expired = Error::LeaseKeepAliveError("lease not found".to_owned());
        assert!(matches!(
            classify("keep alive", &expired),
            StoreError::LeaseExpired
        ));
        let lost = Error::LeaseKeepAliveError("channel closed".to_owned());
        assert!(classify("keep alive", &lost).is_ambiguous());
    }
}
