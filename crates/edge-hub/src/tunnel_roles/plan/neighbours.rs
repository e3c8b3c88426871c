//! The nodes of an edge node's pool, where each of them is a domain by itself. Pure.

use std::{collections::BTreeMap, net::IpAddr};

use super::Known;

/// Where the other nodes of this one's pool are, but those of which a Gateway says where they belong (`is_behind`). They are one site, so one with the
/// address of this node is elsewhere, or lies.
pub(super) fn neighbours(
    me: &str,
    known: &Known,
    is_behind: impl Fn(&str) -> bool,
) -> BTreeMap<String, Vec<IpAddr>> {
    let own: Vec<IpAddr> =
        known.own.iter().flat_map(|own| &own.addresses).map(IpAddr::to_canonical).collect();
    let others = known.pool_nodes.iter().filter(|(name, _)| *name != me && !is_behind(name));
    let elsewhere = |addresses: &[IpAddr]| addresses.iter().any(|at| own.contains(&at.to_canonical()));
    let near = others.filter(|(_, addresses)| !addresses.is_empty() && !elsewhere(addresses));
    near.map(|(name, addresses)| (name.clone(), addresses.clone())).collect()
}
