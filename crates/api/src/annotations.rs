//! Annotations that users and peers know.

/// On a Node: what its pool wrote there and what stood there before, as JSON. The name and the fields `labels`,
/// `annotations` and `taints` are `OpenYurt`'s.
pub const PREVIOUS_ATTRIBUTES: &str = "nodepool.openyurt.io/previous-attributes";

/// On a Pod, value `true`: keep it off the nodes of host-network pools.
pub const EXCLUDE_HOST_NETWORK_POOL: &str = "apps.openyurt.io/exclude-host-network-pool";

/// On a NodePool, value `true` in any case: how the versions v1alpha1 and v1beta1 of `OpenYurt` write
/// `spec.hostNetwork: true`.
pub const POOL_HOST_NETWORK: &str = "nodepool.openyurt.io/hostnetwork";
