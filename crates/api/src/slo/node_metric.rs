//! `NodeMetric`: what a node and its pods use, and what they lack. The fields are those of Koordinator's v1alpha1, by the same
//! JSON names; beside them stand pressure, waits for a CPU, throttling, memory events and freshness.

// Each type would warn: the derive `KubeSchema` builds schemas from copies of the types inside functions.
#![allow(unreachable_pub)]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::device::ResourceMap;
use super::freshness::{Freshness, Summary};
use super::kernel::Scarcity;
use super::load::Load;

/// What is collected of the node.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "slo.koordinator.sh",
    version = "v1beta1",
    kind = "NodeMetric",
    plural = "nodemetrics",
    shortname = "nm",
    doc = "What a node and its pods use of CPU and memory, and what they lack, as the node reported it last. There is one for \
           each Node, by its name. Held in memory: see status.freshness for how old it is.",
    status = "NodeMetricStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn = r#"{"name":"CPU","type":"string","jsonPath":".status.summary.cpu","description":"CPU in use"}"#,
    printcolumn = r#"{"name":"CPU%","type":"string","jsonPath":".status.summary.cpuPercent","description":"Of the node's allocatable CPU"}"#,
    printcolumn = r#"{"name":"Memory","type":"string","jsonPath":".status.summary.memory","description":"Memory in use"}"#,
    printcolumn = r#"{"name":"Mem%","type":"string","jsonPath":".status.summary.memoryPercent","description":"Of the node's allocatable memory"}"#,
    printcolumn = r#"{"name":"P95","type":"string","jsonPath":".status.summary.cpuP95","description":"What CPU use stayed below for 95 % of the shortest window"}"#,
    printcolumn = r#"{"name":"Pressure","type":"string","jsonPath":".status.summary.pressure","description":"Percent of the last 10 s in which something waited: CPU/memory/IO"}"#,
    printcolumn = r#"{"name":"Pods","type":"integer","jsonPath":".status.summary.pods","description":"Pods that run there"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".status.freshness.receivedTime","description":"Since the last report"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.freshness.state","description":"NeverReported, Unknown, Fresh, Stale or Expired"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct NodeMetricSpec {
    /// What the node is asked to collect and how often to report it. Kept as ConfigMap slo-controller-config says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_collect_policy: Option<CollectPolicy>,
}

/// What to collect and how often to report it.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CollectPolicy {
    /// The window of averages, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate_duration_seconds: Option<i64>,

    /// Time between reports, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_interval_seconds: Option<i64>,

    /// Windows of percentiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_aggregate_policy: Option<AggregatePolicy>,

    /// Which page cache counts as memory in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_memory_collect_policy: Option<MemoryCollectPolicy>,
}

/// Windows of percentiles.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct AggregatePolicy {
    /// Lengths, such as `5m`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub durations: Vec<String>,
}

/// Which page cache counts as memory in use.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MemoryCollectPolicy {
    /// None of it.
    #[default]
    UsageWithoutPageCache,
    /// What was used lately.
    UsageWithHotPageCache,
    /// All of it.
    UsageWithPageCache,
}

/// What the node reported.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeMetricStatus {
    /// When the last report arrived, by the server's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_time: Option<Time>,

    /// The node as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_metric: Option<NodeMetricInfo>,

    /// Its pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods_metric: Vec<PodMetricInfo>,

    /// Programs that run beside pods and are measured by themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_application_metric: Vec<HostApplicationMetricInfo>,

    /// What pods of priority prod request and are not expected to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prod_reclaimable_metric: Option<PredictedMetric>,

    /// What pods of priority prod and the system are expected to use at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prod_peak_metric: Option<PredictedMetric>,

    /// How old this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freshness: Option<Freshness>,

    /// How loaded the node is, in steps: what its NodeLoad says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,

    /// The figures that a person wants to see first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
}

/// The node as a whole.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeMetricInfo {
    /// Use by everything, averaged.
    #[serde(default)]
    pub node_usage: ResourceMap,

    /// Averages and percentiles of it by window; only of windows with enough samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aggregated_node_usages: Vec<AggregatedUsage>,

    /// Use by what is no pod: daemons and the kernel.
    #[serde(default)]
    pub system_usage: ResourceMap,

    /// Averages and percentiles of it by window; only of windows with enough samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aggregated_system_usages: Vec<AggregatedUsage>,

    /// Use by NUMA node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa_usages: Vec<NumaUsage>,

    /// What all processes suffered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scarcity: Option<Scarcity>,

    /// What processes of no pod suffered: those of systemd's `system.slice`. Pressure with cgroups of version 2 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_scarcity: Option<Scarcity>,
}

/// Averages and percentiles of one window.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct AggregatedUsage {
    /// By `avg`, `p50`, `p90`, `p95`, `p99`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub usage: BTreeMap<String, ResourceMap>,

    /// The length of the window, such as `5m0s`.
    #[serde(default)]
    pub duration: String,
}

/// One NUMA node.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NumaUsage {
    /// Its number.
    #[serde(rename = "numaNodeID")]
    pub numa_node_id: i32,

    /// Use by everything.
    #[serde(default)]
    pub node_usage: ResourceMap,

    /// Use by what is no pod.
    #[serde(default)]
    pub system_usage: ResourceMap,
}

/// One pod.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodMetricInfo {
    /// Its name.
    #[serde(default)]
    pub name: String,

    /// Its namespace.
    #[serde(default)]
    pub namespace: String,

    /// What it uses.
    #[serde(default)]
    pub pod_usage: ResourceMap,

    /// Priority class by Koordinator's names: `koord-prod`, `koord-mid`, `koord-batch`, `koord-free`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,

    /// Quality of service by Koordinator's names: `LSE`, `LSR`, `LS`, `BE`, `SYSTEM`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,

    /// What others add.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub extensions: Option<serde_json::Map<String, serde_json::Value>>,

    /// What it suffered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scarcity: Option<Scarcity>,
}

/// A program that runs beside pods.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HostApplicationMetricInfo {
    /// Its name.
    #[serde(default)]
    pub name: String,

    /// What it uses.
    #[serde(default)]
    pub usage: ResourceMap,

    /// Priority class by Koordinator's names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,

    /// Quality of service by Koordinator's names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
}

/// A prediction.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct PredictedMetric {
    /// The amounts.
    #[serde(default)]
    pub resource: ResourceMap,
}

fn anything(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
