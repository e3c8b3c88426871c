use serde_json::json;

use super::*;

fn node(name: &str, pool: Option<&str>, resource_version: &str) -> NodeObject {
    let mut labels = json!({ "kubernetes.io/hostname": name });
    if let Some(pool) = pool {
        labels[labels::NODE_POOL] = json!(pool);
    }
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "resourceVersion": resource_version, "labels": labels,
            "managedFields": [{ "manager": "kubelet" }],
        },
        "spec": { "podCIDR": "10.0.0.0/24", "taints": [{ "key": "k", "effect": "NoSchedule" }] },
        "status": {
            "addresses": [{ "type": "Hostname", "address": name }, { "type": "InternalIP", "address": "10.0.0.1" }],
            "conditions": [{ "type": "Ready", "status": "True" }],
            "images": [{ "names": ["a"], "sizeBytes": 5 }],
        },
    }))
    .unwrap()
}

fn keys(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_view_holds_what_decisions_need() {
    let view = NodeView::from(node("n1", Some("shop"), "5"));
    assert_eq!(
        (view.pool(), view.ready, view.internal_ip.as_deref()),
        (Some("shop"), true, Some("10.0.0.1"))
    );
    assert_eq!((view.taints.len(), view.resource_version.as_str()), (1, "5"));
}

#[test]
fn changes_are_told_by_pool_and_heartbeats_are_not() {
    let nodes = Nodes::default();
    assert_eq!(nodes.replace(vec![node("n1", Some("a"), "1"), node("n2", None, "2")]), keys(&["a"]));
    assert_eq!(nodes.apply(node("n1", Some("a"), "3")), keys(&[]), "a heartbeat");
    assert_eq!(nodes.of_pool("a")[0].resource_version, "3", "but its version is kept");
    assert_eq!(nodes.apply(node("n1", Some("b"), "4")), keys(&["a", "b"]), "a move concerns both pools");
    assert_eq!((nodes.of_pool("a").len(), nodes.of_pool("b").len()), (0, 1));
    assert_eq!(nodes.delete(node("n1", Some("b"), "4")), keys(&["b"]));
    assert_eq!(nodes.pools(), [""; 0]);
}

#[test]
fn a_new_list_forgets_what_is_gone() {
    let nodes = Nodes::default();
    nodes.replace(vec![node("n1", Some("a"), "1"), node("n2", Some("b"), "2")]);
    assert_eq!(nodes.replace(vec![node("n2", Some("b"), "2")]), keys(&["a"]));
    assert_eq!(nodes.pools(), ["b"]);
}

#[test]
fn a_node_that_left_is_found_by_the_record_of_its_pool() {
    let nodes = Nodes::default();
    let mut left = node("n1", None, "1");
    let record = r#"{"labels":{"x":"1"},"annotations":{},"taints":[],"pool":"a"}"#;
    left.metadata.annotations =
        Some([(annotations::PREVIOUS_ATTRIBUTES.to_owned(), record.to_owned())].into());
    assert_eq!(nodes.apply(left), keys(&["a"]));
    assert_eq!(nodes.of_pool("a").len(), 1);
}
