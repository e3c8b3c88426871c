//! Pure: the Services and EndpointSlices of the gateways as they should be, and whether they are so. What somebody else wrote into
//! them is no difference: only what we write is compared.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::names::{MANAGER, NAMESPACE, PROXY_INTERNAL_SERVICE, PROXY_SERVICE_PREFIX};
use api::{EndpointType, Gateway, annotations, labels};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{Resource as _, ResourceExt as _};
use tls::digest::Sha256Digest;

use super::ports::{self, ProxyPort};

/// Name of the only port of a Service that exposes a Gateway.
const PUBLIC_PORT: &str = "proxy";

/// A node that serves, and where, but for the target ports at which it does not listen.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Backend {
    pub(crate) node: String,
    pub(crate) ip: IpAddr,
    pub(crate) without: BTreeSet<u16>,
}

/// The name of the Service that exposes a Gateway: always the same, and short whatever the Gateway is called.
pub(crate) fn public_name(gateway: &str) -> String {
    format!("{PROXY_SERVICE_PREFIX}-{}", short(gateway))
}

fn short(name: &str) -> String {
    let digest = Sha256Digest::of(name.as_bytes()).to_string();
    digest.get(..16).unwrap_or(&digest).to_owned()
}

fn metadata(name: &str, mark: &str, owner: Option<OwnerReference>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        labels: Some([(mark.to_owned(), MANAGER.to_owned())].into()),
        owner_references: owner.map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// The Service by which the cloud reaches the proxies. It selects no pods: its endpoints are nodes.
pub(crate) fn internal(ports: &[ProxyPort]) -> Service {
    let ports = ports.iter().map(|port| service_port(&port.name, port.port.into(), port.target)).collect();
    Service {
        metadata: metadata(PROXY_INTERNAL_SERVICE, labels::MANAGED_BY, None),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            ports: Some(ports),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// The Service that exposes `gateway` by a load balancer, whose hubs accept links at `port`. `first` is the node that stands for it in
/// raven's labels.
pub(crate) fn public(gateway: &Gateway, port: u16, first: Option<&str>) -> Service {
    let name = gateway.name_any();
    let mut metadata = metadata(&public_name(&name), labels::MANAGED_BY, owner(gateway));
    let marks = metadata.labels.get_or_insert_default();
    marks.insert(labels::GATEWAY.to_owned(), name);
    marks.insert(labels::GATEWAY_TYPE.to_owned(), "proxy".to_owned());
    // A node's name may be longer than a label's value.
    if let Some(first) = first.filter(|first| first.len() <= 63) {
        marks.insert(labels::ENDPOINTS_NAME.to_owned(), first.to_owned());
    }
    metadata.annotations = Some([(annotations::DISCARD_SERVICE.to_owned(), labels::TRUE.to_owned())].into());
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some("LoadBalancer".to_owned()),
            // A link shows the address of the node that dialled, and takes no detour over a node that is no gateway.
            external_traffic_policy: Some("Local".to_owned()),
            ports: Some(vec![service_port(PUBLIC_PORT, public_port(gateway), port)]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// The port at which a load balancer answers for `gateway`: that of the first proxy endpoint.
pub(crate) fn public_port(gateway: &Gateway) -> i32 {
    let usual = api::Endpoint { type_: EndpointType::Proxy, ..api::Endpoint::default() };
    let first = gateway.spec.endpoints.iter().find(|endpoint| endpoint.type_ == EndpointType::Proxy);
    first.unwrap_or(&usual).port()
}

fn owner(gateway: &Gateway) -> Option<OwnerReference> {
    Some(OwnerReference { block_owner_deletion: None, ..gateway.controller_owner_ref(&())? })
}

fn service_port(name: &str, port: i32, target: u16) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port,
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(target.into())),
        ..ServicePort::default()
    }
}

/// The slices of `service`: one for IPv4, and one for IPv6 if some backend has such an address, of those that listen at all ports; and one
/// for each backend that does not, with the ports at which it does. These come first: who changes from one to the other is to be in both
/// for a moment, and not in none.
pub(crate) fn slices(service: &Service, backends: &[Backend]) -> Vec<EndpointSlice> {
    let name = service.name_any();
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
    let ports: Vec<EndpointPort> = ports.into_iter().flatten().map(endpoint_port).collect();
    let slice = |suffix: &str, type_: &str, endpoints: Vec<Endpoint>, ports: Vec<EndpointPort>| {
        let owner = service.owner_references().first().cloned();
        let name_of_slice = format!("{name}-{}{suffix}", type_.to_lowercase());
        let mut metadata = metadata(&name_of_slice, labels::ENDPOINT_SLICE_MANAGED_BY, owner);
        let marks = metadata.labels.get_or_insert_default();
        marks.insert(labels::SERVICE_NAME.to_owned(), name.clone());
        EndpointSlice {
            metadata,
            address_type: type_.to_owned(),
            endpoints: Some(endpoints),
            ports: Some(ports),
        }
    };
    let listens = |backend: &Backend, port: &EndpointPort| {
        let target = port.port.and_then(|target| u16::try_from(target).ok());
        target.is_none_or(|target| !backend.without.contains(&target))
    };
    let (whole, partial): (Vec<&Backend>, Vec<&Backend>) =
        backends.iter().partition(|backend| ports.iter().all(|port| listens(backend, port)));
    let mut slices = Vec::new();
    for backend in partial {
        let open: Vec<EndpointPort> = ports.iter().filter(|port| listens(backend, port)).cloned().collect();
        let type_ = if backend.ip.is_ipv4() { "IPv4" } else { "IPv6" };
        // No ports would be all of them.
        if !open.is_empty() {
            let suffix = format!("-{}", short(&backend.node));
            slices.push(slice(&suffix, type_, vec![endpoint(backend)], open));
        }
    }
    let family = |type_: &str, of: fn(&IpAddr) -> bool| {
        let endpoints = whole.iter().filter(|backend| of(&backend.ip)).map(|backend| endpoint(backend));
        slice("", type_, endpoints.collect(), ports.clone())
    };
    slices.push(family("IPv4", IpAddr::is_ipv4));
    if backends.iter().any(|backend| backend.ip.is_ipv6()) {
        slices.push(family("IPv6", IpAddr::is_ipv6));
    }
    slices
}

fn endpoint_port(port: &ServicePort) -> EndpointPort {
    let target = match &port.target_port {
        Some(IntOrString::Int(target)) => *target,
        Some(IntOrString::String(_)) | None => port.port,
    };
    EndpointPort {
        name: port.name.clone(),
        port: Some(target),
        protocol: port.protocol.clone(),
        app_protocol: None,
    }
}

fn endpoint(backend: &Backend) -> Endpoint {
    let conditions = EndpointConditions { ready: Some(true), serving: Some(true), terminating: Some(false) };
    Endpoint {
        addresses: vec![backend.ip.to_string()],
        conditions: Some(conditions),
        node_name: Some(backend.node.clone()),
        ..Endpoint::default()
    }
}

/// Whether `present` is as `wanted`, as far as that goes.
pub(crate) fn service_is_right(present: &Service, wanted: &Service) -> bool {
    let (Some(is), Some(should)) = (&present.spec, &wanted.spec) else { return false };
    let ports = |spec: &ServiceSpec, of: fn(&ServicePort) -> bool| -> BTreeMap<i32, _> {
        let ports = spec.ports.iter().flatten().filter(|port| of(port));
        ports
            .map(|port| (port.port, (port.name.clone(), port.protocol.clone(), port.target_port.clone())))
            .collect()
    };
    metadata_is_right(&present.metadata, &wanted.metadata)
        && is.type_ == should.type_
        && (should.external_traffic_policy.is_none()
            || is.external_traffic_policy == should.external_traffic_policy)
        && ports(is, is_ours) == ports(should, |_| true)
}

/// Whether a port is one that we make. Somebody else's beside them are no business of ours.
fn is_ours(port: &ServicePort) -> bool {
    let name = port.name.as_deref().unwrap_or_default();
    name == PUBLIC_PORT || ports::NAMES.iter().any(|start| name.starts_with(start))
}

/// Whether `present` is as `wanted`.
pub(crate) fn slice_is_right(present: &EndpointSlice, wanted: &EndpointSlice) -> bool {
    let endpoints = |slice: &EndpointSlice| -> Vec<_> {
        let all = slice.endpoints.iter().flatten();
        all.map(|e| (e.addresses.clone(), e.node_name.clone(), e.conditions.clone())).collect()
    };
    let ports = |slice: &EndpointSlice| -> BTreeMap<_, _> {
        let all = slice.ports.iter().flatten();
        all.map(|port| (port.name.clone(), (port.port, port.protocol.clone()))).collect()
    };
    metadata_is_right(&present.metadata, &wanted.metadata)
        && present.address_type == wanted.address_type
        && endpoints(present) == endpoints(wanted)
        && ports(present) == ports(wanted)
}

fn metadata_is_right(present: &ObjectMeta, wanted: &ObjectMeta) -> bool {
    let has = |present: &Option<BTreeMap<String, String>>, wanted: &Option<BTreeMap<String, String>>| {
        wanted
            .iter()
            .flatten()
            .all(|(key, value)| present.as_ref().and_then(|all| all.get(key)) == Some(value))
    };
    let owners = present.owner_references.as_deref().unwrap_or_default();
    has(&present.labels, &wanted.labels)
        && has(&present.annotations, &wanted.annotations)
        && wanted.owner_references.iter().flatten().all(|owner| owners.iter().any(|o| o.uid == owner.uid))
}

/// Where a load balancer is reached: what its Service's status says, else what people wrote on it.
pub(crate) fn hosts(service: &Service) -> Vec<String> {
    let said: Vec<String> = ingress(service)
        .filter_map(|at| at.ip.clone().or_else(|| at.hostname.clone()))
        .filter(|host| !host.is_empty())
        .collect();
    if !said.is_empty() {
        return said;
    }
    [annotations::PUBLIC_SERVICE_EXTERNAL_IP, annotations::PUBLIC_SERVICE_EXTERNAL_DNS_NAME]
        .iter()
        .filter_map(|key| service.annotations().get(*key))
        .flat_map(|value| value.split(','))
        .map(|host| host.trim().to_owned())
        .filter(|host| !host.is_empty())
        .collect()
}

/// The IPs of a load balancer that kube-proxy takes for its own: what a node dials there goes past the balancer, to the gateways' own addresses. The API
/// server writes `VIP` where a controller does not say how they are delivered.
pub(crate) fn taken_by_kube_proxy(service: &Service) -> BTreeSet<String> {
    let taken = ingress(service).filter(|at| at.ip_mode.as_deref() != Some("Proxy"));
    taken.filter_map(|at| at.ip.clone()).filter(|ip| !ip.is_empty()).collect()
}

fn ingress(service: &Service) -> impl Iterator<Item = &LoadBalancerIngress> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    type Change = fn(&mut Value);

    fn gateway(name: &str) -> Gateway {
        serde_json::from_value(json!({
            "metadata": { "name": name, "uid": "u1" },
            "spec": { "exposeType": "LoadBalancer", "endpoints": [
                { "nodeName": "c1", "type": "tunnel" }, { "nodeName": "c1", "type": "proxy", "port": 443 }
            ] },
        }))
        .unwrap()
    }

    fn backend(node: &str, ip: &str) -> Backend {
        Backend { node: node.to_owned(), ip: ip.parse().unwrap(), without: BTreeSet::new() }
    }

    #[test]
    fn names_are_short_and_always_the_same() {
        let long = "a.very-long.name.".repeat(3) + "with-dots.12";
        for name in ["a", &long] {
            let service = public_name(name);
            assert_eq!(service, public_name(name));
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            assert!(service.len() < 50 && service.bytes().all(plain), "{service}");
        }
        assert_ne!(public_name("a"), public_name("b"));
    }

    #[test]
    fn a_load_balancer_is_as_ravens_agents_look_for_it() {
        let service = json!(public(&gateway("cloud"), 10262, Some("c1")));
        assert_eq!(
            service["metadata"]["labels"],
            json!({
                "app.kubernetes.io/managed-by": "isthmus-manager", "raven.openyurt.io/gateway": "cloud",
                "raven.openyurt.io/gateway-type": "proxy", "raven.openyurt.io/endpoints-name": "c1",
            })
        );
        assert_eq!(service["metadata"]["annotations"], json!({ "svc.openyurt.io/discard": "true" }));
        assert_eq!(service["metadata"]["ownerReferences"][0]["uid"], "u1");
        assert_eq!(
            service["spec"],
            json!({
                "type": "LoadBalancer", "externalTrafficPolicy": "Local",
                "ports": [{ "name": "proxy", "port": 443, "protocol": "TCP", "targetPort": 10262 }],
            })
        );
        let nameless = public(&gateway("cloud"), 10262, Some(&"n".repeat(64)));
        assert!(!nameless.labels().contains_key(labels::ENDPOINTS_NAME));
    }

    #[test]
    fn slices_are_by_family_and_there_is_always_one() {
        let service = internal(&[ProxyPort { name: "https-10250".into(), port: 10250, target: 10263 }]);
        let names = |backends: &[Backend]| -> Vec<String> {
            let slices = slices(&service, backends);
            slices
                .iter()
                .map(|slice| format!("{} {}", slice.name_any(), slice.endpoints.as_ref().map_or(0, Vec::len)))
                .collect()
        };
        assert_eq!(names(&[]), ["x-raven-proxy-internal-svc-ipv4 0"]);
        assert_eq!(
            names(&[backend("a", "10.0.0.1"), backend("b", "fd00::1")]),
            ["x-raven-proxy-internal-svc-ipv4 1", "x-raven-proxy-internal-svc-ipv6 1"]
        );
        let slice = &slices(&service, &[backend("a", "10.0.0.1")])[0];
        assert_eq!(slice.labels()[labels::SERVICE_NAME], PROXY_INTERNAL_SERVICE);
        assert_eq!(slice.ports.as_ref().unwrap()[0].port, Some(10263));
    }

    #[test]
    fn who_does_not_listen_at_a_port_is_led_to_at_the_others_alone() {
        let port = |port, target| ProxyPort { name: format!("https-{port}"), port, target };
        let service = internal(&[port(10250, 10263), port(9100, 20263)]);
        let shown = |without: &[(&str, &[u16])]| -> Vec<String> {
            let backends: Vec<Backend> = [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "fd00::1")]
                .into_iter()
                .zip(without)
                .map(|((node, ip), (_, without))| Backend {
                    without: without.iter().copied().collect(),
                    ..backend(node, ip)
                })
                .collect();
            let of = |slice: &EndpointSlice| {
                let nodes: Vec<_> =
                    slice.endpoints.iter().flatten().filter_map(|e| e.node_name.clone()).collect();
                let ports: Vec<_> = slice.ports.iter().flatten().filter_map(|p| p.port).collect();
                let name = slice.name_any().replace(&format!("{PROXY_INTERNAL_SERVICE}-"), "");
                format!("{} {nodes:?} {ports:?}", name.split('-').next().unwrap()).replace('"', "")
            };
            let made = slices(&service, &backends);
            let names: BTreeSet<String> = made.iter().map(kube::ResourceExt::name_any).collect();
            assert_eq!(names.len(), made.len(), "{names:?}");
            made.iter().map(of).collect()
        };
        let all = "[10263, 20263]";
        assert_eq!(shown(&[("a", &[]), ("b", &[])]), [format!("ipv4 [a, b] {all}")]);
        assert_eq!(
            shown(&[("a", &[]), ("b", &[20263])]),
            ["ipv4 [b] [10263]".to_owned(), format!("ipv4 [a] {all}")]
        );
        assert_eq!(
            shown(&[("a", &[10263]), ("b", &[20263]), ("c", &[])]),
            [
                "ipv4 [a] [20263]".to_owned(),
                "ipv4 [b] [10263]".to_owned(),
                format!("ipv4 [] {all}"),
                format!("ipv6 [c] {all}")
            ]
        );
        assert_eq!(shown(&[("a", &[10263, 20263]), ("b", &[])]), [format!("ipv4 [b] {all}")]);
        assert_eq!(shown(&[("a", &[1])]), [format!("ipv4 [a] {all}")], "a port that nothing leads to");
    }

    #[test]
    fn what_others_wrote_is_no_difference_and_what_they_undid_is() {
        let wanted = public(&gateway("cloud"), 10262, Some("c1"));
        let cases: [(&str, Change, bool); 9] = [
            ("nothing", |_| {}, true),
            (
                "what the API server fills in",
                |s| {
                    s["spec"]["clusterIP"] = json!("10.0.0.9");
                    s["spec"]["ports"][0]["nodePort"] = json!(30000);
                    s["status"] = json!({ "loadBalancer": {} });
                },
                true,
            ),
            ("others' annotation", |s| s["metadata"]["annotations"]["cloud/x"] = json!("1"), true),
            (
                "others' port",
                |s| s["spec"]["ports"].as_array_mut().unwrap().push(json!({ "name": "x", "port": 1 })),
                true,
            ),
            ("target", |s| s["spec"]["ports"][0]["targetPort"] = json!(1), false),
            (
                "an old port of ours",
                |s| {
                    s["spec"]["ports"].as_array_mut().unwrap().push(json!({ "name": "https-1", "port": 1 }));
                },
                false,
            ),
            ("type", |s| s["spec"]["type"] = json!("ClusterIP"), false),
            ("label", |s| s["metadata"]["labels"]["raven.openyurt.io/gateway"] = json!("x"), false),
            ("owner", |s| s["metadata"]["ownerReferences"][0]["uid"] = json!("u0"), false),
        ];
        for (what, change, right) in cases {
            let mut present = json!(wanted);
            change(&mut present);
            assert_eq!(service_is_right(&serde_json::from_value(present).unwrap(), &wanted), right, "{what}");
        }
        let wanted = &slices(&wanted, &[backend("a", "10.0.0.1")])[0];
        let cases: [(&str, Change, bool); 4] = [
            ("nothing", |_| {}, true),
            ("zone", |s| s["endpoints"][0]["zone"] = json!("z"), true),
            ("no endpoints", |s| s["endpoints"] = json!(null), false),
            ("not ready", |s| s["endpoints"][0]["conditions"]["ready"] = json!(false), false),
        ];
        for (what, change, right) in cases {
            let mut present = json!(wanted);
            change(&mut present);
            assert_eq!(slice_is_right(&serde_json::from_value(present).unwrap(), wanted), right, "{what}");
        }
    }

    #[test]
    fn a_balancers_address_is_in_its_status_or_on_it() {
        let of = |annotations: Value, ingress: Value| {
            let service = json!({
                "metadata": { "annotations": annotations }, "status": { "loadBalancer": { "ingress": ingress } }
            });
            hosts(&serde_json::from_value(service).unwrap())
        };
        let said = json!({ "raven.openyurt.io/public-service-external-ip": "9.9.9.9, 8.8.8.8",
            "raven.openyurt.io/public-service-external-dns-name": "lb.example" });
        assert_eq!(of(json!({}), json!(null)), Vec::<String>::new());
        assert_eq!(of(said.clone(), json!([])), ["9.9.9.9", "8.8.8.8", "lb.example"]);
        assert_eq!(
            of(said, json!([{ "ip": "1.1.1.1" }, { "hostname": "h" }, { "hostname": "" }])),
            ["1.1.1.1", "h"]
        );
    }

    #[test]
    fn kube_proxy_takes_ips_unless_they_are_delivered_to_node_ports() {
        let of = |ingress: Value| {
            let service = json!({
                "metadata": { "annotations": { "raven.openyurt.io/public-service-external-ip": "9.9.9.9" } },
                "status": { "loadBalancer": { "ingress": ingress } },
            });
            taken_by_kube_proxy(&serde_json::from_value(service).unwrap())
        };
        assert!(of(json!(null)).is_empty(), "no kube-proxy reads what people write on it");
        let (vip, proxy) =
            (json!({ "ip": "1.1.1.2", "ipMode": "VIP" }), json!({ "ip": "1.1.1.3", "ipMode": "Proxy" }));
        assert_eq!(
            of(json!([{ "ip": "1.1.1.1" }, vip, proxy, { "hostname": "h" }, { "ip": "" }])),
            ["1.1.1.1", "1.1.1.2"].map(str::to_owned).into()
        );
    }
}
