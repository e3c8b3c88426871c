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

use super::accepting::Lacking;

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

/// What a node lacks of an exposed Gateway.
#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, PartialEq)]
enum State {
    /// It has no link.
    Missed,
    /// It has links to some of the active endpoints alone.
    InPart,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct LackingLabels {
    gateway: String,
    state: State,
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
    lacking: Family<LackingLabels, Gauge>,
    changes: Family<ChangeLabels, Counter>,
    known: std::sync::Arc<Mutex<BTreeSet<String>>>,
}

impl GatewayMetrics {
    /// Registers the metrics in `registry`.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self { active, links, lacking, changes, known: _ } = metrics.clone();
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
            "gateway_unlinked_nodes",
            "Nodes that dial and have no link to an exposed Gateway, or to some of its active endpoints alone, by state",
            lacking,
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
    pub(crate) fn observe<'a>(&self, gateways: impl Iterator<Item = (String, &'a GatewayStatus, Lacking)>) {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let mut present = BTreeSet::new();
        for (gateway, status, lacking) in gateways {
            for type_ in [EndpointType::Proxy, EndpointType::Tunnel] {
                let number = status.active_endpoints.iter().filter(|e| e.type_ == type_).count();
                let labels = EndpointLabels { gateway: gateway.clone(), r#type: Type(type_) };
                self.active.get_or_create(&labels).set(count(number));
            }
            let labels = GatewayLabels { gateway: gateway.clone() };
            self.links.get_or_create(&labels).set(count(status.links.len()));
            for (state, number) in [(State::Missed, lacking.missed), (State::InPart, lacking.in_part)] {
                let labels = LackingLabels { gateway: gateway.clone(), state };
                self.lacking.get_or_create(&labels).set(count(number));
            }
            present.insert(gateway);
        }
        let mut known = self.known.lock();
        for gone in known.difference(&present) {
            for type_ in [EndpointType::Proxy, EndpointType::Tunnel] {
                self.active.remove(&EndpointLabels { gateway: gone.clone(), r#type: Type(type_) });
            }
            self.links.remove(&GatewayLabels { gateway: gone.clone() });
            for state in [State::Missed, State::InPart] {
                self.lacking.remove(&LackingLabels { gateway: gone.clone(), state });
            }
        }
        *known = present;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_a_gateway_lacks_are_counted_while_it_is_there() {
        let mut registry = Registry::default();
        let metrics = GatewayMetrics::register(&mut registry);
        let shown = |registry: &Registry| -> Vec<String> {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
            let of_nodes = text.lines().filter(|line| line.starts_with("gateway_unlinked_nodes{"));
            let mut lines: Vec<String> = of_nodes.map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let status = GatewayStatus::default();
        let lacking = Lacking { missed: 2, in_part: 1 };
        metrics.observe([("cloud".to_owned(), &status, lacking)].into_iter());
        assert_eq!(
            shown(&registry),
            [
                "gateway_unlinked_nodes{gateway=\"cloud\",state=\"InPart\"} 1",
                "gateway_unlinked_nodes{gateway=\"cloud\",state=\"Missed\"} 2",
            ]
        );
        metrics.observe(std::iter::empty());
        assert_eq!(shown(&registry), [""; 0]);
    }
}
