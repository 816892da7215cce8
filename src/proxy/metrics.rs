//! What the data plane counts. Labels are the app, the service, the transport, a
//! class of status codes, and a fixed set of reasons: bounded by what is deployed.

use std::time::Duration;

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use crate::manifest::{AppName, Protocol, ServiceName};

/// Upper bounds of the answer-time histogram, in seconds.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// All metrics of the data plane.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    requests: IntCounterVec,
    seconds: HistogramVec,
    failures: IntCounterVec,
    streams: IntCounterVec,
    open_streams: IntGaugeVec,
    stream_failures: IntCounterVec,
    listeners: IntGaugeVec,
    /// Requests and upgraded connections in flight.
    pub in_flight: IntGauge,
    /// Open client connections.
    pub connections: IntGauge,
    /// Revision of the graph that is served.
    pub revision: IntGauge,
    /// 1 while registered in etcd.
    pub registered: IntGauge,
}

/// The metrics of one app and service.
#[derive(Debug, Clone)]
pub(super) struct RouteMetrics {
    /// By class: 1xx to 5xx, and canceled.
    classes: [IntCounter; 6],
    seconds: Histogram,
}

/// The metrics of one app's and service's connections or sessions.
#[derive(Debug, Clone)]
pub(super) struct StreamMetrics {
    opened: IntCounter,
    open: IntGauge,
}

/// A connection or session that is counted as open until this is dropped.
#[derive(Debug)]
pub(super) struct Counted(IntGauge);

impl Metrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has one of that name already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            requests: IntCounterVec::new(
                Opts::new(
                    "podherd_proxy_requests_total",
                    "Requests by app, service and class of the status code; both names are empty for requests that match no route",
                ),
                &["app", "service", "code"],
            )?,
            seconds: HistogramVec::new(
                HistogramOpts::new(
                    "podherd_proxy_request_seconds",
                    "Seconds from a request's head to its response's head",
                )
                .buckets(SECONDS.to_vec()),
                &["app", "service"],
            )?,
            failures: IntCounterVec::new(
                Opts::new(
                    "podherd_proxy_failures_total",
                    "Requests that the proxy answered itself, by reason",
                ),
                &["reason"],
            )?,
            streams: IntCounterVec::new(
                Opts::new(
                    "podherd_proxy_streams_total",
                    "TCP connections and UDP sessions that reached a backend, by app, service and protocol",
                ),
                &["app", "service", "protocol"],
            )?,
            open_streams: IntGaugeVec::new(
                Opts::new(
                    "podherd_proxy_streams",
                    "Open TCP connections and UDP sessions by app, service and protocol",
                ),
                &["app", "service", "protocol"],
            )?,
            stream_failures: IntCounterVec::new(
                Opts::new(
                    "podherd_proxy_stream_failures_total",
                    "TCP connections and UDP datagrams that didn't get through or were cut, by protocol and reason",
                ),
                &["protocol", "reason"],
            )?,
            listeners: IntGaugeVec::new(
                Opts::new(
                    "podherd_proxy_listeners",
                    "TCP and UDP listeners of the graph by state: open, or failed and tried again",
                ),
                &["state"],
            )?,
            in_flight: IntGauge::new(
                "podherd_proxy_requests_in_flight",
                "Requests and upgraded connections in flight",
            )?,
            connections: IntGauge::new(
                "podherd_proxy_client_connections",
                "Open connections of clients",
            )?,
            revision: IntGauge::new(
                "podherd_proxy_graph_revision",
                "Revision of the traffic graph that is served",
            )?,
            registered: IntGauge::new(
                "podherd_proxy_registered",
                "1 while the data plane is registered in etcd; 0 while it serves on its own",
            )?,
        };
        registry.register(Box::new(metrics.requests.clone()))?;
        registry.register(Box::new(metrics.seconds.clone()))?;
        registry.register(Box::new(metrics.failures.clone()))?;
        registry.register(Box::new(metrics.streams.clone()))?;
        registry.register(Box::new(metrics.open_streams.clone()))?;
        registry.register(Box::new(metrics.stream_failures.clone()))?;
        registry.register(Box::new(metrics.listeners.clone()))?;
        for gauge in [
            &metrics.in_flight,
            &metrics.connections,
            &metrics.revision,
            &metrics.registered,
        ] {
            registry.register(Box::new(gauge.clone()))?;
        }
        Ok(metrics)
    }

    /// Those of one app and service, looked up once a table.
    pub fn route(&self, app: &AppName, service: &ServiceName) -> RouteMetrics {
        self.labelled(app.as_str(), service.as_str())
    }

    /// Those of requests that match no route.
    pub fn unrouted(&self) -> RouteMetrics {
        self.labelled("", "")
    }

    fn labelled(&self, app: &str, service: &str) -> RouteMetrics {
        let class = |code| self.requests.with_label_values(&[app, service, code]);
        RouteMetrics {
            classes: ["1xx", "2xx", "3xx", "4xx", "5xx", "canceled"].map(class),
            seconds: self.seconds.with_label_values(&[app, service]),
        }
    }

    /// Those of one app's and service's listener, looked up once a table.
    pub fn stream(
        &self,
        app: &AppName,
        service: &ServiceName,
        protocol: Protocol,
    ) -> StreamMetrics {
        let labels = [app.as_str(), service.as_str(), protocol.as_str()];
        StreamMetrics {
            opened: self.streams.with_label_values(&labels),
            open: self.open_streams.with_label_values(&labels),
        }
    }

    /// Counts a connection or datagram that didn't get through, or was cut.
    pub fn stream_failed(&self, protocol: Protocol, reason: &str) {
        let labels = [protocol.as_str(), reason];
        self.stream_failures.with_label_values(&labels).inc();
    }

    /// How many listeners are open, and how many can't be.
    pub fn listeners(&self, open: usize, failed: usize) {
        for (state, count) in [("open", open), ("failed", failed)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.listeners.with_label_values(&[state]).set(count);
        }
    }

    /// Counts a request that the proxy answered itself.
    pub fn failed(&self, reason: &str) {
        self.failures.with_label_values(&[reason]).inc();
    }
}

impl StreamMetrics {
    /// Counts a connection or session that reached its backend.
    pub fn opened(&self) -> Counted {
        self.opened.inc();
        self.open.inc();
        Counted(self.open.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl RouteMetrics {
    /// Counts an answer.
    pub fn answered(&self, status: http::StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(counter) = self.classes.get(class.min(4)) {
            counter.inc();
        }
        self.seconds.observe(took.as_secs_f64());
    }

    /// Counts a request whose client left before there was an answer.
    pub fn canceled(&self) {
        if let Some(counter) = self.classes.last() {
            counter.inc();
        }
    }
}
