//! What operators watch of certificates: when they end, how often they changed, and whether keeping them fails.

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use tls::{certificate::Certificate, rotation::Action};

/// Metrics of the webhook's certificates. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct CertificateMetrics {
    expiry: Family<Of, Gauge>,
    rotations: Family<Of, Counter>,
    failures: Counter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    certificate: Which,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "a variant's name is the label's value")]
enum Which {
    authority,
    serving,
}

impl CertificateMetrics {
    /// Metrics in `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self { expiry, rotations, failures } = &metrics;
        registry.register(
            "webhook_certificate_expiry_timestamp_seconds",
            "When the certificate ends, since the Unix epoch: the one served by this replica, and the authority's where it leads",
            expiry.clone(),
        );
        registry.register(
            "webhook_certificate_rotations",
            "Certificates that this process issued and authorities that it put in charge",
            rotations.clone(),
        );
        registry.register(
            "webhook_certificate_failures",
            "Turns of the certificate controller that failed",
            failures.clone(),
        );
        metrics
    }

    pub(super) fn serving(&self, certificate: &Certificate) {
        self.expires(Which::serving, certificate);
    }

    pub(super) fn authority(&self, certificate: &Certificate) {
        self.expires(Which::authority, certificate);
    }

    pub(super) fn did(&self, action: &Action) {
        let certificate = match action {
            Action::IssueLeaf => Which::serving,
            Action::CreateCurrent | Action::Promote => Which::authority,
            Action::CreateNext(_) | Action::PublishBundle { .. } | Action::Retire | Action::Wait { .. } => {
                return;
            }
        };
        self.rotations.get_or_create(&Of { certificate }).inc();
    }

    pub(super) fn failed(&self) {
        self.failures.inc();
    }

    fn expires(&self, which: Which, certificate: &Certificate) {
        let end = certificate.validity().not_after.as_second();
        self.expiry.get_or_create(&Of { certificate: which }).set(end);
    }
}
