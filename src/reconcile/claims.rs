//! Host ports: claimed in the journal's own write before the create, released
//! in the one after their container is gone.

use std::net::{IpAddr, Ipv4Addr};

use crate::manifest::{Port, ServiceName};
use crate::runtime::PortMapping;
use crate::state::{BindClaim, PinnedService};
use crate::store::{Changes, RecordsError};

use super::error::{Failure, StepError};
use super::ports::HostPort;
use super::run::Run;

/// How often a refused claim is made again.
const CLAIM_TRIES: u32 = 5;

impl Run<'_> {
    /// Claims a host port for each declared port, in the journal's own write.
    pub(super) async fn claim_ports(
        &mut self,
        index: usize,
        service: &ServiceName,
        pinned: &PinnedService,
        name: &str,
    ) -> Result<Vec<PortMapping>, StepError> {
        for _ in 0..CLAIM_TRIES {
            let claim = self.bind_claim(service, name);
            let mut changes = Changes::default();
            let mut mappings = Vec::new();
            for port in &pinned.spec.ports {
                let mapping = self.claim_port(port, &claim).await?;
                let key =
                    self.ctx
                        .records
                        .keys()
                        .bind(&self.ctx.node, mapping.protocol, mapping.host);
                changes.create(key, &claim)?;
                mappings.push(mapping);
            }
            match self.journal.begin(index, changes).await {
                Ok(()) => return Ok(mappings),
                // Somebody's claim was missing in the index: read it again.
                Err(RecordsError::Conflict { .. }) => self.ctx.ports.reset().await,
                Err(error) => return Err(error.into()),
            }
        }
        Err(Failure::passing("PortInUse", "no host port could be claimed").into())
    }

    fn bind_claim(&self, service: &ServiceName, name: &str) -> BindClaim {
        BindClaim {
            app: self.app.clone(),
            incarnation: self.ownership.incarnation,
            service: service.clone(),
            container_name: name.to_owned(),
            operation: self.journal.operation().id.clone(),
        }
    }

    async fn claim_port(&self, port: &Port, claim: &BindClaim) -> Result<PortMapping, StepError> {
        let ctx = self.ctx;
        let (host_ip, host) = match port.host {
            Some(host) => {
                let fixed = (port.protocol, host);
                let holder = ctx.ports.claim_fixed(&ctx.records, fixed, claim).await?;
                if let Some(holder) = holder.filter(|holder| holder != claim) {
                    let why = format!("host port {host} is held by app {}", holder.app);
                    return Err(Failure::passing("PortInUse", why).into());
                }
                (Ipv4Addr::UNSPECIFIED, host)
            }
            None => {
                let free = ctx
                    .ports
                    .claim_free(&ctx.records, port.protocol, claim, &ctx.entropy)
                    .await?;
                let host = free.map_err(|e| Failure::passing("PortsExhausted", e.to_string()))?;
                (Ipv4Addr::LOCALHOST, host)
            }
        };
        Ok(PortMapping {
            container: port.container,
            protocol: port.protocol,
            host_ip: IpAddr::V4(host_ip),
            host,
        })
    }

    /// Stages the release of these claims of the app.
    pub(super) async fn release_binds(
        &mut self,
        which: impl Fn(&BindClaim) -> bool,
    ) -> Result<(), StepError> {
        let ctx = self.ctx;
        let held: Vec<HostPort> = ctx.ports.held(&ctx.records, self.app, which).await?;
        for (protocol, port) in &held {
            let key = ctx.records.keys().bind(&ctx.node, *protocol, *port);
            self.journal.stage().delete(key);
        }
        Ok(ctx.ports.released(&ctx.records, &held).await?)
    }
}
