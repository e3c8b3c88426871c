//! An index of the pods that have a network of their own, by node: on the nodes of a host-network pool there should be
//! none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::NamespaceResourceScope;
use kube::core::ObjectMeta;
use parking_lot::RwLock;
use serde::Deserialize;

use crate::nodes::slim_metadata;
use crate::watches::{self, Index};

/// What the watch asks for: bound to a node or not, pods without host network that have not ended.
pub(crate) const FIELD_SELECTOR: &str = "spec.hostNetwork=false,status.phase!=Succeeded,status.phase!=Failed";

/// A Pod as the watch decodes it: its name and its node. Unknown fields are skipped unread.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PodObject {
    #[serde(deserialize_with = "slim_metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_name: String,
}

watches::core_kind!(PodObject, "Pod", "pods", NamespaceResourceScope);

impl PodObject {
    /// `namespace/name`, the key of the pod.
    fn key(&self) -> String {
        let ObjectMeta { namespace, name, .. } = &self.metadata;
        format!("{}/{}", namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
    }
}

/// The index. Changes are told as the names of the nodes that they concern.
#[derive(Default)]
pub(crate) struct ContainerNetworkPods {
    inner: RwLock<Inner>,
    listed: AtomicBool,
}

#[derive(Default)]
struct Inner {
    node_of: BTreeMap<String, String>,
    by_node: BTreeMap<String, BTreeSet<String>>,
}

impl Inner {
    fn insert(&mut self, pod: &PodObject) -> BTreeSet<String> {
        let (key, node) = (pod.key(), pod.spec.node_name.clone());
        // A pod that is going away is no longer anybody's concern.
        if node.is_empty() || pod.metadata.deletion_timestamp.is_some() {
            return self.remove(&key);
        }
        if self.node_of.insert(key.clone(), node.clone()).as_ref() == Some(&node) {
            return BTreeSet::new();
        }
        self.by_node.entry(node.clone()).or_default().insert(key);
        [node].into()
    }

    fn remove(&mut self, key: &str) -> BTreeSet<String> {
        let Some(node) = self.node_of.remove(key) else { return BTreeSet::new() };
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.remove(key);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
        [node].into()
    }
}

impl ContainerNetworkPods {
    /// Says that the index is whole from now on.
    pub(crate) fn note_listed(&self) {
        self.listed.store(true, Ordering::Release);
    }

    /// Whether the index is whole.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }

    /// The pods on that node, as `namespace/name`, sorted.
    pub(crate) fn on_node(&self, node: &str) -> Vec<String> {
        self.inner.read().by_node.get(node).into_iter().flatten().cloned().collect()
    }
}

impl Index<PodObject> for ContainerNetworkPods {
    fn apply(&self, pod: PodObject) -> BTreeSet<String> {
        self.inner.write().insert(&pod)
    }

    fn delete(&self, pod: PodObject) -> BTreeSet<String> {
        self.inner.write().remove(&pod.key())
    }

    fn replace(&self, pods: Vec<PodObject>) -> BTreeSet<String> {
        let mut inner = self.inner.write();
        let present: BTreeSet<String> = pods.iter().map(PodObject::key).collect();
        let gone: Vec<String> = inner.node_of.keys().filter(|key| !present.contains(*key)).cloned().collect();
        let mut touched: BTreeSet<String> = gone.iter().flat_map(|key| inner.remove(key)).collect();
        for pod in &pods {
            touched.extend(inner.insert(pod));
        }
        touched
    }
}
