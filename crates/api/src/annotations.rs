//! Annotations that users and peers know.

/// On a Node: what its pool wrote there and what stood there before, as JSON. The name and the fields `labels`,
/// `annotations` and `taints` are OpenYurt's.
pub const PREVIOUS_ATTRIBUTES: &str = "nodepool.openyurt.io/previous-attributes";

/// On a Node whose [`PREVIOUS_ATTRIBUTES`] cannot be read: the pool that wrote them, which names the node in its status
/// until the record is repaired or removed. No pool may set it: its prefix is reserved.
pub const UNREADABLE_RECORD_OF: &str = "nodepool.openyurt.io/unreadable-record-of";

/// On a Pod, value `true`: keep it off the nodes of host-network pools.
pub const EXCLUDE_HOST_NETWORK_POOL: &str = "apps.openyurt.io/exclude-host-network-pool";

/// On a NodePool, value `true` in any case: how the versions v1alpha1 and v1beta1 of OpenYurt write
/// `spec.hostNetwork: true`.
pub const POOL_HOST_NETWORK: &str = "nodepool.openyurt.io/hostnetwork";

/// On a Gateway: further source CIDRs, separated by commas, that the node of the active tunnel endpoint announces.
pub const EXTRA_ALLOWED_SOURCE_CIDRS: &str = "raven.openyurt.io/extra-allowed-source-cidrs";

/// On a Service, value `true`: hubs hide it from the pods of edge nodes.
pub const DISCARD_SERVICE: &str = "svc.openyurt.io/discard";

/// On a Service that exposes a Gateway: the external address by which it is reached, when its status has none.
pub const PUBLIC_SERVICE_EXTERNAL_IP: &str = "raven.openyurt.io/public-service-external-ip";

/// On a Service that exposes a Gateway: the external DNS name by which it is reached.
pub const PUBLIC_SERVICE_EXTERNAL_DNS_NAME: &str = "raven.openyurt.io/public-service-external-dns-name";

/// On a `DaemonSet` or Deployment: what `isthmus-manager hostnet apply` added to its affinity, so that it can be undone.
pub const HOSTNET_ADDED: &str = "isthmus.dev/hostnet-added";

/// On a Node, set by people: the public half of a bootstrap token with which its hub may get a certificate, though the node is
/// known already. For a node whose certificates are lost or expired.
pub const HUB_BOOTSTRAP_TOKEN: &str = "isthmus.dev/hub-bootstrap-token";

/// On the Secret of the webhook's authorities, set by people: a value that was not seen before forces a rotation.
pub const ROTATE: &str = "isthmus.dev/rotate";

/// On the Secret of the webhook's authorities, set by us: the value of [`ROTATE`] whose rotation has begun.
pub const ROTATED: &str = "isthmus.dev/rotated";

/// Prefixes of node annotations that no pool may set: kubelets, volume drivers and the controller manager write them for
/// each node by itself, and would fight for them.
pub const RESERVED_NODE_PREFIXES: [&str; 6] = [
    crate::labels::NODE_POOL_PREFIX,
    // Ours; HUB_BOOTSTRAP_TOKEN on a node gives its identity to whoever holds that token, once.
    "isthmus.dev/",
    "csi.volume.kubernetes.io/",
    "kubeadm.alpha.kubernetes.io/",
    "node.alpha.kubernetes.io/",
    "volumes.kubernetes.io/",
];

/// Whether no pool may set a node's annotation of that key.
pub fn is_reserved_on_nodes(key: &str) -> bool {
    RESERVED_NODE_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// On a Service: which endpoints a node's clients may use. [`TOPOLOGY_NODE`] keeps those of the node, [`TOPOLOGY_POOL`] and
/// [`TOPOLOGY_ZONE`] those of the node's pool.
pub const SERVICE_TOPOLOGY_KEYS: &str = "openyurt.io/topologyKeys";

/// Value of [`SERVICE_TOPOLOGY_KEYS`]: the node.
pub const TOPOLOGY_NODE: &str = "kubernetes.io/hostname";

/// Value of [`SERVICE_TOPOLOGY_KEYS`]: the pool.
pub const TOPOLOGY_POOL: &str = "openyurt.io/nodepool";

/// Value of [`SERVICE_TOPOLOGY_KEYS`]: the pool, as Kubernetes' zones.
pub const TOPOLOGY_ZONE: &str = "kubernetes.io/zone";

/// On a Service of type `NodePort` or `LoadBalancer`: the pools whose nodes serve it: `foo,-bar,*`.
pub const NODE_PORT_LISTEN: &str = "nodeport.openyurt.io/listen";

/// On the ConfigMap of an exposed gateway's node: its tunnels, a [`crate::raven::tunnel_report::TunnelReport`] as JSON. A long one is in
/// the data ([`crate::raven::tunnel_report::StoredReport`]).
pub const TUNNEL_REPORT: &str = "isthmus.dev/tunnels";

/// On a NodePool, value `true`: a Gateway of the pool's name is made and kept for it.
pub const POOL_GATEWAY: &str = "isthmus.dev/gateway";

/// On a Lease of ours that does not last a whole number of seconds: how long it does, and which holder says so.
pub const LEASE_DURATION: &str = "isthmus.dev/lease-duration";

/// On a Lease of ours: where its holder listens as long as it lives, and which holder says so.
pub const LEASE_ADDRESS: &str = "isthmus.dev/lease-address";

/// On the mirror pod of a static pod, by the kubelet: hash of the pod's file, which is the UID in the name of its cgroup.
pub const MIRROR_POD: &str = "kubernetes.io/config.mirror";
