//! What filters look at beside the object: plain data, taken together at one time.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use api::annotations::{SERVICE_TOPOLOGY_KEYS, TOPOLOGY_NODE, TOPOLOGY_POOL, TOPOLOGY_ZONE};
use kube_wire::{object::Object, resource::ObjectKey, resource_version::ResourceVersion};

use super::{LocalPods, PodAccess, Unreached};

/// How near an endpoint must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// On this node.
    Node,
    /// In this node's pool.
    Pool,
    /// Anywhere, now that the Service asks for nothing any more. Its objects were shown otherwise at the versions that they have.
    Former,
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
    /// Why they cannot.
    pub unreached: Option<Unreached>,
    /// The Services that ask for a topology, or did.
    pub topology: Arc<BTreeMap<ObjectKey, Topology>>,
    /// The pods of this node of which the API server does not know what the kubelet says.
    pub local_pods: Arc<LocalPods>,
    /// Another one with each change by which an object may be shown otherwise at the version that it has; [`super::Filters`] sees to
    /// that.
    pub turn: u64,
}

impl View {
    /// What is known of a node before anything is read.
    pub fn of_node(node: &str, pool: Option<&str>, hub: Option<SocketAddr>) -> Self {
        Self {
            node: node.into(),
            pool: pool.map(Arc::from),
            pool_nodes: None,
            hub,
            unreached: None,
            topology: Arc::default(),
            local_pods: Arc::default(),
            turn: 0,
        }
    }

    /// Sends pods to the hub, if they reach it on a node with these internal addresses.
    pub fn send_pods(&mut self, access: &PodAccess, internal: &[IpAddr]) {
        let found = access.address(internal);
        self.hub = found.as_ref().ok().copied();
        self.unreached = found.err();
    }

    /// The version at which an object stands in a state that is shown by this view: below its own, and another one with each turn.
    /// Below, because one above might be given by the API server later, to other content; a write that is based on it is refused as
    /// a conflict, which is right.
    pub fn version_of(&self, own: ResourceVersion) -> ResourceVersion {
        let below = own.get().saturating_sub(1);
        let version = self.turn.checked_rem(below).map(|back| below - back);
        version.and_then(ResourceVersion::new).unwrap_or(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_view_are_older_and_differ_by_turn() {
        let version = |turn, own| {
            let view = View { turn, ..View::of_node("n", None, None) };
            view.version_of(ResourceVersion::new(own).unwrap()).get()
        };
        for own in [2, 3, 10, 1_000_000] {
            for turn in (0..20).chain([u64::MAX]) {
                assert!((1..own).contains(&version(turn, own)), "{turn} {own}");
            }
        }
        assert_eq!(version(5, 1), 1, "there is none below");
        assert!((0..20).all(|turn| version(turn, 1000) != version(turn + 1, 1000)));
    }
}
