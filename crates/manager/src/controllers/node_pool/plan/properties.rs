//! What holds for every node, whatever pools it goes through.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use proptest::prelude::*;

use super::tests::{node, observed, patched, pool};
use super::*;

/// What a pool says while the node is in it.
#[derive(Clone, Debug)]
struct Said {
    pool: &'static str,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    taints: Vec<Taint>,
    host_network: bool,
}

fn said() -> impl Strategy<Value = Said> {
    let pool = prop::sample::select(vec!["shop", "van"]);
    (pool, map(), map(), taints(), any::<bool>()).prop_map(
        |(pool, labels, annotations, taints, host_network)| Said {
            pool,
            labels,
            annotations,
            taints,
            host_network,
        },
    )
}

fn map() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map("[a-d]", "[0-2]", 0..4)
}

fn taints() -> impl Strategy<Value = Vec<Taint>> {
    let effect = prop::sample::select(vec!["NoSchedule", "NoExecute"]);
    prop::collection::btree_map(("[a-c]", effect), "[0-2]", 0..4).prop_map(|taints| {
        let taint = |((key, effect), value): ((String, &str), String)| Taint {
            key,
            value: Some(value),
            effect: effect.to_owned(),
            time_added: None,
        };
        taints.into_iter().map(taint).collect()
    })
}

/// A node in no pool, which may carry host-network labels all the same.
fn any_node() -> impl Strategy<Value = NodeView> {
    let marks = prop::sample::subsequence(labels::HOST_NETWORK_NODE.to_vec(), 0..=3);
    (map(), marks, map(), taints()).prop_map(|(labels, marks, annotations, taints)| {
        let mut node = node("n1", None, &marks, None);
        node.labels.extend(labels);
        node.annotations = annotations;
        node.taints = taints.iter().map(NodeTaint::from).collect();
        node
    })
}

/// The node after one reconciliation of the pool, and that another one finds nothing to do.
fn reconciled(before: &NodeView, observed: impl Fn(NodeView) -> Observed) -> NodeView {
    let plan_for = |node: &NodeView| plan(&observed(node.clone()));
    let first = plan_for(before);
    assert_eq!(first.refused, []);
    let after =
        first.nodes.iter().fold(before.clone(), |node: NodeView, patch: &NodePatch| patched(node, patch));
    assert_eq!(plan_for(&after).nodes, [], "a second look must find nothing to do");
    after
}

/// The node as a member of the pool, which says that.
fn joined(mut node: NodeView, said: &Said) -> NodeView {
    node.labels.insert(labels::NODE_POOL.to_owned(), said.pool.to_owned());
    let mut pool = pool(said.pool, &[], said.host_network);
    pool.spec.labels.clone_from(&said.labels);
    pool.spec.annotations.clone_from(&said.annotations);
    pool.spec.taints.clone_from(&said.taints);
    reconciled(&node, |node| observed(said.pool, Some(pool.clone()), vec![node], vec![]))
}

/// The node in no pool any more; what it left may have been deleted.
fn left(mut node: NodeView) -> NodeView {
    node.labels.remove(labels::NODE_POOL);
    let last = node.record().unwrap().pool.clone().unwrap_or_else(|| NO_POOL.to_owned());
    reconciled(&node, |node| Observed {
        name: last.clone(),
        leavers: vec![Arc::new(node)],
        ..Observed::default()
    })
}

fn sorted(mut taints: Vec<NodeTaint>) -> Vec<NodeTaint> {
    taints.sort_by(|a, b| (&a.key, &a.effect).cmp(&(&b.key, &b.effect)));
    taints
}

proptest! {
    /// While it is in a pool it carries what the pool says, and what is the node's alone stays. When it leaves it is as it was before, but for the
    /// host-network labels, which it never has without such a pool.
    #[test]
    fn a_node_comes_out_of_its_pools_as_it_went_in(
        own in any_node(),
        stays in prop::collection::vec(prop::option::weighted(0.8, said()), 1..6),
    ) {
        let mut node = own.clone();
        for stay in stays {
            let Some(said) = stay else {
                node = left(node);
                continue;
            };
            node = joined(node, &said);
            for (key, value) in labels::HOST_NETWORK_NODE {
                prop_assert_eq!(node.labels.get(key).map(String::as_str), said.host_network.then_some(value));
            }
            for (map, own, said) in [
                (&node.labels, &own.labels, &said.labels),
                (&node.annotations, &own.annotations, &said.annotations),
            ] {
                let alone = own.iter().filter(|(key, _)| !said.contains_key(*key) && !is_host_network(key));
                for (key, value) in said.iter().chain(alone) {
                    prop_assert_eq!(map.get(key), Some(value), "{}", key);
                }
            }
            for taint in said.taints.iter().map(NodeTaint::from) {
                prop_assert!(node.taints.contains(&taint));
            }
        }
        let mut expected = own;
        expected.labels.retain(|key, _| !is_host_network(key));
        expected.taints = sorted(expected.taints);
        let mut after = left(node);
        after.taints = sorted(after.taints);
        prop_assert_eq!(after, expected);
    }
}
