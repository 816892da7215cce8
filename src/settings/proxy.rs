//! What only the proxy needs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{File, SettingsError, wrong};

/// Where the proxy listens unless told otherwise: a port that needs no privilege.
const HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8080);
const L4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const LONGEST_NAME: usize = 63;

/// What may be said about the proxy.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Proxy")]
pub struct ProxyOptions {
    /// Address to serve HTTP on; may be repeated [default: 0.0.0.0:8080]
    #[arg(
        long,
        env = "PODHERD_HTTP",
        value_name = "ADDR",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub http: Option<Vec<SocketAddr>>,
    /// Address of the TCP and UDP listeners that manifests ask for. On a host with
    /// several addresses name the one that UDP clients use; port 53 is served only on
    /// one that is named [default: 0.0.0.0]
    #[arg(
        long,
        env = "PODHERD_L4_BIND",
        value_name = "IP",
        hide_env_values = true
    )]
    pub l4_bind: Option<IpAddr>,
    /// This proxy's name among those of this host [default: its first address]
    #[arg(
        long,
        env = "PODHERD_PROXY_NAME",
        value_name = "NAME",
        hide_env_values = true
    )]
    pub proxy_name: Option<String>,
}

/// How the proxy works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxySettings {
    /// Addresses to serve HTTP on, at least one.
    pub http: Vec<SocketAddr>,
    /// Address of the TCP and UDP listeners.
    pub l4_bind: IpAddr,
    /// Its name among those of this host.
    pub name: String,
}

impl ProxyOptions {
    /// The settings.
    ///
    /// # Errors
    /// When the name can't be part of a key, or an address is given twice.
    pub fn resolve(self, file: &File) -> Result<ProxySettings, SettingsError> {
        let http = self
            .http
            .or_else(|| file.http.clone())
            .unwrap_or_else(|| vec![HTTP]);
        if http.is_empty() {
            return Err(wrong(
                "--http",
                "give at least one address, as in 0.0.0.0:8080",
            ));
        }
        for (index, address) in http.iter().enumerate() {
            if address.port() != 0 && http[..index].contains(address) {
                return Err(wrong("--http", format!("{address} is given twice")));
            }
        }
        // No two proxies of a host have one address, so their names differ too.
        let name = self
            .proxy_name
            .or_else(|| file.proxy_name.clone())
            .unwrap_or_else(|| http[0].to_string());
        let plain =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '[' | ']');
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(plain) {
            return Err(wrong(
                "--proxy-name",
                format!("{name:?} isn't 1 to {LONGEST_NAME} letters, digits, '-', '_', '.' or ':'"),
            ));
        }
        Ok(ProxySettings {
            http,
            l4_bind: self.l4_bind.or(file.l4_bind).unwrap_or(L4),
            name,
        })
    }
}
