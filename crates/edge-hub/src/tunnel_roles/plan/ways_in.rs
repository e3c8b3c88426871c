//! Where a gateway takes what is sent to the internal Service. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use tunnel::destination::is_never;

use super::{Given, Known, WayIn};
use crate::tunnel_roles::objects::ServicePort;

/// Ports that nobody but root may listen on are not taken for ways in: a Service must not put a gateway in sshd's place.
const LOWEST_WAY_IN: u16 = 1024;

/// The ways in at each address. Who comes in there is asked nothing, so they are at the node's internal addresses, to which the Service
/// leads, and not at those that the outside sees.
pub(super) fn ways_in(
    given: &Given<'_>,
    known: &Known,
    problems: &mut Vec<String>,
) -> BTreeMap<SocketAddr, WayIn> {
    let ports = ports_in(&known.ports, given.listen_port, problems);
    let addresses: BTreeSet<IpAddr> = match given.ways_in {
        Some(address) => [address].into(),
        None => internal_addresses(known).collect(),
    };
    if addresses.is_empty() && !ports.is_empty() {
        problems.push(
            "nothing is taken for the internal Service: the Node has no internal address, and there is no --tunnel-ways-in-address"
                .to_owned(),
        );
    }
    let at = |address| ports.iter().map(move |(port, way)| (SocketAddr::new(address, *port), way.clone()));
    addresses.into_iter().flat_map(at).collect()
}

/// This node's own addresses, without those that would mean all, or none that others can dial.
fn internal_addresses(known: &Known) -> impl Iterator<Item = IpAddr> {
    let own = known.own.iter().flat_map(|own| &own.addresses);
    own.map(IpAddr::to_canonical).filter(|address| !is_never(*address))
}

fn ports_in(ports: &[ServicePort], listen_port: u16, problems: &mut Vec<String>) -> BTreeMap<u16, WayIn> {
    let mut ways: BTreeMap<u16, WayIn> = BTreeMap::new();
    for ServicePort { name, port, target } in ports {
        if *target < LOWEST_WAY_IN || *target == listen_port {
            problems.push(format!("port {name} of the internal Service cannot be served at {target}"));
            continue;
        }
        match (name.split_once('-').map(|(scheme, _)| scheme), ways.get_mut(target)) {
            (Some("http"), None) => drop(ways.insert(*target, WayIn::Http([*port].into()))),
            (Some("http"), Some(WayIn::Http(ports))) => drop(ports.insert(*port)),
            (Some("https"), None) => drop(ways.insert(*target, WayIn::Tls(*port))),
            (Some("http" | "https"), Some(_)) => {
                problems.push(format!("port {name} of the internal Service shares {target} with another"));
            }
            _ => problems.push(format!("port {name} of the internal Service is neither http- nor https-")),
        }
    }
    ways
}
