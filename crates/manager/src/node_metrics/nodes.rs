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
use node_metrics::freshness::{Now, Silence};
use node_metrics::policy::{NodePolicy, Policies};
use node_metrics::render::Allocatable;
use node_metrics::storage::NodeMetrics;
use node_metrics::store::{NodeFacts, Store};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

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
#[derive(Default)]
pub(super) struct Known(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    policies: Policies,
    nodes: BTreeMap<String, MetricNode>,
    /// What the leader before said of each node, as long as not all keys of the policies could be read.
    former: BTreeMap<Arc<str>, Arc<Value>>,
}

impl Inner {
    fn facts(&self, node: &MetricNode) -> NodeFacts {
        let unlabelled = BTreeMap::new();
        let labels = node.metadata.labels.as_ref().unwrap_or(&unlabelled);
        facts(node, self.policies.after(self.former.get(node.name_any().as_str()), labels))
    }
}

impl Known {
    /// Leads with what `source` holds, by `promote`. What that is of the leader before says what nodes are to collect, until this process has
    /// read it.
    pub(super) fn lead<R>(&self, source: &NodeMetrics, promote: impl FnOnce(&mut Store, Now) -> R) -> R {
        // Before the store's own lock, as everywhere here.
        let mut inner = self.0.lock();
        source.change(|store, now| {
            inner.former.clear();
            if !inner.policies.are_read() {
                let stored = store.ledger().values();
                inner.former =
                    stored.map(|stored| (Arc::clone(&stored.name), Arc::clone(&stored.value.spec))).collect();
                for node in inner.nodes.values() {
                    store.node_applied(now, inner.facts(node));
                }
            }
            promote(store, now)
        })
    }

    fn set_policies(&self, source: &NodeMetrics, policies: Policies) {
        let mut inner = self.0.lock();
        inner.policies = policies;
        if inner.policies.are_read() {
            inner.former.clear();
        }
        let facts: Vec<NodeFacts> = inner.nodes.values().map(|node| inner.facts(node)).collect();
        source.change(|store, now| {
            for facts in facts {
                store.node_applied(now, facts);
            }
        });
    }
}

/// Brings Nodes to the store as they change.
struct Bringing(Arc<Host>);

impl Index<MetricNode> for Bringing {
    fn apply(&self, mut node: MetricNode) -> BTreeSet<String> {
        node.metadata.managed_fields = None;
        node.metadata.annotations = None;
        let mut inner = self.0.known.0.lock();
        let facts = inner.facts(&node);
        inner.nodes.insert(node.name_any(), node);
        self.0.source.change(|store, now| store.node_applied(now, facts));
        BTreeSet::new()
    }

    fn delete(&self, node: MetricNode) -> BTreeSet<String> {
        let name = node.name_any();
        self.0.known.0.lock().nodes.remove(&name);
        let uid = node.metadata.uid.unwrap_or_default();
        self.0.source.change(|store, now| store.node_deleted(now, &name, &uid));
        BTreeSet::new()
    }

    fn replace(&self, nodes: Vec<MetricNode>) -> BTreeSet<String> {
        let names: BTreeSet<Arc<str>> = nodes.iter().map(|node| node.name_any().into()).collect();
        self.0.known.0.lock().nodes.retain(|name, _| names.contains(name.as_str()));
        for node in nodes {
            self.apply(node);
        }
        self.0.source.change(|store, now| store.nodes_listed(now, &names));
        BTreeSet::new()
    }
}

/// Follows Nodes and policies, for ever.
pub(super) async fn follow(host: Arc<Host>) {
    let nodes = watches::keep(
        Api::all(host.client.clone()),
        watcher::Config::default(),
        Arc::new(Bringing(Arc::clone(&host))),
        drop,
        || (),
    );
    let policies = policies::follow(&host, |policies| host.known.set_policies(&host.source, policies));
    tokio::join!(nodes, policies);
}

fn facts(node: &MetricNode, policy: NodePolicy) -> NodeFacts {
    let MetricNode { metadata, status } = node;
    let find = |type_: &str| status.conditions.iter().find(|condition| condition.type_ == type_);
    let condition = find(NODE_METRIC_FRESH).map(|condition| match condition.status.as_str() {
        "False" if condition.reason == OUT_OF_VIEW => Silence::Hidden,
        "False" => Silence::Expired,
        _ => Silence::Fresh,
    });
    let amount = |name: &str| status.allocatable.get(name).and_then(|quantity| milli(&quantity.0));
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
        policy,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use node_metrics::record::Record;
    use node_metrics::store::{Copied, Settings};

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
        let of = |reason: &str, status: &str| Inner::default().facts(&node(reason, status));
        let fresh = of("Reporting", "True");
        assert_eq!((fresh.condition, fresh.ready), (Some(Silence::Fresh), true));
        assert_eq!(fresh.allocatable, Allocatable { cpu_milli: 3_920, memory_bytes: 8 << 30 });
        assert_eq!(of("ReportsCeased", "False").condition, Some(Silence::Expired));
        assert_eq!(of("OutOfView", "False").condition, Some(Silence::Hidden));
    }

    #[test]
    fn what_the_leader_before_said_holds_until_this_process_has_read_it() {
        let now = Now { steady: Duration::from_secs(1), wall: jiff::Timestamp::UNIX_EPOCH };
        let text = r#"{"metricReportIntervalSeconds": 60}"#;
        let before = Policies::parse(Some(text), None).unwrap().of(&BTreeMap::new());
        let node = |name: &str| {
            let node = serde_json::json!({"metadata": {"name": name, "uid": "u"}});
            serde_json::from_value::<MetricNode>(node).unwrap()
        };
        for (read, expected) in [
            (None, [60, 10]),
            (Some(("{", "{")), [60, 10]),
            (Some((r#"{"metricReportIntervalSeconds": 30}"#, "{")), [30, 30]),
            (Some(("", "")), [10, 10]),
        ] {
            // A copy of the leader before, and a Node that it did not know.
            let mut store = Store::new(Settings::default());
            let known = Known::default();
            if let Some((colocation, applications)) = read {
                known.0.lock().policies.update(Some(colocation), Some(applications));
            }
            let record = Record::of_node("old", "u", None, Arc::clone(&before.spec));
            let copied = Copied { name: "old".into(), version: 1, added: 1, record };
            store.copy_list(now, vec![copied], 1);
            for name in ["old", "new"] {
                let mut inner = known.0.lock();
                store.node_applied(now, inner.facts(&node(name)));
                inner.nodes.insert(name.to_owned(), node(name));
            }
            store.nodes_listed(now, &["old".into(), "new".into()].into());
            let source = NodeMetrics::new(store, "v", move || now, || true);
            known.lead(&source, |store, now| store.promote(now, 1));
            let spec = || source.read(|store| Arc::clone(&store.ledger().get("old").unwrap().value.spec));
            let interval = |name: &str| source.read(|store| store.silence(name, now).unwrap().1.as_secs());
            assert_eq!([interval("old"), interval("new")], expected, "{read:?}");
            assert_eq!(spec() == before.spec, expected[0] == 60, "{read:?}");

            known.set_policies(&source, Policies::parse(None, None).unwrap());
            assert_eq!(interval("old"), 10);
            assert!(spec() != before.spec);
        }
    }
}
