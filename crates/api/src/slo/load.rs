//! How loaded a node is, in steps: what a scheduler wants to know, and no more often than it matters. Served as `NodeLoad` from
//! memory beside `NodeMetric`, never installed as a CRD.

// Each type would warn: the derive `KubeSchema` builds schemas from copies of the types inside functions.
#![allow(unreachable_pub)]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::freshness::FreshnessState;

/// Nothing: a NodeLoad follows from what its node reports.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "slo.koordinator.sh",
    version = "v1beta1",
    kind = "NodeLoad",
    plural = "nodeloads",
    shortname = "nl",
    doc = "How loaded a node is, in steps. It changes only when a threshold is crossed, so a watch of it tells little: for schedulers. There is one for each NodeMetric, by its name; it cannot be written.",
    status = "NodeLoadStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn = r#"{"name":"CPU","type":"integer","jsonPath":".status.cpu.atLeast","description":"Percent of allocatable CPU that is in use at least"}"#,
    printcolumn = r#"{"name":"Memory","type":"integer","jsonPath":".status.memory.atLeast","description":"Percent of allocatable memory that is in use at least"}"#,
    printcolumn = r#"{"name":"CPU-Pressure","type":"integer","jsonPath":".status.cpuPressure.atLeast","description":"Percent of the time in which something waited for a CPU, at least"}"#,
    printcolumn = r#"{"name":"Memory-Pressure","type":"integer","jsonPath":".status.memoryPressure.atLeast","description":"Percent of the time in which something waited for memory, at least"}"#,
    printcolumn = r#"{"name":"IO-Pressure","type":"integer","jsonPath":".status.ioPressure.atLeast","description":"Percent of the time in which something waited for IO, at least"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state","description":"NeverReported, Unknown, Fresh, Stale or Expired"}"#
)]
pub struct NodeLoadSpec {}

/// How loaded the node is.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeLoadStatus {
    /// Whether that is to be relied on: as status.freshness.state of the NodeMetric.
    pub state: FreshnessState,

    /// The steps.
    #[serde(flatten)]
    pub load: Load,
}

/// The steps of one node. What the node could not tell is absent.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Load {
    /// CPU in use, of what is allocatable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<LoadStep>,

    /// Memory in use, of what is allocatable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<LoadStep>,

    /// Time in which something waited for a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_pressure: Option<LoadStep>,

    /// Time in which something waited for memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_pressure: Option<LoadStep>,

    /// Time in which something waited for IO.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_pressure: Option<LoadStep>,
}

/// How many thresholds are crossed. It falls again only when the figure is a margin below a threshold, so that it does not swing.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadStep {
    /// How many, of those that ConfigMap slo-controller-config names.
    pub level: i32,

    /// The highest of them, in percent; 0 if none is crossed.
    pub at_least: i32,
}
