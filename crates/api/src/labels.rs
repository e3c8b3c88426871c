//! Labels that users, kubelets and peers know.

/// On a Node: the pool it is a member of. Put there by users or the kubelet, never by a controller.
pub const NODE_POOL: &str = "apps.openyurt.io/nodepool";

/// On a Node, legacy: the pool it shall join. OpenYurt's webhook copies it into [`NODE_POOL`] when that is empty.
pub const LEGACY_DESIRED_NODE_POOL: &str = "apps.openyurt.io/desired-nodepool";

/// Prefix of the labels and annotations by which pools mark nodes, pools and pods.
pub const NODE_POOL_PREFIX: &str = "nodepool.openyurt.io/";

/// On a NodePool: its type in lower case, `edge` or `cloud`.
pub const POOL_TYPE: &str = "nodepool.openyurt.io/type";

/// On a Pod: the pool it wants to run in. Pods with this label are the ones the admission webhook sees.
pub const DESIRED_NODE_POOL: &str = "nodepool.openyurt.io/desired-nodepool";

/// On a Node of a host-network pool, as OpenYurt's code spells it; value [`TRUE`].
pub const HOST_NETWORK: &str = "nodepool.openyurt.io/hostnetwork";

/// On a Node of a host-network pool, as OpenYurt's proposal spells it; value [`TRUE`].
pub const HOST_NETWORK_DASHED: &str = "nodepool.openyurt.io/host-network";

/// On a Node of a host-network pool, as the proposal's anti-affinity selects it; value [`NODE_NETWORK_MODE`].
pub const NETWORK_MODE: &str = "nodepool.openyurt.io/network-mode";

/// Value of [`NETWORK_MODE`] on the nodes of a host-network pool.
pub const NODE_NETWORK_MODE: &str = "node-network-mode";

/// On a Node: whether it is an edge worker. Owned by whoever joins the node.
pub const IS_EDGE_WORKER: &str = "openyurt.io/is-edge-worker";

/// On a `leader-hub-<pool>` ConfigMap: the ConfigMap's own name, which is how OpenYurt's hubs select it.
pub const CONFIG_MAP_NAME: &str = "openyurt.io/configmap-name";

/// On a Node: the Gateway it is behind. On a Service: the Gateway that it exposes. Value: the Gateway's name.
pub const GATEWAY: &str = "raven.openyurt.io/gateway";

/// On a Service that exposes a Gateway: which of its endpoints, `proxy` or `tunnel`.
pub const GATEWAY_TYPE: &str = "raven.openyurt.io/gateway-type";

/// On a Service that exposes a Gateway: the node of the exposed endpoint.
pub const ENDPOINTS_NAME: &str = "raven.openyurt.io/endpoints-name";

/// On a ConfigMap: that it says where Nodes are or were; value [`TRUE`].
pub const NODE_PLACES: &str = "isthmus.dev/node-places";

/// The value `true` of boolean labels.
pub const TRUE: &str = "true";

/// The labels that mark a node of a host-network pool: all three spellings in use, with their values.
pub const HOST_NETWORK_NODE: [(&str, &str); 3] =
    [(HOST_NETWORK_DASHED, TRUE), (NETWORK_MODE, NODE_NETWORK_MODE), (HOST_NETWORK, TRUE)];

/// Node labels that no pool may set, beside all under [`NODE_POOL_PREFIX`]: each has another owner, who would fight
/// with the pool for ever.
pub const RESERVED: [&str; 8] = [
    // They are the membership itself: a pool could pull its nodes into another pool.
    NODE_POOL,
    LEGACY_DESIRED_NODE_POOL,
    // Owned by whoever joins the node.
    IS_EDGE_WORKER,
    // Unique to a node: the scheduler and volumes find nodes by it.
    "kubernetes.io/hostname",
    // The kubelet states facts and restores them at every start.
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
];

/// Whether no pool may set a node's label of that key.
pub fn is_reserved(key: &str) -> bool {
    RESERVED.contains(&key) || key.starts_with(NODE_POOL_PREFIX)
}

/// Prefixes of taints that no pool may set: the node lifecycle controller and the cloud provider add them and take
/// them away as the node's state changes, and evict pods by them.
pub const RESERVED_TAINT_PREFIXES: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

/// On what [`crate::names::MANAGER`] made: who keeps it. Kubernetes' own.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// On an `EndpointSlice`: who keeps it. Kubernetes' own.
pub const ENDPOINT_SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// On an `EndpointSlice`: the name of its Service. Kubernetes' own.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
