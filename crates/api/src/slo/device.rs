//! Devices of a node as Koordinator describes them (`scheduling.koordinator.sh/v1alpha1`), and the resources that something uses.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Amounts of resources, and devices with theirs.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceMap {
    /// Amounts by the resource's name: `cpu`, `memory`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub resources: BTreeMap<String, Quantity>,

    /// Devices and their use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceInfo>,
}

/// One device.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceInfo {
    /// Type: `gpu`, `fpga`, `rdma`, `xpu`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,

    /// Labels that the device is selected by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// UUID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,

    /// Minor number, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minor: Option<i32>,

    /// Physical id.
    #[serde(rename = "moduleID", skip_serializing_if = "Option::is_none")]
    pub module_id: Option<i32>,

    /// Whether the device works.
    #[serde(default)]
    pub health: bool,

    /// Amounts by the resource's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub resources: BTreeMap<String, Quantity>,

    /// Where the device is connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<DeviceTopology>,

    /// Virtual functions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vf_groups: Vec<VirtualFunctionGroup>,

    /// Conditions of the device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Where a device is connected.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DeviceTopology {
    /// CPU socket.
    #[serde(rename = "socketID")]
    pub socket_id: i32,

    /// NUMA node.
    #[serde(rename = "nodeID")]
    pub node_id: i32,

    /// PCIe switch.
    #[serde(rename = "pcieID")]
    pub pcie_id: String,

    /// PCI address: domain:bus:device.function.
    #[serde(rename = "busID", skip_serializing_if = "Option::is_none")]
    pub bus_id: Option<String>,
}

/// Virtual functions with the same labels.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualFunctionGroup {
    /// Labels of the virtual functions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// The virtual functions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vfs: Vec<VirtualFunction>,
}

/// One virtual function.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualFunction {
    /// Minor number, from 0.
    pub minor: i32,

    /// PCI address: domain:bus:device.function.
    #[serde(rename = "busID", skip_serializing_if = "Option::is_none")]
    pub bus_id: Option<String>,
}

/// A resource list as Kubernetes has it in its own CRDs. These name the two types in `anyOf` besides, which the API server adds where it is absent.
pub(super) fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {
            "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
            "x-kubernetes-int-or-string": true,
        },
    })
}
