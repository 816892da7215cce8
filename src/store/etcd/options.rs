//! How to reach etcd and who we are there.

use std::fmt;
use std::time::Duration;

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};

use super::super::{StoreError, deadline};

/// HTTP/2 pings while a call or a watch is open. etcd takes a client that pings
/// more often than every 5 s, or while nothing is open, for hostile.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_ANSWER: Duration = Duration::from_secs(5);
const DIAL: Duration = Duration::from_secs(3);

/// How to reach etcd and who we are there. Its `Debug` shows no secret.
#[derive(Clone, Default)]
pub struct EtcdOptions {
    /// `http://host:port` or `https://host:port`, at least one.
    pub endpoints: Vec<String>,
    /// The prefix of our keys: what a role on this etcd lets us read.
    pub prefix: String,
    /// The user, where etcd wants one.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// TLS, for `https` endpoints.
    pub certificates: Certificates,
}

/// PEM texts for TLS. Its `Debug` shows no secret.
#[derive(Clone, Default)]
pub struct Certificates {
    /// Who signed etcd's certificate. `https` needs it: the system's own
    /// authorities have no business in front of an etcd.
    pub ca: Option<Vec<u8>>,
    /// Our certificate, where etcd wants one.
    pub cert: Option<Vec<u8>>,
    /// Its key.
    pub key: Option<Vec<u8>>,
}

impl EtcdOptions {
    /// For these endpoints, without TLS or a user.
    pub fn new(endpoints: Vec<String>, prefix: &str) -> Self {
        Self {
            endpoints,
            prefix: prefix.to_owned(),
            ..Self::default()
        }
    }

    /// The options as the client takes them; wrong combinations are refused here.
    pub(super) fn to_client(&self) -> Result<ConnectOptions, StoreError> {
        if self.endpoints.is_empty() {
            return Err(refused("no endpoint is given: set --etcd"));
        }
        let mut options = ConnectOptions::new()
            .with_connect_timeout(DIAL)
            .with_keep_alive(PING_EVERY, PING_ANSWER)
            .with_keep_alive_while_idle(false)
            .with_tcp_keepalive(PING_EVERY)
            // A member that lost its leader says so at once, instead of a watch
            // that never sees anything.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        match (&self.user, &self.password) {
            (Some(user), Some(password)) => options = options.with_user(user, password),
            (None, None) => {}
            (Some(_), None) => return Err(refused("--etcd-user needs --etcd-password-file")),
            (None, Some(_)) => return Err(refused("--etcd-password-file needs --etcd-user")),
        }
        if let Some(tls) = self.tls()? {
            options = options.with_tls(tls);
        }
        Ok(options)
    }

    fn tls(&self) -> Result<Option<TlsOptions>, StoreError> {
        let Certificates { ca, cert, key } = &self.certificates;
        let https = self
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.starts_with("https://"));
        let secure = match https.count() {
            0 => false,
            count if count == self.endpoints.len() => true,
            _ => return Err(refused("either all endpoints are https or none")),
        };
        // The TLS library takes a file without any for an empty list.
        for (pem, holds, problem) in [
            (ca, "CERTIFICATE-----", "--etcd-ca holds no PEM certificate"),
            (
                cert,
                "CERTIFICATE-----",
                "--etcd-cert holds no PEM certificate",
            ),
            (key, "PRIVATE KEY-----", "--etcd-key holds no PEM key"),
        ] {
            if pem
                .as_ref()
                .is_some_and(|pem| !String::from_utf8_lossy(pem).contains(holds))
            {
                return Err(refused(problem));
            }
        }
        let identity = match (cert, key) {
            (Some(cert), Some(key)) => Some(Identity::from_pem(cert, key)),
            (None, None) => None,
            _ => return Err(refused("--etcd-cert and --etcd-key belong together")),
        };
        if !secure {
            return if ca.is_some() || identity.is_some() {
                Err(refused(
                    "certificates are given, but the endpoints aren't https",
                ))
            } else {
                Ok(None)
            };
        }
        let Some(ca) = ca else {
            return Err(refused("https endpoints need --etcd-ca"));
        };
        let tls = TlsOptions::new()
            .ca_certificate(Certificate::from_pem(ca))
            .timeout(deadline::CONNECT);
        Ok(Some(match identity {
            Some(identity) => tls.identity(identity),
            None => tls,
        }))
    }
}

fn refused(message: &str) -> StoreError {
    StoreError::Refused {
        call: "connect",
        message: message.to_owned(),
    }
}

/// Says whether a secret is set, never what it is.
fn hidden(secret: Option<&impl Sized>) -> &'static str {
    if secret.is_some() { "set" } else { "unset" }
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .field("user", &self.user)
            .field("password", &hidden(self.password.as_ref()))
            .field("certificates", &self.certificates)
            .finish()
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("ca", &hidden(self.ca.as_ref()))
            .field("cert", &hidden(self.cert.as_ref()))
            .field("key", &hidden(self.key.as_ref()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_shown() {
        let options = EtcdOptions {
            endpoints: vec!["https://etcd:2379".to_owned()],
            user: Some("podherd".to_owned()),
            password: Some("hunter2".to_owned()),
            certificates: Certificates {
                ca: None,
                cert: Some(b"public".to_vec()),
                key: Some(b"private".to_vec()),
            },
            ..EtcdOptions::default()
        };
        let shown = format!("{options:?}");
        assert!(shown.contains("podherd"), "{shown}");
        let private = format!("{:?}", b"private");
        assert!(
            !shown.contains("hunter2") && !shown.contains(&private),
            "{shown}"
        );
    }

    #[test]
    fn options_that_contradict_each_other_are_refused_by_name() {
        let base = EtcdOptions::new(vec!["http://etcd:2379".to_owned()], "/podherd");
        let mut user = base.clone();
        user.user = Some("podherd".to_owned());
        let pem = || Some(b"-----BEGIN CERTIFICATE-----".to_vec());
        let mut plain = base.clone();
        plain.certificates.ca = pem();
        let mut cert = base.clone();
        cert.certificates.cert = pem();
        let mut empty = base.clone();
        empty.certificates.ca = Some(Vec::new());
        let mut https = base.clone();
        https.endpoints = vec!["https://etcd:2379".to_owned()];
        let mut mixed = https.clone();
        mixed.endpoints.push("http://etcd:2379".to_owned());
        let none = EtcdOptions::default();
        for (options, named) in [
            (user, "--etcd-password-file"),
            (plain, "https"),
            (cert, "--etcd-key"),
            (empty, "--etcd-ca holds no"),
            (https, "--etcd-ca"),
            (mixed, "all endpoints"),
            (none, "--etcd"),
        ] {
            let error = options.to_client().err().map(|error| error.to_string());
            assert!(
                error.as_ref().is_some_and(|text| text.contains(named)),
                "{named}: {error:?}"
            );
        }
        assert!(base.to_client().is_ok());
    }
}
