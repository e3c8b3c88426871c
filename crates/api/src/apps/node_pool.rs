//! `NodePool`: a group of nodes that share labels, taints and a network mode.
//!
//! One schema serves every version (v1alpha1, v1beta1, v1beta2): a superset of their fields, so that no conversion is
//! needed and nothing is lost between versions.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::annotations;

/// What the nodes of the pool have in common.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "apps.openyurt.io",
    version = "v1beta2",
    kind = "NodePool",
    plural = "nodepools",
    shortname = "np",
    category = "yurt",
    status = "NodePoolStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSpec {
    /// Where the pool's nodes are: at the edge or in the cloud. It cannot change.
    #[serde(rename = "type", default)]
    pub type_: PoolType,

    /// How pods on the pool's nodes are connected. It cannot change once set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_mode: Option<NetworkMode>,

    /// How `OpenYurt` writes `networkMode: HostNetwork`. Either field alone means the same; both must agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_network: Option<bool>,

    /// Labels that every node of the pool carries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Annotations that every node of the pool carries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// Taints that every node of the pool carries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,

    /// Ignored, kept so that v1alpha1 objects lose nothing: nodes join a pool by their label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,

    /// Whether the pool's nodes reach one another. It cannot change.
    #[serde(default)]
    pub inter_connectivity: bool,

    /// Whether leader nodes are elected in the pool.
    #[serde(default)]
    pub enable_leader_election: bool,

    /// How leader nodes are chosen.
    #[serde(default)]
    pub leader_election_strategy: LeaderElectionStrategy,

    /// With strategy `mark`: the labels a node must carry to be a leader.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub leader_node_label_selector: BTreeMap<String, String>,

    /// How many leader nodes are wanted; 0 is read as 1.
    #[serde(default = "one")]
    pub leader_replicas: i32,

    /// Resources whose list and watch the pool's leaders share with the other nodes. Services and `EndpointSlices` are
    /// always among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pool_scope_metadata: Vec<GroupVersionResource>,
}

fn one() -> i32 {
    1
}

/// Where a pool's nodes are.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum PoolType {
    /// Behind NAT or bad links.
    #[default]
    Edge,
    /// In the data centre of the control plane.
    Cloud,
}

/// How pods on a pool's nodes are connected.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum NetworkMode {
    /// Pods use the network of their node; the nodes need no kube-proxy, CNI or cluster DNS.
    HostNetwork,
    /// Pods have addresses of their own.
    #[default]
    ContainerNetwork,
}

/// How leader nodes are chosen.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LeaderElectionStrategy {
    /// Any ready node.
    #[default]
    Random,
    /// Ready nodes that carry the labels of `leaderNodeLabelSelector`.
    Mark,
}

/// A resource by group, version and plural name.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub struct GroupVersionResource {
    /// API group; empty for the core group.
    pub group: String,
    /// Version, such as `v1`.
    pub version: String,
    /// Plural name in lower case, such as `services`.
    pub resource: String,
}

/// What was last seen of the pool.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// How many nodes of the pool are ready.
    #[serde(default)]
    pub ready_node_num: i32,
    /// How many nodes of the pool are not ready.
    #[serde(default)]
    pub unready_node_num: i32,
    /// The names of the pool's nodes, sorted.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// The elected leader nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leader_endpoints: Vec<LeaderEndpoint>,
    /// How many leader nodes are elected.
    #[serde(default)]
    pub leader_num: i32,
    /// When the set of leader nodes last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader_last_elected_time: Option<Time>,
    /// The network mode in force, whichever field or annotation set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_mode: Option<NetworkMode>,
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`, `NodesSynced`, `LeaderReady` and `NetworkModeEnforced`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// An elected leader node.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaderEndpoint {
    /// The node's name.
    pub node_name: String,
    /// The node's internal address.
    pub address: String,
}

impl NodePool {
    /// The network mode in force: `spec.networkMode`, else `spec.hostNetwork`, else the annotation with which
    /// `OpenYurt`'s older versions say the same, else container network.
    pub fn network_mode(&self) -> NetworkMode {
        let annotated = || {
            let value = self.metadata.annotations.as_ref()?.get(annotations::POOL_HOST_NETWORK)?;
            Some(value.eq_ignore_ascii_case("true"))
        };
        match (self.spec.network_mode, self.spec.host_network.or_else(annotated)) {
            (Some(mode), _) => mode,
            (None, Some(true)) => NetworkMode::HostNetwork,
            (None, _) => NetworkMode::ContainerNetwork,
        }
    }

    /// Whether the pool is in host-network mode.
    pub fn is_host_network(&self) -> bool {
        self.network_mode() == NetworkMode::HostNetwork
    }
}
