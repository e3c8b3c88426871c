//! Condition types and reasons in the status of our resources.

/// NodePool: its nodes carry what the pool says, and every node is counted.
pub const READY: &str = "Ready";

/// NodePool: every node has the pool's labels, annotations and taints; if not, the message names the nodes.
pub const NODES_SYNCED: &str = "NodesSynced";

/// NodePool with host network: no pod without host network runs on its nodes; if not, the message names the pods.
pub const NETWORK_MODE_ENFORCED: &str = "NetworkModeEnforced";

/// NodePool with leader election: as many leaders as asked for are elected.
pub const LEADER_READY: &str = "LeaderReady";

/// Gateway: as many endpoints are active as `Replicas` asks for.
pub const ELECTED: &str = "Elected";

/// Gateway: its active endpoints can be reached from outside as `exposeType` says.
pub const EXPOSED: &str = "Exposed";

/// Gateway: the node agents behind it have a connection to the cloud.
pub const CONNECTED: &str = "Connected";
