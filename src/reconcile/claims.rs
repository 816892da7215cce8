//! Host ports: claimed in the journal's own write before the create, released
//! in the one after their container is gone.

use std::net::{IpAddr, Ipv4Addr};

use crate::manifest::{Port, ServiceName};
use crate::runtime::PortMapping;
use crate::sabotage::{self, Defect};
use crate::state::{BindClaim, PinnedService};
use crate::store::{Changes, RecordsError};

use super::error::{Failure, StepError};
use super::ports::Exhausted;
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
        let claim = self.bind_claim(service, name);
        for _ in 0..CLAIM_TRIES {
            let (mappings, changes) = match self.choose_ports(pinned, &claim).await {
                Ok(chosen) => chosen,
                Err(error) => {
                    // What was chosen before the error won't be written.
                    self.ctx.ports.reset().await;
                    return Err(error);
                }
            };
            match self.journal.begin(index, changes).await {
                Ok(()) => return Ok(mappings),
                // Somebody's claim was missing in the index: read it again.
                Err(RecordsError::Conflict { .. }) => self.ctx.ports.reset().await,
                Err(error) => return Err(error.into()),
            }
        }
        Err(Failure::passing("PortInUse", "no host port could be claimed").into())
    }

    async fn choose_ports(
        &self,
        pinned: &PinnedService,
        claim: &BindClaim,
    ) -> Result<(Vec<PortMapping>, Changes), StepError> {
        let (keys, node) = (self.ctx.records.keys(), &self.ctx.node);
        let mut changes = Changes::default();
        let mut mappings = Vec::new();
        for port in &pinned.spec.ports {
            let mapping = self.claim_port(port, claim).await?;
            if !sabotage::has(Defect::PortsNotClaimed) {
                changes.create(keys.bind(node, mapping.protocol, mapping.host), claim)?;
            }
            mappings.push(mapping);
        }
        Ok((mappings, changes))
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
        let (host_ip, host) = if let Some(host) = port.host {
            let fixed = (port.protocol, host);
            let holder = ctx.ports.claim_fixed(&ctx.records, fixed, claim).await?;
            if let Some(holder) = holder.filter(|holder| holder != claim) {
                return Err(port_in_use(host, &holder).into());
            }
            (Ipv4Addr::UNSPECIFIED, host)
        } else {
            let ports = &ctx.ports;
            let free = ports.claim_free(&ctx.records, port.protocol, claim, &ctx.entropy);
            let host = free.await?;
            let exhausted =
                |error: Exhausted| Failure::passing("PortsExhausted", error.to_string());
            (Ipv4Addr::LOCALHOST, host.map_err(exhausted)?)
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
    ) -> Result<(), RecordsError> {
        let ctx = self.ctx;
        let held = ctx.ports.held(&ctx.records, self.app, which).await?;
        self.journal.release(&held);
        Ok(())
    }
}

/// A fixed port is another's; that one may go.
pub(super) fn port_in_use(port: u16, holder: &BindClaim) -> Failure {
    let why = format!("host port {port} is held by app {}", holder.app);
    Failure::passing("PortInUse", why)
}

/// A fixed port is that of a process that isn't ours; it may end.
pub(super) fn port_taken(port: u16) -> Failure {
    let why = format!("host port {port} is held by another process of this host");
    Failure::passing("PortInUse", why)
}
