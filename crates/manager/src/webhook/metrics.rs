//! What is counted of the webhook. All labels are bounded.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::review::Answer;

/// Upper bounds in seconds: most answers need no request of their own, and the API server waits 3 s at most.
const BUCKETS: [f64; 10] = [0.000_25, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0];

/// Which webhook was asked.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Webhook {
    Pod,
    NodePool,
}

impl Webhook {
    const ALL: [Self; 2] = [Self::Pod, Self::NodePool];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::NodePool => "node_pool",
        }
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Outcome {
    /// Allowed unchanged.
    Allowed,
    /// Allowed with a patch.
    Patched,
    /// Refused.
    Refused,
    /// Not a request of the API server.
    Invalid,
    /// Not decided, because something could not be looked up.
    Error,
}

impl Outcome {
    const ALL: [Self; 5] = [Self::Allowed, Self::Patched, Self::Refused, Self::Invalid, Self::Error];

    pub(super) fn of(answer: &Answer) -> Self {
        match answer {
            Answer::Allow { patch, warnings: _ } if patch.is_empty() => Self::Allowed,
            Answer::Allow { .. } => Self::Patched,
            Answer::Refuse { .. } => Self::Refused,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Patched => "patched",
            Self::Refused => "refused",
            Self::Invalid => "invalid",
            Self::Error => "error",
        }
    }
}

impl EncodeLabelValue for Webhook {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        self.name().encode(encoder)
    }
}

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        self.name().encode(encoder)
    }
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RequestLabels {
    webhook: Webhook,
    outcome: Outcome,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct DurationLabels {
    webhook: Webhook,
}

/// The webhook's metrics, shared by its clones.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    duration: Family<DurationLabels, Histogram, fn() -> Histogram>,
}

impl Metrics {
    /// Registers `webhook_requests_total` and `webhook_duration_seconds`; the prefix `isthmus` is the registry's.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        };
        // From the start, so that the first request is an increase and not an appearance.
        for webhook in Webhook::ALL {
            drop(metrics.duration.get_or_create(&DurationLabels { webhook }));
            for outcome in Outcome::ALL {
                drop(metrics.requests.get_or_create(&RequestLabels { webhook, outcome }));
            }
        }
        registry.register("webhook_requests", "Requests to the admission webhook", metrics.requests.clone());
        registry.register_with_unit(
            "webhook_duration",
            "Time the admission webhook took to answer",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        metrics
    }

    pub(super) fn observe(&self, webhook: Webhook, outcome: Outcome, took: Duration) {
        self.requests.get_or_create(&RequestLabels { webhook, outcome }).inc();
        self.duration.get_or_create(&DurationLabels { webhook }).observe(took.as_secs_f64());
    }
}
