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
    let mut moved = node("n1", Some("a"), "3a");
    moved.status.addresses[1].address = "10.0.0.9".to_owned();
    assert_eq!(nodes.apply(moved), keys(&["a"]), "leaders are told by their address");
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
fn a_new_list_tells_of_nodes_whose_version_alone_is_another() {
    let nodes = Nodes::default();
    let list = |version| vec![node("n1", Some("a"), "1"), node("n2", Some("b"), version)];
    nodes.replace(list("2"));
    assert_eq!(
        nodes.replace(list("4")),
        keys(&["b"]),
        "between them we may have written, and somebody undone it"
    );
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

/// The node with these annotations.
fn annotated(mut node: NodeObject, pairs: &[(&str, &str)]) -> NodeObject {
    let annotations = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    node.metadata.annotations = Some(annotations.collect());
    node
}

#[test]
fn a_node_whose_record_cannot_be_read_stays_with_the_pool_it_left() {
    let broken = [(annotations::PREVIOUS_ATTRIBUTES, "{")];
    let nodes = Nodes::default();
    nodes.apply(node("n1", Some("a"), "1"));
    // Record and membership are lost at once.
    assert_eq!(nodes.apply(annotated(node("n1", None, "2"), &broken)), keys(&["a"]));
    assert_eq!(nodes.of_pool("a")[0].keeper().as_deref(), Some("a"));
    nodes.apply(annotated(node("n1", None, "3"), &broken));
    assert_eq!(nodes.of_pool("a").len(), 1, "further changes do not make it forgotten");
    // The marker says it to a process that has not seen the node before.
    let nodes = Nodes::default();
    let marked = [broken[0], (annotations::UNREADABLE_RECORD_OF, "a")];
    assert_eq!(nodes.replace(vec![annotated(node("n1", None, "4"), &marked)]), keys(&["a"]));
    // Repaired, it is nobody's any more.
    assert_eq!(nodes.apply(node("n1", None, "5")), keys(&["a"]));
    assert_eq!(nodes.pools(), [""; 0]);
}

#[test]
fn nodes_that_no_pool_knows_have_a_key_of_their_own() {
    let openyurt = r#"{"labels":{"x":"1"},"annotations":null,"taints":null}"#;
    let mut stray = node("n2", None, "2");
    stray.metadata.labels = Some([(labels::HOST_NETWORK.to_owned(), labels::TRUE.to_owned())].into());
    let nodes = Nodes::default();
    nodes.replace(vec![
        annotated(node("n1", None, "1"), &[(annotations::PREVIOUS_ATTRIBUTES, openyurt)]),
        stray,
        annotated(node("n3", None, "3"), &[(annotations::PREVIOUS_ATTRIBUTES, "{")]),
        node("n4", None, "4"),
    ]);
    let names: Vec<_> = nodes.of_pool(NO_POOL).into_iter().map(|node| node.name.clone()).collect();
    assert_eq!(names, ["n1", "n2", "n3"]);
    // A pool that still counts the third takes it.
    assert!(nodes.ascribe_record("n3", "a").is_some() && nodes.ascribe_record("n1", "a").is_none());
    assert_eq!((nodes.of_pool("a").len(), nodes.of_pool(NO_POOL).len()), (1, 2));
}
