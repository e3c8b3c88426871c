//! What operators watch of the hub's certificate: when it ends, how often it was renewed, and why that failed.

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// Why there is no new certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum Failure {
    /// No API server answered.
    Unreachable,
    /// The API server did not take the request.
    Refused,
    /// The request was denied, failed or removed.
    Denied,
    /// Nobody decided in time.
    Unanswered,
    /// What was issued, or is in the files, cannot be used.
    Unusable,
    /// It cannot be written.
    Store,
    /// There is nothing to ask with.
    Stuck,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    reason: Failure,
}

/// Metrics of the hub's certificate. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct IdentityMeters {
    expiry: Gauge,
    renewals: Counter,
    failures: Family<FailureLabels, Counter>,
}

impl IdentityMeters {
    /// Makes them and registers them; names get the registry's prefix.
    pub fn register(registry: &mut Registry) -> Self {
        let Self { expiry, renewals, failures } = Self::default();
        registry.register(
            "hub_certificate_expiry_timestamp_seconds",
            "When the certificate that the hub shows to the API server ends, since the Unix epoch; 0 if there is none",
            expiry.clone(),
        );
        registry.register(
            "hub_certificate_renewals",
            "Certificates that the hub took into use since its start",
            renewals.clone(),
        );
        registry.register(
            "hub_certificate_failures",
            "Attempts to get a certificate that failed, and why",
            failures.clone(),
        );
        Self { expiry, renewals, failures }
    }

    pub(super) fn expires(&self, at: Option<jiff::Timestamp>) {
        self.expiry.set(at.map_or(0, jiff::Timestamp::as_second));
    }

    pub(super) fn renewed(&self) {
        self.renewals.inc();
    }

    pub(super) fn failed(&self, reason: Failure) {
        self.failures.get_or_create(&FailureLabels { reason }).inc();
    }
}
