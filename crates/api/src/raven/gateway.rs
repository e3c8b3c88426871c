//! `Gateway`: the nodes of a site behind NAT, and the endpoints through which they are reached.
//!
//! One schema serves both versions (v1alpha1, v1beta1): a superset of their fields, so that no conversion is needed and
//! nothing is lost between versions. What v1alpha1 cannot say has the default that its conversion used: one active tunnel
//! endpoint, one active proxy endpoint, and endpoints are tunnels.

// Each type would warn: the derive `KubeSchema` builds schemas from copies of the types inside functions.
#![allow(unreachable_pub)]

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::{PROXY_PORT, TUNNEL_PORT};
use crate::schema::{rule, rule_at};

/// Which nodes are behind the gateway and through which endpoints they are reached.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "raven.openyurt.io",
    version = "v1beta1",
    kind = "Gateway",
    plural = "gateways",
    shortname = "gw",
    category = "yurt",
    doc = "The nodes of a site that the cloud cannot reach directly, and the endpoints through which it reaches them. A node is \
           behind the gateway that its label raven.openyurt.io/gateway names, that selects it by nodeSelector, or that has the \
           name of its pool.",
    status = "GatewayStatus",
    derive = "PartialEq",
    selectable = ".spec.exposeType",
    printcolumn = r#"{"name":"Expose","type":"string","jsonPath":".spec.exposeType","description":"How the gateway is reached from outside"}"#,
    printcolumn = r#"{"name":"Nodes","type":"integer","jsonPath":".status.nodeNum","description":"How many nodes are behind the gateway"}"#,
    printcolumn = r#"{"name":"Proxy","type":"string","jsonPath":".status.proxyEndpoints","description":"Active proxy endpoints, of those asked for"}"#,
    printcolumn = r#"{"name":"Tunnel","type":"string","jsonPath":".status.tunnelEndpoints","description":"Active tunnel endpoints, of those asked for"}"#,
    printcolumn = r#"{"name":"Active","type":"string","jsonPath":".status.activeNodes","description":"The nodes of the active endpoints"}"#,
    printcolumn = r#"{"name":"Connected","type":"string","jsonPath":".status.conditions[?(@.type==\"Connected\")].status","description":"Whether the agents behind the gateway are connected to the cloud"}"#,
    printcolumn = r#"{"name":"Via","type":"string","jsonPath":".status.connectedTo","description":"The nodes of the exposed gateways that the tunnels end at"}"#,
    printcolumn = r#"{"name":"RTT","type":"string","jsonPath":".status.roundTrip","description":"The shortest round-trip time of the tunnels"}"#,
    printcolumn = r#"{"name":"Elected","type":"string","jsonPath":".status.conditions[?(@.type==\"Elected\")].reason","priority":1,"description":"Whether as many endpoints are active as asked for, or why not"}"#,
    printcolumn = r#"{"name":"Exposed","type":"string","jsonPath":".status.conditions[?(@.type==\"Exposed\")].message","priority":1,"description":"Where agents dial the gateway, or why they cannot"}"#,
    printcolumn = r#"{"name":"Connections","type":"string","jsonPath":".status.conditions[?(@.type==\"Connected\")].message","priority":1,"description":"Who is connected to whom, or why nobody is"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rule_at(".endpoints", EXPOSED_IS_PUBLIC, "an exposed gateway is reached at its endpoints, so none of them can be \
        behind NAT: set underNAT to false in all of them, or remove exposeType"),
    validation = rule_at(".proxyConfig", ENOUGH_PROXIES, "proxyConfig.Replicas asks for more active proxy endpoints than there \
        are: add endpoints of type proxy, or lower Replicas"),
)]
pub struct GatewaySpec {
    /// Which nodes are behind the gateway, besides those whose label `raven.openyurt.io/gateway` names it. One that selects by labels alone which a
    /// kubelet may set on its own Node takes only nodes that `endpoints` lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,

    /// The proxy, by which the cloud sends HTTP requests to nodes by their name.
    #[serde(default)]
    pub proxy_config: ProxyConfig,

    /// Raven's network between the sites, of which Isthmus has none: nobody serves endpoints of type `tunnel`.
    #[serde(default)]
    pub tunnel_config: TunnelConfig,

    /// How the gateway is reached from outside: `PublicIP`, at the `publicIP` of its endpoints; `LoadBalancer`, through a
    /// Service of that type; or empty, not at all: its nodes dial out to a gateway that is exposed.
    #[serde(default, skip_serializing_if = "ExposeType::is_none")]
    pub expose_type: ExposeType,

    /// The nodes that can serve as endpoints, in order of preference; at most one of each type on a node. As many as
    /// `Replicas` asks for are active at a time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map"))]
    #[schemars(extend("x-kubernetes-list-map-keys" = ["nodeName", "type"]))]
    #[x_kube(validation = rule("self.all(e, e.underNAT == self[0].underNAT)", "underNAT must be the same in all endpoints: the site \
        as a whole is behind NAT, or is not"))]
    pub endpoints: Vec<Endpoint>,
}

const EXPOSED_IS_PUBLIC: &str = "!has(self.exposeType) || self.exposeType == '' || !has(self.endpoints) || \
    !self.endpoints.exists(e, e.underNAT)";

/// As all rules of a spec, it must hold for `{}`: the API server asks it of the spec's default before it fills that.
const ENOUGH_PROXIES: &str = "!has(self.proxyConfig) || self.proxyConfig.Replicas <= 1 || (has(self.endpoints) && \
    self.endpoints.filter(e, e.type == 'proxy').size() >= self.proxyConfig.Replicas)";

const PORT_LIST: &str = "self == '' || self.split(',').all(p, p.trim().matches('^[0-9]{1,5}$') && int(p.trim()) >= 1 && \
    int(p.trim()) <= 65535)";

const PORT_LIST_MESSAGE: &str = "must be ports from 1 to 65535, separated by commas, such as \"10250,9443\"";

/// No text that is no port is compared: for that there is [`PORT_LIST`].
const PORTS_DIFFER: &str = "!has(self.proxyHTTPPort) || !has(self.proxyHTTPSPort) || !self.proxyHTTPPort.split(',').exists(p, p.trim() != '' && \
    self.proxyHTTPSPort.split(',').exists(q, p.trim() == q.trim()))";

/// The proxy of a gateway.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = rule(PORTS_DIFFER, "proxyHTTPPort and proxyHTTPSPort list the same port: a port of nodes is reached by one of \
    them, so take it from the other"))]
pub struct ProxyConfig {
    /// How many proxy endpoints are active at a time; 0 turns the proxy off.
    #[serde(rename = "Replicas", default = "one")]
    // Said, because API servers before 1.36 take more for an int32 than it holds.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub replicas: i32,

    /// Ports of nodes that are reached by plain HTTP, separated by commas, such as "9100,10255".
    #[serde(rename = "proxyHTTPPort", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(validation = rule(PORT_LIST, PORT_LIST_MESSAGE))]
    pub proxy_http_port: String,

    /// Ports of nodes that are reached by HTTPS, separated by commas, such as "10250,9443". An exporter that speaks plain HTTP belongs in `proxyHTTPPort`.
    #[serde(rename = "proxyHTTPSPort", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(validation = rule(PORT_LIST, PORT_LIST_MESSAGE))]
    pub proxy_https_port: String,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self { replicas: one(), proxy_http_port: String::new(), proxy_https_port: String::new() }
    }
}

/// The tunnel of a gateway.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct TunnelConfig {
    /// How many tunnel endpoints are active at a time: 1, or 0 to turn the tunnel off.
    #[serde(rename = "Replicas", default = "one")]
    #[schemars(range(min = 0, max = 1))]
    pub replicas: i32,
}

impl Default for TunnelConfig {
    fn default() -> Self {
        Self { replicas: one() }
    }
}

fn one() -> i32 {
    1
}

/// How a gateway is reached from outside.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum ExposeType {
    /// Not at all.
    #[default]
    #[serde(rename = "")]
    None,
    /// At the public addresses of its endpoints.
    PublicIP,
    /// Through a Service of type `LoadBalancer`.
    LoadBalancer,
}

impl ExposeType {
    /// Whether the gateway is not reached from outside.
    #[allow(clippy::trivially_copy_pass_by_ref)] // serde calls it with a reference
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// What an endpoint is for.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "lowercase")]
pub enum EndpointType {
    /// HTTP requests to nodes by name.
    Proxy,
    /// Packets between the pods of sites.
    #[default]
    Tunnel,
}

/// A node that can serve as an end of the proxy or the tunnel.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// The node's name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rule("!format.dns1123Subdomain().validate(self).hasValue()", "is not a node's name: use at most 253 lower-case \
        letters, digits, '-' or '.', beginning and ending with a letter or digit"))]
    pub node_name: String,

    /// What the endpoint is for: `proxy`, HTTP requests to nodes by name; or `tunnel`, packets between the pods of sites. Unset means `tunnel`.
    #[serde(rename = "type", default)]
    pub type_: EndpointType,

    /// The port on which the endpoint is reached; 0 or unset means 10262 (TCP) for a proxy, 4500 (UDP) for a tunnel.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 65535))]
    pub port: i32,

    /// Whether the node is behind NAT and so cannot be dialled; the same in all endpoints of a gateway.
    #[serde(rename = "underNAT", default)]
    pub under_nat: bool,

    /// The kind of NAT before the node, as Raven's agent wrote it; nobody reads it.
    #[serde(rename = "natType", default, skip_serializing_if = "String::is_empty")]
    pub nat_type: String,

    /// The address at which the endpoint is reached from outside. To be set where `exposeType` is `PublicIP`: nobody fills it in.
    #[serde(rename = "publicIP", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 45))]
    #[x_kube(validation = rule("self == '' || isIP(self)", "must be an IPv4 or IPv6 address, such as 203.0.113.7 or 2001:db8::7"))]
    pub public_ip: String,

    /// The port at `publicIP` where something in front of the node maps it; 0 if it is `port`.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 65535))]
    pub public_port: i32,

    /// Further settings that the agent reads.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde calls it with a reference
fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl Endpoint {
    /// The port on which the endpoint is reached: its own, else that of its type.
    pub fn port(&self) -> i32 {
        match (self.port, self.type_) {
            (0, EndpointType::Proxy) => PROXY_PORT,
            (0, EndpointType::Tunnel) => TUNNEL_PORT,
            (port, _) => port,
        }
    }
}

/// What was last seen of the gateway.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStatus {
    /// The nodes behind the gateway, sorted by name: at most 1024, of an exposed gateway 256, its endpoints among them. `nodeNum` says how
    /// many there are.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub nodes: Vec<GatewayNode>,
    /// The endpoints in use, sorted by node and type.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub active_endpoints: Vec<Endpoint>,
    /// The tunnel endpoint in use, where v1alpha1 looks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_endpoint: Option<Endpoint>,
    /// How many nodes are behind the gateway.
    #[serde(default)]
    pub node_num: i32,
    /// How many proxy endpoints are active, of how many that are asked for (`Replicas`), such as 1/2.
    #[serde(default)]
    pub proxy_endpoints: String,
    /// How many tunnel endpoints are active, of how many that are asked for (`Replicas`), such as 0/1.
    #[serde(default)]
    pub tunnel_endpoints: String,
    /// The names of the nodes of the active endpoints, separated by commas.
    #[serde(default)]
    pub active_nodes: String,
    /// Where agents dial the gateway's proxy endpoints from outside; empty if it is not exposed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub addresses: Vec<GatewayAddress>,
    /// The tunnels between the gateway's active endpoints and the exposed gateways, sorted by node and gateway.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub links: Vec<GatewayLink>,
    /// The nodes of the exposed gateways that the tunnels end at, separated by commas.
    #[serde(default)]
    pub connected_to: String,
    /// The shortest round-trip time of the tunnels, such as 12ms. It is written anew when it changes by much.
    #[serde(default)]
    pub round_trip: String,
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions `Elected`, `Exposed` and `Connected`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A node behind a gateway.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayNode {
    /// The node's name.
    pub node_name: String,
    /// The node's internal address.
    #[serde(rename = "privateIP")]
    pub private_ip: String,
    /// The networks of the node's pods, as CIDRs.
    pub subnets: Vec<String>,
}

/// An address at which a gateway is dialled from outside.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayAddress {
    /// An IP address, or a host name.
    pub host: String,
    /// The TCP port.
    pub port: i32,
    /// The node that answers there; empty if it may be any of the active endpoints, as behind a load balancer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node_name: String,
}

/// A tunnel from an endpoint to an exposed gateway.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayLink {
    /// The node that dialled.
    pub node_name: String,
    /// The node of the exposed gateway.
    pub gateway: String,
    /// Round-trip time in milliseconds, at least 1.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub round_trip_millis: i32,
}

impl Gateway {
    /// The nodes that can be its proxy endpoint: those that it lists, or, if it lists no endpoint at all, those that are active.
    pub fn proxy_candidates(&self) -> impl Iterator<Item = &str> {
        let active =
            self.status.as_ref().map(|status| status.active_endpoints.as_slice()).unwrap_or_default();
        let listed = self.spec.endpoints.as_slice();
        let endpoints = if listed.is_empty() { active } else { listed };
        let proxies = endpoints.iter().filter(|endpoint| endpoint.type_ == EndpointType::Proxy);
        proxies.map(|endpoint| endpoint.node_name.as_str())
    }
}

/// How many nodes a status names. Those of an edge pool beyond it are not reached through its tunnel, whose ends know no others.
pub const NODES_MAX: usize = 1024;

/// How many that of a gateway names that is exposed: the cloud's has all nodes of the cloud, every edge node reads it, and needs of it the
/// endpoints alone.
const EXPOSED_NODES_MAX: usize = 256;

/// The nodes that a status names: endpoints first, then by name.
fn named(spec: &GatewaySpec, mut nodes: Vec<GatewayNode>, active: &BTreeSet<&str>) -> Vec<GatewayNode> {
    let most = if spec.expose_type.is_none() { NODES_MAX } else { EXPOSED_NODES_MAX };
    if nodes.len() > most {
        let listed: BTreeSet<&str> =
            spec.endpoints.iter().map(|endpoint| endpoint.node_name.as_str()).collect();
        let rank = |name: &str| (!active.contains(name), !listed.contains(name));
        nodes.sort_by(|a, b| (rank(&a.node_name), &a.node_name).cmp(&(rank(&b.node_name), &b.node_name)));
        nodes.truncate(most);
    }
    nodes.sort();
    nodes
}

impl GatewayStatus {
    /// A status in which the fields that only repeat others (counts, names, v1alpha1's `activeEndpoint`) follow from them, and which names no
    /// more nodes than it may; generation and conditions are left to the caller.
    pub fn new(spec: &GatewaySpec, nodes: Vec<GatewayNode>, active_endpoints: Vec<Endpoint>) -> Self {
        let count = |of: EndpointType, wanted: i32| {
            format!("{}/{wanted}", active_endpoints.iter().filter(|e| e.type_ == of).count())
        };
        let active: BTreeSet<&str> = active_endpoints.iter().map(|e| e.node_name.as_str()).collect();
        let node_num = i32::try_from(nodes.len()).unwrap_or(i32::MAX);
        let nodes = named(spec, nodes, &active);
        Self {
            node_num,
            proxy_endpoints: count(EndpointType::Proxy, spec.proxy_config.replicas),
            tunnel_endpoints: count(EndpointType::Tunnel, spec.tunnel_config.replicas),
            active_nodes: active.into_iter().collect::<Vec<_>>().join(","),
            active_endpoint: active_endpoints.iter().find(|e| e.type_ == EndpointType::Tunnel).cloned(),
            addresses: Vec::new(),
            links: Vec::new(),
            connected_to: String::new(),
            round_trip: String::new(),
            observed_generation: None,
            conditions: Vec::new(),
            nodes,
            active_endpoints,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(node: &str, type_: EndpointType) -> Endpoint {
        Endpoint { node_name: node.to_owned(), type_, ..Endpoint::default() }
    }

    #[test]
    fn an_endpoint_without_port_has_that_of_its_type() {
        assert_eq!(endpoint("n", EndpointType::Proxy).port(), 10262);
        assert_eq!(endpoint("n", EndpointType::Tunnel).port(), 4500);
        assert_eq!(Endpoint { port: 1, ..Endpoint::default() }.port(), 1);
    }

    #[test]
    fn a_status_names_so_many_nodes_and_counts_all() {
        let nodes = |count: usize| -> Vec<GatewayNode> {
            let name = |n: usize| format!("n{n:04}");
            (0..count).map(|n| GatewayNode { node_name: name(n), ..GatewayNode::default() }).collect()
        };
        let spec = |expose_type| GatewaySpec {
            expose_type,
            endpoints: vec![endpoint("n2999", EndpointType::Proxy)],
            ..GatewaySpec::default()
        };
        for (expose_type, most) in [(ExposeType::None, 1024), (ExposeType::LoadBalancer, 256)] {
            let active = vec![endpoint("n2998", EndpointType::Proxy)];
            let status = GatewayStatus::new(&spec(expose_type), nodes(3000), active);
            assert_eq!((status.nodes.len(), status.node_num), (most, 3000));
            assert!(status.nodes.is_sorted());
            let named: Vec<&str> = status.nodes.iter().map(|node| node.node_name.as_str()).collect();
            assert_eq!((named[0], &named[most - 2..]), ("n0000", &["n2998", "n2999"][..]));
            assert_eq!(GatewayStatus::new(&spec(expose_type), nodes(most), Vec::new()).nodes.len(), most);
        }
    }

    #[test]
    fn a_status_repeats_what_tables_show() {
        use EndpointType::{Proxy, Tunnel};
        let spec = GatewaySpec {
            proxy_config: ProxyConfig { replicas: 2, ..ProxyConfig::default() },
            endpoints: vec![endpoint("b", Proxy), endpoint("a", Proxy), endpoint("a", Tunnel)],
            ..GatewaySpec::default()
        };
        let nodes = vec![GatewayNode { node_name: "a".to_owned(), ..GatewayNode::default() }];
        let status = GatewayStatus::new(&spec, nodes, vec![endpoint("b", Proxy), endpoint("a", Tunnel)]);
        assert_eq!(status.node_num, 1);
        assert_eq!(status.proxy_endpoints, "1/2");
        assert_eq!(status.tunnel_endpoints, "1/1");
        assert_eq!(status.active_nodes, "a,b");
        assert_eq!(status.active_endpoint, Some(endpoint("a", Tunnel)));

        let idle = GatewayStatus::new(&spec, Vec::new(), Vec::new());
        assert_eq!((idle.proxy_endpoints.as_str(), idle.tunnel_endpoints.as_str()), ("0/2", "0/1"));
        assert_eq!((idle.active_nodes.as_str(), idle.active_endpoint), ("", None));
    }
}
