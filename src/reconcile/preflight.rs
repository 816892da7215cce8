//! Everything that can be known to fail before anything is touched: images are
//! allowed, present and pinned, their volumes mapped, the health checks that probes ask
//! for there, what is asked of the host is allowed, ports free, secrets there, routes free.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio_util::sync::CancellationToken;

use crate::manifest::{App, AppName, Check, Protocol, ServiceName, ServiceSpec, Userns};
use crate::plan::{self, Action, Desired, Phase, Snapshot};
use crate::runtime::{Image, Wanted};
use crate::state::{
    Digest, Incarnation, Outcome, OutcomeKind, Ownership, PinnedService, Resources, Revision, Verb,
};
use crate::store::Changes;

use super::Reconciler;
use super::claims::{port_in_use, port_taken};
use super::error::{Failure, ReconcileError, StepError, runtime_failure, traffic_error};
use super::images::{AT_ONCE, Pulls};
use super::journal::Journal;
use super::run::{Begin, Claimed};

/// How often a long preflight looks after what serves meanwhile.
pub(super) const LOOK: Duration = Duration::from_secs(1);

impl Reconciler {
    /// Pins the wanted manifest and makes it serve.
    pub(super) async fn deploy(
        &self,
        snapshot: &Snapshot,
        asked: Option<Claimed>,
        cancel: &CancellationToken,
    ) -> Result<(), ReconcileError> {
        let Desired::App { source, app } = &snapshot.desired else {
            return Ok(());
        };
        let attempt = snapshot
            .last_deploy()
            .map_or(1, |last| last.attempt.saturating_add(1));
        let mut begin = Begin {
            source: *source,
            attempt,
            asked,
            ..Begin::of(Verb::Deploy, self.ownership(snapshot, app))
        };
        if self.begin_incarnation(snapshot, &begin.ownership).await? {
            return Ok(());
        }
        self.write_status(snapshot, &Phase::Preflight).await?;
        let pulls = Pulls::default();
        let checked = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(ReconcileError::Interrupted),
            // Nothing was touched: the newer manifest is simply taken up instead.
            () = self.ctx.newest.changed_beyond(&snapshot.app, *source) => return Ok(()),
            () = self.ctx.newest.end_asked_beyond(&snapshot.app, snapshot.records.at) => return Ok(()),
            // Withdrawing what went down doesn't wait for a long pull.
            () = self.disturbance(&snapshot.app) => return Ok(()),
            checked = self.preflight(snapshot, app, *source, &begin.ownership, &pulls) => checked,
            never = Box::pin(self.show_pulls(&snapshot.app, &pulls)) => match never {},
        };
        match checked {
            Ok(revision) => {
                let mut actions = plan::deploy(snapshot, &revision);
                if actions.is_empty() {
                    actions.push(Action::Traffic { service: None });
                }
                begin.revision = Some(revision);
                if let Some(failure) = others_differ(&begin, &actions) {
                    // It says nothing about the manifest.
                    let begin = Begin { source: 0, ..begin };
                    return self.refuse(snapshot, &begin, failure).await;
                }
                self.operate(snapshot, begin, &actions, cancel).await?;
                Ok(())
            }
            Err(StepError::Interrupted(error)) => Err(error),
            Err(StepError::Superseded) => Ok(()),
            Err(StepError::Failed(failure)) => self.refuse(snapshot, &begin, failure).await,
        }
    }

    /// Returns when something that is routed to isn't as it was verified.
    pub(super) async fn disturbance(&self, app: &AppName) {
        loop {
            tokio::time::sleep(LOOK).await;
            // What can't be observed changes nothing.
            if let Ok(snapshot) = self.observe(app).await
                && plan::must_withdraw(&snapshot)
            {
                return;
            }
        }
    }

    /// The live incarnation, or a new one: a name that is used again never
    /// inherits anything.
    pub(super) fn ownership(&self, snapshot: &Snapshot, app: &App) -> Ownership {
        let live = snapshot
            .records
            .ownership
            .clone()
            .unwrap_or_else(|| Ownership {
                incarnation: Incarnation(self.ctx.entropy.uuid()),
                since: self.ctx.clock.now(),
                deletion_protection: false,
                resources: Resources::default(),
                shared_networks: BTreeMap::new(),
            });
        Ownership {
            deletion_protection: app.spec.deletion_protection,
            ..live
        }
    }

    async fn preflight(
        &self,
        snapshot: &Snapshot,
        app: &App,
        source: i64,
        ownership: &Ownership,
        pulls: &Pulls,
    ) -> Result<Revision, StepError> {
        for (name, spec) in &app.spec.services {
            let granted = self.ctx.grant(&snapshot.app, name, spec).await;
            granted.map_err(|failure| named(name, failure))?;
        }
        let services = self.pin(snapshot, app, pulls).await?;
        let revision = self.revision(snapshot, app, source, ownership, services);
        self.check_revision(snapshot, &revision).await?;
        Ok(revision)
    }

    /// Whether everything but the images that a revision needs is there or free for it.
    pub(super) async fn check_revision(
        &self,
        snapshot: &Snapshot,
        revision: &Revision,
    ) -> Result<(), StepError> {
        let (app, incarnation) = (&snapshot.app, revision.incarnation);
        for (name, pinned) in &revision.services {
            self.check_ports(app, name, &pinned.spec).await?;
            self.check_listeners(app, name, &pinned.spec).await?;
            self.ctx
                .check_provisionable(app, incarnation, pinned)
                .await
                .map_err(|failure| named(name, failure))?;
        }
        let services = revision.services.iter();
        let specs = services.map(|(name, pinned)| (name, &pinned.spec));
        self.ctx.check_secrets(app, incarnation, specs).await?;
        let own_users = |pinned: &PinnedService| pinned.spec.security.userns == Some(Userns::Auto);
        let mut services = revision.services.iter();
        if let Some((name, _)) = services.find(|(_, pinned)| own_users(pinned)) {
            let checked = self.ctx.runtime.check_user_ids().await;
            checked.map_err(|error| named(name, runtime_failure(&error)))?;
        }
        let claims = plan::claims(incarnation, revision);
        let free = self.ctx.traffic.check(app, &claims).await;
        free.map_err(|error| traffic_error("check routes", error))
    }

    async fn pin(
        &self,
        snapshot: &Snapshot,
        app: &App,
        pulls: &Pulls,
    ) -> Result<BTreeMap<ServiceName, PinnedService>, StepError> {
        let pin = |(name, spec): (&ServiceName, &ServiceSpec)| {
            let (name, spec) = (name.clone(), spec.clone());
            async move {
                let wanted = Wanted::ByPolicy(spec.pull_policy);
                let of = &snapshot.app;
                let image = self.ctx.image(of, &name, &spec.image, wanted, pulls).await;
                let image = image.map_err(|failure| named(&name, failure))?;
                check_volumes(&name, &spec, &image)?;
                check_health(&name, &spec, &image)?;
                let digest = pin_for(snapshot, &name, &spec, image);
                Ok::<_, StepError>((name, pinned(app, spec, digest)))
            }
        };
        let pinned: Vec<_> = app.spec.services.iter().map(pin).collect();
        stream::iter(pinned)
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }

    /// A new revision, or the newest one when nothing differs from it.
    pub(super) fn revision(
        &self,
        snapshot: &Snapshot,
        app: &App,
        source: i64,
        ownership: &Ownership,
        services: BTreeMap<ServiceName, PinnedService>,
    ) -> Revision {
        let newest = snapshot
            .records
            .revisions
            .iter()
            .max_by_key(|revision| revision.number);
        let wanted = Revision {
            number: newest
                .map(|revision| revision.number)
                .unwrap_or_default()
                .next(),
            incarnation: ownership.incarnation,
            source,
            created_at: self.ctx.clock.now(),
            labels: app.labels.clone(),
            services,
            order: app.spec.order(),
        };
        match newest {
            Some(newest) if same_content(newest, &wanted) => newest.clone(),
            _ => wanted,
        }
    }

    /// Whether the fixed host ports of a service are its app's already, or free.
    async fn check_ports(
        &self,
        app: &AppName,
        name: &ServiceName,
        spec: &ServiceSpec,
    ) -> Result<(), StepError> {
        for port in &spec.ports {
            let Some(host) = port.host else { continue };
            let held = (port.protocol, host);
            let failure = match self.ctx.ports.holder(&self.ctx.records, held).await? {
                Some(holder) if &holder.app == app => continue,
                Some(holder) => port_in_use(host, &holder),
                None => match self.ctx.runtime.port_is_free(port.protocol, host).await {
                    Ok(true) => continue,
                    Ok(false) => port_taken(host),
                    Err(error) => runtime_failure(&error),
                },
            };
            return Err(named(name, failure).into());
        }
        Ok(())
    }

    /// Whether no container has, or may be given, a port on which the proxy is to
    /// listen. Whether it is free the proxy alone can tell.
    async fn check_listeners(
        &self,
        app: &AppName,
        name: &ServiceName,
        spec: &ServiceSpec,
    ) -> Result<(), StepError> {
        let tcp = spec.tcp.iter().map(|route| (Protocol::Tcp, route.listen));
        let udp = spec.udp.iter().map(|route| (Protocol::Udp, route.listen));
        for listener in tcp.chain(udp) {
            let (_, port) = listener;
            if self.ctx.ports.gives(port) {
                return Err(named(name, port_given_out(port)).into());
            }
            let holder = self.ctx.ports.holder(&self.ctx.records, listener).await?;
            if let Some(holder) = holder.filter(|holder| &holder.app != app) {
                return Err(named(name, port_in_use(port, &holder)).into());
            }
        }
        Ok(())
    }

    /// Journals a deployment that ended in its preflight.
    pub(super) async fn refuse(
        &self,
        snapshot: &Snapshot,
        begin: &Begin,
        failure: Failure,
    ) -> Result<(), ReconcileError> {
        let outcome = Outcome {
            result: OutcomeKind::Failed,
            reason: failure.reason.to_owned(),
            message: failure.message,
            retryable: failure.retryable,
        };
        tracing::warn!(app = %snapshot.app, reason = outcome.reason, "refused: {}", outcome.message);
        let mut changes = Changes::default();
        if let Some(asked) = &begin.asked {
            changes.delete(asked.key.clone());
        }
        let operation = begin.operation(&self.ctx, Vec::new());
        let operation = Journal::new(&self.ctx, &snapshot.app, operation)
            .finish(outcome, changes, snapshot)
            .await?;
        self.ended(snapshot, &operation, &[]).await;
        Ok(())
    }
}

/// The digest to pin: the one that the newest revision has, as long as it is of the same
/// image. An index that was made anew around it, or another Podman, replaces nothing.
pub(super) fn pin_for(
    snapshot: &Snapshot,
    name: &ServiceName,
    spec: &ServiceSpec,
    image: Image,
) -> Digest {
    let revisions = snapshot.records.revisions.iter();
    let newest = revisions.max_by_key(|revision| revision.number);
    let before = newest.and_then(|revision| revision.services.get(name));
    let same = before
        .filter(|before| before.spec.image == spec.image)
        .filter(|before| image.known_as.contains(&before.digest));
    same.map_or(image.digest, |before| before.digest.clone())
}

/// What a container is made from: the service's spec, with what holds for the whole app.
pub(super) fn pinned(app: &App, mut spec: ServiceSpec, digest: Digest) -> PinnedService {
    for (key, value) in &app.spec.env {
        spec.env.entry(key.clone()).or_insert_with(|| value.clone());
    }
    // Their order in the manifest makes no difference.
    let mut networks = app.spec.networks.clone();
    networks.sort_by(|one, other| one.name.cmp(&other.name));
    PinnedService {
        spec,
        digest,
        networks,
    }
}

fn port_given_out(port: u16) -> Failure {
    Failure::lasting(
        "ListenerReserved",
        format!(
            "port {port} is of --port-range, from which containers get theirs: listen on another"
        ),
    )
}

pub(super) fn named(service: &ServiceName, failure: Failure) -> Failure {
    Failure {
        message: format!("service {service}: {}", failure.message),
        ..failure
    }
}

/// An image volume that nothing is mounted on would keep data nowhere.
fn check_volumes(name: &ServiceName, spec: &ServiceSpec, image: &Image) -> Result<(), StepError> {
    let mounted = |path: &str| {
        let path = path.trim_end_matches('/');
        let volumes = spec.volumes.iter().map(|volume| volume.path.as_str());
        let others = spec.binds.iter().map(|bind| bind.path.as_str());
        let tmpfs = spec.tmpfs.iter().map(|tmpfs| tmpfs.path.as_str());
        volumes
            .chain(others)
            .chain(tmpfs)
            .any(|mount| mount.trim_end_matches('/') == path)
    };
    match image.volumes.iter().find(|path| !mounted(path)) {
        None => Ok(()),
        Some(path) => Err(named(
            name,
            Failure::lasting(
                "ImageVolumeNotMapped",
                format!(
                    "the image declares the volume {path}, and nothing is mounted there: add a \
                     volume or a tmpfs for it"
                ),
            ),
        )
        .into()),
    }
}

/// A probe can run only a health check that the image has.
fn check_health(name: &ServiceName, spec: &ServiceSpec, image: &Image) -> Result<(), StepError> {
    let probes = [
        ("startup", spec.startup.as_ref().map(|probe| &probe.check)),
        (
            "readiness",
            spec.readiness.as_ref().map(|probe| &probe.check),
        ),
        ("liveness", spec.liveness.as_ref().map(|probe| &probe.check)),
    ];
    let asks = |(_, check): &&(&str, Option<&Check>)| *check == Some(&Check::Health);
    match probes.iter().find(asks) {
        Some((probe, _)) if !image.healthcheck => {
            let failure = Failure::lasting(
                "ImageWithoutHealthcheck",
                format!(
                    "its {probe} asks for the image's own health check, and the image {} declares \
                     none: use http, tcp or exec, or build it with a HEALTHCHECK (in the docker \
                     format: OCI images can't have one)",
                    spec.image
                ),
            );
            Err(named(name, failure).into())
        }
        _ => Ok(()),
    }
}

/// A deployment of one service is done only if all that differs is in that service.
fn others_differ(begin: &Begin, actions: &[Action]) -> Option<Failure> {
    let only = begin.asked.as_ref()?.request.service.as_ref()?;
    let other = actions
        .iter()
        .filter_map(Action::service)
        .find(|service| *service != only)?;
    Some(Failure::lasting(
        "OtherServicesDiffer",
        format!("service {other} differs too: deploy the whole app"),
    ))
}

fn same_content(left: &Revision, right: &Revision) -> bool {
    left.incarnation == right.incarnation
        && left.services == right.services
        && left.labels == right.labels
        && left.order == right.order
}
