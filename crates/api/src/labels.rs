//! Labels that users, kubelets and peers know.

/// On a Node: the pool it is a member of. Put there by users or the kubelet, never by a controller.
pub const NODE_POOL: &str = "apps.openyurt.io/nodepool";

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

/// The value `true` of boolean labels.
pub const TRUE: &str = "true";

/// The labels that mark a node of a host-network pool: all three spellings in use, with their values.
pub const HOST_NETWORK_NODE: [(&str, &str); 3] =
    [(HOST_NETWORK_DASHED, TRUE), (NETWORK_MODE, NODE_NETWORK_MODE), (HOST_NETWORK, TRUE)];
