//! What filters look at beside the object: plain data, taken together at one time.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use api::annotations::{SERVICE_TOPOLOGY_KEYS, TOPOLOGY_NODE, TOPOLOGY_POOL, TOPOLOGY_ZONE};
use kube_wire::{object::Object, resource::ObjectKey};

use super::LocalPods;

/// How near an endpoint must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// On this node.
    Node,
    /// In this node's pool.
    Pool,
}

impl Topology {
    /// What a Service asks for; `None` if nothing, or nothing that is known.
    pub fn of(service: &Object) -> Option<Self> {
        match service.annotation(SERVICE_TOPOLOGY_KEYS)?.trim() {
            TOPOLOGY_NODE => Some(Self::Node),
            TOPOLOGY_POOL | TOPOLOGY_ZONE => Some(Self::Pool),
            _ => None,
        }
    }
}

/// What filters look at beside the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The name of this node.
    pub node: Arc<str>,
    /// The pool that this node is in.
    pub pool: Option<Arc<str>>,
    /// The names of the pool's nodes; `None` while they are not known.
    pub pool_nodes: Option<Arc<BTreeSet<Box<str>>>>,
    /// Where pods of this node reach the hub; `None` if they cannot.
    pub hub: Option<SocketAddr>,
    /// The Services that ask for a topology.
    pub topology: Arc<BTreeMap<ObjectKey, Topology>>,
    /// The pods of this node of which the API server does not know what the kubelet says.
    pub local_pods: Arc<LocalPods>,
}

impl View {
    /// What is known of a node before anything is read.
    pub fn of_node(node: &str, pool: Option<&str>, hub: Option<SocketAddr>) -> Self {
        Self {
            node: node.into(),
            pool: pool.map(Arc::from),
            pool_nodes: None,
            hub,
            topology: Arc::default(),
            local_pods: Arc::default(),
        }
    }
}
