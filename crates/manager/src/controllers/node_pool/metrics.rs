//! Metrics of the controllers that reconcile, and of NodePools.

use std::fmt;
use std::time::Duration;

use api::NodePoolStatus;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// How a reconciliation ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Outcome {
    /// Everything is as the pool says.
    Success,
    /// Something changed meanwhile; another look follows.
    Stale,
    /// Something could not be written; it is tried again.
    Failed,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OutcomeLabels {
    controller: Controller,
    outcome: Outcome,
}

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        let name = match self {
            Self::Success => "success",
            Self::Stale => "stale",
            Self::Failed => "failed",
        };
        name.encode(encoder)
    }
}

/// Which controller reconciled.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Controller {
    /// That of NodePools.
    NodePool,
    /// That of Gateways.
    Gateway,
}

impl EncodeLabelValue for Controller {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        match self {
            Self::NodePool => "nodepool".encode(encoder),
            Self::Gateway => "gateway".encode(encoder),
        }
    }
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ControllerLabels {
    controller: Controller,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct PoolLabels {
    pool: String,
    ready: bool,
}

/// The metrics; cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    /// Successful writes to the API server.
    pub(crate) writes: Counter,
    reconciles: Family<OutcomeLabels, Counter>,
    duration: Family<ControllerLabels, Histogram, fn() -> Histogram>,
    nodes: Family<PoolLabels, Gauge>,
}

impl Metrics {
    /// Registers the metrics in `registry`.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            writes: Counter::default(),
            reconciles: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 14))),
            nodes: Family::default(),
        };
        // From the start, so that the first reconciliation is an increase and not an appearance.
        for controller in [Controller::NodePool, Controller::Gateway] {
            drop(metrics.duration.get_or_create(&ControllerLabels { controller }));
            for outcome in [Outcome::Success, Outcome::Stale, Outcome::Failed] {
                drop(metrics.reconciles.get_or_create(&OutcomeLabels { controller, outcome }));
            }
        }
        let Self { writes, reconciles, duration, nodes } = metrics.clone();
        registry.register("api_writes", "Successful writes to the API server", writes);
        registry.register("reconcile", "Reconciliations by outcome", reconciles);
        registry.register("reconcile_duration_seconds", "Time of a reconciliation by controller", duration);
        registry.register("nodepool_nodes", "Nodes of a pool by readiness", nodes);
        metrics
    }

    pub(crate) fn observe_reconcile(&self, controller: Controller, outcome: Outcome, took: Duration) {
        self.reconciles.get_or_create(&OutcomeLabels { controller, outcome }).inc();
        self.duration.get_or_create(&ControllerLabels { controller }).observe(took.as_secs_f64());
    }

    pub(crate) fn observe_pool(&self, pool: &str, status: &NodePoolStatus) {
        let counts = [(true, status.ready_node_num), (false, status.unready_node_num)];
        for (ready, count) in counts {
            let labels = PoolLabels { pool: pool.to_owned(), ready };
            self.nodes.get_or_create(&labels).set(i64::from(count));
        }
    }

    pub(crate) fn forget_pool(&self, pool: &str) {
        for ready in [true, false] {
            self.nodes.remove(&PoolLabels { pool: pool.to_owned(), ready });
        }
    }
}
