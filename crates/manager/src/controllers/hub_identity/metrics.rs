//! What operators watch of the hubs' certificates: decisions, and why; and whether deciding fails.

use std::fmt;

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::plan::{Decision, Entitled, Refusal};

/// Metrics of the controller. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct HubIdentityMetrics {
    decisions: Family<DecisionLabels, Counter>,
    failures: Counter,
}

#[derive(Clone, Copy, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct DecisionLabels {
    decision: Word,
    reason: Reason,
}

#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, PartialEq)]
enum Word {
    Approved,
    Denied,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Reason {
    Entitled(Entitled),
    Refusal(Refusal),
}

impl EncodeLabelValue for Reason {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        match self {
            Self::Entitled(entitled) => entitled.reason().encode(encoder),
            Self::Refusal(refusal) => refusal.reason().encode(encoder),
        }
    }
}

impl HubIdentityMetrics {
    /// Metrics in `registry`.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self { decisions, failures } = &metrics;
        registry.register(
            "hub_certificate_decisions",
            "Requests for hubs' certificates that were approved or denied, and why",
            decisions.clone(),
        );
        registry.register(
            "hub_certificate_failures",
            "Requests for hubs' certificates on which no decision could be made or written; they are tried again",
            failures.clone(),
        );
        metrics
    }

    pub(super) fn decided(&self, decision: Decision) {
        let labels = match decision {
            Decision::Approve(entitled) => {
                DecisionLabels { decision: Word::Approved, reason: Reason::Entitled(entitled) }
            }
            Decision::Deny(refusal) => {
                DecisionLabels { decision: Word::Denied, reason: Reason::Refusal(refusal) }
            }
        };
        self.decisions.get_or_create(&labels).inc();
    }

    pub(super) fn failed(&self) {
        self.failures.inc();
    }
}
