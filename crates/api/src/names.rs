//! Names of objects, keys and ports that peers look up: what OpenYurt's hubs and the raven agent expect to find.

/// Namespace of all objects named here.
pub const NAMESPACE: &str = "kube-system";

/// The ConfigMap that tells the hubs of a pool who leads it.
pub fn leader_hub_config_map(pool: &str) -> String {
    format!("{LEADER_HUB_PREFIX}{pool}")
}

/// Prefix of [`leader_hub_config_map`].
pub const LEADER_HUB_PREFIX: &str = "leader-hub-";

/// The longest name a NodePool may have: `leader-hub-<pool>` is also the value of a label, which ends at 63.
pub const NODE_POOL_NAME_MAX: usize = 63 - LEADER_HUB_PREFIX.len();

/// The longest name a Gateway may have: it is the value of a node label.
pub const GATEWAY_NAME_MAX: usize = 63;

/// ConfigMap with the switches of raven.
pub const RAVEN_CONFIG_MAP: &str = "raven-cfg";

/// Key of [`RAVEN_CONFIG_MAP`] and of an active endpoint's `config`: whether HTTP is proxied, `true` in any case.
pub const ENABLE_L7_PROXY: &str = "enable-l7-proxy";

/// Key of [`RAVEN_CONFIG_MAP`] and of an active endpoint's `config`: whether there are tunnels, `true` in any case.
pub const ENABLE_L3_TUNNEL: &str = "enable-l3-tunnel";

/// ConfigMap with the addresses that the raven agents bind.
pub const RAVEN_AGENT_CONFIG_MAP: &str = "raven-agent-config";

/// Key of [`RAVEN_AGENT_CONFIG_MAP`]: host and port of the proxy's internal HTTPS listener.
pub const PROXY_INTERNAL_SECURE_ADDR: &str = "proxy-internal-secure-addr";

/// Key of [`RAVEN_AGENT_CONFIG_MAP`]: host and port of the proxy's internal HTTP listener.
pub const PROXY_INTERNAL_INSECURE_ADDR: &str = "proxy-internal-insecure-addr";

/// Key of [`RAVEN_AGENT_CONFIG_MAP`]: host and port of the proxy's exposed listener.
pub const PROXY_EXTERNAL_ADDR: &str = "proxy-external-addr";

/// Key of [`RAVEN_AGENT_CONFIG_MAP`]: host and port of the tunnel.
pub const TUNNEL_BIND_ADDR: &str = "tunnel-bind-addr";

/// ConfigMap with the hosts file by which CoreDNS resolves node names.
pub const TUNNEL_NODES_CONFIG_MAP: &str = "edge-tunnel-nodes";

/// Key of [`TUNNEL_NODES_CONFIG_MAP`]: lines of address, tab, node name.
pub const TUNNEL_NODES: &str = "tunnel-nodes";

/// Start of the names of all Services that lead to proxy endpoints, and of their EndpointSlices.
pub const PROXY_SERVICES_PREFIX: &str = "x-raven-proxy-";

/// Service by which the cloud reaches the proxy endpoints of the exposed Gateways.
pub const PROXY_INTERNAL_SERVICE: &str = "x-raven-proxy-internal-svc";

/// Prefix of the Services that expose a proxy endpoint; the agent finds them by their labels.
pub const PROXY_SERVICE_PREFIX: &str = "x-raven-proxy-svc";

/// Prefix of the Services that expose a tunnel endpoint; the agent finds them by their labels.
pub const TUNNEL_SERVICE_PREFIX: &str = "x-raven-tunnel-svc";

/// TCP port of a proxy endpoint that names none.
pub const PROXY_PORT: i32 = 10262;

/// TCP port of the proxy's internal HTTPS listener, unless [`RAVEN_AGENT_CONFIG_MAP`] says otherwise.
pub const PROXY_INTERNAL_SECURE_PORT: i32 = 10263;

/// TCP port of the proxy's internal HTTP listener, unless [`RAVEN_AGENT_CONFIG_MAP`] says otherwise.
pub const PROXY_INTERNAL_INSECURE_PORT: i32 = 10264;

/// The lowest of the TCP ports on which the proxy's further internal HTTPS listeners are: one for each port but
/// [`KUBELET_PORT`], for a TLS handshake names the server and not the port.
pub const PROXY_INTERNAL_SECURE_PORTS: u16 = 20263;

/// TCP port of kubelets.
pub const KUBELET_PORT: u16 = 10250;

/// UDP port of a tunnel endpoint that names none.
pub const TUNNEL_PORT: i32 = 4500;

/// ConfigMap by which OpenYurt's users configure all hubs.
pub const HUB_CONFIG_MAP: &str = "yurt-hub-cfg";

/// Key of [`HUB_CONFIG_MAP`]: names of agents whose answers are kept, separated by commas, or `*`.
pub const CACHE_AGENTS: &str = "cache_agents";

/// Key of [`HUB_CONFIG_MAP`] that is ours: resources of which one stream serves everyone, `group/version/resource` separated by commas.
pub const POOL_SCOPE_RESOURCES: &str = "pool_scope_resources";

/// Key of [`HUB_CONFIG_MAP`] that is ours: resources that are never kept, written the same.
pub const PASS_THROUGH_RESOURCES: &str = "pass_through_resources";

/// Key of [`HUB_CONFIG_MAP`] that is ours: how fresh reads must be, `group/version/resource=policy` or `default=policy` separated by commas.
pub const FRESHNESS: &str = "freshness";

/// Key of `leader-hub-<pool>`: the resources that the pool shares, `group/version/resource` separated by commas.
pub const POOL_SCOPED_METADATA: &str = "pool-scoped-metadata";

/// Key of `leader-hub-<pool>` that is ours: the nodes of an edge pool and where they are, as [`crate::pool_nodes`] writes it.
pub const POOL_NODES: &str = "nodes";

/// Service of the tunnel server within the cloud, which hubs hide from edge nodes.
pub const TUNNEL_SERVER_INTERNAL_SERVICE: &str = "x-tunnel-server-internal-svc";

/// Signer of certificates that hubs show to the API server. That of kubelets allows no further group, and what it signs is
/// approved by Kubernetes itself.
pub const HUB_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Role by which hubs read [`leader_hub_config_map`] of every pool; in the namespace of these.
pub const HUB_POOLS_ROLE: &str = "isthmus-edge-hub-pools";

/// Group that tells a hub's certificate from its kubelet's.
pub const HUB_GROUP: &str = "isthmus:edge-hubs";

/// Group of nodes, which the API server's Node authorizer knows.
pub const NODE_GROUP: &str = "system:nodes";

/// Before a node's name: its user, which the API server's Node authorizer knows.
pub const NODE_USER_PREFIX: &str = "system:node:";

/// Group that a bootstrap token must have for a hub to begin with it (`auth-extra-groups`).
pub const HUB_BOOTSTRAP_GROUP: &str = "system:bootstrappers:isthmus";

/// Before a bootstrap token's public half: its user.
pub const BOOTSTRAP_USER_PREFIX: &str = "system:bootstrap:";

/// What a hub's certificate is for, as its request says.
pub const HUB_USAGES: [&str; 2] = ["client auth", "digital signature"];

/// Start of the names of the hubs' `CertificateSigningRequest`s.
pub const HUB_REQUEST_PREFIX: &str = "edge-hub-";

/// The Lease by which the hub of an exposed gateway's node says that it accepts links, in [`NAMESPACE`]. The chart's admission
/// policy lets each node write its own alone.
pub fn gateway_lease(node: &str) -> String {
    format!("{GATEWAY_LEASE_PREFIX}{node}")
}

/// Prefix of [`gateway_lease`].
pub const GATEWAY_LEASE_PREFIX: &str = "isthmus-gateway-";

/// DNS name in the serving certificate of every endpoint of an exposed Gateway, and what is verified whatever address it is dialled at.
pub const GATEWAY_SERVER_NAME: &str = "gateway.isthmus.internal";

/// The same of an active endpoint of a Gateway that is not exposed, which nodes of its own pool alone dial. It is another name because API servers
/// and Prometheus, which come in at [`GATEWAY_SERVER_NAME`], verify nothing else: the key of an edge node must not do there.
pub const POOL_GATEWAY_SERVER_NAME: &str = "gateway.pool.isthmus.internal";

/// Both names of gateways, which are no node's.
pub const GATEWAY_SERVER_NAMES: [&str; 2] = [GATEWAY_SERVER_NAME, POOL_GATEWAY_SERVER_NAME];

/// Signer of the gateways' serving certificates.
pub const GATEWAY_SIGNER: &str = "kubernetes.io/kubelet-serving";

/// What a gateway's serving certificate is for, as its request says.
pub const GATEWAY_USAGES: [&str; 2] = ["digital signature", "server auth"];

/// Who we are to server-side apply, and the value of [`crate::labels::MANAGED_BY`] on what we made.
pub const MANAGER: &str = "isthmus-manager";

/// ConfigMap in [`NAMESPACE`] by which hubs find the replica that takes reports of node metrics.
pub const NODE_METRIC_CONFIG_MAP: &str = "isthmus-node-metric";

/// Beginning of the names of the ConfigMaps that say where each Node is or was, for the policy about nodes that register anew.
pub const NODE_PLACES_PREFIX: &str = "isthmus-node-places-";
