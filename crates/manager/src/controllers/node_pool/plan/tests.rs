use std::collections::BTreeSet;
use std::sync::Arc;

use api::{NetworkMode, NodePoolSpec};
use serde_json::json;

use super::*;

pub(super) fn pool(name: &str, labels: &[(&str, &str)], host_network: bool) -> NodePool {
    let mut pool = NodePool::new(name, NodePoolSpec::default());
    pool.spec.labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    pool.spec.network_mode = host_network.then_some(NetworkMode::HostNetwork);
    pool.metadata.labels = Some([(labels::POOL_TYPE.to_owned(), "edge".to_owned())].into());
    pool
}

pub(super) fn node(
    name: &str,
    pool: Option<&str>,
    labels: &[(&str, &str)],
    record: Option<&str>,
) -> NodeView {
    let mut node =
        NodeView { name: name.to_owned(), resource_version: "7".to_owned(), ..NodeView::default() };
    node.labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    if let Some(pool) = pool {
        node.labels.insert(labels::NODE_POOL.to_owned(), pool.to_owned());
    }
    if let Some(record) = record {
        node.annotations.insert(annotations::PREVIOUS_ATTRIBUTES.to_owned(), record.to_owned());
    }
    node
}

pub(super) fn observed(
    name: &str,
    pool: Option<NodePool>,
    members: Vec<NodeView>,
    leavers: Vec<NodeView>,
) -> Observed {
    let [members, leavers] = [members, leavers].map(|nodes| nodes.into_iter().map(Arc::new).collect());
    Observed { name: name.to_owned(), pool: pool.map(Arc::new), members, leavers, ..Observed::default() }
}

/// The node after the patch.
pub(super) fn patched(mut node: NodeView, patch: &NodePatch) -> NodeView {
    let NodePatch { node: name, resource_version, labels, annotations, taints, taint_changes: _ } = patch;
    assert_eq!((&node.name, &node.resource_version), (name, resource_version));
    for (map, changes) in [(&mut node.labels, labels), (&mut node.annotations, annotations)] {
        for (key, value) in changes {
            match value {
                Some(value) => drop(map.insert(key.clone(), value.clone())),
                None => drop(map.remove(key)),
            }
        }
    }
    if let Some(taints) = taints {
        node.taints.clone_from(taints);
    }
    node
}

#[test]
fn a_member_gets_the_pools_labels_and_the_three_host_network_labels() {
    let before = node("n1", Some("shop"), &[("zone", "own")], None);
    let observed =
        observed("shop", Some(pool("shop", &[("zone", "z1")], true)), vec![before.clone()], vec![]);
    let plan = plan(&observed);
    let after = patched(before.clone(), &plan.nodes[0]);
    for (key, value) in labels::HOST_NETWORK_NODE {
        assert_eq!(after.labels[key], value);
    }
    assert_eq!(after.labels["zone"], "z1");
    let record: serde_json::Value = serde_json::from_str(after.record_text().unwrap()).unwrap();
    assert_eq!((&record["pool"], &record["covered"]["labels"]["zone"]), (&json!("shop"), &json!("own")));

    // Settled: nothing more to write.
    let settled = Observed { members: vec![Arc::new(after.clone())], ..observed };
    assert_eq!(super::plan(&settled).nodes, []);

    // Released by the deletion of its pool, it is as it was, but for the label that the pool did not put there.
    let gone =
        Observed { name: "shop".into(), leavers: vec![Arc::new(after.clone())], ..Observed::default() };
    let released = patched(after, &super::plan(&gone).nodes[0]);
    assert_eq!(released, before);
}

#[test]
fn a_move_changes_a_node_in_one_patch() {
    let start = node("n1", Some("a"), &[], None);
    let a = pool("a", &[("shared", "a"), ("only-a", "1")], true);
    let in_a = patched(start.clone(), &plan(&observed("a", Some(a), vec![start.clone()], vec![])).nodes[0]);
    let mut moved = in_a;
    moved.labels.insert(labels::NODE_POOL.to_owned(), "b".to_owned());
    let b = pool("b", &[("shared", "b")], false);
    let plan_b = plan(&observed("b", Some(b), vec![moved.clone()], vec![]));
    assert_eq!(plan_b.nodes.len(), 1);
    let in_b = patched(moved, &plan_b.nodes[0]);
    let labels: Vec<_> = in_b.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(labels, [(labels::NODE_POOL, "b"), ("shared", "b")]);
}

#[test]
fn a_plain_pool_writes_nothing_on_its_nodes() {
    let member = node("n1", Some("shop"), &[("a", "1")], None);
    assert_eq!(plan(&observed("shop", Some(pool("shop", &[], false)), vec![member], vec![])).nodes, []);
}

/// The CRD refuses them, but not in a pool of before the rule.
#[test]
fn what_no_pool_may_set_is_not_written_though_a_pool_says_it() {
    let mut old = pool("a", &[("kubernetes.io/hostname", "all"), ("tier", "1")], false);
    old.spec.annotations = [(annotations::HUB_BOOTSTRAP_TOKEN, "abcdef"), ("site", "north")]
        .map(|(k, v)| (k.into(), v.into()))
        .into();
    let wanted = wanted_attributes(&old);
    assert_eq!(wanted.labels.into_keys().collect::<Vec<_>>(), ["tier"]);
    assert_eq!(wanted.annotations.into_keys().collect::<Vec<_>>(), ["site"]);
}

#[test]
fn one_unreadable_record_holds_up_no_other_node() {
    for bad in ["{", "[]", "\"x\"", r#"{"labels":7}"#, ""] {
        let members = vec![
            node("good-1", Some("shop"), &[], None),
            node("odd", Some("shop"), &[], Some(bad)),
            node("good-2", Some("shop"), &[], None),
        ];
        let plan = plan(&observed("shop", Some(pool("shop", &[("zone", "z1")], false)), members, vec![]));
        let patched: Vec<_> =
            plan.nodes.iter().map(|patch| (patch.node.as_str(), patch.labels.len())).collect();
        assert_eq!(patched, [("good-1", 1), ("odd", 0), ("good-2", 1)], "record {bad:?}");
        let marker = (annotations::UNREADABLE_RECORD_OF.to_owned(), Some("shop".to_owned()));
        assert_eq!(plan.nodes[1].annotations, Changes::from([marker]), "record {bad:?}");
        let (node, error) = &plan.refused[0];
        assert_eq!(node, "odd");
        assert!(error.to_string().contains("kubectl annotate node odd"), "{error}");
    }
}

#[test]
fn host_network_labels_set_by_others_do_not_outlive_the_pool() {
    let left_behind = [(labels::HOST_NETWORK, labels::TRUE)];
    let before = node("n1", Some("shop"), &left_behind, None);
    let joined = plan(&observed("shop", Some(pool("shop", &[], true)), vec![before.clone()], vec![]));
    let member = patched(before, &joined.nodes[0]);
    let gone =
        Observed { name: "shop".into(), leavers: vec![Arc::new(member.clone())], ..Observed::default() };
    let released = patched(member, &plan(&gone).nodes[0]);
    assert!(!released.labels.contains_key(labels::HOST_NETWORK));
}

#[test]
fn an_overwritten_view_is_not_planned_for() {
    let member = node("n1", Some("shop"), &[], None);
    let mut observed = observed("shop", Some(pool("shop", &[("zone", "z1")], false)), vec![member], vec![]);
    observed.overwritten = BTreeSet::from(["n1".to_owned()]);
    assert_eq!(plan(&observed).nodes, []);
}

#[test]
fn the_pools_own_type_label_is_set_where_missing() {
    let mut cloud = pool("shop", &[], false);
    cloud.spec.type_ = api::PoolType::Cloud;
    let plan = plan(&observed("shop", Some(cloud), vec![], vec![]));
    assert_eq!(plan.pool_labels, BTreeMap::from([(labels::POOL_TYPE.to_owned(), "cloud".to_owned())]));
}

const UNREADABLE: &str = "{";

/// A node that is in no pool.
fn leaver(labels: &[(&str, &str)], record: Option<&str>, marker: Option<&str>) -> NodeView {
    let mut node = node("n1", None, labels, record);
    if let Some(pool) = marker {
        node.annotations.insert(annotations::UNREADABLE_RECORD_OF.to_owned(), pool.to_owned());
    }
    node
}

/// Whether the node carries any of the three labels.
fn is_marked(node: &NodeView) -> bool {
    labels::HOST_NETWORK_NODE.iter().any(|(key, _)| node.labels.contains_key(*key))
}

#[test]
fn host_network_labels_go_though_the_record_cannot_be_read() {
    let carried = [labels::HOST_NETWORK_NODE[0], labels::HOST_NETWORK_NODE[2], ("zone", "z1")];
    let left = leaver(&carried, Some(UNREADABLE), None);
    let shop = || pool("shop", &[("zone", "z1")], true);
    for (name, pool, remedy) in
        [("shop", Some(shop()), "is taken off"), ("shop", None, "by hand"), (NO_POOL, None, "by hand")]
    {
        let plan = plan(&observed(name, pool, vec![], vec![left.clone()]));
        let after = patched(left.clone(), &plan.nodes[0]);
        assert!(!is_marked(&after), "{name:?}: {:?}", after.labels);
        assert_eq!(after.labels["zone"], "z1", "what else was the pool's is not known");
        assert_eq!(after.unreadable_record_of(), Some(name).filter(|name| *name != NO_POOL));
        let message = plan.refused[0].1.to_string();
        assert!(message.contains(remedy) && message.contains("kubectl annotate node n1"), "{message}");
        // Settled, and still named.
        let again = super::plan(&observed(name, None, vec![], vec![after]));
        assert_eq!((again.nodes.len(), again.refused.len()), (0, 1));
    }
    let moved = node("n1", Some("plain"), &carried, Some(UNREADABLE));
    let plan = plan(&observed("plain", Some(pool("plain", &[], false)), vec![moved.clone()], vec![]));
    assert!(!is_marked(&patched(moved, &plan.nodes[0])));
}

#[test]
fn a_member_gets_the_host_network_labels_though_its_record_cannot_be_read() {
    let member = node("n1", Some("shop"), &[], Some(UNREADABLE));
    let plan = plan(&observed("shop", Some(pool("shop", &[], true)), vec![member.clone()], vec![]));
    let after = patched(member, &plan.nodes[0]);
    assert!(labels::HOST_NETWORK_NODE.iter().all(|(key, value)| after.labels[*key] == *value));
}

#[test]
fn host_network_labels_go_from_nodes_that_no_pool_knows() {
    let stray = leaver(&labels::HOST_NETWORK_NODE, None, None);
    let plan = plan(&observed(NO_POOL, None, vec![], vec![stray.clone()]));
    assert_eq!(patched(stray, &plan.nodes[0]), leaver(&[], None, None));
    assert_eq!(plan.refused, []);
}

#[test]
fn what_a_node_says_under_the_same_keys_by_another_value_is_its_own() {
    let own = [("nodepool.openyurt.io/hostnetwork", "false"), ("nodepool.openyurt.io/network-mode", "other")];
    let node = leaver(&own, None, None);
    assert_eq!(node.keeper(), None);
    let observed = Observed { leavers: vec![Arc::new(node)], ..Observed::default() };
    assert_eq!(plan(&observed).nodes, []);
}

#[test]
fn a_record_gives_back_nothing_that_no_pool_may_set() {
    let record = r#"{"labels":{"apps.openyurt.io/nodepool":"x","zone":"z1"},"taints":[{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"}],
        "pool":"gone","covered":{"labels":{"apps.openyurt.io/nodepool":"victim","zone":"own"}}}"#;
    let mut node = leaver(&[("zone", "z1")], Some(record), None);
    node.taints.push(
        serde_json::from_value(json!({ "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" }))
            .unwrap(),
    );
    let observed =
        Observed { name: "gone".into(), leavers: vec![Arc::new(node.clone())], ..Observed::default() };
    let after = patched(node.clone(), &plan(&observed).nodes[0]);
    assert_eq!(after.labels, [("zone".to_owned(), "own".to_owned())].into());
    assert_eq!(after.taints, node.taints);
}

#[test]
fn a_record_removed_by_hand_gives_the_pools_values_back() {
    let shop = || pool("shop", &[("zone", "z1")], true);
    let fresh = node("n1", Some("shop"), &[], None);
    let joined = plan(&observed("shop", Some(shop()), vec![fresh.clone()], vec![]));
    let mut member = patched(fresh, &joined.nodes[0]);
    // What the message about an unreadable record says to do.
    member.annotations.insert(annotations::PREVIOUS_ATTRIBUTES.to_owned(), "{".to_owned());
    let told = plan(&observed("shop", Some(shop()), vec![member.clone()], vec![]));
    let mut member = patched(member, &told.nodes[0]);
    member.annotations.remove(annotations::PREVIOUS_ATTRIBUTES);
    let began_anew = plan(&observed("shop", Some(shop()), vec![member.clone()], vec![]));
    let mut left = patched(member, &began_anew.nodes[0]);
    left.labels.remove(labels::NODE_POOL);
    let released = plan(&observed("shop", Some(shop()), vec![], vec![left.clone()]));
    assert_eq!(patched(left, &released.nodes[0]), node("n1", None, &[], None));
}

#[test]
fn what_a_node_had_just_as_the_pool_wants_it_stays_when_it_leaves() {
    let shop = || pool("shop", &[("zone", "z1"), ("tier", "front")], true);
    let before = node("n1", Some("shop"), &[("zone", "z1")], None);
    let joined = plan(&observed("shop", Some(shop()), vec![before.clone()], vec![]));
    let mut left = patched(before, &joined.nodes[0]);
    left.labels.remove(labels::NODE_POOL);
    let released = plan(&observed("shop", Some(shop()), vec![], vec![left.clone()]));
    assert_eq!(patched(left, &released.nodes[0]), node("n1", None, &[("zone", "z1")], None));
}

#[test]
fn a_record_removed_after_the_node_left_takes_off_what_the_pool_says() {
    let carried = [("zone", "z1"), ("own", "1"), ("tier", "changed")];
    let repaired = leaver(&carried, None, Some("shop"));
    let shop = pool("shop", &[("zone", "z1"), ("tier", "front")], false);
    let plan = plan(&observed("shop", Some(shop), vec![], vec![repaired.clone()]));
    let after = patched(repaired, &plan.nodes[0]);
    assert_eq!(after, leaver(&[("own", "1"), ("tier", "changed")], None, None));
    assert_eq!(plan.refused, []);
}

#[test]
fn a_record_that_was_repaired_is_followed_and_the_marker_goes() {
    let record = r#"{"labels":{"zone":"z1"},"pool":"shop"}"#;
    let repaired = leaver(&[("zone", "z1"), ("own", "1")], Some(record), Some("shop"));
    let plan = plan(&observed("shop", None, vec![], vec![repaired.clone()]));
    assert_eq!(patched(repaired, &plan.nodes[0]), leaver(&[("own", "1")], None, None));
}

#[test]
fn what_openyurt_recorded_goes_from_a_node_in_no_pool_whatever_its_value() {
    let record =
        r#"{"labels":{"a":"1","gone":"1"},"annotations":null,"taints":[{"key":"k","effect":"NoSchedule"}]}"#;
    let mut left = leaver(&[("a", "drifted"), ("own", "1")], Some(record), None);
    let taint = |key: &str| NodeTaint {
        key: key.to_owned(),
        value: Some("drifted".to_owned()),
        effect: "NoSchedule".to_owned(),
        ..NodeTaint::default()
    };
    left.taints = vec![taint("k"), taint("other")];
    let plan = plan(&observed(NO_POOL, None, vec![], vec![left.clone()]));
    let mut expected = leaver(&[("own", "1")], None, None);
    expected.taints = vec![taint("other")];
    assert_eq!(patched(left, &plan.nodes[0]), expected);
}

#[test]
fn taints_of_others_keep_fields_that_we_do_not_know() {
    let foreign = json!({
        "key": "vendor.example/state", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z",
        "reasonCode": 7, "since": { "boot": "b1" }
    });
    let own = json!({ "key": "dedicated", "value": "own", "effect": "NoExecute", "owner": "vendor" });
    let mut before = node("n1", Some("shop"), &[], None);
    before.taints = serde_json::from_value(json!([foreign, own])).unwrap();
    let mut shop = pool("shop", &[], false);
    shop.spec.taints = vec![k8s_openapi::api::core::v1::Taint {
        key: "dedicated".into(),
        value: Some("shop".into()),
        effect: "NoExecute".into(),
        time_added: None,
    }];
    let joined = plan(&observed("shop", Some(shop), vec![before.clone()], vec![]));
    assert_eq!(
        json!(joined.nodes[0].taints),
        json!([foreign, { "key": "dedicated", "value": "shop", "effect": "NoExecute" }])
    );
    let changed = Changes::from([("dedicated:NoExecute".to_owned(), Some("shop".to_owned()))]);
    assert_eq!(joined.nodes[0].taint_changes, changed);
    // What was covered comes back whole.
    let member = patched(before.clone(), &joined.nodes[0]);
    let gone =
        Observed { name: "shop".into(), leavers: vec![Arc::new(member.clone())], ..Observed::default() };
    let released = plan(&gone);
    assert_eq!(json!(released.nodes[0].taints), json!([foreign, own]));
}
