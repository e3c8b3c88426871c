//! What is counted of reports and of the store.

use api::slo::freshness::FreshnessState;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use prometheus_client::registry::Registry;

use crate::store::{Phase, Store};

/// What became of a report.
#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, PartialEq)]
pub enum Taken {
    /// It changed the node's state.
    Taken,
    /// A newer one is held.
    Dropped,
    /// A delta whose base is not held.
    NeedsFull,
    /// This replica does not lead.
    Misdirected,
    /// Too many came.
    Shed,
    /// Of another node than the certificate's.
    Forbidden,
    /// No such node.
    Unknown,
    /// Against the protocol.
    Malformed,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ReportLabels {
    outcome: Taken,
}

/// In which state nodes are.
#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, PartialEq)]
enum State {
    Unknown,
    NeverReported,
    Fresh,
    Stale,
    Expired,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct StateLabels {
    state: State,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct TakeOverLabels {
    /// Whether there was a fresh copy of the leader before: reads were answered at once.
    warm: bool,
}

/// The figures. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    reports: Family<ReportLabels, Counter>,
    nodes: Family<StateLabels, Gauge>,
    objects: Gauge,
    live: Gauge,
    covered: Gauge,
    serving: Gauge,
    leading: Gauge,
    epoch: Gauge,
    version: Gauge,
    copied: Gauge,
    take_overs: Family<TakeOverLabels, Counter>,
}

impl Metrics {
    /// Figures that `registry` shows.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("node_metric");
        registry.register("reports", "Reports of nodes, by what became of them", metrics.reports.clone());
        registry.register("nodes", "Nodes, by the freshness of their metrics", metrics.nodes.clone());
        registry.register("objects", "Objects that this replica holds", metrics.objects.clone());
        registry.register("live_nodes", "Nodes that are alive", metrics.live.clone());
        registry.register(
            "covered_nodes",
            "Nodes that are alive and of which there are metrics",
            metrics.covered.clone(),
        );
        registry.register("serving", "Whether this replica answers reads by itself", metrics.serving.clone());
        registry.register("leading", "Whether this replica takes reports", metrics.leading.clone());
        registry.register("epoch", "The term of the leadership", metrics.epoch.clone());
        registry.register("resource_version", "The version of the last change", metrics.version.clone());
        registry.register(
            "copied",
            "Whether this replica holds a whole copy of the leader's state, so that it would serve at once in its place",
            metrics.copied.clone(),
        );
        let help =
            "How often this replica began to lead, by whether it had a fresh copy of the leader before";
        registry.register("take_overs", help, metrics.take_overs.clone());
        // From the start, so that the first one is an increase.
        for warm in [true, false] {
            drop(metrics.take_overs.get_or_create(&TakeOverLabels { warm }));
        }
        metrics
    }

    /// Counts a report.
    pub fn report(&self, outcome: Taken) {
        self.reports.get_or_create(&ReportLabels { outcome }).inc();
    }

    /// Counts a take-over.
    pub fn took_over(&self, warm: bool) {
        self.take_overs.get_or_create(&TakeOverLabels { warm }).inc();
    }

    /// Shows how the store is.
    pub fn show(&self, store: &Store) {
        let coverage = store.coverage();
        let states = store.states();
        for (state, shown) in [
            (FreshnessState::Unknown, State::Unknown),
            (FreshnessState::NeverReported, State::NeverReported),
            (FreshnessState::Fresh, State::Fresh),
            (FreshnessState::Stale, State::Stale),
            (FreshnessState::Expired, State::Expired),
        ] {
            let count = states.get(&state).copied().unwrap_or(0);
            self.nodes.get_or_create(&StateLabels { state: shown }).set(gauge(count));
        }
        self.objects.set(gauge(coverage.objects));
        self.live.set(gauge(coverage.live));
        self.covered.set(gauge(coverage.covered));
        self.serving.set(i64::from(store.phase() == Phase::Serving));
        self.leading.set(i64::from(store.phase() != Phase::Following));
        self.copied.set(i64::from(store.is_copied()));
        self.epoch.set(i64::try_from(store.epoch()).unwrap_or(i64::MAX));
        self.version.set(i64::try_from(store.ledger().last()).unwrap_or(i64::MAX));
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
