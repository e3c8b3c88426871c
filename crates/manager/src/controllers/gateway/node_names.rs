//! Pure: the hosts file by which cluster DNS leads names of edge nodes to the gateways.
//!
//! Nodes of the cloud are not in it: they are reached as ever, though every gateway be dead.
//!
//! A node chooses its name when it registers, and cluster DNS reads this file before its own zone. So no node may be called like a Service.

use std::collections::BTreeSet;

use api::names::GATEWAY_SERVER_NAMES;

use super::domains::{Domain, Member};

/// The domain of clusters that were given no other.
const CLUSTER_DOMAIN: &str = "cluster.local";

/// Whether a name is one of a Service, whatever the cluster's domain is, or of the cluster's domain as it usually is, or that of gateways.
pub(crate) fn is_reserved(name: &str) -> bool {
    let in_cluster =
        name.strip_suffix(CLUSTER_DOMAIN).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    // A first label `svc` is a host's own.
    let of_service = name.split('.').skip(1).any(|label| label == "svc");
    in_cluster || of_service || GATEWAY_SERVER_NAMES.contains(&name)
}

/// The names of the nodes that are reached through the gateways: those behind a Gateway that is not among `exposed`, and edge nodes
/// behind none. Whether one that is `unreadable` is exposed nobody knows: its cloud nodes are taken for such.
pub(crate) fn tunnelled<'a>(
    members: &'a [Member],
    exposed: &BTreeSet<String>,
    unreadable: &BTreeSet<String>,
) -> BTreeSet<&'a str> {
    let tunnelled = members.iter().filter(|member| match &member.domain {
        Domain::Gateway(gateway) if unreadable.contains(gateway) => member.edge,
        Domain::Gateway(gateway) => !exposed.contains(gateway),
        Domain::Pool | Domain::Solo => member.edge,
        Domain::Cloud => false,
    });
    tunnelled.map(|member| member.name.as_str()).collect()
}

/// The file: a line `address TAB name` for each node and address, but for names that are reserved.
pub(crate) fn hosts(nodes: &BTreeSet<&str>, addresses: &[String]) -> String {
    let lines: Vec<String> = nodes
        .iter()
        .filter(|node| !is_reserved(node))
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
        let nodes = tunnelled(&members, &["cloud".to_owned()].into(), &BTreeSet::new());
        assert_eq!(nodes, ["branch", "pooled", "solo", "z"].into());
        let unread = tunnelled(&members, &BTreeSet::new(), &["cloud".to_owned()].into());
        assert_eq!(unread, ["branch", "pooled", "public-edge", "solo", "z"].into());
        assert_eq!(
            hosts(&["b", "a"].into(), &["10.0.0.1".to_owned(), "fd00::1".to_owned()]),
            "10.0.0.1\ta\nfd00::1\ta\n10.0.0.1\tb\nfd00::1\tb"
        );
        assert_eq!(hosts(&["a"].into(), &[]), "");
    }
    #[test]
    fn no_node_has_the_name_of_a_service_or_of_gateways() {
        for (name, expected) in [
            ("shop-1", false),
            ("shop-1.example.com", false),
            ("svc", false),
            ("svc.example.com", false),
            ("notcluster.local", false),
            ("kubernetes.default.svc.cluster.local", true),
            ("kubernetes.default.svc", true),
            ("collector.ingest.svc.example.com", true),
            ("10-0-0-1.default.pod.cluster.local", true),
            ("cluster.local", true),
            ("gateway.isthmus.internal", true),
            ("gateway.pool.isthmus.internal", true),
        ] {
            assert_eq!(is_reserved(name), expected, "{name}");
            let written = if expected { String::new() } else { format!("10.0.0.1\t{name}") };
            assert_eq!(hosts(&[name].into(), &["10.0.0.1".to_owned()]), written);
        }
    }
}
