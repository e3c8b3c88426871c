//! Pure: what must be written so that a pool's nodes, leaders and `ConfigMap` are as its spec says.

use std::collections::BTreeMap;

use api::{NodePool, annotations, labels};

use super::elect::{self, Election};
use super::leader_config::{self, LeaderConfig};
use super::observe::Observed;
use super::ownership::{self, Attributes, Changes, Record};
use super::taint::{self, NodeTaint};
use crate::nodes::{NO_POOL, NodeView};

/// Everything that one reconciliation of a pool writes, apart from its status.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// Patches of nodes that differ from what their pool says.
    pub(crate) nodes: Vec<NodePatch>,
    /// Nodes that no patch can bring to what the pool says.
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
    pub(crate) taints: Option<Vec<NodeTaint>>,
    /// What is different in `taints`: value by `key:effect`, `None` for one that goes.
    pub(crate) taint_changes: Changes,
}

impl NodePatch {
    fn new(node: &NodeView, labels: Changes, annotations: Changes, taints: Option<Vec<NodeTaint>>) -> Self {
        let NodeView { name, resource_version, .. } = node;
        let taint_changes = taints.iter().flat_map(|new| taint::changes(&node.taints, new)).collect();
        let (node, resource_version) = (name.clone(), resource_version.clone());
        Self { node, resource_version, labels, annotations, taints, taint_changes }
    }

    fn is_empty(&self) -> bool {
        let Self { node: _, resource_version: _, labels, annotations, taints, taint_changes: _ } = self;
        labels.is_empty() && annotations.is_empty() && taints.is_none()
    }
}

/// Why a node cannot be brought to what its pool says.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum NodeError {
    /// The record of what the pool owns cannot be read; guessing could remove what is not the pool's.
    #[error(
        "annotation {annotation} cannot be read ({reason}); {remedy}: kubectl annotate node {node} {annotation}-",
        annotation = annotations::PREVIOUS_ATTRIBUTES
    )]
    UnreadableRecord {
        /// The node.
        node: String,
        /// What is wrong with the record.
        reason: String,
        /// What removing the record does.
        remedy: Remedy,
    },
}

/// What happens to a node whose unreadable record is removed, in the words of an error message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Remedy {
    /// The node is in the pool.
    BeginAnew,
    /// The node has left the pool.
    TakeOff,
    /// The pool that the node has left is gone, or not known.
    ByHand,
}

impl std::fmt::Display for Remedy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::BeginAnew => "remove it to let the pool begin anew",
            Self::TakeOff => "remove it, and what the pool says now is taken off the node that left it",
            Self::ByHand => {
                "the node's pool is gone: take off by hand what it left on the node, and then the annotation"
            }
        })
    }
}

/// What a node is to the pool that plans for it. Each holds what the pool says, as far as there is a pool.
#[derive(Clone, Copy)]
enum Stay<'a> {
    In(&'a Attributes),
    Left(Option<&'a Attributes>),
}

/// Decides what one reconciliation of the observed pool writes.
pub(crate) fn plan(observed: &Observed) -> Plan {
    let Observed { name, pool, members, leavers, waiting: _, overwritten, violators: _, leader_config } =
        observed;
    let wanted = pool.as_deref().map(wanted_attributes);
    let mut plan = Plan::default();
    let members_stay = wanted.iter().flat_map(|wanted| members.iter().map(|node| (node, Stay::In(wanted))));
    let leavers_stay = leavers.iter().map(|node| (node, Stay::Left(wanted.as_ref())));
    for (node, stay) in members_stay.chain(leavers_stay).filter(|(node, _)| !overwritten.contains(&node.name))
    {
        let (patch, error) = plan_node(node, name, stay);
        plan.nodes.extend(patch.filter(|patch| !patch.is_empty()));
        plan.refused.extend(error.map(|error| (node.name.clone(), error)));
    }
    if let Some(pool) = pool {
        plan.pool_labels = missing_pool_labels(pool);
        let election = elect::elect(pool, members);
        plan.leader_config = leader_config::plan(pool, &election.leaders, members, leader_config.as_deref());
        plan.election = Some(election);
    }
    plan
}

/// What every node of the pool must carry; without what no pool may set, which one of before the CRD's rules may still ask for.
pub(crate) fn wanted_attributes(pool: &NodePool) -> Attributes {
    let spec = &pool.spec;
    let mut wanted = Attributes {
        labels: spec.labels.clone(),
        annotations: spec.annotations.clone(),
        taints: spec.taints.iter().map(NodeTaint::from).collect(),
    };
    drop_reserved(&mut wanted);
    if pool.is_host_network() {
        wanted
            .labels
            .extend(labels::HOST_NETWORK_NODE.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }
    wanted
}

fn drop_reserved(attributes: &mut Attributes) {
    attributes.labels.retain(|key, _| is_host_network(key) || !labels::is_reserved(key));
    attributes.annotations.retain(|key, _| !annotations::is_reserved_on_nodes(key));
    let is_reserved = |taint: &NodeTaint| {
        labels::RESERVED_TAINT_PREFIXES.iter().any(|prefix| taint.key.starts_with(prefix))
    };
    attributes.taints.retain(|taint| !is_reserved(taint));
}

/// Plans the patch of one node by the pool `name`, which may be empty; and what keeps the node from being as it should.
fn plan_node(node: &NodeView, name: &str, stay: Stay<'_>) -> (Option<NodePatch>, Option<NodeError>) {
    match node.record() {
        Ok(record) => match merge(node, name, stay, &record) {
            Ok(patch) => (Some(patch), None),
            Err(error) => (None, Some(unreadable(node, stay, &error))),
        },
        Err(error) => (Some(without_record(node, name, stay)), Some(unreadable(node, stay, &error))),
    }
}

/// Merges what the pool says into the node, or takes it off, as the record says.
fn merge(
    node: &NodeView,
    name: &str,
    stay: Stay<'_>,
    record: &Record,
) -> Result<NodePatch, serde_json::Error> {
    let nothing = Attributes::default();
    let wanted = match stay {
        Stay::In(wanted) => wanted,
        Stay::Left(_) => &nothing,
    };
    let Record { mut owned, mut covered, .. } = record.clone();
    // What no pool may set none has set, whoever wrote the record.
    drop_reserved(&mut owned);
    drop_reserved(&mut covered);
    let is_new = node.record_text().is_none();
    match stay {
        // The record could not be read and was removed: what the pool says now is the best that is known of it.
        Stay::Left(Some(wish)) if is_new && node.unreadable_record_of().is_some() => owned = wish.clone(),
        // OpenYurt takes off what it recorded, whatever the value is by now.
        Stay::Left(_) if record.pool.is_none() => owned.follow(node),
        _ => {}
    }

    // A node that joins may have a value of its own that is as the pool wants it: it stays when the pool lets go. Where a record
    // was unreadable and was removed to begin anew, such a value is the pool's.
    let begins_anew = is_new && node.unreadable_record_of().is_some();
    let is_pools =
        |wanted: Option<&String>, own: &str| begins_anew && wanted.is_some_and(|wanted| wanted == own);
    let mut labels =
        ownership::merge_map(&wanted.labels, &owned.labels, &mut covered.labels, &node.labels, |key, own| {
            !(is_host_network(key) || is_pools(wanted.labels.get(key), own))
        });
    labels.extend(untrue_labels(node, wanted));
    let mut annotations = ownership::merge_map(
        &wanted.annotations,
        &owned.annotations,
        &mut covered.annotations,
        &node.annotations,
        |key, own| !is_pools(wanted.annotations.get(key), own),
    );
    let taints =
        ownership::merge_taints(&wanted.taints, &owned.taints, &mut covered.taints, &node.taints, |own| {
            let same = |wanted: &NodeTaint| wanted.is_same(own) && wanted.is_equal(own);
            !(begins_anew && wanted.taints.iter().any(same))
        });

    let new_record = match stay {
        Stay::In(_) => Record { owned: wanted.clone(), pool: Some(name.to_owned()), covered },
        Stay::Left(_) => Record::default(),
    };
    if new_record.is_empty() {
        if !is_new {
            annotations.insert(annotations::PREVIOUS_ATTRIBUTES.to_owned(), None);
        }
    } else if new_record != *record {
        let text = serde_json::to_string(&new_record)?;
        annotations.insert(annotations::PREVIOUS_ATTRIBUTES.to_owned(), Some(text));
    }
    if node.annotations.contains_key(annotations::UNREADABLE_RECORD_OF) {
        annotations.insert(annotations::UNREADABLE_RECORD_OF.to_owned(), None);
    }
    Ok(NodePatch::new(node, labels, annotations, taints))
}

/// What is right on a node whatever its record says: the host-network labels, which are never the node's own, and the
/// name of the pool whose record cannot be read.
fn without_record(node: &NodeView, name: &str, stay: Stay<'_>) -> NodePatch {
    let nothing = Attributes::default();
    let wanted = match stay {
        Stay::In(wanted) => wanted,
        Stay::Left(_) => &nothing,
    };
    let mut labels = untrue_labels(node, wanted);
    let missing = wanted
        .labels
        .iter()
        .filter(|(key, value)| is_host_network(key) && node.labels.get(*key) != Some(value));
    labels.extend(missing.map(|(key, value)| (key.clone(), Some(value.clone()))));
    let mut annotations = Changes::new();
    if node.unreadable_record_of().is_none() && name != NO_POOL {
        annotations.insert(annotations::UNREADABLE_RECORD_OF.to_owned(), Some(name.to_owned()));
    }
    NodePatch::new(node, labels, annotations, None)
}

fn unreadable(node: &NodeView, stay: Stay<'_>, error: &serde_json::Error) -> NodeError {
    let remedy = match stay {
        Stay::In(_) => Remedy::BeginAnew,
        Stay::Left(Some(_)) => Remedy::TakeOff,
        Stay::Left(None) => Remedy::ByHand,
    };
    NodeError::UnreadableRecord { node: node.name.clone(), reason: error.to_string(), remedy }
}

fn is_host_network(label: &str) -> bool {
    labels::HOST_NETWORK_NODE.iter().any(|(key, _)| *key == label)
}

/// The removal of labels that say "in a host-network pool" from a node that is in none: they would be a lie, whoever
/// wrote them.
fn untrue_labels(node: &NodeView, wanted: &Attributes) -> Changes {
    let is_said = |key: &str, value: &str| node.labels.get(key).is_some_and(|said| said == value);
    let said = labels::HOST_NETWORK_NODE.iter().filter(|(key, value)| is_said(key, value));
    said.filter(|(key, _)| !wanted.labels.contains_key(*key))
        .map(|(key, _)| ((*key).to_owned(), None))
        .collect()
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
mod properties;
#[cfg(test)]
mod tests;
