//! `servicetopology`: of a Service that asks for it, clients are shown the endpoints on the node or in its pool alone. Both
//! `EndpointSlices` and `Endpoints`. An endpoint that is on no node is in no topology and is left out.
//!
//! A node without a pool is a pool of itself. While the nodes of the pool are not known (the `NodePool` cannot be read), the
//! pool's topology is not applied.

use api::labels::SERVICE_NAME;
use kube_wire::{
    edit::{Field, Message, Verdict},
    object::Object,
    resource::ObjectKey,
};

use super::{Filtered, Topology, View};

const ENDPOINTS: Field = Field::shown("endpoints", 2);
const SLICE_NODE: Field = Field::new("nodeName", 6);
const SUBSETS: Field = Field::new("subsets", 2);
const ADDRESSES: Field = Field::new("addresses", 1);
const NOT_READY: Field = Field::new("notReadyAddresses", 2);
const ADDRESS_NODE: Field = Field::new("nodeName", 4);

/// The Service of an object: `Endpoints` are named as theirs is; slices name it in a label.
pub(super) fn service(object: &Object) -> ObjectKey {
    let key = object.key();
    object
        .label(SERVICE_NAME)
        .map_or_else(|| key.clone(), |service| ObjectKey::new(key.namespace(), &service))
}

/// The topology of an object's Service, if it has one, or had one.
pub(super) fn topology(object: &Object, view: &View) -> Option<Topology> {
    if view.topology.is_empty() {
        return None;
    }
    view.topology.get(&service(object)).copied()
}

pub(super) fn edit(resource: Filtered, object: &Object, message: &mut Message, view: &View) -> bool {
    let Some(topology) = topology(object, view) else { return false };
    let pool_nodes = match (topology, &view.pool) {
        (Topology::Former, _) => return false,
        (Topology::Node, _) | (Topology::Pool, None) => None,
        (Topology::Pool, Some(_)) => match &view.pool_nodes {
            Some(nodes) => Some(nodes),
            None => return false,
        },
    };
    let near = |node: Option<&str>| {
        node.is_some_and(|node| *node == *view.node || pool_nodes.is_some_and(|nodes| nodes.contains(node)))
    };
    let verdict = |endpoint: &mut Message, field: Field| {
        if near(endpoint.text(field).as_deref()) { Verdict::Keep } else { Verdict::Drop }
    };
    if resource == Filtered::EndpointSlices {
        return message.edit_each(ENDPOINTS, |endpoint| verdict(endpoint, SLICE_NODE));
    }
    message.edit_each(SUBSETS, |subset| {
        let ready = subset.edit_each(ADDRESSES, |address| verdict(address, ADDRESS_NODE));
        let not_ready = subset.edit_each(NOT_READY, |address| verdict(address, ADDRESS_NODE));
        // A subset without addresses is not valid.
        if subset.messages(ADDRESSES).is_empty() && subset.messages(NOT_READY).is_empty() {
            return Verdict::Drop;
        }
        Verdict::changed(ready || not_ready)
    })
}

/// What decides which endpoints are shown. A Service that asks for nothing any more is shown as one that never did.
pub(super) fn looks_at(view: &View) -> String {
    let asks = |topology: &Topology| *topology != Topology::Former;
    let topology: Vec<_> = view.topology.iter().filter(|(_, topology)| asks(topology)).collect();
    let pool = topology.iter().any(|(_, topology)| **topology == Topology::Pool);
    let nodes = pool.then(|| (view.pool.is_some(), &view.pool_nodes));
    format!("{} {topology:?} {nodes:?}", view.node)
}

pub(super) fn indifferent(a: &View, b: &View) -> bool {
    let pools = a.topology.values().any(|topology| *topology == Topology::Pool);
    a.node == b.node
        && a.topology == b.topology
        && (!pools || (a.pool.is_some() == b.pool.is_some() && a.pool_nodes == b.pool_nodes))
}
