//! What Podherd shows of itself: logs, spans, metrics, health.
//!
//! Everything above may report here; this knows only names and records.

mod checks;
mod health;
mod metered_runtime;
mod metered_store;
mod metrics;
mod server;
mod trace;

pub use checks::{EtcdCheck, PodmanCheck};
pub use health::{Check, Health, Pulse, Report};
pub use metered_runtime::MeteredRuntime;
pub use metered_store::MeteredStore;
pub use metrics::{
    AppMetrics, ControllerMetrics, Freshness, Metrics, MetricsError, QueueMetrics,
    ReconcileMetrics, RequestMetrics,
};
pub use server::serve;
pub use trace::{LogFormat, TraceError, init};
