//! The traffic graph that follows from ACTIVE.

use crate::manifest::{PortName, ServiceName};
use crate::state::{Active, ActiveService, Incarnation, PinnedService, Revision};
use crate::traffic::{AppRoutes, Backend, HttpRule};

/// The app's routes: every rule of every effective generation, with a backend
/// only where its execution is verified.
pub fn routes(incarnation: Incarnation, active: &Active, revisions: &[Revision]) -> AppRoutes {
    let rules = active.services.iter().filter_map(|(name, service)| {
        let pinned = pinned(name, service, revisions)?;
        Some(http_rules(name, pinned, Some(service)))
    });
    only_http(incarnation, rules.flatten().collect())
}

/// What a revision claims in the graph, before anything answers it.
pub fn claims(incarnation: Incarnation, revision: &Revision) -> AppRoutes {
    let rules = revision
        .services
        .iter()
        .map(|(name, pinned)| http_rules(name, pinned, None));
    only_http(incarnation, rules.flatten().collect())
}

fn only_http(incarnation: Incarnation, http: Vec<HttpRule>) -> AppRoutes {
    AppRoutes {
        incarnation,
        http,
        tcp: Vec::new(),
        udp: Vec::new(),
    }
}

fn pinned<'r>(
    name: &ServiceName,
    service: &ActiveService,
    revisions: &'r [Revision],
) -> Option<&'r PinnedService> {
    let revision = revisions
        .iter()
        .find(|revision| revision.number == service.revision)?;
    revision.services.get(name)
}

fn http_rules(
    name: &ServiceName,
    pinned: &PinnedService,
    active: Option<&ActiveService>,
) -> Vec<HttpRule> {
    let rule = |route: &crate::manifest::HttpRoute| {
        let port = pinned
            .spec
            .ports
            .iter()
            .find(|port| port.name == route.port);
        HttpRule {
            host: route.host.clone(),
            path: route.path.clone(),
            service: name.clone(),
            tls: route.tls,
            protocol: port.map(|port| port.app_protocol).unwrap_or_default(),
            backends: active
                .and_then(|active| backend(active, &route.port))
                .into_iter()
                .collect(),
        }
    };
    pinned.spec.http.iter().map(rule).collect()
}

fn backend(service: &ActiveService, port: &PortName) -> Option<Backend> {
    let started_at = service.verified?;
    let bind = service.binds.iter().find(|bind| &bind.port == port)?;
    Some(Backend {
        container: service.container.clone(),
        started_at,
        node: service.node.clone(),
        address: bind.address(),
    })
}
