//! Which way a stream goes: directly, through whom, or not at all. Pure: asks nobody, so it goes on while the API server is
//! away.
//!
//! Nodes of a domain reach one another directly, and so do the programs of a node those of its pool that are domains by themselves. A node
//! that does not stand for its domain goes through one that does. An exposed domain is dialled; any other dials the exposed ones and is
//! reached back over those links.

mod around;

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

pub use self::around::around;

use crate::{
    destination::{Destination, Rule, is_never, name_matches},
    target::{Host, Target},
    view::{Domain, Place, View},
};

/// Where a stream comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The domain whose rights it has: this node's for its own callers, for streams that came over a link what the peer speaks for
    /// ([`View::speaks_for`]). `None`: what is listed for everyone, and no more.
    pub domain: Option<Domain>,
    /// Who asks.
    pub asker: Asker,
    /// Whether somebody vouches for the client. For who came in where nobody is asked who it is, to this node or to one that asks for it, nobody does.
    pub vouched: bool,
}

/// Who asks a node for a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asker {
    /// This node, or a program of it.
    Own,
    /// Another node, over a link that it dialled.
    Peer,
    /// Another endpoint of this node's own domain. It has no link itself, so it is not asked back.
    Sibling,
    /// A node that this one dialled, over a reverse link. It knows at least as much of other domains as this node, which sends nothing back.
    Reverse,
}

impl Origin {
    /// Of a node of this domain, which asks for itself.
    pub fn of(domain: Domain) -> Self {
        Self { domain: Some(domain), asker: Asker::Own, vouched: true }
    }
}

/// The way of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// This node dials the destination.
    Direct(Direct),
    /// A peer is asked.
    Through {
        /// The domain the destination is in.
        domain: Domain,
        /// Whom to ask: all peers of the first step, then those of the next.
        steps: Vec<Step>,
    },
    /// The stream is not opened.
    Refused(Refusal),
}

/// What to dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Direct {
    /// Any of these, the first preferred.
    Addresses(Vec<SocketAddr>),
    /// What this name resolves to here.
    Name(String, u16),
}

/// Peers that are asked alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Over links of which kind.
    pub direction: Direction,
    /// Names of nodes.
    pub peers: BTreeSet<String>,
}

/// Who asks over a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// The one that accepted the connection asks: cloud to edge.
    Reverse,
    /// The one that dialled asks.
    Forward,
}

/// Why a stream is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No rule allows it.
    NotAllowed,
    /// The name of a node that nobody knows.
    Unknown,
    /// Nodes of several other domains say that they have this address: it has to be named.
    Ambiguous,
    /// This node is in no domain that it knows.
    NotAMember,
    /// There is nobody to ask.
    NoGateway,
}

/// The way of a stream from `origin` to `target`, seen from node `me`.
pub fn route(me: &str, origin: &Origin, target: &Target, view: &View) -> Route {
    let Some(mine) = view.domain_of(me) else { return Route::Refused(Refusal::NotAMember) };
    let domain = match locate(me, &mine, origin, target, view) {
        Ok((domain, direct)) if domain == mine || is_beside(me, &domain, view) => {
            return direct.map_or(Route::Refused(Refusal::NotAllowed), Route::Direct);
        }
        Ok(_) if origin.asker == Asker::Reverse => return Route::Refused(Refusal::NoGateway),
        Err(Refusal::Unknown) if origin.asker == Asker::Reverse => return Route::Refused(Refusal::Unknown),
        Ok((domain, _)) => domain,
        Err(Refusal::Unknown) => match who_knows_more(me, &mine, view) {
            Some(domain) => domain,
            None => return Route::Refused(Refusal::Unknown),
        },
        Err(refusal) => return Route::Refused(refusal),
    };
    let steps: Vec<Step> = steps(me, &mine, origin, &domain, view)
        .into_iter()
        .map(|mut step| {
            step.peers.remove(me);
            step
        })
        .filter(|step| !step.peers.is_empty())
        .collect();
    if steps.is_empty() { Route::Refused(Refusal::NoGateway) } else { Route::Through { domain, steps } }
}

/// Whether `domain` is on the cloud's side, as this node is, and has no gateway that could be asked: the control plane beside a pool of
/// cloud nodes.
fn is_beside(me: &str, domain: &Domain, view: &View) -> bool {
    let is_cloud = |node: &str| view.nodes.get(node).is_some_and(|node| node.place == Place::Cloud);
    if !is_cloud(me) || view.gateways.contains_key(domain) {
        return false;
    }
    match domain {
        Domain::Cloud => true,
        Domain::Pool(_) => {
            view.nodes.keys().any(|node| is_cloud(node) && view.domain_of(node).as_ref() == Some(domain))
        }
        Domain::Solo(_) => false,
    }
}

/// The domain to ask about the name of a node that is not known here: all nodes are known to those alone who stand for an exposed one,
/// so they decide.
fn who_knows_more(me: &str, mine: &Domain, view: &View) -> Option<Domain> {
    if view.is_exposed(mine) {
        return (!view.is_endpoint(me, mine)).then(|| mine.clone());
    }
    view.exposed().next().map(|(domain, _)| domain.clone())
}

fn steps(me: &str, mine: &Domain, origin: &Origin, domain: &Domain, view: &View) -> Vec<Step> {
    let forward = |peers| Step { direction: Direction::Forward, peers };
    if !view.is_endpoint(me, mine) {
        return vec![forward(view.endpoints(mine))];
    }
    let others = || -> BTreeSet<String> {
        let other = view.exposed().filter(|(exposed, _)| *exposed != mine && *exposed != domain);
        other.flat_map(|(_, gateway)| gateway.endpoints.iter().cloned()).collect()
    };
    if view.is_exposed(domain) {
        // A domain that is not exposed may have a link to another exposed one only, which then goes on.
        let relays = if view.is_exposed(mine) { BTreeSet::new() } else { others() };
        return vec![forward(view.endpoints(domain)), forward(relays)];
    }
    if !view.is_exposed(mine) {
        return vec![forward(others())];
    }
    let reverse = Step { direction: Direction::Reverse, peers: view.endpoints(domain) };
    // A sibling may hold a link that this node does not have, or not yet.
    let siblings = if origin.asker == Asker::Sibling { BTreeSet::new() } else { view.endpoints(mine) };
    vec![reverse, forward(siblings)]
}

type Located = (Domain, Option<Direct>);

/// The domain of the destination, and what to dial there: nothing where only another node may.
fn locate(
    me: &str,
    mine: &Domain,
    origin: &Origin,
    target: &Target,
    view: &View,
) -> Result<Located, Refusal> {
    match &target.host {
        Host::Name(name) => {
            let (mut listed, mut as_a_node) = (false, false);
            for rule in &view.destinations {
                let covers = rule.covers(origin.domain.as_ref(), target.port);
                match &rule.to {
                    // Before nodes: a node chooses its name when it registers.
                    Destination::Name { pattern, domain }
                        if !ends_in_a_number(name) && name_matches(pattern, name) =>
                    {
                        listed = true;
                        if covers {
                            return Ok((domain.clone(), Some(Direct::Name(name.clone(), target.port))));
                        }
                    }
                    Destination::Nodes { .. } | Destination::NodeLoopback { .. } => as_a_node |= covers,
                    Destination::Name { .. } | Destination::Network { .. } => {}
                }
            }
            let neighbour = view.neighbours.get(name).map(|addresses| (name, addresses.as_slice()));
            if let Some(direct) = neighbour.and_then(|at| beside_me(mine, origin, at, target.port, view)) {
                return Ok((mine.clone(), Some(direct)));
            }
            if view.nodes.contains_key(name) {
                return locate_node(me, name, None, origin, target.port, view);
            }
            // It would be reached if it were a node, and may be one that others know.
            Err(if as_a_node && !listed { Refusal::Unknown } else { Refusal::NotAllowed })
        }
        Host::Address(address) => {
            if is_never(*address) {
                return Err(Refusal::NotAllowed);
            }
            locate_address(me, mine, *address, origin, target.port, view)
        }
    }
}

/// Whether some resolvers would take the name for an address (WHATWG URL, "ends in a number"), so that it is never resolved.
fn ends_in_a_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x")
}

fn locate_address(
    me: &str,
    mine: &Domain,
    address: IpAddr,
    origin: &Origin,
    port: u16,
    view: &View,
) -> Result<Located, Refusal> {
    let holders: Vec<(&String, Domain)> = view
        .nodes
        .iter()
        .filter(|(_, node)| node.addresses.iter().any(|known| known.to_canonical() == address))
        .map(|(name, node)| (name, node.domain(name)))
        .collect();
    // A node says itself which addresses it has, so none takes an address from what is listed for its own domain, or for another.
    let mut covered = view.destinations.iter().filter_map(|rule| match &rule.to {
        Destination::Network { network, domain } => {
            (network.contains(&address) && rule.covers(origin.domain.as_ref(), port)).then_some(domain)
        }
        Destination::Nodes { .. } | Destination::NodeLoopback { .. } | Destination::Name { .. } => None,
    });
    let listed =
        |domain: &Domain| Ok((domain.clone(), Some(Direct::Addresses(vec![SocketAddr::new(address, port)]))));
    if covered.clone().any(|domain| domain == mine) {
        return listed(mine);
    }
    // Within a domain an address means what it means there, however many nodes say that it is theirs: what is dialled is the same.
    let (near, far): (Vec<_>, Vec<_>) = holders.into_iter().partition(|(_, domain)| domain == mine);
    if let Some(name) = whose(me, &near, view) {
        return locate_node(me, name, Some(address), origin, port, view);
    }
    if let Some(domain) = covered.next() {
        return listed(domain);
    }
    let said = |addresses: &[IpAddr]| addresses.iter().any(|known| known.to_canonical() == address);
    let mut neighbours = view.neighbours.iter().filter(|(_, addresses)| said(addresses));
    let at = [address];
    if let Some(direct) = neighbours.find_map(|(name, _)| beside_me(mine, origin, (name, &at), port, view)) {
        return Ok((mine.clone(), Some(direct)));
    }
    if far.iter().any(|(_, domain)| far.first().is_some_and(|(_, first)| first != domain)) {
        return Err(Refusal::Ambiguous);
    }
    let name = whose(me, &far, view).ok_or(Refusal::NotAllowed)?;
    locate_node(me, name, Some(address), origin, port, view)
}

/// What to dial for a neighbour: for who asks here, at ports that are listed for nodes of this one's domain, or for that node.
fn beside_me(
    mine: &Domain,
    origin: &Origin,
    (name, addresses): (&String, &[IpAddr]),
    port: u16,
    view: &View,
) -> Option<Direct> {
    let theirs = Domain::Solo(name.clone());
    let is_listed = |rule: &Rule| match &rule.to {
        Destination::Nodes { domain } => {
            domain.as_ref().is_none_or(|within| within == mine || *within == theirs)
                && rule.covers(origin.domain.as_ref(), port)
        }
        Destination::NodeLoopback { .. } | Destination::Name { .. } | Destination::Network { .. } => false,
    };
    let addresses = reachable(addresses, port);
    let here = origin.asker == Asker::Own && !addresses.is_empty();
    (here && view.destinations.iter().any(is_listed)).then_some(Direct::Addresses(addresses))
}

/// Whose an address is that these nodes of one domain say is theirs: this node's, if it is among them; else of one for which somebody else
/// vouches, so that nobody takes an address from that by claiming it.
fn whose<'a>(me: &str, holders: &[(&'a String, Domain)], view: &View) -> Option<&'a String> {
    let mut names: Vec<_> = holders.iter().map(|(name, _)| *name).collect();
    names.sort_by_key(|name| (name.as_str() != me, !view.is_vouched_for(name)));
    names.first().copied()
}

fn locate_node(
    me: &str,
    name: &str,
    address: Option<IpAddr>,
    origin: &Origin,
    port: u16,
    view: &View,
) -> Result<Located, Refusal> {
    let node = view.nodes.get(name).ok_or(Refusal::Unknown)?;
    let domain = node.domain(name);
    let mut loopback = false;
    for rule in view.destinations.iter().filter(|rule| rule.covers(origin.domain.as_ref(), port)) {
        match &rule.to {
            Destination::Nodes { domain: within }
                if within.as_ref().is_none_or(|within| *within == domain) =>
            {
                let mut addresses = match address {
                    Some(address) => vec![SocketAddr::new(address, port)],
                    None => reachable(&node.addresses, port),
                };
                if believes_nobody(me, name, origin, view) {
                    addresses.retain(|at| is_listed(at.ip(), &domain, origin, port, view));
                    if addresses.is_empty() {
                        return Err(Refusal::NotAllowed);
                    }
                }
                return Ok((domain, Some(Direct::Addresses(addresses))));
            }
            Destination::NodeLoopback { domain: within } => {
                loopback |= within.as_ref().is_none_or(|within| *within == domain);
            }
            Destination::Nodes { .. } | Destination::Name { .. } | Destination::Network { .. } => {}
        }
    }
    if !loopback {
        return Err(Refusal::NotAllowed);
    }
    let here = name == me;
    Ok((domain, here.then(|| Direct::Addresses(vec![SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)]))))
}

/// Whether what a node says of its addresses is not enough for whoever asks. A cloud's gateway dials where they say, so the key of any node that
/// counts as one of the cloud would make it dial any host at the ports that are listed for others. Who has the cloud's rights and has shown who it
/// is, as an API server, dials nodes where they say anyway, and so does a program of this node, which could by itself. Whoever comes to a port that
/// asks nobody has the cloud's rights as well, and could be the one who has that key: to nodes of the cloud he needs no gateway.
fn believes_nobody(me: &str, name: &str, origin: &Origin, view: &View) -> bool {
    let is_cloud = |name: &str| view.nodes.get(name).is_some_and(|node| node.place == Place::Cloud);
    let for_the_cloud = origin.domain.as_ref().is_some_and(|domain| view.is_exposed(domain));
    let for_others = !origin.vouched || (origin.asker != Asker::Own && !for_the_cloud);
    for_others && is_cloud(me) && is_cloud(name) && name != me && !view.is_vouched_for(name)
}

/// Whether a network is listed for whoever asks that holds the address in that domain, so that a node which says that it is its own gives nothing.
fn is_listed(address: IpAddr, in_domain: &Domain, origin: &Origin, port: u16, view: &View) -> bool {
    view.destinations.iter().any(|rule| match &rule.to {
        Destination::Network { network, domain } => {
            domain == in_domain && network.contains(&address) && rule.covers(origin.domain.as_ref(), port)
        }
        Destination::Nodes { .. } | Destination::NodeLoopback { .. } | Destination::Name { .. } => false,
    })
}

/// A node's addresses without those that are never dialled, whatever the Node object says.
fn reachable(addresses: &[IpAddr], port: u16) -> Vec<SocketAddr> {
    let usable = addresses.iter().filter(|address| !is_never(**address));
    usable.map(|address| SocketAddr::new(address.to_canonical(), port)).collect()
}

#[cfg(test)]
mod tests;
