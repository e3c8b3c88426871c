//! What a node knows of the cluster: nodes, the domains they form, which of them stand for their domain, and where
//! streams may go. Data only; whoever watches the cluster makes a new one on each change.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use crate::destination::Rule;

/// Nodes that reach one another directly.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Domain {
    /// The cloud nodes that are in no pool.
    Cloud,
    /// The nodes of a pool.
    Pool(String),
    /// An edge node in no pool: it is its own, and its own endpoint.
    Solo(String),
}

/// Which side of the bad link a node is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Cloud.
    Cloud,
    /// Edge.
    Edge,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its side.
    pub place: Place,
    /// Its pool, if it is in one.
    pub pool: Option<String>,
    /// Its addresses within its domain, the preferred first. Nodes of other domains may have the same.
    pub addresses: Vec<IpAddr>,
}

/// What stands for a domain: the gateway of a pool, or of the cloud.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GatewayState {
    /// Whether other domains dial it. One that is not exposed dials those that are.
    pub exposed: bool,
    /// The nodes that are elected to stand for the domain.
    pub endpoints: BTreeSet<String>,
    /// Those that its operator lists, of whom they are elected.
    pub listed: BTreeSet<String>,
}

#[cfg(test)]
impl Node {
    /// One without an address.
    pub(crate) fn of(place: Place, pool: Option<&str>) -> Self {
        Self { place, pool: pool.map(str::to_owned), addresses: vec![] }
    }
}

#[cfg(test)]
impl GatewayState {
    /// One for which these are elected.
    pub(crate) fn of(exposed: bool, endpoints: &[&str]) -> Self {
        let endpoints = endpoints.iter().map(|&node| node.to_owned()).collect();
        Self { exposed, endpoints, ..Self::default() }
    }
}

/// The local picture of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// All nodes by name, or those that this one has heard of.
    pub nodes: BTreeMap<String, Node>,
    /// Whether there may be others: where not all Nodes are watched, one that is named no more may be there all the same.
    pub is_partial: bool,
    /// Where nodes are that are in one pool with this one, each of them a domain by itself: what is asked for here goes to them at once. Nobody
    /// else is led to them by this node.
    pub neighbours: BTreeMap<String, Vec<IpAddr>>,
    /// The gateway of each domain that has one. Solo nodes need none.
    pub gateways: BTreeMap<Domain, GatewayState>,
    /// Where streams may go.
    pub destinations: Vec<Rule>,
}

impl Node {
    /// The domain of this node, whose name is `name`.
    pub fn domain(&self, name: &str) -> Domain {
        match (&self.pool, self.place) {
            (Some(pool), _) => Domain::Pool(pool.clone()),
            (None, Place::Cloud) => Domain::Cloud,
            (None, Place::Edge) => Domain::Solo(name.to_owned()),
        }
    }
}

impl View {
    /// The domain of a node, if there is such a node.
    pub fn domain_of(&self, node: &str) -> Option<Domain> {
        self.nodes.get(node).map(|known| known.domain(node))
    }

    /// The nodes that stand for a domain.
    pub fn endpoints(&self, domain: &Domain) -> BTreeSet<String> {
        if let Some(gateway) = self.gateways.get(domain) {
            return gateway.endpoints.clone();
        }
        match domain {
            Domain::Solo(node) if self.nodes.contains_key(node) => BTreeSet::from([node.clone()]),
            Domain::Solo(_) | Domain::Cloud | Domain::Pool(_) => BTreeSet::new(),
        }
    }

    /// Whether `node` stands for `domain`.
    pub fn is_endpoint(&self, node: &str, domain: &Domain) -> bool {
        self.domain_of(node).as_ref() == Some(domain) && self.endpoints(domain).contains(node)
    }

    /// Whether `node` is elected for the domain that it is in.
    pub fn stands(&self, node: &str) -> bool {
        self.domain_of(node).is_some_and(|domain| self.endpoints(&domain).contains(node))
    }

    /// Whether somebody else than the node says where it belongs: it is listed or elected for the domain that it is in.
    pub fn is_vouched_for(&self, node: &str) -> bool {
        let gateway = self.domain_of(node).and_then(|domain| self.gateways.get(&domain));
        gateway.is_some_and(|gateway| gateway.listed.contains(node) || gateway.endpoints.contains(node))
    }

    /// The domain whose rights `node`, which is of `domain`, has when it asks over a link: its own. But an exposed domain may reach the nodes of
    /// all others, and any node that says nothing of itself counts as a cloud node: so an exposed one speaks by the nodes that are
    /// listed or elected for it, and the key of another of its nodes gives nothing that is not for everyone.
    pub fn speaks_for(&self, node: &str, domain: Domain) -> Option<Domain> {
        let stands =
            |gateway: &GatewayState| gateway.endpoints.contains(node) || gateway.listed.contains(node);
        let known = self.gateways.get(&domain).filter(|gateway| gateway.exposed);
        known.is_none_or(stands).then_some(domain)
    }

    /// Whether other domains dial this one.
    pub fn is_exposed(&self, domain: &Domain) -> bool {
        self.gateways.get(domain).is_some_and(|gateway| gateway.exposed)
    }

    /// The exposed domains, `Cloud` first.
    pub fn exposed(&self) -> impl Iterator<Item = (&Domain, &GatewayState)> {
        self.gateways.iter().filter(|(_, gateway)| gateway.exposed)
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cloud => f.write_str("cloud"),
            Self::Pool(name) => write!(f, "pool/{name}"),
            Self::Solo(node) => write!(f, "node/{node}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exposed_domain_speaks_by_those_that_are_listed_or_elected() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let gateway = |exposed| GatewayState { exposed, endpoints: names(&["x1"]), listed: names(&["x2"]) };
        let pool = |name: &str| Domain::Pool(name.to_owned());
        let gateways =
            [(Domain::Cloud, gateway(true)), (pool("x"), gateway(true)), (pool("a"), gateway(false))];
        let view = View { gateways: gateways.into(), ..View::default() };
        for (domain, expected) in [
            (Domain::Cloud, [true, true, false]),
            (pool("x"), [true, true, false]),
            (pool("a"), [true, true, true]),
            (pool("without a gateway"), [true, true, true]),
            (Domain::Solo("x3".into()), [true, true, true]),
        ] {
            let speaks = ["x1", "x2", "x3"].map(|node| view.speaks_for(node, domain.clone()));
            assert_eq!(speaks, expected.map(|speaks| speaks.then(|| domain.clone())), "{domain}");
        }
    }
}
