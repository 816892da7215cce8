//! The containers of an app on this host, for the commands that need Podman itself.

use std::str::FromStr;

use anyhow::bail;

use super::client::Client;
use crate::manifest::{AppName, ServiceName};
use crate::runtime::{Deadlines, Podman};
use crate::settings::{ConfigOption, EtcdOptions, Host, PodmanOptions};
use crate::state::{Active, ActiveService};

/// Where etcd and this host's Podman are.
#[derive(Debug, clap::Args)]
pub(super) struct Reach {
    #[command(flatten)]
    config: ConfigOption,
    #[command(flatten)]
    etcd: EtcdOptions,
    #[command(flatten)]
    podman: PodmanOptions,
}

impl Reach {
    pub(super) async fn connect(self) -> anyhow::Result<(Client, Podman)> {
        let file = self.config.load()?;
        let etcd = self.etcd.resolve(&file)?;
        let settings = self.podman.resolve(&file, &Host::here())?;
        let podman = Podman::connect(&format!("unix://{}", settings.socket.display()))?;
        let client = Client::connect(&etcd).await?;
        Ok((client, podman.with_deadlines(Deadlines::default())))
    }
}

/// An app, or one of its services: `APP` or `APP/SERVICE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub app: AppName,
    pub service: Option<ServiceName>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (app, service) = match text.split_once('/') {
            Some((app, service)) => (app, Some(service)),
            None => (text, None),
        };
        let service = service.map(str::parse).transpose();
        Ok(Self {
            app: app.parse().map_err(|error| format!("app: {error}"))?,
            service: service.map_err(|error| format!("service: {error}"))?,
        })
    }
}

impl Target {
    /// The services that are meant, with their containers by ACTIVE; never none.
    pub(super) async fn find(
        &self,
        client: &Client,
    ) -> anyhow::Result<Vec<(ServiceName, ActiveService)>> {
        let Self { app, service } = self;
        client.must_know(app).await?;
        let active = client.one::<Active>(client.keys.active(app)).await?;
        let active = active.map(|kept| kept.record).unwrap_or_default();
        let names: Vec<_> = active.services.keys().map(ServiceName::to_string).collect();
        let is_meant = |name: &ServiceName| service.as_ref().is_none_or(|service| service == name);
        let found = active
            .services
            .into_iter()
            .filter(|(name, _)| is_meant(name));
        let found: Vec<_> = found.collect();
        match (service, names.as_slice()) {
            _ if !found.is_empty() => Ok(found),
            (_, []) => bail!(
                "nothing of {app} serves; why its containers failed, with the ends of their logs, is in podherd describe {app}"
            ),
            (Some(service), names) => {
                bail!(
                    "{app} has no container of a service {service}; there are {}",
                    names.join(", ")
                )
            }
            (None, names) => bail!("{app} has only {}", names.join(", ")),
        }
    }

    /// The one service that is meant.
    pub(super) async fn find_one(
        &self,
        client: &Client,
    ) -> anyhow::Result<(ServiceName, ActiveService)> {
        let mut found = self.find(client).await?;
        let names: Vec<_> = found.iter().map(|(name, _)| name.to_string()).collect();
        match (found.pop(), found.is_empty()) {
            (Some(only), true) => Ok(only),
            _ => bail!(
                "say which service, as in {}/SERVICE: there are {}",
                self.app,
                names.join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_an_app_or_one_of_its_services() {
        let blog: Target = "blog".parse().unwrap();
        assert_eq!((blog.app.as_str(), blog.service), ("blog", None));
        let web: Target = "blog/web".parse().unwrap();
        assert_eq!(web.service.unwrap().as_str(), "web");
        for wrong in ["", "/web", "blog/", "Blog", "a/b/c"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }
}
