//! Reads what a reconciliation of a pool is decided on, from the indexes that watches keep. No request is made.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::NodePool;
use k8s_openapi::api::core::v1::ConfigMap;

use super::Context;
use crate::nodes::{NO_POOL, NodeView};

/// A pool and all that concerns it, at one moment.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// The name that is reconciled.
    pub(crate) name: String,
    /// The pool; `None` if there is none of that name.
    pub(crate) pool: Option<Arc<NodePool>>,
    /// The nodes whose label names the pool.
    pub(crate) members: Vec<Arc<NodeView>>,
    /// Nodes that are in no pool now and that this one must let go: they carry its record. Under the name
    /// [`NO_POOL`](crate::nodes::NO_POOL) those of which no pool is known.
    pub(crate) leavers: Vec<Arc<NodeView>>,
    /// Without a pool: the names of the nodes whose label names it.
    pub(crate) waiting: Vec<String>,
    /// Those of them whose view is older than our own last patch: to be counted, but not to be planned for.
    pub(crate) overwritten: BTreeSet<String>,
    /// For a host-network pool: pods with a network of their own, as `namespace/name on node`; `None` as long as the pods
    /// have not been listed.
    pub(crate) violators: Option<Vec<String>>,
    /// The pool's `ConfigMap` for the hubs.
    pub(crate) leader_config: Option<Arc<ConfigMap>>,
}

/// What a node is to a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Whose {
    /// It is in the pool.
    Member,
    /// It is in no pool, and this one must let it go.
    Leaver,
    /// It is another pool's, in which it is, or which must let it go.
    Other,
}

/// What `node` is to the pool `name`.
fn whose(node: &NodeView, name: &str, exists: impl Fn(&str) -> bool) -> Whose {
    let named = node.pool();
    match named.filter(|pool| exists(pool)) {
        Some(pool) if pool == name => Whose::Member,
        // The reconciliation of the pool that the node is in now takes it over, record and all.
        Some(_) => Whose::Other,
        None => match node.keeper() {
            Some(keeper) if keeper == name => Whose::Leaver,
            // A pool that is gone asks for its nodes under its own name.
            Some(keeper) if keeper == NO_POOL && named == Some(name) => Whose::Leaver,
            _ => Whose::Other,
        },
    }
}

/// Nodes that the pool's status still counts, that are in no pool, and whose record cannot be read, so that nothing on
/// them says which pool they left: it happened while nobody led.
fn lost(
    context: &Context,
    name: &str,
    pool: Option<&NodePool>,
    found: &[Arc<NodeView>],
) -> Vec<Arc<NodeView>> {
    let counted = pool.and_then(|pool| pool.status.as_ref()).map(|status| status.nodes.as_slice());
    let found: BTreeSet<&str> = found.iter().map(|node| node.name.as_str()).collect();
    let missing = counted.unwrap_or_default().iter().filter(|node| !found.contains(node.as_str()));
    missing.filter_map(|node| context.nodes.ascribe_record(node, name)).collect()
}

/// Reads all that concerns the pool of that name.
pub(crate) fn observe(context: &Context, name: &str) -> Observed {
    let pool = context.pools.whole(name);
    let mut concerned = context.nodes.of_pool(name);
    concerned.extend(lost(context, name, pool.as_deref(), &concerned));
    let is_missing = pool.is_none() && name != NO_POOL;
    let waiting = concerned.iter().filter(|node| is_missing && node.pool() == Some(name));
    let waiting = waiting.map(|node| node.name.clone()).collect();
    let exists =
        |other: &str| if other == name { pool.is_some() } else { context.pools.get(other).is_some() };
    let (mut members, mut leavers) = (Vec::new(), Vec::new());
    for node in concerned {
        match whose(&node, name, exists) {
            Whose::Member => members.push(node),
            Whose::Leaver => leavers.push(node),
            Whose::Other => {}
        }
    }
    let overwritten = members
        .iter()
        .chain(&leavers)
        .filter(|node| context.progress.is_overwritten(&node.name, &node.resource_version))
        .map(|node| node.name.clone())
        .collect();
    let violators =
        pool.as_ref().filter(|pool| pool.is_host_network() && context.pods.is_listed()).map(|_| {
            let pods = |node: &Arc<NodeView>| {
                let pods = context.pods.on_node(&node.name);
                pods.into_iter().map(|pod| format!("{pod} on {}", node.name)).collect::<Vec<_>>()
            };
            members.iter().flat_map(pods).collect()
        });
    let leader_config = context.leader_configs.get(&api::names::leader_hub_config_map(name));
    Observed { name: name.to_owned(), pool, members, leavers, waiting, overwritten, violators, leader_config }
}

#[cfg(test)]
mod tests {
    use api::{annotations, labels};

    use super::*;

    #[test]
    fn a_node_is_planned_for_by_its_pool_or_else_by_the_one_that_must_let_it_go() {
        use Whose::{Leaver, Member, Other};
        const OURS: &str = r#"{"labels":{},"pool":"old"}"#;
        const THEIRS: &str = r#"{"labels":{"a":"1"}}"#;
        const BROKEN: &str = "{";
        // Pool in the label, record, marker; what the node is to "shop" and "old", which exist, to "gone" and to no pool.
        let cases = [
            (Some("shop"), None, None, [Member, Other, Other, Other]),
            (Some("shop"), Some(OURS), None, [Member, Other, Other, Other]),
            (Some("shop"), Some(BROKEN), Some("old"), [Member, Other, Other, Other]),
            (None, Some(OURS), None, [Other, Leaver, Other, Other]),
            (None, Some(BROKEN), Some("old"), [Other, Leaver, Other, Other]),
            (None, Some(BROKEN), Some("gone"), [Other, Other, Leaver, Other]),
            (None, Some(BROKEN), None, [Other, Other, Other, Leaver]),
            (None, Some(THEIRS), None, [Other, Other, Other, Leaver]),
            (None, None, Some("old"), [Other, Leaver, Other, Other]),
            (None, None, None, [Other, Other, Other, Other]),
            (Some("gone"), Some(OURS), None, [Other, Leaver, Other, Other]),
            (Some("gone"), Some(THEIRS), None, [Other, Other, Leaver, Leaver]),
        ];
        for (pool, record, marker, expected) in cases {
            let mut node = NodeView::default();
            node.labels.extend(pool.map(|pool| (labels::NODE_POOL.to_owned(), pool.to_owned())));
            for (key, value) in
                [(annotations::PREVIOUS_ATTRIBUTES, record), (annotations::UNREADABLE_RECORD_OF, marker)]
            {
                node.annotations.extend(value.map(|value| (key.to_owned(), value.to_owned())));
            }
            let got = ["shop", "old", "gone", NO_POOL]
                .map(|name| whose(&node, name, |pool| ["shop", "old"].contains(&pool)));
            assert_eq!(got, expected, "{pool:?} {record:?} {marker:?}");
        }
    }

    /// As a kubelet registers it with `--node-labels`, maybe before its pool is there.
    #[test]
    fn a_node_that_waits_for_its_pool_keeps_the_labels_it_came_with() {
        let mut node = NodeView::default();
        let marks = labels::HOST_NETWORK_NODE.map(|(key, value)| (key.to_owned(), value.to_owned()));
        node.labels.extend(marks);
        let in_no_pool = node.clone();
        node.labels.insert(labels::NODE_POOL.to_owned(), "later".to_owned());
        let at = |node: &NodeView, there: bool| {
            ["later", NO_POOL].map(|name| whose(node, name, |pool| there && pool == "later"))
        };
        assert_eq!(at(&node, false), [Whose::Other, Whose::Other]);
        assert_eq!(at(&node, true), [Whose::Member, Whose::Other]);
        assert_eq!(at(&in_no_pool, false), [Whose::Other, Whose::Leaver], "without a pool they are a lie");
        // A pool that was there has left its record.
        let record = r#"{"labels":{"a":"1"},"pool":"later"}"#;
        node.annotations.insert(annotations::PREVIOUS_ATTRIBUTES.to_owned(), record.to_owned());
        assert_eq!(at(&node, false), [Whose::Leaver, Whose::Other]);
    }
}
