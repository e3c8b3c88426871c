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

/// The policy of the cluster and of some of its nodes, and the programs beside pods that they measure. By default nothing of it was read yet.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    read: Keys,
    cluster: Strategy,
    nodes: Vec<NodeConfig<Strategy>>,
    applications: Vec<HostApplication>,
    node_applications: Vec<NodeConfig<Vec<HostApplication>>>,
}

/// Which keys could be read, be it once.
#[derive(Clone, Copy, Debug, Default)]
struct Keys {
    colocation: bool,
    applications: bool,
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
    /// It is not known as a whole: a node that has a policy keeps it.
    kept: bool,
}

impl NodePolicy {
    /// The hash of the policy that is meant for a node which goes by that of hash `knows`.
    pub fn hash_for(&self, knows: Option<u64>) -> u64 {
        knows.filter(|_| self.kept).unwrap_or(self.hash)
    }

    /// What an earlier leader made of a configuration that is not known here: how often and over which windows its `spec` says. What that does
    /// not say, or says so that it cannot be done, is as by default.
    fn former(spec: &Arc<Value>) -> Self {
        let read: Option<NodeMetricSpec> = serde_json::from_value(Value::clone(spec)).ok();
        let collect = read.and_then(|read| read.metric_collect_policy);
        let number = |number: Option<i64>| number.and_then(|number| u32::try_from(number).ok());
        let collected = collect.as_ref();
        let window = number(collected.and_then(|collect| collect.aggregate_duration_seconds))
            .filter(|window| Policy::AGGREGATE_DURATIONS_S.contains(window));
        let interval = number(collected.and_then(|collect| collect.report_interval_seconds))
            .filter(|interval| *interval > 0);
        let percentiles =
            collected.and_then(|collect| collect.node_aggregate_policy.as_ref()).map(|policy| {
                let seconds = policy.durations.iter().filter_map(|duration| read::seconds(duration));
                let possible = seconds.filter(|seconds| Policy::PERCENTILE_DURATIONS_S.contains(seconds));
                possible.take(Policy::MAX_PERCENTILES).collect::<Vec<_>>()
            });
        let percentiles = percentiles.filter(|percentiles| !percentiles.is_empty());
        let memory = collected.and_then(|collect| collect.node_memory_collect_policy);
        let cluster = Strategy { window, interval, percentiles, memory };
        let policy = Policies { cluster, ..Policies::default() }.of(&BTreeMap::new());
        Self { spec: Arc::clone(spec), kept: true, ..policy }
    }
}

impl Policies {
    /// Reads the ConfigMap's keys `colocation-config` and `host-application-config`; absent or empty means the defaults.
    pub fn parse(colocation: Option<&str>, applications: Option<&str>) -> Result<Self, MalformedPolicy> {
        let mut policies = Self::default();
        let wrong = policies.update(colocation, applications);
        wrong.into_iter().next().map_or(Ok(policies), Err)
    }

    /// The same key by key: one that cannot be read stays as it was, and is among those that are returned.
    pub fn update(&mut self, colocation: Option<&str>, applications: Option<&str>) -> Vec<MalformedPolicy> {
        let mut wrong = Vec::new();
        match read_key(COLOCATION_CONFIG, colocation, read::strategy) {
            Ok(read) => {
                (self.cluster, self.nodes) = read;
                self.read.colocation = true;
            }
            Err(error) => wrong.push(error),
        }
        match read_key(HOST_APPLICATION_CONFIG, applications, read::applications) {
            Ok(read) => {
                (self.applications, self.node_applications) = read;
                self.read.applications = true;
            }
            Err(error) => wrong.push(error),
        }
        wrong
    }

    /// Whether each key was read, be it once.
    pub fn are_read(&self) -> bool {
        self.read.colocation && self.read.applications
    }

    /// The policy of a node with these labels, whose `spec` by an earlier leader was `former`. As long as a key could not be read that leader knew more:
    /// what it said holds, and the node keeps what it was told.
    pub fn after(&self, former: Option<&Arc<Value>>, labels: &BTreeMap<String, String>) -> NodePolicy {
        match (former, self.read) {
            (Some(former), Keys { colocation: false, .. }) => NodePolicy::former(former),
            // The spec does not say which programs are measured. Unless the rest is another, the node still knows.
            (Some(former), Keys { applications: false, .. }) => {
                let policy = self.of(labels);
                NodePolicy { kept: policy.spec == *former, ..policy }
            }
            _ => self.of(labels),
        }
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
        NodePolicy { spec, hash: wire.hash(), wire, interval, kept: false }
    }
}

/// What a key says of the cluster, and of some nodes.
fn read_key<T: Default>(
    key: &'static str,
    text: Option<&str>,
    read: fn(&read::Place) -> Result<T, MalformedPolicy>,
) -> Result<(T, Vec<NodeConfig<T>>), MalformedPolicy> {
    match read::document(key, text)? {
        Some(object) => Ok((read(&object)?, read::node_configs(&object, "nodeConfigs", read)?)),
        None => Ok((T::default(), Vec::new())),
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

    #[test]
    fn a_key_that_cannot_be_read_leaves_the_other_and_both_are_named() {
        let (minutely, plc) =
            (r#"{"metricReportIntervalSeconds": 60}"#, r#"{"applications": [{"name": "plc"}]}"#);
        let mut policies = Policies::default();
        let at = |policies: &Policies| {
            let policy = policies.of(&BTreeMap::new());
            (policy.interval.as_secs(), policy.wire.host_applications.len())
        };
        assert_eq!(policies.update(Some(minutely), None), []);
        assert_eq!(at(&policies), (60, 0));
        let wrong = policies.update(Some("{"), Some(plc));
        assert_eq!(wrong.iter().map(|wrong| wrong.key).collect::<Vec<_>>(), ["colocation-config"]);
        assert_eq!(at(&policies), (60, 1));
        let wrong = policies.update(Some("{"), Some("{"));
        let keys = wrong.iter().map(|wrong| wrong.key).collect::<Vec<_>>();
        assert_eq!(keys, ["colocation-config", "host-application-config"]);
        assert_eq!(at(&policies), (60, 1));
        assert_eq!(policies.update(None, None), []);
        assert_eq!(at(&policies), (10, 0));
    }

    #[test]
    fn what_was_never_read_is_as_the_leader_before_said() {
        let labels = BTreeMap::new();
        let text = r#"{"metricReportIntervalSeconds": 60, "metricAggregateDurationSeconds": 600,
            "metricAggregatePolicy": {"durations": ["1m", "25m30s"]}, "metricMemoryCollectPolicy": "usageWithPageCache"}"#;
        let plc = r#"{"applications": [{"name": "plc"}]}"#;
        let before = Policies::parse(Some(text), Some(plc)).unwrap().of(&labels);
        let knows = Some(before.hash);

        let mut policies = Policies::default();
        assert_eq!(policies.update(Some("{"), Some("{")).len(), 2);
        let policy = policies.after(Some(&before.spec), &labels);
        assert_eq!((&policy.spec, policy.interval), (&before.spec, before.interval));
        assert_eq!(policy.hash_for(knows), before.hash, "the node is told nothing else");
        assert_eq!(policy.hash_for(None), policy.hash);
        let wire = Policy { host_applications: Vec::new(), ..before.wire.clone() };
        assert_eq!(policy.wire, wire, "one that has nothing is told what is known");
        // Nobody said anything before.
        assert_eq!(policies.after(None, &labels), Policies::default().of(&labels));

        // One key is read and says what it said: the node keeps the rest.
        assert_eq!(policies.update(Some(text), Some("{")).len(), 1);
        assert_eq!(policies.after(Some(&before.spec), &labels).hash_for(knows), before.hash);
        assert!(!policies.are_read());
        // It says something else.
        policies.update(Some("{}"), Some("{"));
        let policy = policies.after(Some(&before.spec), &labels);
        assert_eq!((policy.interval, policy.hash_for(knows)), (INTERVAL, policy.hash));
        // Both are read: that alone counts.
        assert_eq!(policies.update(None, None), []);
        assert_eq!(policies.after(Some(&before.spec), &labels), policies.of(&labels));
        assert!(policies.are_read());
    }

    #[test]
    fn a_former_spec_that_cannot_be_done_is_as_by_default() {
        for spec in [
            serde_json::json!({}),
            serde_json::json!("x"),
            serde_json::json!({"metricCollectPolicy": {"aggregateDurationSeconds": 5, "reportIntervalSeconds": 0,
                "nodeAggregatePolicy": {"durations": ["2h0m0s"]}}}),
        ] {
            let spec = Arc::new(spec);
            let policy = Policies::default().after(Some(&spec), &BTreeMap::new());
            assert_eq!(
                (policy.interval, policy.wire.aggregate_duration_s),
                (INTERVAL, Policy::AGGREGATE_DURATION_S)
            );
            assert_eq!((policy.wire.durations_s, policy.spec), (Policy::DURATIONS_S.to_vec(), spec));
        }
    }
}
