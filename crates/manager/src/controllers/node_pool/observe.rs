//! Reads what a reconciliation of a pool is decided on, from the indexes that watches keep. No request is made.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::NodePool;
use k8s_openapi::api::core::v1::ConfigMap;

use super::Context;
use super::leader_config;
use crate::nodes::NodeView;

/// A pool and all that concerns it, at one moment.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// The name that is reconciled.
    pub(crate) name: String,
    /// The pool; `None` if there is none of that name.
    pub(crate) pool: Option<Arc<NodePool>>,
    /// The nodes whose label names the pool.
    pub(crate) members: Vec<NodeView>,
    /// Nodes that carry this pool's record and are in no pool now.
    pub(crate) leavers: Vec<NodeView>,
    /// Those of them whose view is older than our own last patch: to be counted, but not to be planned for.
    pub(crate) overwritten: BTreeSet<String>,
    /// For a host-network pool: pods with a network of their own, as `namespace/name on node`; `None` as long as the pods
    /// have not been listed.
    pub(crate) violators: Option<Vec<String>>,
    /// The pool's `ConfigMap` for the hubs.
    pub(crate) leader_config: Option<Arc<ConfigMap>>,
}

/// Reads all that concerns the pool of that name.
pub(crate) fn observe(context: &Context, name: &str) -> Observed {
    let pool = context.pools.whole(name);
    let (mut members, mut leavers) = (Vec::new(), Vec::new());
    for node in context.nodes.of_pool(name) {
        match node.pool() {
            // Without its pool a node is released; with it, it is a member.
            Some(named) if named == name && pool.is_some() => members.push(node),
            // The reconciliation of the pool that the node is in now takes it over, record and all.
            Some(named) if named != name && context.pools.get(named).is_some() => {}
            _ => leavers.push(node),
        }
    }
    leavers.retain(|node| node.record().is_ok_and(|record| record.pool.as_deref() == Some(name)));
    let overwritten = members
        .iter()
        .chain(&leavers)
        .filter(|node| context.progress.is_overwritten(&node.name, &node.resource_version))
        .map(|node| node.name.clone())
        .collect();
    let violators =
        pool.as_ref().filter(|pool| pool.is_host_network() && context.pods.is_listed()).map(|_| {
            let pods = |node: &NodeView| {
                let pods = context.pods.on_node(&node.name);
                pods.into_iter().map(|pod| format!("{pod} on {}", node.name)).collect::<Vec<_>>()
            };
            members.iter().flat_map(pods).collect()
        });
    let leader_config = context.leader_configs.get(&leader_config::name(name));
    Observed { name: name.to_owned(), pool, members, leavers, overwritten, violators, leader_config }
}
