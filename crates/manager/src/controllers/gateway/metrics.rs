//! Metrics of the Gateway controller. Labels are names of Gateways that exist, and go with them.

use std::collections::BTreeSet;
use std::fmt;

use api::{EndpointType, GatewayStatus};
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Type(EndpointType);

impl EncodeLabelValue for Type {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        match self.0 {
            EndpointType::Proxy => "proxy".encode(encoder),
            EndpointType::Tunnel => "tunnel".encode(encoder),
        }
    }
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct EndpointLabels {
    gateway: String,
    r#type: Type,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct GatewayLabels {
    gateway: String,
}

/// What became of an endpoint.
#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, PartialEq)]
pub(crate) enum Change {
    /// It became active.
    Elected,
    /// It is active no longer.
    Lost,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ChangeLabels {
    change: Change,
}

/// The metrics. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct GatewayMetrics {
    active: Family<EndpointLabels, Gauge>,
    links: Family<GatewayLabels, Gauge>,
    changes: Family<ChangeLabels, Counter>,
    known: std::sync::Arc<Mutex<BTreeSet<String>>>,
}

impl GatewayMetrics {
    /// Registers the metrics in `registry`.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self { active, links, changes, known: _ } = metrics.clone();
        for change in [Change::Elected, Change::Lost] {
            drop(changes.get_or_create(&ChangeLabels { change }));
        }
        registry.register("gateway_active_endpoints", "Active endpoints of a Gateway by type", active);
        registry.register(
            "gateway_links",
            "Tunnels between a Gateway's active endpoints and exposed gateways",
            links,
        );
        registry.register(
            "gateway_election_changes",
            "Endpoints that became active, or ceased to be",
            changes,
        );
        metrics
    }

    pub(crate) fn changed(&self, change: Change, count: usize) {
        self.changes.get_or_create(&ChangeLabels { change }).inc_by(count as u64);
    }

    /// These are all Gateways, and their states.
    pub(crate) fn observe<'a>(&self, gateways: impl Iterator<Item = (String, &'a GatewayStatus)>) {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let mut present = BTreeSet::new();
        for (gateway, status) in gateways {
            for type_ in [EndpointType::Proxy, EndpointType::Tunnel] {
                let number = status.active_endpoints.iter().filter(|e| e.type_ == type_).count();
                let labels = EndpointLabels { gateway: gateway.clone(), r#type: Type(type_) };
                self.active.get_or_create(&labels).set(count(number));
            }
            let labels = GatewayLabels { gateway: gateway.clone() };
            self.links.get_or_create(&labels).set(count(status.links.len()));
            present.insert(gateway);
        }
        let mut known = self.known.lock();
        for gone in known.difference(&present) {
            for type_ in [EndpointType::Proxy, EndpointType::Tunnel] {
                self.active.remove(&EndpointLabels { gateway: gone.clone(), r#type: Type(type_) });
            }
            self.links.remove(&GatewayLabels { gateway: gone.clone() });
        }
        *known = present;
    }
}
