//! Who is asked in a node's place for another one of its pool that does not take its connection. Pure.
//!
//! Nodes of a pool are taken to reach one another. Where the way between two of them is closed, whoever stands for both may have another.

use std::collections::BTreeSet;

use super::{Asker, Direction, Origin, Step};
use crate::{
    destination::Destination,
    target::{Host, Target},
    view::{Domain, View},
};

/// Whom `me` asks for `target`, which it may dial and does not reach: the others that stand for the domain of both. A neighbour stands for itself, so
/// the exposed ones are asked, which have its link, but only where a rule lets them; they would refuse all else.
///
/// Nobody is asked for who came over a link, who has his own next way; nor for this node itself, and what is no node.
pub fn around(me: &str, origin: &Origin, target: &Target, view: &View) -> Vec<Step> {
    let mine = view.domain_of(me).filter(|_| origin.asker == Asker::Own);
    // Who does not speak for his domain is refused its nodes.
    let Some(mine) = mine.and_then(|mine| view.speaks_for(me, mine)) else { return Vec::new() };
    let is_near = |name: &str| view.domain_of(name).as_ref() == Some(&mine);
    let mut peers = match &target.host {
        Host::Name(name) if name == me => BTreeSet::new(),
        Host::Name(name) if is_near(name) => view.endpoints(&mine),
        Host::Name(name)
            if view.neighbours.contains_key(name) && is_listed(name, origin, target.port, view) =>
        {
            view.exposed().flat_map(|(_, gateway)| gateway.endpoints.iter().cloned()).collect()
        }
        // That of a neighbour may be another node's elsewhere.
        Host::Address(address) => {
            let said = |node: &str| {
                let node = view.nodes.get(node);
                node.is_some_and(|node| node.addresses.iter().any(|known| known.to_canonical() == *address))
            };
            let of_another = !said(me) && view.nodes.keys().any(|node| is_near(node) && said(node));
            if of_another { view.endpoints(&mine) } else { BTreeSet::new() }
        }
        Host::Name(_) => BTreeSet::new(),
    };
    peers.remove(me);
    if peers.is_empty() { Vec::new() } else { vec![Step { direction: Direction::Forward, peers }] }
}

/// Whether somebody listed a port of this neighbour for who asks, beside what nodes of one pool may anyway.
fn is_listed(name: &str, origin: &Origin, port: u16, view: &View) -> bool {
    let theirs = Domain::Solo(name.to_owned());
    view.destinations.iter().any(|rule| match &rule.to {
        Destination::Nodes { domain } => {
            domain.as_ref().is_none_or(|within| *within == theirs)
                && rule.covers(origin.domain.as_ref(), port)
        }
        Destination::NodeLoopback { .. } | Destination::Name { .. } | Destination::Network { .. } => false,
    })
}
