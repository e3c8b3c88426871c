//! What operators watch of the reports.

use std::time::Duration;

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum Outcome {
    /// The leader took it.
    Taken,
    /// The leader had as new a one.
    Dropped,
    /// The leader wants a full one.
    NeedFull,
    /// That server does not lead.
    NotLeader,
    /// The leader has too much to do.
    Shed,
    /// The leader refuses it.
    Refused,
    /// There was no connection, or no answer.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: Outcome,
}

/// Metrics of the reports. Clones share them.
#[derive(Debug, Clone)]
pub struct NodeMetricMeters {
    reports: Family<OutcomeLabels, Counter>,
    bytes: Counter,
    sampling: Histogram,
}

impl NodeMetricMeters {
    /// Makes them and registers them; names get the registry's prefix.
    pub fn register(registry: &mut Registry) -> Self {
        let reports = Family::<OutcomeLabels, Counter>::default();
        let bytes = Counter::default();
        let sampling = Histogram::new([0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0]);
        registry.register(
            "hub_node_reports",
            "Reports of what the node uses, and what became of them",
            reports.clone(),
        );
        registry.register("hub_node_report_bytes", "Bytes of these reports, without TLS", bytes.clone());
        registry.register(
            "hub_node_sample_seconds",
            "How long it took to read the node and its pods once",
            sampling.clone(),
        );
        Self { reports, bytes, sampling }
    }

    pub(super) fn report(&self, outcome: Outcome) {
        self.reports.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.bytes.inc_by(bytes as u64);
    }

    pub(super) fn sampled(&self, took: Duration) {
        self.sampling.observe(took.as_secs_f64());
    }
}
