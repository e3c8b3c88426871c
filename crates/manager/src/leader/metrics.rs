//! What the election tells Prometheus.

use std::sync::atomic::AtomicI64;

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// Metrics of the election. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub(super) leader: Gauge<i64, AtomicI64>,
    transitions: Family<TransitionLabels, Counter>,
    failures: Family<RequestLabels, Counter>,
}

/// How this process's leadership changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum Transition {
    Acquired,
    Released,
    Lost,
}

/// What a request wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum Request {
    Read,
    Write,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TransitionLabels {
    transition: Transition,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    request: Request,
}

impl Metrics {
    /// Makes the metrics and registers them. Names are given by the registry's prefix and these suffixes.
    pub fn register(registry: &mut Registry) -> Self {
        let Self { leader, transitions, failures } = Self::default();
        registry.register("leader", "1 while this process leads, else 0", leader.clone());
        registry.register("leader_transitions", "Changes of this process's leadership", transitions.clone());
        registry.register(
            "leader_request_failures",
            "Requests for the Lease that failed or timed out; a lost race is not a failure",
            failures.clone(),
        );
        Self { leader, transitions, failures }
    }

    pub(super) fn transition(&self, transition: Transition) {
        self.leader.set(i64::from(transition == Transition::Acquired));
        self.transitions.get_or_create(&TransitionLabels { transition }).inc();
    }

    pub(super) fn failure(&self, request: Request) {
        self.failures.get_or_create(&RequestLabels { request }).inc();
    }
}
