//! `NodePool`: a group of nodes that share labels, taints and a network mode.
//!
//! One schema serves every version (v1alpha1, v1beta1, v1beta2): a superset of their fields, so that no conversion is
//! needed and nothing is lost between versions.

// Each type would warn: the derive `KubeSchema` builds schemas from copies of the types inside functions.
#![allow(unreachable_pub)]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::annotations;
use crate::schema::{node_annotations, node_labels, node_taints, rule, rule_at, selecting_labels};

/// What the nodes of the pool have in common.
#[derive(CustomResource, Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "apps.openyurt.io",
    version = "v1beta2",
    kind = "NodePool",
    plural = "nodepools",
    shortname = "np",
    category = "yurt",
    doc = "A group of nodes that share labels, annotations, taints and a network mode. A node is a member of the pool that its \
           label apps.openyurt.io/nodepool names.",
    status = "NodePoolStatus",
    derive = "PartialEq",
    selectable = ".spec.type",
    selectable = ".status.networkMode",
    printcolumn = r#"{"name":"Type","type":"string","jsonPath":".spec.type","description":"Edge or Cloud"}"#,
    printcolumn = r#"{"name":"Network","type":"string","jsonPath":".status.networkMode","description":"The network mode in force"}"#,
    printcolumn = r#"{"name":"Ready","type":"integer","jsonPath":".status.readyNodeNum","description":"How many nodes are ready"}"#,
    printcolumn = r#"{"name":"NotReady","type":"integer","jsonPath":".status.unreadyNodeNum","description":"How many nodes are not ready"}"#,
    printcolumn = r#"{"name":"Leaders","type":"integer","jsonPath":".status.leaderNum","description":"How many leader nodes are elected"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Status","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].reason","description":"In force, or why not"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].message","description":"The same in words"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rule_at(".networkMode", NETWORK_MODE_AGREES, "networkMode and hostNetwork contradict each other: remove one \
        of them, or set hostNetwork to true exactly when networkMode is HostNetwork"),
    validation = rule_at(".networkMode", NETWORK_MODE_IS_FINAL, "the network mode cannot change once networkMode or hostNetwork \
        says it, and one of them must go on saying it: create another pool with the mode you want and move the nodes there"),
    validation = rule_at(".leaderNodeLabelSelector", MARK_HAS_SELECTOR, "leaderElectionStrategy mark chooses leaders by \
        leaderNodeLabelSelector, which is empty: give it the labels of the leader nodes, or use the strategy random"),
)]
pub struct NodePoolSpec {
    /// Where the pool's nodes are: `Edge`, behind NAT or bad links, or `Cloud`, beside the control plane. Default: `Edge`. It cannot
    /// change.
    #[serde(rename = "type", default)]
    #[x_kube(validation = rule(IMMUTABLE, "type cannot change: create another pool and move the nodes there"))]
    pub type_: PoolType,

    /// How pods on the pool's nodes are connected: `HostNetwork`, pods use the network of their node, which needs no CNI,
    /// kube-proxy or cluster DNS; or `ContainerNetwork`, pods have addresses of their own. It cannot change once set; unset
    /// means `ContainerNetwork`, unless `hostNetwork` is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "network_mode")]
    pub network_mode: Option<NetworkMode>,

    /// How OpenYurt writes the network mode: true means the same as networkMode `HostNetwork`, false the same as
    /// `ContainerNetwork`. Either field alone is enough; where both are set they must agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_network: Option<bool>,

    /// Labels that every node of the pool carries for as long as it is a member. Keys that have another owner on every node,
    /// such as `kubernetes.io/hostname` and all under `nodepool.openyurt.io/`, are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "node_labels")]
    pub labels: BTreeMap<String, String>,

    /// Annotations that every node of the pool carries for as long as it is a member. Keys under `nodepool.openyurt.io/` are
    /// refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "node_annotations")]
    pub annotations: BTreeMap<String, String>,

    /// Taints that every node of the pool carries for as long as it is a member; at most one for each key and effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "node_taints")]
    pub taints: Vec<Taint>,

    /// Ignored, and kept so that objects of v1alpha1 lose nothing: nodes join a pool by their label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,

    /// Whether the pool's nodes reach one another over a network of their own. It cannot change.
    #[serde(default)]
    #[x_kube(validation = rule(IMMUTABLE, "interConnectivity cannot change: create another pool and move the nodes there"))]
    pub inter_connectivity: bool,

    /// Whether leader nodes are elected, which OpenYurt's hubs have list and watch the resources of `poolScopeMetadata` for the whole
    /// pool. Isthmus' hubs fetch them each by itself, once a node, and read what is to be shared.
    #[serde(default)]
    pub enable_leader_election: bool,

    /// How leader nodes are chosen: `random`, any ready node; or `mark`, ready nodes with the labels of
    /// `leaderNodeLabelSelector`.
    #[serde(default)]
    pub leader_election_strategy: LeaderElectionStrategy,

    /// With strategy `mark`, which needs it: the labels that a node must carry to be a leader.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "selecting_labels")]
    pub leader_node_label_selector: BTreeMap<String, String>,

    /// How many leader nodes are wanted; 0 is read as 1. There is no upper bound: where more are wanted than may lead, all of
    /// those do, and the condition `LeaderReady` is false. Each lists and watches on its own: a few are enough.
    #[serde(default = "one")]
    // Said, because API servers before 1.36 take more for an int32 than it holds.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub leader_replicas: i32,

    /// Resources whose list and watch the pool's leaders share with the other nodes. Services and EndpointSlices are always
    /// among them. Resources that hold credentials, or that decide who may do what, are refused: every node of the pool
    /// could read all of them.
    #[serde(default = "services_and_endpoint_slices")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map"))]
    #[schemars(extend("x-kubernetes-list-map-keys" = ["group", "version", "resource"]))]
    pub pool_scope_metadata: Vec<GroupVersionResource>,
}

const IMMUTABLE: &str = "self == oldSelf";

const NETWORK_MODE_AGREES: &str = "!has(self.networkMode) || !has(self.hostNetwork) || self.hostNetwork == (self.networkMode == 'HostNetwork')";

/// What has no mode may get one, once.
const NETWORK_MODE_IS_FINAL: &str = "!(has(oldSelf.networkMode) || has(oldSelf.hostNetwork)) || ((has(self.networkMode) || \
    has(self.hostNetwork)) && (has(self.networkMode) ? self.networkMode == 'HostNetwork' : self.hostNetwork) == \
    (has(oldSelf.networkMode) ? oldSelf.networkMode == 'HostNetwork' : oldSelf.hostNetwork))";

/// As all rules of a spec, it must hold for `{}`: the API server asks it of the spec's default before it fills that.
const MARK_HAS_SELECTOR: &str = "!has(self.leaderElectionStrategy) || self.leaderElectionStrategy != 'mark' || (has(self.leaderNodeLabelSelector) && \
    size(self.leaderNodeLabelSelector) > 0)";

/// What holds credentials or rights, and what the node authorizer shows a node only as far as it is the node's own. What else a
/// pool shares is limited by what its hubs may read.
const NOT_SHAREABLE: &str = "!(self.group == '' && self.resource in ['secrets', 'configmaps', 'serviceaccounts', 'pods', \
    'persistentvolumes', 'persistentvolumeclaims']) && !(self.group in ['authentication.k8s.io', 'authorization.k8s.io', \
    'certificates.k8s.io', 'rbac.authorization.k8s.io']) && !(self.group == 'storage.k8s.io' && self.resource == 'volumeattachments') \
    && !(self.group == 'resource.k8s.io' && self.resource in ['resourceclaims', 'resourceslices'])";

const GROUP: &str = "self == '' || !format.dns1123Subdomain().validate(self).hasValue()";

const LABEL: &str = "!format.dns1035Label().validate(self).hasValue()";

impl Default for NodePoolSpec {
    /// What the API server makes of an empty spec.
    fn default() -> Self {
        Self {
            type_: PoolType::default(),
            network_mode: None,
            host_network: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            selector: None,
            inter_connectivity: false,
            enable_leader_election: false,
            leader_election_strategy: LeaderElectionStrategy::default(),
            leader_node_label_selector: BTreeMap::new(),
            leader_replicas: one(),
            pool_scope_metadata: services_and_endpoint_slices(),
        }
    }
}

fn services_and_endpoint_slices() -> Vec<GroupVersionResource> {
    [("", "v1", "services"), ("discovery.k8s.io", "v1", "endpointslices")]
        .map(|(group, version, resource)| GroupVersionResource {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
        })
        .into()
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

/// The schema of [`NetworkMode`] without its description, which would otherwise hide that of an optional field.
fn network_mode(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = NetworkMode::json_schema(generator);
    schema.remove("description");
    schema
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
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[x_kube(validation = rule(NOT_SHAREABLE, "secrets, configmaps, pods and others hold credentials, node-private data or permissions, and \
    every node of the pool could read all of it: remove the resource"))]
pub struct GroupVersionResource {
    /// API group; empty for the core group.
    #[schemars(length(max = 253))]
    #[x_kube(validation = rule(GROUP, "must be an API group such as discovery.k8s.io, or empty for the core group; wildcards cannot be \
        shared"))]
    pub group: String,
    /// Version, such as v1.
    #[schemars(length(max = 63))]
    #[x_kube(validation = rule(LABEL, "must be one version, such as v1; wildcards cannot be shared"))]
    pub version: String,
    /// Plural name in lower case, such as services. Neither a wildcard nor a subresource.
    #[schemars(length(max = 63))]
    #[x_kube(validation = rule(LABEL, "must be the plural name of one resource in lower case, such as services; wildcards and \
        subresources cannot be shared"))]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "network_mode")]
    pub network_mode: Option<NetworkMode>,
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions `Ready`, `NodesSynced`, `LeaderReady` and `NetworkModeEnforced`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["type"]))]
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

impl NodePoolSpec {
    /// How many leader nodes are wanted, at least one.
    pub fn wanted_leaders(&self) -> usize {
        usize::try_from(self.leader_replicas).unwrap_or(0).max(1)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_in_force_is_that_of_the_field_then_of_the_annotation() {
        use NetworkMode::{ContainerNetwork, HostNetwork};
        let cases = [
            (None, None, None, ContainerNetwork),
            (Some(HostNetwork), None, None, HostNetwork),
            (Some(ContainerNetwork), None, None, ContainerNetwork),
            (None, Some(true), None, HostNetwork),
            (None, Some(false), None, ContainerNetwork),
            (None, None, Some("true"), HostNetwork),
            (None, None, Some("True"), HostNetwork),
            (None, None, Some("yes"), ContainerNetwork),
            (None, Some(false), Some("true"), ContainerNetwork),
            (Some(ContainerNetwork), None, Some("true"), ContainerNetwork),
        ];
        for (network_mode, host_network, annotation, expected) in cases {
            let spec = NodePoolSpec { network_mode, host_network, ..NodePoolSpec::default() };
            let mut pool = NodePool::new("pool", spec);
            pool.metadata.annotations = annotation
                .map(|value| [(annotations::POOL_HOST_NETWORK.to_owned(), value.to_owned())].into());
            assert_eq!(pool.network_mode(), expected, "{network_mode:?} {host_network:?} {annotation:?}");
            assert_eq!(pool.is_host_network(), expected == HostNetwork);
        }
    }

    #[test]
    fn no_leaders_wanted_means_one() {
        for (replicas, wanted) in [(0, 1), (1, 1), (3, 3), (-1, 1)] {
            let spec = NodePoolSpec { leader_replicas: replicas, ..NodePoolSpec::default() };
            assert_eq!(spec.wanted_leaders(), wanted, "{replicas}");
        }
    }
}
