//! Where etcd is, and who we are there.

use std::path::PathBuf;

use super::{File, SettingsError, read, wrong};
use crate::store;

/// Where all keys are, unless said otherwise.
const PREFIX: &str = "/podherd";
/// Where clients look for an etcd.
const ETCD_PORT: u16 = 2379;

/// What may be said about etcd.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "etcd")]
pub struct EtcdOptions {
    /// etcd's addresses, http://… or https://…, with commas between them
    #[arg(
        long,
        env = "PODHERD_ETCD",
        value_name = "URL,…",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub etcd: Option<Vec<String>>,
    /// User to log in as
    #[arg(
        long,
        env = "PODHERD_ETCD_USER",
        value_name = "NAME",
        hide_env_values = true
    )]
    pub etcd_user: Option<String>,
    /// File whose first line is the user's password
    #[arg(
        long,
        env = "PODHERD_ETCD_PASSWORD_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub etcd_password_file: Option<PathBuf>,
    /// PEM file of who signed etcd's certificate; https needs it
    #[arg(
        long,
        env = "PODHERD_ETCD_CA",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub etcd_ca: Option<PathBuf>,
    /// PEM file of our own certificate, where etcd wants one
    #[arg(
        long,
        env = "PODHERD_ETCD_CERT",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub etcd_cert: Option<PathBuf>,
    /// PEM file of that certificate's key
    #[arg(
        long,
        env = "PODHERD_ETCD_KEY",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub etcd_key: Option<PathBuf>,
    /// Where all of Podherd's keys are [default: /podherd]
    #[arg(
        long,
        env = "PODHERD_PREFIX",
        value_name = "PREFIX",
        hide_env_values = true
    )]
    pub prefix: Option<String>,
}

/// Whether Podherd runs an etcd of its own.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "etcd")]
pub struct LocalEtcdOptions {
    /// Start and look after an etcd of Podherd's own, on loopback, with its data in
    /// the state folder; instead of --etcd
    #[arg(long, env = "PODHERD_LOCAL_ETCD", value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", hide_possible_values = true,
          value_parser = clap::builder::BoolishValueParser::new(), hide_env_values = true)]
    pub local_etcd: Option<bool>,
    /// Its program: a path, or a name in $PATH [default: etcd]
    #[arg(
        long,
        env = "PODHERD_ETCD_BINARY",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub etcd_binary: Option<PathBuf>,
    /// Its port on loopback [default: 2379]
    #[arg(
        long,
        env = "PODHERD_LOCAL_ETCD_PORT",
        value_name = "PORT",
        hide_env_values = true
    )]
    pub local_etcd_port: Option<u16>,
}

/// Which etcd is used. Its `Debug` shows no secret.
#[derive(Debug, Clone)]
pub enum EtcdChoice {
    /// One that runs already.
    Running(store::EtcdOptions),
    /// One that Podherd starts.
    Local(LocalEtcdSettings),
}

/// What the etcd that Podherd starts is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalEtcdSettings {
    /// The program.
    pub binary: PathBuf,
    /// The port on loopback.
    pub port: u16,
    /// Where all keys are, without a slash at the end.
    pub prefix: String,
}

impl EtcdOptions {
    /// The settings of a command that needs a running etcd.
    ///
    /// # Errors
    /// When a setting is missing or wrong, or a file it names can't be read.
    pub fn resolve(self, file: &File) -> Result<store::EtcdOptions, SettingsError> {
        let Some(endpoints) = self.etcd.clone().or_else(|| file.etcd.clone()) else {
            return Err(wrong(
                "--etcd",
                "no etcd is given: say where it is, as in --etcd http://127.0.0.1:2379",
            ));
        };
        self.reach(&endpoints, file)
    }

    /// The settings of a command that can also start an etcd.
    ///
    /// # Errors
    /// When a setting is missing or wrong, or a file it names can't be read.
    pub fn resolve_or_local(
        self,
        local: LocalEtcdOptions,
        file: &File,
    ) -> Result<EtcdChoice, SettingsError> {
        let wanted = local.local_etcd.or(file.local_etcd).unwrap_or(false);
        match (self.etcd.clone().or_else(|| file.etcd.clone()), wanted) {
            (Some(endpoints), false) => self.reach(&endpoints, file).map(EtcdChoice::Running),
            (None, true) => Ok(EtcdChoice::Local(LocalEtcdSettings {
                binary: local
                    .etcd_binary
                    .or_else(|| file.etcd_binary.clone())
                    .unwrap_or_else(|| PathBuf::from("etcd")),
                port: local
                    .local_etcd_port
                    .or(file.local_etcd_port)
                    .unwrap_or(ETCD_PORT),
                prefix: prefix(self.prefix.or_else(|| file.prefix.clone()))?,
            })),
            (Some(_), true) => Err(wrong(
                "--local-etcd",
                "--etcd is given too: choose one of them",
            )),
            (None, false) => Err(wrong(
                "--etcd",
                "no etcd is given: say where it is, as in --etcd http://127.0.0.1:2379, or --local-etcd to have one started",
            )),
        }
    }

    fn reach(self, endpoints: &[String], file: &File) -> Result<store::EtcdOptions, SettingsError> {
        let endpoints = endpoints
            .iter()
            .map(|url| endpoint(url))
            .collect::<Result<_, _>>()?;
        let prefix = prefix(self.prefix.or_else(|| file.prefix.clone()))?;
        let user = self.etcd_user.or_else(|| file.etcd_user.clone());
        let password_file = self
            .etcd_password_file
            .or_else(|| file.etcd_password_file.clone());
        let password = password_file.as_deref().map(password).transpose()?;
        match (&user, &password) {
            (Some(_), None) => {
                return Err(wrong(
                    "--etcd-user",
                    "its password is missing: say --etcd-password-file FILE",
                ));
            }
            (None, Some(_)) => {
                return Err(wrong(
                    "--etcd-password-file",
                    "whose password is it? Say --etcd-user NAME",
                ));
            }
            _ => {}
        }
        let pem = |setting, flag: Option<PathBuf>, file: &Option<PathBuf>| {
            flag.or_else(|| file.clone())
                .map(|path| read(setting, &path))
                .transpose()
        };
        Ok(store::EtcdOptions {
            endpoints,
            prefix,
            user,
            password,
            certificates: store::Certificates {
                ca: pem("--etcd-ca", self.etcd_ca, &file.etcd_ca)?,
                cert: pem("--etcd-cert", self.etcd_cert, &file.etcd_cert)?,
                key: pem("--etcd-key", self.etcd_key, &file.etcd_key)?,
            },
        })
    }
}

fn endpoint(url: &str) -> Result<String, SettingsError> {
    let url = url.trim().trim_end_matches('/');
    let parsed: Option<http::Uri> = url.parse().ok();
    let usable = parsed.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.port().is_some()
            && uri
                .authority()
                .is_some_and(|authority| !authority.as_str().contains('@'))
            && matches!(uri.path(), "" | "/")
    });
    if usable {
        Ok(url.to_owned())
    } else {
        // Not shown: somebody may have put a password into it.
        Err(wrong(
            "--etcd",
            "an address isn't of the form http://host:2379 or https://host:2379",
        ))
    }
}

fn prefix(said: Option<String>) -> Result<String, SettingsError> {
    let said = said.unwrap_or_else(|| PREFIX.to_owned());
    let prefix = said.strip_suffix('/').unwrap_or(&said);
    let plain = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_graphic());
    match prefix.strip_prefix('/') {
        Some(parts) if parts.split('/').all(plain) => Ok(prefix.to_owned()),
        _ => Err(wrong(
            "--prefix",
            format!("{said:?} isn't of the form /podherd or /team/podherd"),
        )),
    }
}

fn password(path: &std::path::Path) -> Result<String, SettingsError> {
    let bytes = read("--etcd-password-file", path)?;
    // The text itself never becomes part of a message.
    let text = String::from_utf8(bytes)
        .map_err(|_| wrong("--etcd-password-file", "the password isn't UTF-8"))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(wrong(
            "--etcd-password-file",
            format!("the first line of {} is empty", path.display()),
        )),
    }
}
