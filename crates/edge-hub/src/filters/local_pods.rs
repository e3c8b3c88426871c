//! `localpods`: of this node's pods, endpoints have the addresses and the readiness that the kubelet says, while its word cannot
//! reach the API server. After a reboot without a link every pod has a new address, and the slices that are held lead nowhere.
//!
//! A corrected object is told as a state only, at a version of the view's own ([`super::Telling`]), never as an event of the API server: clients
//! would go on from its version, and the API server's would say that it knows.

use std::{collections::BTreeMap, net::IpAddr};

use kube_wire::edit::{Field, Message, Verdict};
use serde::{Deserialize, Serialize};

use super::Filtered;

const ENDPOINTS: Field = Field::shown("endpoints", 2);
const ADDRESS_TYPE: Field = Field::new("addressType", 4);
const ADDRESSES: Field = Field::new("addresses", 1);
const CONDITIONS: Field = Field::new("conditions", 2);
const READY: Field = Field::new("ready", 1);
const SERVING: Field = Field::new("serving", 2);
const SLICE_TARGET: Field = Field::new("targetRef", 4);
const SUBSETS: Field = Field::new("subsets", 2);
const NOT_READY_ADDRESSES: Field = Field::new("notReadyAddresses", 2);
const IP: Field = Field::new("ip", 1);
const ADDRESS_TARGET: Field = Field::new("targetRef", 2);
const UID: Field = Field::new("uid", 4);

/// A pod as the kubelet says it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalPod {
    /// `NAMESPACE/NAME`, for people.
    pub name: Box<str>,
    /// Its addresses, the first one first; none while it has none.
    pub addresses: Vec<IpAddr>,
    /// Whether it is ready.
    pub ready: bool,
}

/// The pods of this node of which the API server does not know what the kubelet says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalPods {
    /// By their UIDs.
    pub pods: BTreeMap<Box<str>, LocalPod>,
}

impl LocalPods {
    fn of(&self, endpoint: &Message, target: Field) -> Option<&LocalPod> {
        self.pods.get(&*endpoint.message(target)?.text(UID)?)
    }
}

pub(super) fn edit(resource: Filtered, message: &mut Message, pods: &LocalPods) -> bool {
    if resource == Filtered::EndpointSlices {
        let v6 = message.text(ADDRESS_TYPE).as_deref() == Some("IPv6");
        return message.edit_each(ENDPOINTS, |endpoint| {
            let Some(pod) = pods.of(endpoint, SLICE_TARGET) else { return Verdict::Keep };
            let addresses = of_family(pod, v6);
            let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
            let moved = !addresses.is_empty() && endpoint.set_texts(ADDRESSES, &addresses);
            Verdict::changed(set_ready(endpoint, pod.ready && !addresses.is_empty()) || moved)
        });
    }
    // Readiness is which of the two lists an address is in; only the addresses are corrected.
    message.edit_each(SUBSETS, |subset| {
        let mut correct = |address: &mut Message| {
            let Some(pod) = pods.of(address, ADDRESS_TARGET) else { return Verdict::Keep };
            let v6 = address.text(IP).is_some_and(|ip| ip.contains(':'));
            let ip = of_family(pod, v6).into_iter().next();
            Verdict::changed(ip.is_some_and(|ip| address.set_text(IP, &ip)))
        };
        let ready = subset.edit_each(ADDRESSES, &mut correct);
        let not_ready = subset.edit_each(NOT_READY_ADDRESSES, &mut correct);
        Verdict::changed(ready || not_ready)
    })
}

fn of_family(pod: &LocalPod, v6: bool) -> Vec<String> {
    pod.addresses.iter().filter(|address| address.is_ipv6() == v6).map(ToString::to_string).collect()
}

/// Of a Service that publishes addresses that are not ready, endpoints are `ready` without `serving`: that stays.
fn set_ready(endpoint: &mut Message, ready: bool) -> bool {
    endpoint.edit(CONDITIONS, |conditions| {
        let published = conditions.bool(READY) == Some(true) && conditions.bool(SERVING) == Some(false);
        let readiness = !published && conditions.set_bool(READY, ready);
        conditions.set_bool(SERVING, ready) || readiness
    })
}

#[cfg(test)]
mod tests {
    use kube_wire::object::Object;
    use serde_json::{Value, json};

    use super::*;

    fn pods(ready: bool, addresses: &[&str]) -> LocalPods {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let pod = LocalPod { name: "a/p".into(), addresses, ready };
        LocalPods { pods: BTreeMap::from([("u".into(), pod)]) }
    }

    fn edited(resource: Filtered, object: &Value, pods: &LocalPods) -> Option<Value> {
        let object = Object::from_json(object.to_string().into()).unwrap();
        let mut message = Message::of(&object).unwrap();
        let changed = edit(resource, &mut message, pods);
        let object = message.into_object().unwrap();
        changed.then(|| serde_json::from_slice(object.body()).unwrap())
    }

    fn slice(addresses: &[&str], ready: bool, serving: bool) -> Value {
        json!({
            "metadata": { "namespace": "a", "name": "s", "resourceVersion": "9" }, "addressType": "IPv4",
            "endpoints": [
                { "addresses": addresses, "conditions": { "ready": ready, "serving": serving }, "targetRef": { "uid": "u" } },
                { "addresses": ["10.0.0.9"], "conditions": { "ready": true }, "targetRef": { "uid": "other" } },
                { "addresses": ["10.0.0.8"], "conditions": { "ready": true } },
            ],
        })
    }

    #[test]
    fn endpoints_of_local_pods_have_the_kubelets_addresses() {
        let slices = |of: &Value, pods: &LocalPods| edited(Filtered::EndpointSlices, of, pods);
        let old = slice(&["10.0.0.1"], true, true);
        let now = ["10.0.0.2"];
        assert_eq!(slices(&old, &pods(true, &["fd00::2", "10.0.0.2"])), Some(slice(&now, true, true)));
        assert_eq!(slices(&old, &pods(false, &now)), Some(slice(&now, false, false)));
        assert_eq!(
            slices(&old, &pods(true, &[])),
            Some(slice(&["10.0.0.1"], false, false)),
            "no address yet"
        );
        assert_eq!(slices(&old, &pods(true, &["10.0.0.1"])), None, "as it is");
        let published = slice(&["10.0.0.1"], true, false);
        assert_eq!(slices(&published, &pods(false, &now)), Some(slice(&now, true, false)));
        let endpoints = |ip: &str| {
            json!({
                "metadata": { "namespace": "a", "name": "s", "resourceVersion": "9" },
                "subsets": [{ "addresses": [{ "ip": ip, "targetRef": { "uid": "u" } }, { "ip": "10.0.0.9" }] }],
            })
        };
        let corrected = edited(Filtered::Endpoints, &endpoints("10.0.0.1"), &pods(true, &now));
        assert_eq!(corrected, Some(endpoints("10.0.0.2")));
    }
}
