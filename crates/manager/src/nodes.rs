//! An index of the cluster's Nodes, kept by a watch: by name, and by the pool they are in or were in.
//!
//! Only what the controllers decide on is kept of a Node, so that thousands of them cost a few megabytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{annotations, labels};
use k8s_openapi::ClusterResourceScope;
use kube::core::ObjectMeta;
use parking_lot::RwLock;
use serde::Deserialize;
use tokio::sync::watch;

use crate::controllers::node_pool::ownership::Record;
use crate::controllers::node_pool::taint::NodeTaint;
use crate::watches::{self, Index};

/// The key under which nodes are reconciled of which no pool is known that could let them go.
pub(crate) const NO_POOL: &str = "";

/// A Node as the watch decodes it: the fields that [`NodeView`] is made of. Unknown fields are skipped unread.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct NodeObject {
    #[serde(deserialize_with = "slim_metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Spec {
    #[serde(default)]
    taints: Vec<NodeTaint>,
    #[serde(rename = "podCIDRs", default)]
    pod_cidrs: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
    #[serde(default)]
    addresses: Vec<Address>,
}

#[derive(Clone, Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Address {
    #[serde(rename = "type")]
    type_: String,
    address: String,
}

/// Metadata without managed fields and finalizers, which are most of its bytes.
pub(crate) fn slim_metadata<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Slim {
        name: Option<String>,
        namespace: Option<String>,
        resource_version: Option<String>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
        deletion_timestamp: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
    }
    let Slim { name, namespace, resource_version, labels, annotations, deletion_timestamp } =
        Slim::deserialize(deserializer)?;
    let slim = ObjectMeta { name, namespace, resource_version, labels, annotations, ..ObjectMeta::default() };
    Ok(ObjectMeta { deletion_timestamp, ..slim })
}

watches::core_kind!(NodeObject, "Node", "nodes", ClusterResourceScope);

/// What is known of a Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeView {
    pub(crate) name: String,
    pub(crate) resource_version: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) taints: Vec<NodeTaint>,
    /// Whether the kubelet's condition `Ready` is true.
    pub(crate) ready: bool,
    /// The first internal address.
    pub(crate) internal_ip: Option<String>,
    /// The networks of its pods, of all families.
    pub(crate) pod_cidrs: Vec<String>,
    /// The pool that wrote the record, where that cannot be read and the node was seen with the pool before.
    pub(crate) formerly: Option<String>,
}

impl NodeView {
    /// The pool that the node's label names, whether or not that pool exists.
    pub(crate) fn pool(&self) -> Option<&str> {
        self.labels.get(labels::NODE_POOL).map(String::as_str).filter(|pool| !pool.is_empty())
    }

    /// The text of the record of what a pool owns on this node.
    pub(crate) fn record_text(&self) -> Option<&str> {
        self.annotations.get(annotations::PREVIOUS_ATTRIBUTES).map(String::as_str)
    }

    /// The record of what a pool owns on this node; empty if there is none.
    pub(crate) fn record(&self) -> Result<Record, serde_json::Error> {
        self.record_text().map_or_else(|| Ok(Record::default()), serde_json::from_str)
    }

    /// The pool whose record on this node could not be read when it was last looked at.
    pub(crate) fn unreadable_record_of(&self) -> Option<&str> {
        self.annotations
            .get(annotations::UNREADABLE_RECORD_OF)
            .map(String::as_str)
            .filter(|pool| !pool.is_empty())
    }

    /// The pool that must let this node go when it is in no pool: the one that wrote its record. [`NO_POOL`] if that is
    /// not known, `None` if there is nothing to let go of. A node that names a pool may wait for it, and has the labels of a
    /// host-network pool from its kubelet then (`--node-labels`): ordinary pods stay off it from its first moment.
    pub(crate) fn keeper(&self) -> Option<String> {
        let marked = self.unreadable_record_of().map(str::to_owned);
        match self.record() {
            Ok(Record { pool: Some(pool), .. }) => Some(pool),
            Ok(_) => marked.or_else(|| {
                let marks = labels::HOST_NETWORK_NODE
                    .iter()
                    .any(|(key, value)| self.labels.get(*key).is_some_and(|said| said == value));
                let is_lie = marks && self.pool().is_none();
                (is_lie || self.record_text().is_some()).then(|| NO_POOL.to_owned())
            }),
            Err(_) => Some(marked.or_else(|| self.formerly.clone()).unwrap_or_else(|| NO_POOL.to_owned())),
        }
    }

    /// The pools whose reconciliation depends on this node: the one it is in and the one that must let it go.
    fn keys(&self) -> BTreeSet<String> {
        self.pool().map(str::to_owned).into_iter().chain(self.keeper()).collect()
    }

    /// Whether anything that a decision depends on differs. Heartbeats change only the version.
    fn differs(&self, other: &Self) -> bool {
        let Self {
            name,
            resource_version: _,
            labels,
            annotations,
            taints,
            ready,
            internal_ip,
            pod_cidrs,
            formerly,
        } = self;
        (name, labels, annotations, taints, ready, internal_ip, pod_cidrs, formerly)
            != (
                &other.name,
                &other.labels,
                &other.annotations,
                &other.taints,
                &other.ready,
                &other.internal_ip,
                &other.pod_cidrs,
                &other.formerly,
            )
    }
}

impl From<NodeObject> for NodeView {
    fn from(node: NodeObject) -> Self {
        let NodeObject { metadata, mut spec, status } = node;
        // Decoding made room for four of each.
        spec.taints.shrink_to_fit();
        spec.pod_cidrs.shrink_to_fit();
        let internal_ip = status.addresses.into_iter().find(|a| a.type_ == "InternalIP").map(|a| a.address);
        Self {
            name: metadata.name.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            taints: spec.taints,
            ready: status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"),
            internal_ip,
            pod_cidrs: spec.pod_cidrs,
            formerly: None,
        }
    }
}

/// The index. Changes are told as the names of the pools that they concern, and to whoever looks at all nodes by a count.
#[derive(Default)]
pub(crate) struct Nodes {
    inner: RwLock<Inner>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    by_name: BTreeMap<String, Arc<NodeView>>,
    by_pool: BTreeMap<String, BTreeSet<String>>,
    /// How often a node changed in what decisions depend on.
    changes: u64,
}

impl Inner {
    fn insert(&mut self, mut view: NodeView) -> BTreeSet<String> {
        if view.formerly.is_none() && view.record().is_err() {
            let before = self.by_name.get(&view.name);
            let written_by = before.and_then(|before| before.keeper()).filter(|pool| pool != NO_POOL);
            view.formerly = written_by.or_else(|| before?.pool().map(str::to_owned));
        }
        let mut touched = BTreeSet::new();
        let keys = view.keys();
        match self.by_name.get(&view.name) {
            Some(before) if !before.differs(&view) => {}
            Some(before) => {
                touched.extend(before.keys().into_iter().chain(keys.iter().cloned()));
                self.changes += 1;
            }
            None => {
                touched.extend(keys.iter().cloned());
                self.changes += 1;
            }
        }
        if let Some(before) = self.by_name.get(&view.name).map(|before| before.keys()) {
            self.unlink(&view.name, &before);
        }
        for key in keys {
            self.by_pool.entry(key).or_default().insert(view.name.clone());
        }
        self.by_name.insert(view.name.clone(), Arc::new(view));
        touched
    }

    fn remove(&mut self, name: &str) -> BTreeSet<String> {
        let Some(view) = self.by_name.remove(name) else { return BTreeSet::new() };
        let keys = view.keys();
        self.unlink(name, &keys);
        self.changes += 1;
        keys
    }

    fn unlink(&mut self, name: &str, keys: &BTreeSet<String>) {
        for key in keys {
            if let Some(names) = self.by_pool.get_mut(key) {
                names.remove(name);
                if names.is_empty() {
                    self.by_pool.remove(key);
                }
            }
        }
    }
}

impl Nodes {
    /// Changes whenever a node changes in what decisions depend on, in a pool or not.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What `read` makes of each node, in the order of their names.
    pub(crate) fn map<T>(&self, mut read: impl FnMut(&NodeView) -> T) -> Vec<T> {
        self.inner.read().by_name.values().map(|view| read(view)).collect()
    }

    /// Changes the index, and tells of it.
    fn change(&self, change: impl FnOnce(&mut Inner) -> BTreeSet<String>) -> BTreeSet<String> {
        let mut inner = self.inner.write();
        let touched = change(&mut inner);
        let changes = inner.changes;
        drop(inner);
        self.changes.send_if_modified(|told| std::mem::replace(told, changes) != changes);
        touched
    }

    /// The nodes that `pool` is concerned with: those in it, and those that carry its record.
    pub(crate) fn of_pool(&self, pool: &str) -> Vec<Arc<NodeView>> {
        let inner = self.inner.read();
        let names = inner.by_pool.get(pool).into_iter().flatten();
        names.filter_map(|name| inner.by_name.get(name)).cloned().collect()
    }

    /// Takes it that the record on `node` is of `pool`, if it cannot be read and nothing says whose it is; returns the
    /// node then.
    pub(crate) fn ascribe_record(&self, node: &str, pool: &str) -> Option<Arc<NodeView>> {
        let mut inner = self.inner.write();
        let view = inner.by_name.get(node)?;
        if view.record().is_ok() || view.keeper().is_some_and(|keeper| keeper != NO_POOL) {
            return None;
        }
        let view = NodeView { formerly: Some(pool.to_owned()), ..NodeView::clone(view) };
        inner.insert(view);
        inner.by_name.get(node).cloned()
    }

    /// The pool that the label of that node names.
    pub(crate) fn pool_of(&self, node: &str) -> Option<String> {
        self.inner.read().by_name.get(node)?.pool().map(str::to_owned)
    }

    /// Every pool that some node is in, or carries the record of.
    pub(crate) fn pools(&self) -> Vec<String> {
        self.inner.read().by_pool.keys().cloned().collect()
    }
}

impl Index<NodeObject> for Nodes {
    fn apply(&self, node: NodeObject) -> BTreeSet<String> {
        self.change(|inner| inner.insert(node.into()))
    }

    fn delete(&self, node: NodeObject) -> BTreeSet<String> {
        self.change(|inner| inner.remove(node.metadata.name.as_deref().unwrap_or_default()))
    }

    fn replace(&self, nodes: Vec<NodeObject>) -> BTreeSet<String> {
        self.change(|inner| {
            let views: Vec<NodeView> = nodes.into_iter().map(NodeView::from).collect();
            let present: BTreeSet<&str> = views.iter().map(|view| view.name.as_str()).collect();
            let gone: Vec<String> =
                inner.by_name.keys().filter(|name| !present.contains(name.as_str())).cloned().collect();
            let mut touched: BTreeSet<String> = gone.iter().flat_map(|name| inner.remove(name)).collect();
            for view in views {
                // What we wrote may have been undone since, unseen: the node is then as before it but for its version.
                let before = inner.by_name.get(&view.name);
                if before.is_some_and(|before| before.resource_version != view.resource_version) {
                    touched.extend(view.keys());
                }
                touched.extend(inner.insert(view));
            }
            touched
        })
    }
}

#[cfg(test)]
mod tests;
