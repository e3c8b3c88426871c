//! What the tunnel says of itself: for `edge-hub status` and metrics. Fields are only ever added.

use std::fmt;

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use serde::{Deserialize, Serialize};
use tunnel::{route::Direction, view::View};

use super::{Role, State};

/// The tunnel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TunnelView {
    /// `none`, `agent` or `gateway`.
    pub role: String,
    /// Why there is no link, where there is to be none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<String>,
    /// What is not as it was asked for.
    #[serde(default)]
    pub problems: Vec<String>,
    /// The links there are.
    #[serde(default)]
    pub links: Vec<TunnelLinkView>,
}

/// A link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TunnelLinkView {
    /// The node at the other end.
    pub peer: String,
    /// The domain of that node, as rules of destinations name it.
    pub domain: String,
    /// `reverse`: the one that accepted it asks; `forward`: the one that dialled.
    pub direction: String,
    /// For which traffic.
    pub class: String,
    /// The last round trip.
    pub round_trip_micros: Option<u64>,
    /// Streams open.
    pub streams: usize,
    /// How long it has been up.
    pub up_seconds: u64,
    /// Whether it takes no new streams.
    pub draining: bool,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}

const fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Reverse => "reverse",
        Direction::Forward => "forward",
    }
}

/// The domain of a node. An edge node does not know which nodes are the cloud's, and so has the cloud's Gateway's name for it: the one domain that is exposed
/// is what rules mean by `cloud`, here and on gateways.
fn domain_of(node: &str, view: &View) -> Option<String> {
    let domain = view.domain_of(node)?;
    let mut exposed = view.exposed().map(|(exposed, _)| exposed);
    let is_cloud = exposed.next() == Some(&domain) && exposed.next().is_none();
    Some(if is_cloud { "cloud".to_owned() } else { domain.to_string() })
}

impl TunnelView {
    /// The tunnel as it is now.
    pub fn of(state: &State) -> Self {
        let view = state.connector.view();
        let mut links: Vec<TunnelLinkView> = state
            .table
            .snapshot()
            .into_iter()
            .map(|link| TunnelLinkView {
                domain: domain_of(&link.peer, &view).unwrap_or_default(),
                peer: link.peer,
                direction: direction(link.direction).to_owned(),
                class: link.class.name().to_owned(),
                round_trip_micros: link
                    .round_trip
                    .and_then(|round_trip| u64::try_from(round_trip.as_micros()).ok()),
                streams: link.streams,
                up_seconds: link.up.as_secs(),
                draining: link.draining,
                received_bytes: link.received,
                sent_bytes: link.sent,
            })
            .collect();
        links.sort();
        let plan = state.plan.borrow().clone();
        let idle = plan.idle.clone().filter(|_| links.is_empty());
        Self { role: plan.role.name().to_owned(), idle, problems: state.problems(), links }
    }
}

/// Tells Prometheus. Labels are of fixed sets.
pub(crate) fn encode(state: &State, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let role = state.role();
    let mut family = encoder.encode_descriptor(
        "hub_tunnel_role",
        "1 for the node's role in the tunnel",
        None,
        MetricType::Gauge,
    )?;
    for one in Role::ALL {
        ConstGauge::new(i64::from(one == role)).encode(family.encode_family(&[("role", one.name())])?)?;
    }
    let links = state.table.snapshot();
    let mut family = encoder.encode_descriptor(
        "hub_tunnel_links",
        "Links of the tunnel that are up",
        None,
        MetricType::Gauge,
    )?;
    for of in [Direction::Reverse, Direction::Forward] {
        let count = links.iter().filter(|link| link.direction == of).count();
        let count = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
        count.encode(family.encode_family(&[("direction", direction(of))])?)?;
    }
    let streams: usize = links.iter().map(|link| link.streams).sum();
    ConstGauge::new(i64::try_from(streams).unwrap_or(i64::MAX)).encode(encoder.encode_descriptor(
        "hub_tunnel_open_streams",
        "Streams that are open on links of the tunnel",
        None,
        MetricType::Gauge,
    )?)?;
    let (received, sent) = state.table.passed();
    let mut family = encoder.encode_descriptor(
        "hub_tunnel_bytes",
        "Bytes over links of the tunnel, TLS not included",
        None,
        MetricType::Counter,
    )?;
    for (direction, bytes) in [("received", received), ("sent", sent)] {
        ConstCounter::new(bytes).encode(family.encode_family(&[("direction", direction)])?)?;
    }
    let counted = state.stats.snapshot();
    let mut family = encoder.encode_descriptor(
        "hub_tunnel_streams",
        "Streams that were asked for: opened, or why not (no_link: no tunnel leads there)",
        None,
        MetricType::Counter,
    )?;
    for (outcome, count) in [("opened", counted.opened)].into_iter().chain(counted.refused) {
        ConstCounter::new(count).encode(family.encode_family(&[("outcome", outcome)])?)?;
    }
    let mut family = encoder.encode_descriptor(
        "hub_tunnel_link_events",
        "Links that were registered, that failed to be, and whose peer fell silent",
        None,
        MetricType::Counter,
    )?;
    for (event, count) in [
        ("registered", counted.links_registered),
        ("failed", counted.links_failed),
        ("silent", counted.links_dead),
    ] {
        ConstCounter::new(count).encode(family.encode_family(&[("event", event)])?)?;
    }
    let mut family = encoder.encode_descriptor(
        "hub_tunnel_silent_connections",
        "Connections that ended before anything was said, as checks of load balancers do",
        None,
        MetricType::Counter,
    )?;
    for (listener, count) in counted.silent {
        ConstCounter::new(count).encode(family.encode_family(&[("listener", listener)])?)?;
    }
    let problems = i64::try_from(state.problems().len()).unwrap_or(i64::MAX);
    ConstGauge::new(problems).encode(encoder.encode_descriptor(
        "hub_tunnel_problems",
        "Things about the tunnel that are not as they were asked for; edge-hub status says which",
        None,
        MetricType::Gauge,
    )?)
}

#[cfg(test)]
mod tests {
    use tunnel::view::{Domain, GatewayState, Node, Place};

    use super::*;

    #[test]
    fn the_cloud_has_one_name_whatever_its_gateway_is_called() {
        let pool = |name: &str| Domain::Pool(name.to_owned());
        let gateway = |exposed, node: &str| GatewayState {
            exposed,
            endpoints: [node.to_owned()].into(),
            ..GatewayState::default()
        };
        let node = |name: &str, place, pool: Option<&str>| {
            (name.to_owned(), Node { place, pool: pool.map(str::to_owned), addresses: vec![] })
        };
        // As an edge node has it.
        let mut view = View {
            nodes: [node("c1", Place::Cloud, Some("cloud")), node("a1", Place::Edge, Some("a"))].into(),
            gateways: [(pool("cloud"), gateway(true, "c1")), (pool("a"), gateway(false, "a1"))].into(),
            ..View::default()
        };
        let names = |view: &View| ["c1", "a1", "x"].map(|node| domain_of(node, view).unwrap_or_default());
        assert_eq!(names(&view), ["cloud", "pool/a", ""]);
        // Of two that are exposed it cannot tell which is the cloud's.
        view.gateways.insert(pool("region"), gateway(true, "r1"));
        assert_eq!(names(&view), ["pool/cloud", "pool/a", ""]);
        // As a gateway has it.
        view.nodes.insert("r1".to_owned(), node("r1", Place::Cloud, Some("region")).1);
        view.nodes.get_mut("c1").unwrap().pool = None;
        let cloud = view.gateways.remove(&pool("cloud")).unwrap();
        view.gateways.insert(Domain::Cloud, cloud);
        assert_eq!(names(&view), ["cloud", "pool/a", ""]);
        assert_eq!(domain_of("r1", &view).as_deref(), Some("pool/region"));
    }
}
