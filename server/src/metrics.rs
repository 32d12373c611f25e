//! Counts what the server does, for Prometheus.
//!
//! The metrics are numbers only: they contain no names of people, sessions or commands.

use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use pvp_notify::{CountDelivery, DeliveryCount};
use pvp_protocol::api::ChannelKind;
use pvp_protocol::payload::{ClearedBy, GateOutcome};
use pvp_protocol::{Assessment, Category, ErrorCode, Refusal, ServerMessage};

type Labels<const N: usize> = [(&'static str, &'static str); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;

/// The content type of the text that [`Metrics::render`] gives.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Every counter of one server.
pub(crate) struct Metrics {
    /// All metrics below with their names and help texts, for rendering.
    registry: Registry,
    /// Entries that were written and published.
    entries: Counter,
    /// Bytes of those entries.
    entry_bytes: Counter,
    /// Appends that could not be written.
    failed_appends: Counter,
    /// Seconds from sending an append to the store until its result.
    append_seconds: Histogram,
    /// Commands assessed, by category.
    proposals: Counters<1>,
    /// Gates resolved, by outcome.
    gates: Counters<1>,
    /// Commands granted, by what cleared them.
    grants: Counters<1>,
    /// Commands that ended, by success.
    results: Counters<1>,
    /// Messages and requests refused, by error code.
    refusals: Counters<1>,
    /// HTTP requests answered, by route and class of status.
    requests: Counters<2>,
    /// Notifications, by kind of channel and what came of them.
    notifications: Counters<2>,
    /// Open connections.
    connections: Gauge,
    /// Sessions in memory.
    sessions_in_memory: Gauge,
    /// Sessions in the store.
    sessions_stored: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("pvp");
        let build = [("version", env!("CARGO_PKG_VERSION"))];
        let info = Family::<Labels<1>, Gauge>::default();
        info.get_or_create(&build).set(1);
        registry.register("build", "The version that runs", info);
        // From a fifth of a millisecond, what a fast disk takes, to more than 3 seconds.
        let append_seconds = Histogram::new(exponential_buckets(0.0002, 2.0, 15));
        let metrics = Self {
            entries: Counter::default(),
            entry_bytes: Counter::default(),
            failed_appends: Counter::default(),
            append_seconds,
            proposals: Family::default(),
            gates: Family::default(),
            grants: Family::default(),
            results: Family::default(),
            refusals: Family::default(),
            requests: Family::default(),
            notifications: Family::default(),
            connections: Gauge::default(),
            sessions_in_memory: Gauge::default(),
            sessions_stored: Gauge::default(),
            registry: Registry::default(),
        };
        metrics.initialize_series();
        metrics.register(&mut registry);
        Self {
            registry,
            ..metrics
        }
    }
}

impl Metrics {
    /// Creates every known series at zero: a counter that appears only with its first event hides
    /// that event from a rate.
    fn initialize_series(&self) {
        for category in Category::ALL {
            let labels = [("category", category.as_str())];
            self.proposals.get_or_create(&labels).inc_by(0);
        }
        for how in GateOutcome::ALL {
            self.gates
                .get_or_create(&[("outcome", how.as_str())])
                .inc_by(0);
        }
        for by in ClearedBy::ALL {
            self.grants
                .get_or_create(&[("cleared_by", by.as_str())])
                .inc_by(0);
        }
        for success in ["true", "false"] {
            self.results
                .get_or_create(&[("success", success)])
                .inc_by(0);
        }
        for kind in ChannelKind::ALL {
            for count in DELIVERY_COUNTS {
                let labels = delivery_labels(*kind, count);
                self.notifications.get_or_create(&labels).inc_by(0);
            }
        }
        for refusal in [
            ErrorCode::InvalidMessage,
            ErrorCode::Unauthorized,
            ErrorCode::InvalidState,
            ErrorCode::RateLimited,
            ErrorCode::InternalError,
        ] {
            self.refusals
                .get_or_create(&[("code", refusal.as_str())])
                .inc_by(0);
        }
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("entries", "Entries written and told", self.entries.clone());
        registry.register(
            "entry_bytes",
            "Bytes of those entries",
            self.entry_bytes.clone(),
        );
        let failed = self.failed_appends.clone();
        registry.register("failed_appends", "Appends that the disk refused", failed);
        let seconds = self.append_seconds.clone();
        registry.register("append_seconds", "From deciding to durable", seconds);
        let proposals = self.proposals.clone();
        registry.register("proposals", "Commands judged, by category", proposals);
        registry.register("gates", "Gates resolved, by outcome", self.gates.clone());
        let grants = self.grants.clone();
        registry.register("grants", "Commands let run, by what cleared them", grants);
        registry.register(
            "results",
            "Commands that ended, by success",
            self.results.clone(),
        );
        registry.register(
            "refusals",
            "Messages refused, by code",
            self.refusals.clone(),
        );
        let requests = self.requests.clone();
        registry.register(
            "http_requests",
            "Requests answered, by route and status",
            requests,
        );
        let notifications = self.notifications.clone();
        registry.register(
            "notifications",
            "Notifications, by kind and outcome",
            notifications,
        );
        registry.register("connections", "Open connections", self.connections.clone());
        let in_memory = self.sessions_in_memory.clone();
        registry.register("sessions_in_memory", "Sessions at work", in_memory);
        let stored = self.sessions_stored.clone();
        registry.register("sessions_stored", "Sessions in the store", stored);
    }

    /// Counts an entry that was written and is being published.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "other entries are only counted in total"
    )]
    pub(crate) fn record_entry(&self, message: &ServerMessage, bytes: usize) {
        self.entries.inc();
        self.entry_bytes.inc_by(bytes as u64);
        match message {
            ServerMessage::ToolPropose(propose) => {
                self.record_assessment(propose.assessment.as_ref())
            }
            ServerMessage::ShellExec(exec) => self.record_assessment(exec.assessment.as_ref()),
            ServerMessage::GateResolve(resolve) => {
                let labels = [("outcome", resolve.outcome.as_str())];
                self.gates.get_or_create(&labels).inc();
            }
            ServerMessage::ToolExecute(execute) => {
                let labels = [("cleared_by", execute.grant.cleared_by.as_str())];
                self.grants.get_or_create(&labels).inc();
            }
            ServerMessage::ToolResult(result) => {
                let labels = [("success", if result.success { "true" } else { "false" })];
                self.results.get_or_create(&labels).inc();
            }
            _ => {}
        }
    }

    fn record_assessment(&self, assessment: Option<&Assessment>) {
        if let Some(assessment) = assessment {
            let labels = [("category", assessment.category.as_str())];
            self.proposals.get_or_create(&labels).inc();
        }
    }

    /// Counts an append that took this long, and whether it was written.
    pub(crate) fn record_append(&self, took: Duration, written: bool) {
        self.append_seconds.observe(took.as_secs_f64());
        if !written {
            self.failed_appends.inc();
        }
    }

    pub(crate) fn record_refusal(&self, refusal: &Refusal) {
        let labels = [("code", refusal.code().as_str())];
        self.refusals.get_or_create(&labels).inc();
    }

    pub(crate) fn record_request(&self, route: &'static str, status: &'static str) {
        let labels = [("route", route), ("status", status)];
        self.requests.get_or_create(&labels).inc();
    }

    /// What counts notifications.
    pub(crate) fn count_deliveries(&self) -> CountDelivery {
        let notifications = self.notifications.clone();
        Box::new(move |kind, count| {
            let labels = delivery_labels(kind, count);
            notifications.get_or_create(&labels).inc();
        })
    }

    /// All metrics in the OpenMetrics text format.
    pub(crate) fn render(&self, counts: (u64, usize, u64)) -> Result<String, std::fmt::Error> {
        let (connections, in_memory, stored) = counts;
        self.connections
            .set(i64::try_from(connections).unwrap_or(i64::MAX));
        self.sessions_in_memory
            .set(i64::try_from(in_memory).unwrap_or(i64::MAX));
        self.sessions_stored
            .set(i64::try_from(stored).unwrap_or(i64::MAX));
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Everything that is counted about notifications.
const DELIVERY_COUNTS: [DeliveryCount; 4] = [
    DeliveryCount::Sent,
    DeliveryCount::Failed,
    DeliveryCount::Retried,
    DeliveryCount::Dropped,
];

fn delivery_labels(kind: ChannelKind, count: DeliveryCount) -> Labels<2> {
    let outcome = match count {
        DeliveryCount::Sent => "sent",
        DeliveryCount::Failed => "failed",
        DeliveryCount::Retried => "retried",
        DeliveryCount::Dropped => "dropped",
    };
    [("kind", kind.as_str()), ("outcome", outcome)]
}
