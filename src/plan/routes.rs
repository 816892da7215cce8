//! What follows from ACTIVE: the traffic graph, and whose liveness is asked.

use std::collections::BTreeMap;

use crate::manifest::{HttpRoute, PortName, ServiceName, StreamRoute};
use crate::probe::Watched;
use crate::state::{Active, ActiveService, Incarnation, PinnedService, Revision};
use crate::traffic::{AppRoutes, Backend, HttpRule, StreamRule};

/// The app's routes: every rule of every effective generation, with a backend
/// only where its execution is verified.
pub fn routes(incarnation: Incarnation, active: &Active, revisions: &[Revision]) -> AppRoutes {
    let mut routes = empty(incarnation);
    for (name, service) in &active.services {
        if let Some(pinned) = active.pinned(name, revisions) {
            add_rules(&mut routes, name, pinned, Some(service));
        }
    }
    routes
}

/// The published execution of each service whose liveness is to be asked.
pub fn watched(active: &Active, revisions: &[Revision]) -> BTreeMap<ServiceName, Option<Watched>> {
    let watched = |name: &ServiceName, service: &ActiveService| {
        let pinned = active.pinned(name, revisions)?;
        Some(Watched {
            container: service.container.clone(),
            started_at: service.verified?,
            binds: service.binds.clone(),
            liveness: pinned.spec.liveness.clone()?,
        })
    };
    let services = active.services.iter();
    services
        .map(|(name, service)| (name.clone(), watched(name, service)))
        .collect()
}

/// What a revision claims in the graph, before anything answers it.
pub fn claims(incarnation: Incarnation, revision: &Revision) -> AppRoutes {
    let mut routes = empty(incarnation);
    for (name, pinned) in &revision.services {
        add_rules(&mut routes, name, pinned, None);
    }
    routes
}

fn empty(incarnation: Incarnation) -> AppRoutes {
    AppRoutes {
        incarnation,
        http: Vec::new(),
        tcp: Vec::new(),
        udp: Vec::new(),
    }
}

fn add_rules(
    routes: &mut AppRoutes,
    name: &ServiceName,
    pinned: &PinnedService,
    active: Option<&ActiveService>,
) {
    let spec = &pinned.spec;
    let backends = |port: &PortName| {
        let backend = active.and_then(|active| backend(active, port));
        backend.into_iter().collect()
    };
    let stream = |route: &StreamRoute| StreamRule {
        listen: route.listen,
        service: name.clone(),
        drain: spec.update.drain,
        backends: backends(&route.port),
    };
    let http = |route: &HttpRoute| {
        let port = spec.ports.iter().find(|port| port.name == route.port);
        HttpRule {
            host: route.host.clone(),
            path: route.path.clone(),
            service: name.clone(),
            tls: route.tls,
            protocol: port.map(|port| port.app_protocol).unwrap_or_default(),
            backends: backends(&route.port),
        }
    };
    routes.http.extend(spec.http.iter().map(http));
    routes.tcp.extend(spec.tcp.iter().map(stream));
    routes.udp.extend(spec.udp.iter().map(stream));
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
