//! What the tunnel takes from objects of the cluster: plain data, read from what the cache holds. What is malformed is an error
//! of that object and of no other.

use std::{collections::BTreeSet, net::IpAddr};

use api::{
    labels,
    raven::{
        cloud,
        gateway::{EndpointType, ExposeType, GatewaySpec, GatewayStatus},
    },
};
use jiff::Timestamp;
use kube_wire::{
    object::{Encoding, Object},
    resource::GroupVersionResource,
    transcode,
};
use serde::Deserialize;
use serde_json::Value;

use crate::filters::internal_addresses;

/// A Gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Gateway {
    /// When it was made.
    pub(super) created: Option<Timestamp>,
    /// How it is dialled from outside.
    pub(super) expose_type: ExposeType,
    /// Whether it selects its nodes by labels.
    pub(super) selects: bool,
    /// Nodes that it lists as endpoints, of whatever type.
    pub(super) endpoints: BTreeSet<String>,
    /// Nodes that it lists as proxy endpoints.
    pub(super) listed: BTreeSet<String>,
    /// Nodes that are.
    pub(super) active: BTreeSet<String>,
    /// The nodes behind it.
    pub(super) nodes: Vec<(String, Option<IpAddr>)>,
    /// `host:port`, and the node that answers there if it is always the same one.
    pub(super) addresses: Vec<(String, Option<String>)>,
    /// Ports of nodes that are to be reached.
    pub(super) ports: BTreeSet<u16>,
}

#[derive(Deserialize)]
struct GatewayObject {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: GatewaySpec,
    status: Option<GatewayStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    creation_timestamp: Option<String>,
}

impl Gateway {
    /// Whether other domains dial it.
    pub(super) fn is_exposed(&self) -> bool {
        !self.expose_type.is_none()
    }

    pub(super) fn read(object: &Object) -> Result<Self, String> {
        let GatewayObject { metadata, spec, status } =
            serde_json::from_slice(object.body()).map_err(|error| error.to_string())?;
        let status = status.unwrap_or_default();
        let proxies = |endpoints: &[api::raven::gateway::Endpoint]| {
            let proxies = endpoints.iter().filter(|endpoint| endpoint.type_ == EndpointType::Proxy);
            proxies.map(|endpoint| endpoint.node_name.clone()).collect()
        };
        let ports = [&spec.proxy_config.proxy_http_port, &spec.proxy_config.proxy_https_port];
        Ok(Self {
            created: metadata.creation_timestamp.and_then(|time| time.parse().ok()),
            expose_type: spec.expose_type,
            selects: cloud::selects(object.key().name(), spec.node_selector.as_ref()),
            endpoints: spec.endpoints.iter().map(|endpoint| endpoint.node_name.clone()).collect(),
            listed: proxies(&spec.endpoints),
            active: proxies(&status.active_endpoints),
            nodes: status
                .nodes
                .iter()
                .map(|node| (node.node_name.clone(), node.private_ip.parse().ok()))
                .collect(),
            addresses: status
                .addresses
                .iter()
                .map(|address| {
                    let bare_v6 = address.host.parse::<std::net::Ipv6Addr>().is_ok();
                    let host = if bare_v6 { format!("[{}]", address.host) } else { address.host.clone() };
                    let node = (!address.node_name.is_empty()).then(|| address.node_name.clone());
                    (format!("{host}:{}", address.port), node)
                })
                .collect(),
            ports: ports
                .iter()
                .flat_map(|list| list.split(','))
                .filter_map(|port| port.trim().parse().ok())
                .filter(|port| *port != 0)
                .collect(),
        })
    }
}

/// What Nodes say of themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NodeFacts {
    /// Whether it is marked as an edge node.
    pub(super) edge: bool,
    /// The pool it is in.
    pub(super) pool: Option<String>,
    /// The Gateway that its label names.
    pub(super) gateway: Option<String>,
    /// Its internal addresses.
    pub(super) addresses: Vec<IpAddr>,
}

impl NodeFacts {
    pub(super) fn read(object: &Object) -> Self {
        let label = |key| object.label(key).filter(|value| !value.is_empty()).map(|value| value.to_string());
        Self {
            edge: object.label(labels::IS_EDGE_WORKER).as_deref() == Some(labels::TRUE),
            pool: label(labels::NODE_POOL),
            gateway: label(labels::GATEWAY),
            addresses: internal_addresses(object),
        }
    }
}

/// Whether a NodePool is one of edge nodes.
pub(super) fn is_edge_pool(object: &Object) -> bool {
    let pool: Value = serde_json::from_slice(object.body()).unwrap_or_default();
    pool["spec"]["type"].as_str() == Some("Edge")
}

/// A port of the internal Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServicePort {
    pub(super) name: String,
    pub(super) port: u16,
    pub(super) target: u16,
}

/// The ports of a Service that are given by number.
pub(super) fn service_ports(
    resource: &GroupVersionResource,
    object: &Object,
) -> Result<Vec<ServicePort>, String> {
    let json = match object.encoding() {
        Encoding::Json => object.body().to_vec(),
        Encoding::Protobuf => {
            transcode::to_json(resource, object.body(), true).map_err(|error| error.to_string())?
        }
    };
    let service: Value = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
    let number = |value: &Value| value.as_u64().and_then(|number| u16::try_from(number).ok());
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    Ok(ports
        .filter_map(|port| {
            Some(ServicePort {
                name: port["name"].as_str()?.to_owned(),
                port: number(&port["port"])?,
                target: number(&port["targetPort"])?,
            })
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;

    fn object(json: &Value) -> Object {
        Object::from_json(Bytes::from(json.to_string())).unwrap()
    }

    #[test]
    fn gateways_are_read_and_malformed_ones_are_errors() {
        let metadata = json!({ "name": "g", "resourceVersion": "1" });
        let spec = json!({
            "exposeType": "PublicIP",
            "proxyConfig": { "Replicas": 1, "proxyHTTPPort": "9100, 9445", "proxyHTTPSPort": "10250,x" },
            "endpoints": [
                { "nodeName": "a", "type": "proxy", "underNAT": false },
                { "nodeName": "b", "type": "tunnel", "underNAT": false },
            ],
        });
        let status = json!({
            "nodes": [
                { "nodeName": "a", "privateIP": "10.0.0.1", "subnets": [] },
                { "nodeName": "b", "privateIP": "?", "subnets": [] },
            ],
            "activeEndpoints": [{ "nodeName": "a", "type": "proxy", "underNAT": false }],
            "addresses": [
                { "host": "203.0.113.7", "port": 10262, "nodeName": "a" },
                { "host": "2001:db8::1", "port": 443 },
            ],
        });
        let read =
            Gateway::read(&object(&json!({ "metadata": metadata, "spec": spec, "status": status }))).unwrap();
        assert!(read.is_exposed() && read.endpoints.len() == 2 && !read.selects);
        assert_eq!((read.listed, read.active), (["a".to_owned()].into(), ["a".to_owned()].into()));
        assert_eq!(read.nodes, [("a".to_owned(), "10.0.0.1".parse().ok()), ("b".to_owned(), None)]);
        let addresses =
            [("203.0.113.7:10262".to_owned(), Some("a".to_owned())), ("[2001:db8::1]:443".to_owned(), None)];
        assert_eq!(read.addresses, addresses);
        assert_eq!(read.ports, [9100, 9445, 10250].into());
        assert_eq!(Gateway::read(&object(&json!({ "metadata": metadata }))), Ok(Gateway::default()));
        for spec in [json!({ "exposeType": "Somehow" }), json!({ "endpoints": 3 }), json!([])] {
            assert!(
                Gateway::read(&object(&json!({ "metadata": metadata, "spec": spec }))).is_err(),
                "{spec}"
            );
        }
    }

    #[test]
    fn nodes_and_services_are_read() {
        let node = object(&json!({
            "metadata": { "name": "n", "resourceVersion": "1", "labels": {
                labels::IS_EDGE_WORKER: "true", labels::NODE_POOL: "p", labels::GATEWAY: "" } },
            "status": { "addresses": [
                { "type": "Hostname", "address": "n" },
                { "type": "InternalIP", "address": "10.0.0.1" },
                { "type": "InternalIP", "address": "fd00::1" },
                { "type": "ExternalIP", "address": "1.2.3.4" } ] },
        }));
        let expected = NodeFacts {
            edge: true,
            pool: Some("p".to_owned()),
            gateway: None,
            addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        };
        assert_eq!(NodeFacts::read(&node), expected);
        let bare = object(&json!({ "metadata": { "name": "n", "resourceVersion": "1" }, "status": 1 }));
        assert_eq!(NodeFacts::read(&bare), NodeFacts::default());
        let ports = json!([
            { "name": "https-10250", "port": 10250, "targetPort": 10263 },
            { "name": "named", "port": 1, "targetPort": "x" },
        ]);
        let service = object(
            &json!({ "metadata": { "name": "s", "resourceVersion": "1" }, "spec": { "ports": ports } }),
        );
        let read = service_ports(&GroupVersionResource::new("", "v1", "services"), &service).unwrap();
        assert_eq!(read, [ServicePort { name: "https-10250".to_owned(), port: 10250, target: 10263 }]);
    }
}
