//! What each node is to collect: ConfigMap `slo-controller-config`, keys `colocation-config` and `host-application-config`, in
//! Koordinator's format. Pure.
//!
//! ```json
//! {"metricReportIntervalSeconds": 60, "nodeConfigs": [
//!     {"name": "edge", "nodeSelector": {"matchLabels": {"a": "b"}}, "metricReportIntervalSeconds": 120}]}
//! ```
//! What a matching node configuration says takes the place of the same setting of the cluster; of several, the first that matches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::slo::names::{COLOCATION_CONFIG, HOST_APPLICATION_CONFIG};
use api::slo::node_metric::{AggregatePolicy, CollectPolicy, MemoryCollectPolicy, NodeMetricSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use node_report::{Answer, HostApplication, MemoryPolicy, Policy};
use serde_json::Value;

mod read;

pub use read::MalformedPolicy;

/// How often nodes report when nothing is said.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// The policy of the cluster and of some of its nodes, and the programs beside pods that they measure.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    cluster: Strategy,
    nodes: Vec<NodeConfig<Strategy>>,
    applications: Vec<HostApplication>,
    node_applications: Vec<NodeConfig<Vec<HostApplication>>>,
}

/// Of Koordinator's strategy, what concerns metrics.
#[derive(Clone, Debug, Default)]
struct Strategy {
    window: Option<u32>,
    interval: Option<u32>,
    percentiles: Option<Vec<u32>>,
    memory: Option<MemoryCollectPolicy>,
}

/// What holds of the nodes that are selected; without a selector of none.
#[derive(Clone, Debug)]
struct NodeConfig<T> {
    selector: Option<LabelSelector>,
    value: T,
}

fn own<'a, T>(configs: &'a [NodeConfig<T>], labels: &BTreeMap<String, String>) -> Option<&'a T> {
    let selected =
        |config: &&NodeConfig<T>| config.selector.as_ref().is_some_and(|selector| selects(selector, labels));
    configs.iter().find(selected).map(|config| &config.value)
}

/// One node's policy in all its forms.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePolicy {
    /// `spec`.
    pub spec: Arc<Value>,
    /// For the node.
    pub wire: Policy,
    /// Of `wire`.
    pub hash: u64,
    /// Time between reports.
    pub interval: Duration,
}

impl Policies {
    /// Reads the ConfigMap's keys `colocation-config` and `host-application-config`; absent or empty means the defaults.
    pub fn parse(colocation: Option<&str>, applications: Option<&str>) -> Result<Self, MalformedPolicy> {
        let mut policies = Self::default();
        if let Some(object) = read::document(COLOCATION_CONFIG, colocation)? {
            policies.cluster = read::strategy(&object)?;
            policies.nodes = read::node_configs(&object, "nodeConfigs", read::strategy)?;
        }
        if let Some(object) = read::document(HOST_APPLICATION_CONFIG, applications)? {
            policies.applications = read::applications(&object)?;
            policies.node_applications = read::node_configs(&object, "nodeConfigs", read::applications)?;
        }
        Ok(policies)
    }

    /// The policy of a node with these labels.
    pub fn of(&self, labels: &BTreeMap<String, String>) -> NodePolicy {
        let cluster = &self.cluster;
        let own_strategy = own(&self.nodes, labels).unwrap_or(cluster);
        let host_applications = own(&self.node_applications, labels).unwrap_or(&self.applications).clone();
        let aggregate = own_strategy.window.or(cluster.window).unwrap_or(Policy::AGGREGATE_DURATION_S);
        let interval = own_strategy.interval.or(cluster.interval);
        let interval = interval.map_or(INTERVAL, |seconds| Duration::from_secs(seconds.into()));
        // No hub reports more seldom, so by a longer one a node that is dead would be fresh for hours.
        let interval = interval.min(Answer::LONGEST_INTERVAL);
        let windows = own_strategy.percentiles.as_ref().or(cluster.percentiles.as_ref());
        let windows = windows.cloned().unwrap_or_else(|| Policy::DURATIONS_S.to_vec());
        let memory = own_strategy.memory.or(cluster.memory).unwrap_or_default();
        let spec = NodeMetricSpec {
            metric_collect_policy: Some(CollectPolicy {
                aggregate_duration_seconds: Some(aggregate.into()),
                report_interval_seconds: i64::try_from(interval.as_secs()).ok(),
                node_aggregate_policy: Some(AggregatePolicy {
                    durations: windows.iter().map(|seconds| crate::render::duration(*seconds)).collect(),
                }),
                node_memory_collect_policy: Some(memory),
            }),
        };
        let memory = match memory {
            MemoryCollectPolicy::UsageWithoutPageCache => MemoryPolicy::WithoutPageCache,
            MemoryCollectPolicy::UsageWithHotPageCache => MemoryPolicy::WithHotPageCache,
            MemoryCollectPolicy::UsageWithPageCache => MemoryPolicy::WithPageCache,
        };
        let wire = Policy {
            aggregate_duration_s: aggregate,
            durations_s: windows,
            memory: memory.into(),
            host_applications,
        };
        let spec = Arc::new(serde_json::to_value(spec).unwrap_or_default());
        NodePolicy { spec, hash: wire.hash(), wire, interval }
    }
}

/// Whether labels are selected, as Kubernetes says: an empty selector selects all. An unknown operator selects nothing.
fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let LabelSelector { match_labels, match_expressions } = selector;
    let equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
    match_labels.iter().flatten().all(equal)
        && match_expressions.iter().flatten().all(|requirement| meets(requirement, labels))
}

fn meets(requirement: &LabelSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&requirement.key);
    let among = |value: &String| requirement.values.iter().flatten().any(|one| one == value);
    match requirement.operator.as_str() {
        "In" => value.is_some_and(among),
        "NotIn" => !value.is_some_and(among),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, labels: &[(&str, &str)]) -> NodePolicy {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Policies::parse(Some(text), None).unwrap().of(&labels)
    }

    #[test]
    fn nothing_said_means_the_defaults() {
        let policy = Policies::parse(None, Some(" ")).unwrap().of(&BTreeMap::new());
        assert_eq!(policy.interval, INTERVAL);
        assert_eq!(policy.wire.durations_s, Policy::DURATIONS_S);
        let expected = serde_json::json!({"metricCollectPolicy": {
            "aggregateDurationSeconds": 300, "reportIntervalSeconds": 10,
            "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
            "nodeMemoryCollectPolicy": "usageWithoutPageCache",
        }});
        assert_eq!(*policy.spec, expected);
    }

    #[test]
    fn a_nodes_own_configuration_comes_first() {
        let text = r#"{"enable": true, "metricReportIntervalSeconds": 60, "metricAggregatePolicy": {"durations": ["25m30s"]},
            "nodeConfigs": [
                {"name": "none", "metricReportIntervalSeconds": 1},
                {"name": "edge", "nodeSelector": {"matchExpressions": [{"key": "edge", "operator": "In", "values": ["a", "b"]}]},
                 "metricMemoryCollectPolicy": "usageWithPageCache"},
                {"name": "all", "nodeSelector": {}, "metricReportIntervalSeconds": 30, "cpuReclaimThresholdPercent": 60}]}"#;
        let edge = of(text, &[("edge", "b")]);
        assert_eq!((edge.interval.as_secs(), edge.wire.memory), (60, MemoryPolicy::WithPageCache.into()));
        assert_eq!(edge.wire.durations_s, [1_530]);
        let other = of(text, &[("edge", "c")]);
        assert_eq!((other.interval.as_secs(), other.wire.memory), (30, 0));
    }

    #[test]
    fn host_applications_are_those_of_the_node() {
        let text = r#"{"applications": [{"name": "nginx", "priority": "koord-prod", "qos": "LS"}],
            "nodeConfigs": [{"nodeSelector": {"matchLabels": {"edge": "b"}}, "applications": [
                {"name": "plc", "cgroupPath": {"base": "CgroupRoot", "parentDir": "system.slice", "relativePath": "plc.service"}},
                {"name": "job", "qos": "BE", "cgroupPath": {"base": "KubepodsBesteffort", "relativePath": "job"}}]}]}"#;
        let policies = Policies::parse(None, Some(text)).unwrap();
        let named = |labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let applications = policies.of(&labels).wire.host_applications;
            applications.into_iter().map(|one| (one.name, one.base, one.path)).collect::<Vec<_>>()
        };
        let expected = [("nginx".to_owned(), 0, "host-latency-sensitive/nginx".to_owned())];
        assert_eq!(named(&[]), expected);
        let expected = [
            ("plc".to_owned(), 0, "system.slice/plc.service".to_owned()),
            ("job".to_owned(), 3, "job".to_owned()),
        ];
        assert_eq!(named(&[("edge", "b")]), expected);
    }
}
