//! Every metric Podherd has, declared in this one place.
//!
//! Each part of Podherd gets the small group it reports to, never the registry.
//! Labels stay bounded: apps, services, and words from fixed lists. A container's
//! ID or a message is never one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Encoder, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder,
};
use tokio::time::Instant;

use crate::manifest::{AppName, ServiceName};
use crate::state::{ConditionType, InhibitionReason, StepKind};

/// From a call to the store, about a millisecond, to a pull, some minutes.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];

/// Why the metrics couldn't be set up or shown.
#[derive(Debug, thiserror::Error)]
#[error("the metrics can't be shown: {0}")]
pub struct MetricsError(#[from] prometheus::Error);

/// All metrics of this process, by the part that reports them.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Registry,
    /// Passes of the reconciler and what they do.
    pub reconcile: ReconcileMetrics,
    /// The work queue.
    pub queue: QueueMetrics,
    /// What is known of each app.
    pub apps: AppMetrics,
    /// Calls to etcd.
    pub etcd: RequestMetrics,
    /// Calls to Podman.
    pub podman: RequestMetrics,
    /// The controller itself.
    pub controller: ControllerMetrics,
}

impl Metrics {
    /// Declares every metric in a registry of its own.
    ///
    /// # Errors
    /// When two metrics have one name, or this process can't be measured.
    pub fn new() -> Result<Self, MetricsError> {
        let registry = Registry::new();
        #[cfg(target_os = "linux")]
        registry.register(Box::new(
            prometheus::process_collector::ProcessCollector::for_self(),
        ))?;
        let build = IntGaugeVec::new(
            Opts::new("podherd_build_info", "The version that runs; always 1."),
            &["version"],
        )?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        registry.register(Box::new(build))?;
        Ok(Self {
            reconcile: ReconcileMetrics::declare(&registry)?,
            queue: QueueMetrics::declare(&registry)?,
            apps: AppMetrics::declare(&registry)?,
            etcd: RequestMetrics::declare(
                &registry,
                "podherd_etcd_request_seconds",
                "Time of calls to etcd, by call and result.",
            )?,
            podman: RequestMetrics::declare(
                &registry,
                "podherd_podman_request_seconds",
                "Time of calls to Podman, by call and result.",
            )?,
            controller: ControllerMetrics::declare(&registry)?,
            registry,
        })
    }

    /// Where another part of Podherd registers metrics of its own.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// All metrics in Prometheus' text format.
    ///
    /// # Errors
    /// When a metric can't be written in that format.
    pub fn render(&self) -> Result<Vec<u8>, MetricsError> {
        let lag = self.controller.watch.lag();
        self.controller.watch_lag.set(lag.as_secs_f64());
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

/// Passes of the reconciler and what they do.
#[derive(Debug, Clone)]
pub struct ReconcileMetrics {
    passes: IntCounterVec,
    pass_seconds: HistogramVec,
    steps: IntCounterVec,
    step_seconds: HistogramVec,
    operations: IntCounterVec,
    restarts: IntCounterVec,
    probe_seconds: HistogramVec,
}

impl ReconcileMetrics {
    fn declare(registry: &Registry) -> Result<Self, MetricsError> {
        Ok(Self {
            passes: counters(
                registry,
                "podherd_reconciles_total",
                "Passes over an app, by outcome.",
                &["outcome"],
            )?,
            pass_seconds: seconds_by(
                registry,
                "podherd_reconcile_seconds",
                "Time of a pass over an app, by outcome.",
                &["outcome"],
            )?,
            steps: counters(
                registry,
                "podherd_steps_total",
                "Journaled steps that ended, by kind and outcome.",
                &["kind", "outcome"],
            )?,
            step_seconds: seconds_by(
                registry,
                "podherd_step_seconds",
                "Time of a journaled step, by kind.",
                &["kind"],
            )?,
            operations: counters(
                registry,
                "podherd_operations_total",
                "Operations that ended, by verb and outcome.",
                &["verb", "outcome"],
            )?,
            restarts: counters(
                registry,
                "podherd_restarts_total",
                "Starts of a container that had been published and went down.",
                &["app", "service"],
            )?,
            probe_seconds: seconds_by(
                registry,
                "podherd_probe_seconds",
                "Time until readiness passed or was given up, by outcome.",
                &["outcome"],
            )?,
        })
    }

    /// A pass over an app ended.
    pub fn pass(&self, outcome: &'static str, took: Duration) {
        self.passes.with_label_values(&[outcome]).inc();
        self.pass_seconds
            .with_label_values(&[outcome])
            .observe(took.as_secs_f64());
    }

    /// A journaled step ended.
    pub fn step(&self, kind: StepKind, outcome: &'static str, took: Duration) {
        let kind = kind.as_str();
        self.steps.with_label_values(&[kind, outcome]).inc();
        self.step_seconds
            .with_label_values(&[kind])
            .observe(took.as_secs_f64());
    }

    /// An operation got its outcome.
    pub fn operation(&self, verb: &'static str, outcome: &'static str) {
        self.operations.with_label_values(&[verb, outcome]).inc();
    }

    /// A container that had been published was started again.
    pub fn restart(&self, app: &AppName, service: &ServiceName) {
        self.restarts
            .with_label_values(&[app.as_str(), service.as_str()])
            .inc();
    }

    /// Readiness passed or was given up.
    pub fn probe(&self, outcome: &'static str, took: Duration) {
        self.probe_seconds
            .with_label_values(&[outcome])
            .observe(took.as_secs_f64());
    }

    /// A service is gone; so are its series.
    pub fn forget(&self, app: &AppName, service: &ServiceName) {
        // An error means that there was no such series.
        _ = self
            .restarts
            .remove_label_values(&[app.as_str(), service.as_str()]);
    }
}

/// The work queue.
#[derive(Debug, Clone)]
pub struct QueueMetrics {
    /// Apps that wait for a worker.
    pub depth: IntGauge,
    /// Apps that are worked on.
    pub running: IntGauge,
    /// How long apps waited for a worker.
    pub wait_seconds: Histogram,
}

impl QueueMetrics {
    fn declare(registry: &Registry) -> Result<Self, MetricsError> {
        Ok(Self {
            depth: register(
                registry,
                IntGauge::new("podherd_queue_depth", "Apps that wait for a worker."),
            )?,
            running: register(
                registry,
                IntGauge::new("podherd_queue_running", "Apps that are worked on."),
            )?,
            wait_seconds: register(
                registry,
                Histogram::with_opts(histogram(
                    "podherd_queue_wait_seconds",
                    "How long an app waited for a worker.",
                )),
            )?,
        })
    }
}

/// What is known of each app.
#[derive(Debug, Clone)]
pub struct AppMetrics {
    conditions: IntGaugeVec,
    inhibitions: IntGaugeVec,
}

impl AppMetrics {
    fn declare(registry: &Registry) -> Result<Self, MetricsError> {
        Ok(Self {
            conditions: gauges(
                registry,
                "podherd_app_condition",
                "Conditions of each app: 1 when true, 0 when not.",
                &["app", "condition"],
            )?,
            inhibitions: gauges(
                registry,
                "podherd_inhibitions",
                "Containers of each app that may never be started again, by reason.",
                &["app", "reason"],
            )?,
        })
    }

    /// An app's condition.
    pub fn condition(&self, app: &AppName, condition: ConditionType, holds: bool) {
        self.conditions
            .with_label_values(&[app.as_str(), condition.as_str()])
            .set(i64::from(holds));
    }

    /// How many inhibitions of one reason an app has.
    pub fn inhibitions(&self, app: &AppName, reason: InhibitionReason, count: usize) {
        self.inhibitions
            .with_label_values(&[app.as_str(), reason.as_str()])
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// An app is gone; so are its series.
    pub fn forget(&self, app: &AppName) {
        // An error means that there was no such series.
        for condition in [
            ConditionType::Accepted,
            ConditionType::Progressing,
            ConditionType::Ready,
            ConditionType::Degraded,
            ConditionType::Inhibited,
            ConditionType::Outdated,
        ] {
            _ = self
                .conditions
                .remove_label_values(&[app.as_str(), condition.as_str()]);
        }
        for reason in [
            InhibitionReason::ReplacementPending,
            InhibitionReason::RetirementPending,
            InhibitionReason::Removed,
        ] {
            _ = self
                .inhibitions
                .remove_label_values(&[app.as_str(), reason.as_str()]);
        }
    }

    /// Leadership is lost: what apps are like is another controller's to say.
    pub fn reset(&self) {
        self.conditions.reset();
        self.inhibitions.reset();
    }
}

/// Calls to a service outside.
#[derive(Debug, Clone)]
pub struct RequestMetrics {
    seconds: HistogramVec,
}

impl RequestMetrics {
    fn declare(registry: &Registry, name: &str, help: &str) -> Result<Self, MetricsError> {
        Ok(Self {
            seconds: seconds_by(registry, name, help, &["call", "code"])?,
        })
    }

    /// A call was answered, or given up.
    pub fn observe(&self, call: &'static str, code: &'static str, took: Duration) {
        self.seconds
            .with_label_values(&[call, code])
            .observe(took.as_secs_f64());
    }
}

/// The controller itself.
#[derive(Debug, Clone)]
pub struct ControllerMetrics {
    /// 1 while this controller leads.
    pub leader: IntGauge,
    /// How fresh the watch of the manifests is.
    pub watch: Freshness,
    watch_lag: Gauge,
    relists: IntCounterVec,
}

impl ControllerMetrics {
    fn declare(registry: &Registry) -> Result<Self, MetricsError> {
        Ok(Self {
            leader: register(
                registry,
                IntGauge::new("podherd_leader", "1 while this controller leads, else 0."),
            )?,
            watch: Freshness::default(),
            watch_lag: register(
                registry,
                Gauge::new(
                    "podherd_watch_lag_seconds",
                    "Seconds since the watch of the manifests last showed that it is alive.",
                ),
            )?,
            relists: counters(
                registry,
                "podherd_relists_total",
                "How often everything was listed because a stream began or ended, by stream.",
                &["stream"],
            )?,
        })
    }

    /// Everything was listed because a stream began or ended.
    pub fn relist(&self, stream: &'static str) {
        self.relists.with_label_values(&[stream]).inc();
    }
}

/// When something last showed that it is alive.
#[derive(Debug, Clone, Default)]
pub struct Freshness(Arc<Mutex<Option<Instant>>>);

impl Freshness {
    /// It is alive now.
    pub fn alive(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// It was ended in order: nobody waits for it.
    pub fn ended(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// How long ago it was alive; nothing when nobody waits for it.
    pub fn lag(&self) -> Duration {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.map_or(Duration::ZERO, |last| last.elapsed())
    }
}

fn register<T: Collector + Clone + 'static>(
    registry: &Registry,
    metric: Result<T, prometheus::Error>,
) -> Result<T, MetricsError> {
    let metric = metric?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn histogram(name: &str, help: &str) -> HistogramOpts {
    HistogramOpts::new(name, help).buckets(SECONDS.to_vec())
}

fn seconds_by(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<HistogramVec, MetricsError> {
    register(registry, HistogramVec::new(histogram(name, help), labels))
}

fn counters(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec, MetricsError> {
    register(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

fn gauges(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntGaugeVec, MetricsError> {
    register(registry, IntGaugeVec::new(Opts::new(name, help), labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(metrics: &Metrics) -> String {
        String::from_utf8(metrics.render().unwrap()).unwrap()
    }

    #[test]
    fn a_call_is_counted_by_call_and_code() {
        let metrics = Metrics::new().unwrap();

        metrics
            .etcd
            .observe("commit", "ok", Duration::from_millis(2));

        assert!(
            text(&metrics)
                .contains(r#"podherd_etcd_request_seconds_count{call="commit",code="ok"} 1"#)
        );
    }

    #[test]
    fn a_forgotten_app_leaves_no_series() {
        let metrics = Metrics::new().unwrap();
        let app: AppName = "blog".parse().unwrap();
        metrics.apps.condition(&app, ConditionType::Ready, true);
        metrics.apps.inhibitions(&app, InhibitionReason::Removed, 1);
        assert!(text(&metrics).contains(r#"app="blog""#));

        metrics.apps.forget(&app);

        assert!(!text(&metrics).contains(r#"app="blog""#));
    }

    #[test]
    fn every_name_has_the_prefix_and_the_version_is_told() {
        let metrics = Metrics::new().unwrap();

        let text = text(&metrics);

        for line in text.lines().filter(|line| !line.starts_with('#')) {
            assert!(
                line.starts_with("podherd_") || line.starts_with("process_"),
                "{line}"
            );
        }
        assert!(text.contains("podherd_build_info{version="));
    }
}
