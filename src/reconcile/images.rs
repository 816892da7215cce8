//! Images: present before they are needed, and people told of what is pulled.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join;
use futures::stream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::manifest::{AppName, ServiceName};
use crate::plan::{Action, Desired, Phase, Snapshot};
use crate::runtime::{Image, PullProgress, PullReport, RuntimeError, Wanted};
use crate::state::{Event, EventType, PinnedService};

use super::error::{Failure, ReconcileError, runtime_failure};
use super::permission::refused;
use super::{Context, Reconciler};

/// Images that are looked up or pulled side by side.
pub(super) const AT_ONCE: usize = 4;
/// A pull that takes longer is told of while it runs.
const LONG: Duration = Duration::from_secs(1);
/// How often the status shows how far pulls are.
const SHOWN: Duration = Duration::from_secs(3);

/// The pulls that run, by service: the image, and how far it is.
#[derive(Debug, Default)]
pub(super) struct Pulls(watch::Sender<BTreeMap<ServiceName, (String, PullProgress)>>);

/// What came of pulling what a recovery needs.
pub(super) enum Fetched {
    /// What couldn't be pulled, and why.
    Without(BTreeMap<ServiceName, Failure>),
    /// Something came up that doesn't wait for a pull.
    Disturbed,
}

impl Context {
    /// Makes a service's image present, if the policy allows it, and tells people when
    /// that takes a pull.
    pub(super) async fn image(
        &self,
        app: &AppName,
        service: &ServiceName,
        reference: &str,
        wanted: Wanted<'_>,
        pulls: &Pulls,
    ) -> Result<Image, Failure> {
        let rules = self.policy.rules().await;
        let permitted = match wanted {
            Wanted::ByPolicy(_) => rules.permit_image(reference),
            Wanted::Exactly(_) | Wanted::Present(_) => rules.permit_pinned(reference),
        };
        permitted.map_err(|denial| refused(&denial))?;
        let began = Instant::now();
        let (report, told) = PullReport::new();
        // The report ends with the pull, and telling of it with the report.
        let pull = async move { self.runtime.image(reference, wanted, &report).await };
        let telling = self.tell_pull(app, service, reference, told, pulls);
        // Boxed: it is large, and lives in the frames of all who wait for it.
        let (image, pulled) = Box::pin(join(pull, telling)).await;
        pulls
            .0
            .send_if_modified(|all| all.remove(service).is_some());
        if let (Ok(_), Some(progress)) = (&image, pulled) {
            let seconds = began.elapsed().as_secs_f64();
            let size = match progress.total {
                0 => String::new(),
                total => format!(", {}", mebibytes(total)),
            };
            let message = format!("pulled {reference} in {seconds:.1} s{size}");
            self.tell_of_image(app, service, "Pulled", message).await;
        }
        image.map_err(|error| runtime_failure(&error))
    }

    /// Follows a pull to its end; how far it came, if there was one.
    async fn tell_pull(
        &self,
        app: &AppName,
        service: &ServiceName,
        reference: &str,
        mut told: watch::Receiver<Option<PullProgress>>,
        pulls: &Pulls,
    ) -> Option<PullProgress> {
        let mut last = None;
        let mut long = Box::pin(sleep(LONG));
        let mut untold = true;
        loop {
            tokio::select! {
                biased;
                changed = told.changed() => {
                    let progress = *told.borrow_and_update();
                    if changed.is_err() {
                        return last;
                    }
                    last = progress.or(last);
                    if let Some(progress) = progress {
                        let pull = (reference.to_owned(), progress);
                        pulls.0.send_modify(|all| _ = all.insert(service.clone(), pull));
                    }
                }
                () = &mut long, if untold && last.is_some() => {
                    untold = false;
                    let message = format!("pulling {reference}");
                    self.tell_of_image(app, service, "Pulling", message).await;
                }
            }
        }
    }

    async fn tell_of_image(
        &self,
        app: &AppName,
        service: &ServiceName,
        reason: &str,
        message: String,
    ) {
        tracing::info!(app = %app, service = %service, reason, "{message}");
        let event = Event {
            r#type: EventType::Normal,
            reason: reason.to_owned(),
            message,
            service: Some(service.clone()),
            operation: None,
            at: self.clock.now(),
        };
        self.tell(app, &[event]).await;
    }
}

impl Reconciler {
    /// Shows in the status how far long pulls are.
    pub(super) async fn show_pulls(&self, app: &AppName, pulls: &Pulls) -> Infallible {
        let mut running = pulls.0.subscribe();
        sleep(LONG).await;
        loop {
            if running.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            let message = describe(&running.borrow_and_update());
            let phase = message.map_or(Phase::Preflight, Phase::Pulling);
            // What can't be shown now may be next time.
            if let Ok(snapshot) = self.observe(app).await
                && let Err(error) = self.write_status(&snapshot, &phase).await
            {
                tracing::debug!(%error, "the pulls aren't shown");
            }
            sleep(SHOWN).await;
        }
    }

    /// The services that these actions make anew and whose images aren't present.
    pub(super) async fn without_image(
        &self,
        snapshot: &Snapshot,
        actions: &[Action],
    ) -> BTreeMap<ServiceName, PinnedService> {
        let mut missing = BTreeMap::new();
        for action in actions {
            let Action::Create { service, revision } = action else {
                continue;
            };
            let pinned = snapshot.revision(*revision);
            let Some(pinned) = pinned.and_then(|it| it.services.get(service)) else {
                continue;
            };
            let wanted = Wanted::Present(&pinned.digest);
            let silent = PullReport::silent();
            let found = self.ctx.runtime.image(&pinned.spec.image, wanted, &silent);
            if matches!(found.await, Err(RuntimeError::ImageAbsent { .. })) {
                missing.insert(service.clone(), pinned.clone());
            }
        }
        missing
    }

    /// Pulls these images, unless something comes up that doesn't wait. When `eager`,
    /// the first that is there is enough: its service needn't wait for the others.
    pub(super) async fn fetch(
        &self,
        snapshot: &Snapshot,
        wanted: &BTreeMap<ServiceName, PinnedService>,
        eager: bool,
        disturbance: impl Future<Output = ()>,
        cancel: &CancellationToken,
    ) -> Result<Fetched, ReconcileError> {
        if wanted.is_empty() {
            return Ok(Fetched::Without(BTreeMap::new()));
        }
        let app = &snapshot.app;
        let known = match snapshot.desired {
            // Its deletion is the newest that was seen, and no news.
            Desired::Absent => self.ctx.newest.newest(app),
            _ => snapshot.desired.source(),
        };
        let pulls = Pulls::default();
        let pulling = async {
            let pull = |(service, pinned)| self.fetch_one(app, service, pinned, &pulls);
            let all: Vec<_> = wanted.iter().map(pull).collect();
            let mut all = stream::iter(all).buffer_unordered(AT_ONCE);
            let mut failed = BTreeMap::new();
            while let Some((service, failure)) = all.next().await {
                match failure {
                    Some(failure) => _ = failed.insert(service, failure),
                    None if eager => return BTreeMap::new(),
                    None => {}
                }
            }
            failed
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ReconcileError::Interrupted),
            () = self.ctx.newest.changed_beyond(app, known) => Ok(Fetched::Disturbed),
            failed = pulling => Ok(Fetched::Without(failed)),
            () = disturbance => Ok(Fetched::Disturbed),
        }
    }

    /// Pulls what these actions need before they begin. `None` when something came up
    /// that doesn't wait for it: look again.
    pub(super) async fn fetch_for(
        &self,
        snapshot: &Snapshot,
        actions: &[Action],
        cancel: &CancellationToken,
    ) -> Result<Option<BTreeMap<ServiceName, Failure>>, ReconcileError> {
        let missing = self.without_image(snapshot, actions).await;
        let disturbance = self.disturbance(&snapshot.app);
        let fetched = self.fetch(snapshot, &missing, false, disturbance, cancel);
        match fetched.await? {
            Fetched::Without(failed) => Ok(Some(failed)),
            Fetched::Disturbed => Ok(None),
        }
    }

    async fn fetch_one(
        &self,
        app: &AppName,
        service: &ServiceName,
        pinned: &PinnedService,
        pulls: &Pulls,
    ) -> (ServiceName, Option<Failure>) {
        let wanted = Wanted::Exactly(&pinned.digest);
        let image = self
            .ctx
            .image(app, service, &pinned.spec.image, wanted, pulls);
        (service.clone(), image.await.err())
    }
}

/// The pulls that run in a line; nothing when none does.
fn describe(pulls: &BTreeMap<ServiceName, (String, PullProgress)>) -> Option<String> {
    let told = pulls.iter().map(|(service, (image, progress))| {
        let far = match progress.total {
            0 => String::new(),
            total => format!(", {} of {}", mebibytes(progress.bytes), mebibytes(total)),
        };
        format!("pulling {image} for service {service}{far}")
    });
    let told: Vec<_> = told.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn mebibytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}
