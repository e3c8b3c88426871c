//! Pure: what must be written so that a pool's nodes, leaders and `ConfigMap` are as its spec says.

use std::collections::BTreeMap;

use api::{NodePool, annotations, labels};
use k8s_openapi::api::core::v1::Taint;

use super::elect::{self, Election};
use super::leader_config::{self, LeaderConfig};
use super::observe::Observed;
use super::ownership::{self, Attributes, Changes, Record};
use crate::nodes::NodeView;

/// Everything that one reconciliation of a pool writes, apart from its status.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// Patches of nodes that differ from what their pool says.
    pub(crate) nodes: Vec<NodePatch>,
    /// Nodes for which no patch could be made.
    pub(crate) refused: Vec<(String, NodeError)>,
    /// The pool's own labels to set; empty if they are right.
    pub(crate) pool_labels: BTreeMap<String, String>,
    /// The leaders as they should be; `None` if the pool is gone.
    pub(crate) election: Option<Election>,
    /// The `ConfigMap` for the hubs, if it must be written.
    pub(crate) leader_config: Option<LeaderConfig>,
}

/// A change of one node: labels, annotations and taints, and nothing else.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodePatch {
    pub(crate) node: String,
    /// The version of the node that was looked at: the patch is refused if the node has changed since, because what a
    /// pool covers or replaces must not be decided from a stale view.
    pub(crate) resource_version: String,
    pub(crate) labels: Changes,
    pub(crate) annotations: Changes,
    pub(crate) taints: Option<Vec<Taint>>,
}

/// Why no patch can be made for a node.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum NodeError {
    /// The record of what the pool owns cannot be read; guessing could remove what is not the pool's.
    #[error(
        "annotation {annotation} cannot be read ({reason}); remove it to let the pool begin anew: \
         kubectl annotate node {node} {annotation}-",
        annotation = annotations::PREVIOUS_ATTRIBUTES
    )]
    UnreadableRecord { node: String, reason: String },
}

/// Decides what one reconciliation of the observed pool writes.
pub(crate) fn plan(observed: &Observed) -> Plan {
    let Observed { name, pool, members, leavers, overwritten, violators: _, leader_config } = observed;
    let wanted = pool.as_deref().map(wanted_attributes);
    let mut plan = Plan::default();
    let syncs = members.iter().map(|node| (node, wanted.as_ref()));
    let releases = leavers.iter().map(|node| (node, None));
    for (node, wanted) in syncs.chain(releases).filter(|(node, _)| !overwritten.contains(&node.name)) {
        match plan_node(node, wanted.map(|attributes| (name.as_str(), attributes))) {
            Ok(Some(patch)) => plan.nodes.push(patch),
            Ok(None) => {}
            Err(error) => plan.refused.push((node.name.clone(), error)),
        }
    }
    if let Some(pool) = pool {
        plan.pool_labels = missing_pool_labels(pool);
        let election = elect::elect(pool, members);
        plan.leader_config = leader_config::plan(pool, &election.leaders, leader_config.as_deref());
        plan.election = Some(election);
    }
    plan
}

/// What every node of the pool must carry.
fn wanted_attributes(pool: &NodePool) -> Attributes {
    let spec = &pool.spec;
    let mut wanted = Attributes {
        labels: spec.labels.clone(),
        annotations: spec.annotations.clone(),
        taints: spec.taints.clone(),
    };
    if pool.is_host_network() {
        wanted
            .labels
            .extend(labels::HOST_NETWORK_NODE.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }
    wanted
}

/// Plans the patch of one node. `pool` is the name and wish of the pool it is in, or `None` to release the node from
/// whatever pool it was in.
fn plan_node(node: &NodeView, pool: Option<(&str, &Attributes)>) -> Result<Option<NodePatch>, NodeError> {
    let nothing = Attributes::default();
    let wanted = pool.map_or(&nothing, |(_, wanted)| wanted);
    let record = node.record().map_err(|error| NodeError::UnreadableRecord {
        node: node.name.clone(),
        reason: error.to_string(),
    })?;
    let Record { owned, mut covered, .. } = record.clone();

    let labels =
        ownership::merge_map(&wanted.labels, &owned.labels, &mut covered.labels, &node.labels, |key| {
            // These say "in a host-network pool": on a node outside of one they would be a lie, whoever wrote them.
            labels::HOST_NETWORK_NODE.iter().all(|(own, _)| *own != key)
        });
    let mut annotations = ownership::merge_map(
        &wanted.annotations,
        &owned.annotations,
        &mut covered.annotations,
        &node.annotations,
        |_| true,
    );
    let taints = ownership::merge_taints(&wanted.taints, &owned.taints, &mut covered.taints, &node.taints);

    let owner = pool.map(|(name, _)| name.to_owned());
    let new_record = Record { owned: wanted.clone(), pool: owner, covered };
    if new_record.is_empty() {
        if node.record_text().is_some() {
            annotations.insert(annotations::PREVIOUS_ATTRIBUTES.to_owned(), None);
        }
    } else if new_record != record {
        let text = serde_json::to_string(&new_record).map_err(|error| NodeError::UnreadableRecord {
            node: node.name.clone(),
            reason: error.to_string(),
        })?;
        annotations.insert(annotations::PREVIOUS_ATTRIBUTES.to_owned(), Some(text));
    }
    if labels.is_empty() && annotations.is_empty() && taints.is_none() {
        return Ok(None);
    }
    Ok(Some(NodePatch {
        node: node.name.clone(),
        resource_version: node.resource_version.clone(),
        labels,
        annotations,
        taints,
    }))
}

/// The label that says a pool's type, where it is missing or wrong.
fn missing_pool_labels(pool: &NodePool) -> BTreeMap<String, String> {
    let type_ = match pool.spec.type_ {
        api::PoolType::Edge => "edge",
        api::PoolType::Cloud => "cloud",
    };
    let present = pool.metadata.labels.as_ref().and_then(|labels| labels.get(labels::POOL_TYPE));
    if present.map(String::as_str) == Some(type_) {
        return BTreeMap::new();
    }
    BTreeMap::from([(labels::POOL_TYPE.to_owned(), type_.to_owned())])
}

#[cfg(test)]
mod tests;
