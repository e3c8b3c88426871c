//! Whether a selector takes the word of an administrator or that of the node itself: pure.
//!
//! A kubelet may write most labels of its own Node at any time, and so may whoever has the node's key. NodeRestriction keeps from it labels of
//! `node-restriction.kubernetes.io`, and all of `kubernetes.io` and `k8s.io` but those of a list (`IsKubeletLabel` of
//! `k8s.io/kubelet/pkg/apis`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::labels;

/// Labels of `kubernetes.io` that a kubelet may set on its own Node.
const OF_KUBELETS: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Namespaces of `kubernetes.io` in which, and below which, a kubelet may set what it likes.
const NAMESPACES_OF_KUBELETS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

const NODE_RESTRICTION: &str = "node-restriction.kubernetes.io";

/// Whether a kubelet may set the label on its own Node, as NodeRestriction has it.
pub fn may_be_set_by_kubelet(key: &str) -> bool {
    let Some((namespace, _)) = key.split_once('/') else { return true };
    if is_in(namespace, NODE_RESTRICTION) {
        return false;
    }
    let of_kubernetes = is_in(namespace, "kubernetes.io") || is_in(namespace, "k8s.io");
    !of_kubernetes
        || OF_KUBELETS.contains(&key)
        || NAMESPACES_OF_KUBELETS.iter().any(|allowed| is_in(namespace, allowed))
}

/// Whether `namespace` is `of`, or below it.
fn is_in(namespace: &str, of: &str) -> bool {
    namespace.strip_suffix(of).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Whether no node comes to be selected by what it says of itself: the selector wants a label to be there that kubelets may not set. That one is not there,
/// or has another value, is true of every node, and proves nothing.
pub fn by_an_administrator(selector: &LabelSelector) -> bool {
    demanded(selector).any(|key| !may_be_set_by_kubelet(key))
}

/// Whether the selector wants the label of a pool or of a Gateway to be there, which a kubelet brings when it registers and does not change.
pub fn by_its_place(selector: &LabelSelector) -> bool {
    demanded(selector).any(|key| matches!(key, labels::NODE_POOL | labels::GATEWAY))
}

/// Labels that must be there.
fn demanded(selector: &LabelSelector) -> impl Iterator<Item = &str> {
    let equal = selector.match_labels.iter().flatten().map(|(key, _)| key.as_str());
    let expressions = selector.match_expressions.iter().flatten();
    let there = expressions.filter(|expression| matches!(expression.operator.as_str(), "In" | "Exists"));
    equal.chain(there.map(|expression| expression.key.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kubelets_may_set_what_noderestriction_lets_them() {
        for key in [
            "site",
            "example.org/site",
            "raven.openyurt.io/gateway",
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
            "node.kubernetes.io/anything",
            "sub.kubelet.kubernetes.io/anything",
            "mykubernetes.io/site",
            "node-restriction.kubernetes.io.example.org/site",
        ] {
            assert!(may_be_set_by_kubelet(key), "{key}");
        }
        for key in [
            "node-restriction.kubernetes.io/site",
            "example.node-restriction.kubernetes.io/site",
            "node-role.kubernetes.io/control-plane",
            "kubernetes.io/site",
            "topology.kubernetes.io/rack",
            "kops.k8s.io/instancegroup",
        ] {
            assert!(!may_be_set_by_kubelet(key), "{key}");
        }
    }

    #[test]
    fn one_label_that_must_be_there_is_enough_and_one_that_must_not_is_none() {
        let (theirs, ours) = ("site", "node-restriction.kubernetes.io/site");
        let one = |key: &str, operator: &str| {
            let values = if operator.ends_with("In") { json!(["a"]) } else { json!([]) };
            json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] })
        };
        for (selector, expected) in [
            (json!({}), false),
            (json!({ "matchLabels": { (theirs): "a" } }), false),
            (json!({ "matchLabels": { (ours): "a" } }), true),
            (json!({ "matchLabels": { (theirs): "a", (ours): "a" } }), true),
            (one(theirs, "In"), false),
            (one(theirs, "Exists"), false),
            (one(ours, "In"), true),
            (one(ours, "Exists"), true),
            (one(ours, "NotIn"), false),
            (one(ours, "DoesNotExist"), false),
        ] {
            let read: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(by_an_administrator(&read), expected, "{selector}");
            assert!(!by_its_place(&read), "{selector}");
        }
        for (selector, expected) in [
            (json!({ "matchLabels": { (labels::NODE_POOL): "hz" } }), true),
            (one(labels::GATEWAY, "In"), true),
            (one(labels::NODE_POOL, "NotIn"), false),
        ] {
            let read: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!((by_an_administrator(&read), by_its_place(&read)), (false, expected), "{selector}");
        }
    }
}
