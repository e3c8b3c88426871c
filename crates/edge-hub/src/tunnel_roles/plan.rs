//! From what is known of the cluster to the picture that the tunnel routes by, and this node's role in it. Pure.
//!
//! A node that a Gateway lists is in the domain that is named like the Gateway. The cloud nodes that are in no pool and have no
//! label are one domain, and the oldest exposed Gateway without a selector that lists one of them is its gateway ([`api::raven::cloud`]). An
//! edge node that no Gateway lists is a domain by itself. A label that names no NodePool puts a node in no pool.

mod idle;
mod neighbours;
mod ways_in;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use api::raven::cloud::{Claim, of_cloud};
use tunnel::{
    destination::{KUBELETS, Rule},
    links::desired::{Addresses, Listening},
    view::{Domain, GatewayState, Node, Place, View},
};

use self::{idle::idle, neighbours::neighbours, ways_in::ways_in};
use super::{
    DestinationRule,
    objects::{Gateway, NodeFacts, ServicePort},
};

/// What this node is in the tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// Neither: it holds no link at rest.
    #[default]
    None,
    /// It dials the gateways for its domain.
    Agent,
    /// It accepts links.
    Gateway,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Agent, Self::Gateway];

    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Agent => "agent",
            Self::Gateway => "gateway",
        }
    }
}

/// From whom this node accepts links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Accepts {
    /// From nobody.
    #[default]
    Nobody,
    /// From the other nodes of its pool, which it forwards for.
    OwnPool,
    /// From every domain: it is a gateway.
    Everyone,
}

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// By name.
    pub(super) gateways: BTreeMap<String, Gateway>,
    /// This node, as the cluster has it.
    pub(super) own: Option<NodeFacts>,
    /// Other nodes; only on gateways.
    pub(super) nodes: BTreeMap<String, NodeFacts>,
    /// Whether pools are of edge nodes: the own one, on gateways all.
    pub(super) edge_pools: BTreeMap<String, bool>,
    /// Whether these are all there are of those that are read. Until then the labels of nodes are taken at their word.
    pub(super) knows_pools: bool,
    /// The nodes of the own pool and where they are, as the manager says.
    pub(super) pool_nodes: BTreeMap<String, Vec<IpAddr>>,
    /// Ports of the internal Service; only on gateways.
    pub(super) ports: Vec<ServicePort>,
}

/// What never changes.
#[derive(Debug)]
pub(super) struct Given<'a> {
    /// This node.
    pub(super) me: &'a str,
    /// The port on which gateways accept links, which is taken to be the same on all nodes of this domain.
    pub(super) listen_port: u16,
    /// What may be reached beside what always may.
    pub(super) destinations: &'a [DestinationRule],
    /// The one address at which clients come in, if somebody chose it.
    pub(super) ways_in: Option<IpAddr>,
}

/// How clients come in at a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WayIn {
    /// Plain HTTP to these ports of nodes, by `Host`.
    Http(BTreeSet<u16>),
    /// TLS to this port of nodes, by server name.
    Tls(u16),
}

/// What is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// What the tunnel routes by.
    pub(super) view: View,
    /// Where gateways are dialled.
    pub(super) listening: Listening,
    /// What this node is.
    pub(super) role: Role,
    /// Whose links it accepts.
    pub(super) accepts: Accepts,
    /// Where clients come in.
    pub(super) ways_in: BTreeMap<SocketAddr, WayIn>,
    /// What cannot be as it was asked for.
    pub(super) problems: Vec<String>,
    /// Why this node is to hold no link at rest, if it is to hold none.
    pub(super) idle: Option<String>,
}

impl Plan {
    /// Whether this node has no right to the name by which exposed gateways are dialled: Gateways are known, and none that is exposed lists it. Where
    /// there is none at all that is no word of the cluster's about this node.
    pub(super) fn has_no_right_to_exposed_name(&self) -> bool {
        self.accepts != Accepts::Everyone && !self.view.gateways.is_empty()
    }
}

/// The picture.
pub(super) fn plan(given: &Given<'_>, known: &Known) -> Plan {
    let mut problems = Vec::new();
    let (of_cloud, needless) = cloud_gateways(given.me, known);
    for other in &needless {
        problems.push(format!(
            "Gateway {other} counts for nothing: the cloud nodes are behind {}, which is older",
            of_cloud.unwrap_or_default()
        ));
    }
    let membership = membership(given.me, known, &needless, &mut problems);
    let domain_of_gateway = |name: &str| {
        if of_cloud == Some(name) { Domain::Cloud } else { Domain::Pool(name.to_owned()) }
    };
    let mut nodes = BTreeMap::new();
    for (node, gateway) in &membership {
        let exposed = known.gateways.get(*gateway).is_some_and(Gateway::is_exposed);
        let place = if exposed { Place::Cloud } else { Place::Edge };
        let pool = (of_cloud != Some(*gateway)).then(|| (*gateway).to_owned());
        nodes.insert(
            (*node).to_owned(),
            Node { place, pool, addresses: addresses(given.me, node, gateway, known) },
        );
    }
    for (name, facts) in others(given.me, known) {
        if !membership.contains_key(name) {
            let edge_pool =
                facts.pool.as_ref().and_then(|pool| known.edge_pools.get(pool)).copied().unwrap_or_default();
            let place = if facts.edge || edge_pool { Place::Edge } else { Place::Cloud };
            nodes.insert(name.to_owned(), Node { place, pool: None, addresses: facts.addresses.clone() });
        }
    }
    let mut gateways: BTreeMap<Domain, GatewayState> = BTreeMap::new();
    for (name, gateway) in counting(known, &needless) {
        let state = gateways.entry(domain_of_gateway(name)).or_default();
        state.exposed |= gateway.is_exposed();
        state.endpoints.extend(gateway.active.iter().cloned());
    }
    // One that counts for nothing is the word of an operator all the same.
    for (name, gateway) in known.gateways.iter().filter(|(_, gateway)| gateway.is_exposed()) {
        let domain = if needless.contains(name.as_str()) { Domain::Cloud } else { domain_of_gateway(name) };
        gateways.entry(domain).or_default().listed.extend(gateway.listed.iter().cloned());
    }
    let cloud = cloud(&gateways);
    let is_partial = known.nodes.is_empty();
    let mut view = View { nodes, is_partial, gateways, ..View::default() };
    view.destinations = destinations(given, known, &cloud, &view);
    let listens =
        known.gateways.values().any(|gateway| gateway.is_exposed() && candidates(gateway).contains(given.me));
    let mine = view.domain_of(given.me);
    if let Some(Domain::Solo(_)) = &mine {
        view.neighbours = neighbours(given.me, known, |node| membership.contains_key(node));
    }
    let role = match &mine {
        _ if listens => Role::Gateway,
        Some(domain) if !view.is_exposed(domain) && view.is_endpoint(given.me, domain) => Role::Agent,
        _ => Role::None,
    };
    let ways_in = if listens { ways_in(given, known, &mut problems) } else { BTreeMap::new() };
    let accepts = match role {
        Role::Gateway => Accepts::Everyone,
        Role::Agent if has_neighbours(given.me, mine.as_ref(), &view) => Accepts::OwnPool,
        Role::Agent | Role::None => Accepts::Nobody,
    };
    let listening = listening(given, known, &view, mine.as_ref());
    if role == Role::Agent && !dials_others(&listening, mine.as_ref(), &view) {
        problems.push(
            "there is nobody to dial: no exposed Gateway has an active endpoint with an address (kubectl get gateways; conditions Elected and Exposed)"
                .to_owned(),
        );
    }
    let idle = idle(given.me, known, &view, role);
    Plan { view, listening, role, accepts, ways_in, problems, idle }
}

/// Whether a gateway of another domain than this node's listens at an address that is known.
fn dials_others(listening: &Listening, mine: Option<&Domain>, view: &View) -> bool {
    listening.iter().any(|(node, at)| view.domain_of(node).as_ref() != mine && !at.addresses.is_empty())
}

/// Whether there are other nodes in this node's domain.
fn has_neighbours(me: &str, mine: Option<&Domain>, view: &View) -> bool {
    view.nodes.iter().any(|(name, node)| name != me && Some(&node.domain(name)) == mine)
}

/// The nodes that can be the proxy endpoint of a Gateway, as `api::Gateway::proxy_candidates` says.
fn candidates(gateway: &Gateway) -> &BTreeSet<String> {
    if gateway.endpoints.is_empty() { &gateway.active } else { &gateway.listed }
}

/// Which Gateway's domain nodes are in. A node that stands for one is in that one; else the first that lists it counts, else the
/// one that its own label or pool names.
fn membership<'a>(
    me: &'a str,
    known: &'a Known,
    needless: &BTreeSet<&str>,
    problems: &mut Vec<String>,
) -> BTreeMap<&'a str, &'a str> {
    let mut of: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, gateway) in counting(known, needless) {
        for node in &gateway.active {
            of.entry(node).or_insert(name);
        }
    }
    for (name, gateway) in counting(known, needless) {
        for (node, _) in &gateway.nodes {
            let first = *of.entry(node).or_insert(name);
            if first != name {
                problems
                    .push(format!("node {node} is behind two Gateways, {first} and {name}: {first} counts"));
            }
        }
    }
    for (node, facts) in others(me, known) {
        let named = [facts.gateway.as_ref(), pool_of(facts, known)]
            .into_iter()
            .flatten()
            .find(|name| known.gateways.contains_key(*name));
        if let Some(name) = named {
            of.entry(node).or_insert(name);
        }
    }
    of
}

/// The Gateways that count for something.
fn counting<'a>(
    known: &'a Known,
    needless: &BTreeSet<&str>,
) -> impl Iterator<Item = (&'a String, &'a Gateway)> {
    known.gateways.iter().filter(move |(name, _)| !needless.contains(name.as_str()))
}

fn others<'a>(me: &'a str, known: &'a Known) -> impl Iterator<Item = (&'a str, &'a NodeFacts)> {
    let own = known.own.iter().map(move |facts| (me, facts));
    own.chain(
        known.nodes.iter().filter(move |(name, _)| *name != me).map(|(name, facts)| (name.as_str(), facts)),
    )
}

/// The Gateway that stands for the cloud nodes, and those that would if it were not there. Where no Nodes are known but the own one, this
/// node's side is taken for that of all that its Gateways list.
fn cloud_gateways<'a>(me: &str, known: &'a Known) -> (Option<&'a str>, BTreeSet<&'a str>) {
    let own = known.own.as_ref().is_some_and(|own| is_plain_cloud(me, own, known));
    let is_cloud = |node: &String| match facts_of(me, node, known) {
        Some(facts) => is_plain_cloud(node, facts, known),
        None => known.nodes.is_empty() && own,
    };
    let claim = |(name, gateway): (&'a String, &'a Gateway)| Claim {
        name: name.as_str(),
        created: gateway.created,
        expose_type: gateway.expose_type,
        selects: gateway.selects,
        lists_cloud_node: gateway.endpoints.iter().any(is_cloud),
    };
    let mut claims = of_cloud(known.gateways.iter().map(claim));
    // The manager knows all nodes, and writes which are behind a Gateway, as far as there is room.
    let has_me = |name: &&str| {
        known.gateways.get(*name).is_some_and(|gateway| gateway.nodes.iter().any(|(node, _)| node == me))
    };
    if known.nodes.is_empty() && claims.iter().any(has_me) {
        claims.retain(has_me);
    }
    match claims.split_first() {
        Some((first, others)) => (Some(*first), others.iter().copied().collect()),
        None => (None, BTreeSet::new()),
    }
}

/// Whether a node is of the cloud, in no pool, and behind no Gateway by a label or a selector.
fn is_plain_cloud(node: &str, facts: &NodeFacts, known: &Known) -> bool {
    let labelled = facts.gateway.as_ref().is_some_and(|name| known.gateways.contains_key(name));
    let selecting = || known.gateways.values().filter(|gateway| gateway.selects);
    let selected = || selecting().any(|gateway| gateway.nodes.iter().any(|(name, _)| name == node));
    !facts.edge && pool_of(facts, known).is_none() && !labelled && !selected()
}

/// The pool that a node is in. Pools are NodePools: a label that names none puts the node in none, as the manager has it.
fn pool_of<'a>(facts: &'a NodeFacts, known: &Known) -> Option<&'a String> {
    facts.pool.as_ref().filter(|pool| !known.knows_pools || known.edge_pools.contains_key(*pool))
}

fn facts_of<'a>(me: &str, node: &str, known: &'a Known) -> Option<&'a NodeFacts> {
    if node == me { known.own.as_ref() } else { known.nodes.get(node) }
}

/// A node's addresses: what its own object says, else what its Gateway does.
fn addresses(me: &str, node: &str, gateway: &str, known: &Known) -> Vec<IpAddr> {
    if let Some(facts) = facts_of(me, node, known).filter(|facts| !facts.addresses.is_empty()) {
        return facts.addresses.clone();
    }
    let of = |gateway: &Gateway| {
        gateway.nodes.iter().find(|(name, _)| name == node).and_then(|(_, address)| *address)
    };
    let own = known.gateways.get(gateway).and_then(of);
    own.or_else(|| known.gateways.values().find_map(of)).into_iter().collect()
}

/// The domain that stands for the cloud: that of cloud nodes without a pool if it has a gateway, else the first exposed one.
fn cloud(gateways: &BTreeMap<Domain, GatewayState>) -> Domain {
    if gateways.contains_key(&Domain::Cloud) {
        return Domain::Cloud;
    }
    let mut exposed = gateways.iter().filter(|(_, gateway)| gateway.exposed);
    exposed.next().map_or(Domain::Cloud, |(domain, _)| domain.clone())
}

/// Kubelets and what Gateways list, for the cloud and each domain's own nodes; what was asked for here, for whom it says.
fn destinations(given: &Given<'_>, known: &Known, cloud: &Domain, view: &View) -> Vec<Rule> {
    let listed = known.gateways.values().flat_map(|gateway| gateway.ports.iter().copied());
    let ports: BTreeSet<u16> = KUBELETS.into_iter().chain(listed).collect();
    let ports: Vec<u16> = ports.into_iter().collect();
    let exposed: BTreeSet<Domain> = view.exposed().map(|(domain, _)| domain.clone()).collect();
    let mine = view.domain_of(given.me);
    let rules = Rule::nodes(&ports, mine.as_ref(), exposed.iter().cloned());
    rules.chain(given.destinations.iter().map(|rule| rule.rule(cloud, &exposed))).collect()
}

/// Where the endpoints of gateways accept links: nodes of the own domain at their own addresses, whether it is exposed or not, others
/// where the status says.
fn listening(given: &Given<'_>, known: &Known, view: &View, mine: Option<&Domain>) -> Listening {
    let mut listening = Listening::new();
    for gateway in known.gateways.values() {
        for endpoint in &gateway.active {
            if let (Some(mine), Some(node)) = (mine, view.nodes.get(endpoint))
                && node.domain(endpoint) == *mine
            {
                let near = node.addresses.first().map(|address| SocketAddr::new(*address, given.listen_port));
                let addresses = near.map(|address| address.to_string()).into_iter().collect();
                listening.insert(endpoint.clone(), Addresses { addresses });
                continue;
            }
            if !gateway.is_exposed() {
                continue;
            }
            let at = gateway
                .addresses
                .iter()
                .filter(|(_, node)| node.as_ref().is_none_or(|node| node == endpoint));
            let known: &mut Addresses = listening.entry(endpoint.clone()).or_default();
            known.addresses.extend(at.map(|(address, _)| address.clone()));
        }
    }
    listening
}

#[cfg(test)]
mod tests;
