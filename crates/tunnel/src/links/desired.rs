//! The links a node should have, by its view of the cluster. Pure.
//!
//! A node that stands for its domain dials every endpoint of every exposed domain; any other holds no reverse link at all.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    links::plan::LinkKey,
    protocol::Class,
    route::Direction,
    view::{Domain, View},
};

/// How a gateway's endpoint is dialled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Addresses {
    /// `host:port`, each of which leads to it; a link is made to each.
    pub addresses: BTreeSet<String>,
}

/// Where the endpoints of gateways listen for links, by the name of the node.
pub type Listening = BTreeMap<String, Addresses>;

/// The links that `me` should dial.
///
/// An endpoint of a domain that is not exposed dials all endpoints of exposed ones, to be reached (reverse) and to reach
/// (forward). An endpoint of an exposed one dials its siblings and the other exposed ones, forward only: they can be dialled
/// back. An ordinary node whose domain has endpoints dials those, exposed or not, forward, for the classes that are `ordinary`; with none of them an
/// ordinary node has no link at all.
pub fn desired(
    me: &str,
    view: &View,
    listening: &Listening,
    generation: u64,
    ordinary: &[Class],
) -> BTreeSet<LinkKey> {
    let Some(mine) = view.domain_of(me) else { return BTreeSet::new() };
    let mut links = BTreeSet::new();
    let mut add = |gateway: &str, directions: &[Direction], classes: &[Class]| {
        let known = listening.get(gateway).map(|known| &known.addresses);
        for address in known.into_iter().flatten() {
            for &direction in directions {
                for &class in classes {
                    let (gateway, address) = (gateway.to_owned(), address.clone());
                    links.insert(LinkKey { gateway, direction, class, address, generation });
                }
            }
        }
    };
    let stands = view.is_endpoint(me, &mine);
    let exposed = view.is_exposed(&mine);
    if !stands {
        view.endpoints(&mine).iter().for_each(|gateway| add(gateway, &[Direction::Forward], ordinary));
        return links;
    }
    let directions: &[Direction] =
        if exposed { &[Direction::Forward] } else { &[Direction::Reverse, Direction::Forward] };
    for (_, gateway) in view.exposed().filter(|(domain, _)| exposed || **domain != mine) {
        let others = gateway.endpoints.iter().filter(|node| node.as_str() != me);
        others.for_each(|node| add(node, directions, &Class::ALL));
    }
    links
}

/// Whether `me` may hold a link of this direction to `gateway`, which it dialled: one that stands for an exposed domain, or, to ask
/// only, for its own.
pub fn may_dial(me: &str, gateway: &str, direction: Direction, view: &View) -> bool {
    let (Some(mine), Some(domain)) = (view.domain_of(me), view.domain_of(gateway)) else { return false };
    let reaches = match direction {
        Direction::Reverse => view.is_exposed(&domain) && domain != mine,
        Direction::Forward => view.is_exposed(&domain) || domain == mine,
    };
    reaches && view.is_endpoint(gateway, &domain)
}

/// Whether `me` accepts a link of this direction from `peer`, a node of `domain`. A domain that is not exposed accepts its own nodes
/// alone, which ask it for a way out.
pub fn may_accept(me: &str, peer: &str, domain: &Domain, direction: Direction, view: &View) -> bool {
    let Some(mine) = view.domain_of(me) else { return false };
    let stands = view.is_endpoint(peer, domain);
    match direction {
        Direction::Reverse => view.is_exposed(&mine) && stands && *domain != mine,
        Direction::Forward => *domain == mine || view.is_exposed(&mine) && stands,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{GatewayState, Node, Place};

    fn view() -> View {
        let nodes = [
            ("c1", Place::Cloud, None),
            ("c2", Place::Cloud, None),
            ("c3", Place::Cloud, None),
            ("a1", Place::Edge, Some("a")),
            ("a2", Place::Edge, Some("a")),
            ("solo", Place::Edge, None),
        ];
        let nodes = nodes.map(|(name, place, pool)| (name.to_owned(), Node::of(place, pool)));
        let gateways = [
            (Domain::Cloud, GatewayState::of(true, &["c1", "c2"])),
            (Domain::Pool("a".into()), GatewayState::of(false, &["a1"])),
        ];
        View { nodes: nodes.into(), gateways: gateways.into(), ..View::default() }
    }

    fn links(me: &str, ordinary: &[Class]) -> Vec<String> {
        let listening = ["c1", "c2", "a1"]
            .map(|node| (node.to_owned(), Addresses { addresses: [format!("{node}.example:10262")].into() }));
        desired(me, &view(), &listening.into(), 1, ordinary)
            .into_iter()
            .filter(|key| key.class == Class::Bulk || !ordinary.is_empty())
            .map(|key| format!("{:?} {} {}", key.direction, key.address, key.class.name()))
            .collect()
    }

    #[test]
    fn only_those_that_stand_for_a_domain_hold_links() {
        let both = [
            "Reverse c1.example:10262 bulk",
            "Forward c1.example:10262 bulk",
            "Reverse c2.example:10262 bulk",
            "Forward c2.example:10262 bulk",
        ];
        assert_eq!(links("a1", &[]), both);
        assert_eq!(links("solo", &[]), both);
        assert_eq!(links("a2", &[]), [""; 0]);
        assert_eq!(links("c3", &[]), [""; 0]);
        // Of what is wanted on demand that alone which is asked for.
        assert_eq!(links("a2", &[Class::Bulk]), ["Forward a1.example:10262 bulk"]);
        assert_eq!(
            links("c3", &Class::ALL),
            [
                "Forward c1.example:10262 interactive",
                "Forward c1.example:10262 bulk",
                "Forward c2.example:10262 interactive",
                "Forward c2.example:10262 bulk",
            ]
        );
        assert_eq!(links("c1", &[]), ["Forward c2.example:10262 bulk"]);
        assert_eq!(links("a1", &[Class::Bulk]).len(), 8, "who stands for its domain has both");
        assert_eq!(links("nobody", &Class::ALL), [""; 0]);
    }

    #[test]
    fn only_endpoints_of_exposed_domains_and_of_the_own_one_are_dialled() {
        let mut view = view();
        let pool = |name: &str| Domain::Pool(name.to_owned());
        let node = Node { place: Place::Edge, pool: Some("b".into()), addresses: vec![] };
        view.nodes.insert("b1".into(), node);
        let endpoints = ["b1".to_owned()].into();
        view.gateways
            .insert(pool("b"), GatewayState { exposed: false, endpoints, ..GatewayState::default() });
        let check = |me: &str, gateway: &str| {
            [Direction::Reverse, Direction::Forward].map(|direction| may_dial(me, gateway, direction, &view))
        };
        assert_eq!(check("a1", "c1"), [true, true]);
        assert_eq!(check("solo", "c1"), [true, true]);
        assert_eq!(check("c3", "c1"), [false, true]);
        assert_eq!(check("a2", "a1"), [false, true]);
        // A certificate of one pool's gateway is none for another pool.
        assert_eq!(check("a1", "b1"), [false, false]);
        assert_eq!(check("a2", "b1"), [false, false]);
        assert_eq!(check("c1", "b1"), [false, false]);
        for (me, gateway) in [("a1", "c3"), ("a1", "a2"), ("a1", "nobody"), ("nobody", "c1")] {
            assert_eq!(check(me, gateway), [false, false], "{me} {gateway}");
        }
    }
}
