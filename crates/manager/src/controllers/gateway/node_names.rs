//! Pure: the hosts file by which cluster DNS leads names of edge nodes to the gateways.
//!
//! Nodes of the cloud are not in it: they are reached as ever, though every gateway be dead.

use std::collections::BTreeSet;

use super::domains::{Domain, Member};

/// The names of the nodes that are reached through the gateways: those behind a Gateway that is not among `exposed`, and edge nodes
/// behind none.
pub(crate) fn tunnelled<'a>(members: &'a [Member], exposed: &BTreeSet<String>) -> BTreeSet<&'a str> {
    let tunnelled = members.iter().filter(|member| match &member.domain {
        Domain::Gateway(gateway) => !exposed.contains(gateway),
        Domain::Pool | Domain::Solo => member.edge,
        Domain::Cloud => false,
    });
    tunnelled.map(|member| member.name.as_str()).collect()
}

/// The file: a line `address TAB name` for each node and address.
pub(crate) fn hosts(nodes: &BTreeSet<&str>, addresses: &[String]) -> String {
    let lines: Vec<String> = nodes
        .iter()
        .flat_map(|node| addresses.iter().map(move |address| format!("{address}\t{node}")))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::gateway::domains::Word;

    fn member(name: &str, domain: Domain, edge: bool) -> Member {
        let (name, by) = (name.to_owned(), Word::Placed);
        Member { name, domain, by, edge, ready: true, internal_ip: None, pod_cidrs: Vec::new() }
    }

    #[test]
    fn edge_nodes_are_named_and_cloud_nodes_are_not() {
        let behind = |name: &str| Domain::Gateway(name.to_owned());
        let members = [
            member("z", behind("edge"), true),
            member("branch", behind("edge"), false),
            member("c1", behind("cloud"), false),
            member("public-edge", behind("cloud"), true),
            member("solo", Domain::Solo, true),
            member("pooled", Domain::Pool, true),
            member("cloud-pool", Domain::Pool, false),
            member("c2", Domain::Cloud, false),
        ];
        let nodes = tunnelled(&members, &["cloud".to_owned()].into());
        assert_eq!(nodes, ["branch", "pooled", "solo", "z"].into());
        assert_eq!(
            hosts(&["b", "a"].into(), &["10.0.0.1".to_owned(), "fd00::1".to_owned()]),
            "10.0.0.1\ta\nfd00::1\ta\n10.0.0.1\tb\nfd00::1\tb"
        );
        assert_eq!(hosts(&["a"].into(), &[]), "");
    }
}
