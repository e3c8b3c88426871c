//! Which `DaemonSets` would put pods without host network on the nodes of host-network pools: a `DaemonSet`'s pod template
//! and what is known of such nodes in, yes or no out.
//!
//! Pure. No webhook and no policy can keep such pods off: their controller makes one for each node by the template alone.
//! Of a node's labels only some are known before it joins; a requirement on any other may hold, so the answer may be yes
//! too often, but not too rarely.

use std::collections::BTreeMap;

use api::labels::{HOST_NETWORK_NODE, NODE_POOL};
use api::{NetworkMode, NodePool};
use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};
use kube::ResourceExt;
use serde_json::Value;

/// What is known of the nodes of a host-network pool.
#[derive(Clone, Debug)]
pub struct HostNetworkNodes {
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
}

impl HostNetworkNodes {
    /// What is known of the nodes of any such pool.
    fn unnamed() -> Self {
        let marks = HOST_NETWORK_NODE.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        // The loopback CNI configuration, which such nodes have, is one for Linux.
        let linux = ("kubernetes.io/os".to_owned(), "linux".to_owned());
        Self { labels: marks.chain([linux]).collect(), taints: Vec::new() }
    }

    /// What is known of the nodes of the host-network pools among `pools`; without one, of those of a pool to come.
    pub fn of(pools: &[NodePool]) -> Vec<Self> {
        let host = pools.iter().filter(|pool| pool.network_mode() == NetworkMode::HostNetwork);
        let known: Vec<Self> = host
            .map(|pool| {
                let mut nodes = Self::unnamed();
                nodes.labels.extend(pool.spec.labels.clone());
                nodes.labels.insert(NODE_POOL.to_owned(), pool.name_any());
                nodes.taints.extend(pool.spec.taints.iter().cloned());
                nodes
            })
            .collect();
        if known.is_empty() { vec![Self::unnamed()] } else { known }
    }

    fn may_run(&self, spec: &PodSpec) -> bool {
        let mut selected = spec.node_selector.iter().flatten();
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity
            .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
        let tolerations = spec.tolerations.as_deref().unwrap_or_default();
        selected.all(|(key, value)| self.labels.get(key).is_none_or(|known| known == value))
            && required.is_none_or(|required| self.may_match(required))
            && self.taints.iter().all(|taint| is_tolerated(taint, tolerations))
    }

    fn may_match(&self, NodeSelector { node_selector_terms }: &NodeSelector) -> bool {
        node_selector_terms.is_empty() || node_selector_terms.iter().any(|term| self.may_match_term(term))
    }

    fn may_match_term(
        &self,
        NodeSelectorTerm { match_expressions, match_fields }: &NodeSelectorTerm,
    ) -> bool {
        let expressions = match_expressions.as_deref().unwrap_or_default();
        let fields = match_fields.as_deref().unwrap_or_default();
        // A term without any requirement matches no node.
        !(expressions.is_empty() && fields.is_empty())
            && expressions.iter().all(|requirement| self.may_hold(requirement))
    }

    fn may_hold(&self, NodeSelectorRequirement { key, operator, values }: &NodeSelectorRequirement) -> bool {
        let Some(known) = self.labels.get(key) else { return true };
        let named = values.iter().flatten().any(|value| value == known);
        match operator.as_str() {
            "In" => named,
            "NotIn" => !named,
            "DoesNotExist" => false,
            // `Gt` and `Lt` on a label of ours: nobody does.
            _ => true,
        }
    }
}

/// Whether pods of `daemon_set` without host network would land on any of these nodes. One that cannot be read might.
pub fn lands(daemon_set: &Value, nodes: &[HostNetworkNodes]) -> bool {
    let spec = daemon_set.pointer("/spec/template/spec").cloned().unwrap_or_default();
    let Ok(spec) = serde_json::from_value::<PodSpec>(spec) else { return true };
    spec.host_network != Some(true) && nodes.iter().any(|nodes| nodes.may_run(&spec))
}

/// Whether a pod may be scheduled in spite of `taint`.
fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    let Taint { key, effect, value, time_added: _ } = taint;
    effect == "PreferNoSchedule"
        || tolerations.iter().any(|toleration| {
            let any = |field: &Option<String>| field.as_deref().is_none_or(str::is_empty);
            let value_matches = match toleration.operator.as_deref() {
                None | Some("" | "Equal") => {
                    toleration.value.as_deref().unwrap_or_default() == value.as_deref().unwrap_or_default()
                }
                // `Exists`, and comparisons, which may hold.
                Some(_) => true,
            };
            (any(&toleration.effect) || toleration.effect.as_ref() == Some(effect))
                && (any(&toleration.key) || toleration.key.as_ref() == Some(key))
                && value_matches
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value, reason = "json! values read best when passed as they are")]

    use serde_json::json;

    use super::*;

    fn pool(name: &str, spec: Value) -> NodePool {
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap()
    }

    fn daemon_set(spec: Value) -> Value {
        json!({ "spec": { "template": { "spec": spec } } })
    }

    fn required(terms: Value) -> Value {
        let required =
            json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
        json!({ "affinity": { "nodeAffinity": required } })
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] })
    }

    #[test]
    fn what_keeps_off_no_host_network_node_lands_there() {
        let other = expression("nodepool.openyurt.io/type", "In", &["edge"]);
        for spec in [
            json!({}),
            json!({ "hostNetwork": false, "tolerations": [{ "operator": "Exists" }] }),
            json!({ "nodeSelector": { "kubernetes.io/os": "linux", "disk": "ssd" } }),
            json!({ "nodeSelector": { "nodepool.openyurt.io/hostnetwork": "true" } }),
            required(json!([other])),
            required(json!([expression("nodepool.openyurt.io/host-network", "NotIn", &["yes"])])),
            required(
                json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n"] }] }]),
            ),
            // One alternative is enough.
            required(json!([expression("nodepool.openyurt.io/hostnetwork", "NotIn", &["true"]), other])),
        ] {
            assert!(lands(&daemon_set(spec.clone()), &HostNetworkNodes::of(&[])), "{spec}");
        }
        assert!(lands(&daemon_set(json!({ "nodeSelector": 7 })), &HostNetworkNodes::of(&[])), "unreadable");
    }

    #[test]
    fn what_keeps_off_them_does_not() {
        for spec in [
            json!({ "hostNetwork": true }),
            json!({ "nodeSelector": { "kubernetes.io/os": "windows" } }),
            json!({ "nodeSelector": { "nodepool.openyurt.io/network-mode": "container-network-mode" } }),
            required(json!([expression("nodepool.openyurt.io/hostnetwork", "NotIn", &["true"])])),
            required(json!([expression(
                "nodepool.openyurt.io/network-mode",
                "NotIn",
                &["node-network-mode"]
            )])),
            required(json!([expression("nodepool.openyurt.io/host-network", "DoesNotExist", &[])])),
            required(json!([{}])),
        ] {
            assert!(!lands(&daemon_set(spec.clone()), &HostNetworkNodes::of(&[])), "{spec}");
        }
    }

    #[test]
    fn pools_say_more_of_their_nodes() {
        let host = pool("h", json!({ "networkMode": "HostNetwork", "labels": { "site": "harbour" } }));
        let plain = pool("c", json!({ "type": "Edge" }));
        let nodes = HostNetworkNodes::of(&[host, plain]);
        for (spec, expected) in [
            (json!({ "nodeSelector": { "site": "harbour" } }), true),
            (json!({ "nodeSelector": { "site": "quay" } }), false),
            (json!({ "nodeSelector": { NODE_POOL: "h" } }), true),
            (json!({ "nodeSelector": { NODE_POOL: "c" } }), false),
            (required(json!([expression(NODE_POOL, "In", &["c"])])), false),
        ] {
            assert_eq!(lands(&daemon_set(spec.clone()), &nodes), expected, "{spec}");
        }
    }

    #[test]
    fn a_taint_keeps_off_what_does_not_tolerate_it() {
        let taint = json!({ "key": "edge", "value": "yes", "effect": "NoExecute" });
        let nodes = HostNetworkNodes::of(&[pool("h", json!({ "hostNetwork": true, "taints": [taint] }))]);
        for (tolerations, expected) in [
            (json!([]), false),
            (json!([{ "operator": "Exists" }]), true),
            (json!([{ "key": "edge", "operator": "Exists", "effect": "NoExecute" }]), true),
            (json!([{ "key": "edge", "operator": "Exists", "effect": "NoSchedule" }]), false),
            (json!([{ "key": "edge", "value": "yes" }]), true),
            (json!([{ "key": "edge", "value": "no" }]), false),
            (json!([{ "key": "other", "operator": "Exists" }]), false),
        ] {
            let spec = json!({ "tolerations": tolerations });
            assert_eq!(lands(&daemon_set(spec), &nodes), expected, "{tolerations}");
        }
        let preferred = json!({ "key": "edge", "effect": "PreferNoSchedule" });
        let nodes = HostNetworkNodes::of(&[pool("h", json!({ "hostNetwork": true, "taints": [preferred] }))]);
        assert!(lands(&daemon_set(json!({})), &nodes));
    }
}
