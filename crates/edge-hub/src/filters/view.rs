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
        version_at(self.turn, own)
    }
}

fn version_at(turn: u64, own: ResourceVersion) -> ResourceVersion {
    let below = own.get().saturating_sub(1);
    let version = turn.checked_rem(below).map(|back| below - back);
    version.and_then(ResourceVersion::new).unwrap_or(own)
}

/// Which objects a reader may know otherwise than they are shown now, at the versions that they have: a filter, or what it looked at, has changed, and nothing
/// of what is in force says that of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Otherwise {
    /// Those of earlier versions than this.
    pub(super) before: u64,
    /// The turn of the view by which they are shown now.
    pub(super) turn: u64,
}

impl Otherwise {
    /// None.
    pub const NOTHING: Self = Self { before: 0, turn: 0 };

    /// Whether it knows all as it is shown now.
    pub fn is_nothing(self) -> bool {
        self.before == 0
    }

    /// What is shown of an object that has the version `own`, as a state: at a version of the view's own, if informers would take it for unchanged.
    pub fn state(self, shown: Arc<Object>, own: ResourceVersion) -> Arc<Object> {
        if shown.resource_version() != own || own.get() >= self.before {
            return shown;
        }
        Arc::new(shown.with_resource_version(version_at(self.turn, own)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_otherwise_stands_at_another_version_once() {
        let of = |text: &str| Arc::new(Object::from_json(text.to_owned().into()).unwrap());
        let object = of(r#"{"metadata":{"namespace":"a","name":"s","resourceVersion":"900"}}"#);
        let own = object.resource_version();
        let version = |before, turn, shown: &Arc<Object>| {
            Otherwise { before, turn }.state(shown.clone(), own).resource_version().get()
        };
        assert_eq!(version(900, 7, &object), 900, "what came after");
        assert!(version(901, 7, &object) < 900 && version(901, 7, &object) != version(901, 8, &object));
        let shown_by_the_view = Arc::new(object.with_resource_version(ResourceVersion::new(5).unwrap()));
        assert_eq!(version(u64::MAX, 7, &shown_by_the_view), 5);
    }

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
