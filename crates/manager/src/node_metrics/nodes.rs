//! The store learns which Nodes there are, and what each is to collect: from watches of Nodes and of Koordinator's ConfigMap.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::quantity::milli;
use api::slo::names::{NODE_METRIC_FRESH, OUT_OF_VIEW};
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::core::ObjectMeta;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use node_metrics::freshness::Silence;
use node_metrics::policy::Policies;
use node_metrics::render::Allocatable;
use node_metrics::store::NodeFacts;
use parking_lot::Mutex;
use serde::Deserialize;

use super::{Host, policies};
use crate::watches::{self, Index};

/// A Node as the watch decodes it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct MetricNode {
    metadata: ObjectMeta,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    allocatable: BTreeMap<String, Quantity>,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default)]
    reason: String,
}

impl MetricNode {
    /// Whether its status has a condition of this type.
    pub(super) fn has_condition(&self, type_: &str) -> bool {
        self.status.conditions.iter().any(|condition| condition.type_ == type_)
    }
}

watches::core_kind!(MetricNode, "Node", "nodes", ClusterResourceScope);

/// What the policy is made from.
struct Known {
    host: Arc<Host>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    policies: Policies,
    nodes: BTreeMap<String, MetricNode>,
}

impl Index<MetricNode> for Known {
    fn apply(&self, mut node: MetricNode) -> BTreeSet<String> {
        node.metadata.managed_fields = None;
        node.metadata.annotations = None;
        let mut inner = self.inner.lock();
        let facts = facts(&node, &inner.policies);
        inner.nodes.insert(node.name_any(), node);
        self.host.source.change(|store, now| store.node_applied(now, facts));
        BTreeSet::new()
    }

    fn delete(&self, node: MetricNode) -> BTreeSet<String> {
        let name = node.name_any();
        self.inner.lock().nodes.remove(&name);
        self.host.source.change(|store, now| store.node_deleted(now, &name));
        BTreeSet::new()
    }

    fn replace(&self, nodes: Vec<MetricNode>) -> BTreeSet<String> {
        let names: BTreeSet<Arc<str>> = nodes.iter().map(|node| node.name_any().into()).collect();
        self.inner.lock().nodes.retain(|name, _| names.contains(name.as_str()));
        for node in nodes {
            self.apply(node);
        }
        self.host.source.change(|store, now| store.nodes_listed(now, &names));
        BTreeSet::new()
    }
}

/// Follows Nodes and policies, for ever.
pub(super) async fn follow(host: Arc<Host>) {
    let known = Arc::new(Known { host: Arc::clone(&host), inner: Mutex::default() });
    let nodes = watches::keep(
        Api::all(host.client.clone()),
        watcher::Config::default(),
        Arc::clone(&known),
        drop,
        || (),
    );
    let policies = policies::follow(&host, |policies| known.set_policies(policies));
    tokio::join!(nodes, policies);
}

impl Known {
    fn set_policies(&self, policies: Policies) {
        let mut inner = self.inner.lock();
        let facts: Vec<NodeFacts> = inner.nodes.values().map(|node| facts(node, &policies)).collect();
        inner.policies = policies;
        self.host.source.change(|store, now| {
            for facts in facts {
                store.node_applied(now, facts);
            }
        });
    }
}

fn facts(node: &MetricNode, policies: &Policies) -> NodeFacts {
    let MetricNode { metadata, status } = node;
    let find = |type_: &str| status.conditions.iter().find(|condition| condition.type_ == type_);
    let condition = find(NODE_METRIC_FRESH).map(|condition| match condition.status.as_str() {
        "False" if condition.reason == OUT_OF_VIEW => Silence::Hidden,
        "False" => Silence::Expired,
        _ => Silence::Fresh,
    });
    let amount = |name: &str| status.allocatable.get(name).and_then(|quantity| milli(&quantity.0));
    let unlabelled = BTreeMap::new();
    NodeFacts {
        name: node.name_any().into(),
        uid: metadata.uid.clone().unwrap_or_default(),
        created: metadata.creation_timestamp.clone(),
        allocatable: Allocatable {
            cpu_milli: amount("cpu").unwrap_or(0),
            memory_bytes: amount("memory").unwrap_or(0) / 1_000,
        },
        ready: find("Ready").is_some_and(|condition| condition.status == "True"),
        condition,
        policy: policies.of(metadata.labels.as_ref().unwrap_or(&unlabelled)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_says_what_an_earlier_leader_knew() {
        let node = |reason: &str, status: &str| {
            serde_json::from_value::<MetricNode>(serde_json::json!({
                "metadata": {"name": "n", "uid": "u"},
                "status": {"allocatable": {"cpu": "3920m", "memory": "8Gi"}, "conditions": [
                    {"type": "Ready", "status": "True"},
                    {"type": "NodeMetricFresh", "status": status, "reason": reason}]},
            }))
            .unwrap()
        };
        let of = |reason: &str, status: &str| facts(&node(reason, status), &Policies::default());
        let fresh = of("Reporting", "True");
        assert_eq!((fresh.condition, fresh.ready), (Some(Silence::Fresh), true));
        assert_eq!(fresh.allocatable, Allocatable { cpu_milli: 3_920, memory_bytes: 8 << 30 });
        assert_eq!(of("ReportsCeased", "False").condition, Some(Silence::Expired));
        assert_eq!(of("OutOfView", "False").condition, Some(Silence::Hidden));
    }
}
