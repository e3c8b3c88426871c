use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    destination::{Callers, KUBELETS, Rule},
    view::{GatewayState, Node, Place},
};

/// Two cloud nodes with gateways on both, two pools whose nodes have the same addresses, a solo node with one of them too.
fn view() -> View {
    let nodes = [
        ("c1", Place::Cloud, None, "10.0.0.1"),
        ("c2", Place::Cloud, None, "10.0.0.2"),
        ("c3", Place::Cloud, None, "10.0.0.3"),
        ("a1", Place::Edge, Some("a"), "192.168.1.10"),
        ("a2", Place::Edge, Some("a"), "192.168.1.11"),
        ("b1", Place::Edge, Some("b"), "192.168.1.10"),
        ("b2", Place::Edge, Some("b"), "192.168.1.12"),
        ("solo", Place::Edge, None, "192.168.1.10"),
    ];
    let nodes = nodes.map(|(name, place, pool, address)| {
        let addresses = vec![address.parse().unwrap()];
        (name.to_owned(), Node { addresses, ..Node::of(place, pool) })
    });
    let gateways = [
        (Domain::Cloud, GatewayState::of(true, &["c1", "c2"])),
        (Domain::Pool("a".into()), GatewayState::of(false, &["a1"])),
        (Domain::Pool("b".into()), GatewayState::of(false, &["b1"])),
    ];
    let destinations = vec![
        Rule { to: Destination::Nodes { domain: None }, ports: vec![LISTED..=LISTED], from: Callers::All },
        Rule {
            to: Destination::Name { pattern: "*.svc".into(), domain: Domain::Cloud },
            ports: vec![80..=80],
            from: Callers::Of([Domain::Cloud, Domain::Pool("a".into())].into()),
        },
        Rule {
            to: Destination::Network { network: "10.96.0.0/12".parse().unwrap(), domain: Domain::Cloud },
            ports: vec![1..=u16::MAX],
            from: Callers::All,
        },
        Rule { to: Destination::NodeLoopback { domain: None }, ports: vec![9999..=9999], from: Callers::All },
        cloud_network(),
    ];
    View { nodes: BTreeMap::from(nodes), gateways: BTreeMap::from(gateways), destinations, ..View::default() }
}

/// Where nodes of the cloud that nobody vouches for may say that they are.
fn cloud_network() -> Rule {
    let to = Destination::Network { network: "10.0.0.0/24".parse().unwrap(), domain: Domain::Cloud };
    Rule { to, ports: vec![LISTED..=LISTED], from: Callers::All }
}

/// A port of nodes that everyone may reach, as somebody listed it.
const LISTED: u16 = 18090;

/// The same as the node `me` sees it, with what is there by default.
fn with_defaults(me: &str) -> View {
    let mut view = view();
    let mine = view.domain_of(me);
    view.destinations.extend(Rule::nodes(&KUBELETS, mine.as_ref(), [Domain::Cloud]));
    view
}

fn describe(route: &Route) -> String {
    match route {
        Route::Direct(Direct::Addresses(addresses)) => {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            format!("direct {}", addresses.join(","))
        }
        Route::Direct(Direct::Name(name, port)) => format!("direct {name}:{port}"),
        Route::Refused(refusal) => format!("{refusal:?}"),
        Route::Through { domain, steps } => {
            let steps: Vec<_> = steps
                .iter()
                .map(|step| {
                    let peers: Vec<_> = step.peers.iter().map(String::as_str).collect();
                    format!("{:?} {}", step.direction, peers.join(","))
                })
                .collect();
            format!("{domain} by {}", steps.join(" then "))
        }
    }
}

fn check(view: &View, me: &str, target: &str, expected: &str) {
    let origin = Origin::of(view.domain_of(me).unwrap_or(Domain::Cloud));
    let target = Target::parse(target, None).unwrap();
    assert_eq!(describe(&route(me, &origin, &target, view)), expected, "{me} to {target}");
}

#[test]
fn rules_of_the_issue() {
    let view = view();
    let check = |me, target, expected| check(&view, me, target, expected);
    // A node of the caller's own domain is dialled directly, gateway or not.
    check("c1", "c3:18090", "direct 10.0.0.3:18090");
    check("c3", "c1:18090", "direct 10.0.0.1:18090");
    check("a2", "a1:18090", "direct 192.168.1.10:18090");
    // From a cloud gateway: the pool's endpoint, or a sibling that has the link.
    check("c1", "a2:18090", "pool/a by Reverse a1 then Forward c2");
    check("c1", "solo:18090", "node/solo by Reverse solo then Forward c2");
    // From an ordinary node: its own gateway.
    check("c3", "a2:18090", "pool/a by Forward c1,c2");
    check("a2", "c1:18090", "cloud by Forward a1");
    // From an edge gateway, and a solo node: the exposed gateways, also on the way to another pool.
    check("a1", "c3:18090", "cloud by Forward c1,c2");
    check("a1", "b2:18090", "pool/b by Forward c1,c2");
    check("solo", "b2:18090", "pool/b by Forward c1,c2");
    // Overlapping addresses: one's own domain first, else they have to be named.
    check("a1", "192.168.1.10:18090", "direct 192.168.1.10:18090");
    check("c1", "192.168.1.10:18090", "Ambiguous");
    check("c1", "192.168.1.12:18090", "pool/b by Reverse b1 then Forward c2");
    // Names and networks that are no nodes.
    check("a1", "web.ns.svc:80", "cloud by Forward c1,c2");
    check("c1", "web.ns.svc:80", "direct web.ns.svc:80");
    check("a1", "10.96.0.1:443", "cloud by Forward c1,c2");
    // What is on no list.
    check("b1", "web.ns.svc:80", "NotAllowed");
    check("c1", "web.ns.svc:81", "NotAllowed");
    check("c1", "web.ns.example:80", "NotAllowed");
    check("c1", "a1:22", "NotAllowed");
    check("c1", "10.0.0.1:2379", "NotAllowed");
    check("c1", "169.254.169.254:80", "NotAllowed");
    check("c1", "8.8.8.8:18090", "NotAllowed");
    // Loopback of the node that is named, and of no other.
    check("a1", "a1:9999", "direct 127.0.0.1:9999");
    check("a1", "a2:9999", "NotAllowed");
    check("c1", "a1:9999", "pool/a by Reverse a1 then Forward c2");
    check("c1", "127.0.0.1:9999", "NotAllowed");
    check("nobody", "a1:18090", "NotAMember");
}

/// The cloud reaches all nodes' kubelets, and each domain its own. Each hop decides by itself: whoever has an edge node's key is no
/// further than that node is.
#[test]
fn kubelets_are_for_the_cloud_and_for_the_own_domain() {
    let check = |me: &str, from: &str, target: &str, expected: &str| {
        let view = with_defaults(me);
        let origin = Origin::of(view.domain_of(from).unwrap());
        let target = Target::parse(target, None).unwrap();
        assert_eq!(describe(&route(me, &origin, &target, &view)), expected, "{from} at {me} to {target}");
    };
    for port in KUBELETS {
        let to = |node: &str| format!("{node}:{port}");
        check("c1", "c1", &to("a2"), "pool/a by Reverse a1 then Forward c2");
        check("c1", "c3", &to("solo"), "node/solo by Reverse solo then Forward c2");
        check("a1", "c1", &to("a2"), &format!("direct 192.168.1.11:{port}"));
        check("solo", "c1", &to("solo"), &format!("direct 192.168.1.10:{port}"));
        check("a2", "a2", &to("a1"), &format!("direct 192.168.1.10:{port}"));
        check("solo", "solo", &to("solo"), &format!("direct 192.168.1.10:{port}"));
        check("c3", "c3", &to("c1"), &format!("direct 10.0.0.1:{port}"));
        // From another domain, at the caller's own hub; and at the gateway, if the hub there is not what it seems.
        for (from, node) in [("a1", "b1"), ("a1", "c1"), ("a1", "solo"), ("solo", "a1"), ("solo", "c3")] {
            check(from, from, &to(node), "NotAllowed");
            check("c1", from, &to(node), "NotAllowed");
        }
        check("a1", "a2", &to("b1"), "NotAllowed");
        check("b1", "a1", &to("b2"), "NotAllowed");
        check("c1", "a1", &to("192.168.1.12"), "NotAllowed");
        // Nobody learns so which nodes there are.
        check("c1", "a1", &to("nobody"), "NotAllowed");
        check("c1", "c1", &to("nobody"), "Unknown");
    }
    // What somebody listed, everyone reaches.
    check("a1", "a1", "b2:18090", "pool/b by Forward c1,c2");
    check("c1", "a1", "b2:18090", "pool/b by Reverse b1 then Forward c2");
    check("b1", "c1", "b2:18090", "direct 192.168.1.12:18090");
}

/// Nodes write their addresses themselves.
#[test]
fn no_node_takes_the_address_of_a_service() {
    let mut view = view();
    let service: IpAddr = "10.96.0.10".parse().unwrap();
    view.nodes.get_mut("b1").unwrap().addresses.push(service);
    check(&view, "a1", "10.96.0.10:18090", "cloud by Forward c1,c2");
    check(&view, "c1", "10.96.0.10:18090", "direct 10.96.0.10:18090");
    view.nodes.get_mut("b2").unwrap().addresses.push(service);
    check(&view, "a1", "10.96.0.10:443", "cloud by Forward c1,c2");
    // Nor one of the cloud itself, be it by a port that is listed for nodes or one that is not, nor two of them.
    for thief in ["c3", "c2"] {
        view.nodes.get_mut(thief).unwrap().addresses.push(service);
        for port in [18090, 443] {
            let target = format!("10.96.0.10:{port}");
            check(&view, "c1", &target, &format!("direct {target}"));
            check(&view, "a1", &target, "cloud by Forward c1,c2");
        }
    }
    // Where it is a node's, it stays that.
    check(&view, "c1", "192.168.1.12:18090", "pool/b by Reverse b1 then Forward c2");
}

/// Whoever registers a node chooses its name.
#[test]
fn no_node_takes_the_name_of_what_is_listed() {
    let mut view = view();
    for (node, like) in [("web.ns.svc", "b1"), ("api.svc", "c3")] {
        let known = view.nodes[like].clone();
        view.nodes.insert(node.into(), known);
        view.destinations.push(Rule {
            to: Destination::Nodes { domain: None },
            ports: vec![80..=80],
            from: Callers::All,
        });
        check(&view, "a1", &format!("{node}:80"), "cloud by Forward c1,c2");
        check(&view, "c1", &format!("{node}:80"), &format!("direct {node}:80"));
    }
    // At another port, and for whom the rule is not, it is a node.
    check(&view, "c1", "web.ns.svc:18090", "pool/b by Reverse b1 then Forward c2");
    check(&view, "b2", "web.ns.svc:80", "direct 192.168.1.10:80");
}

/// The key of a node of the cloud makes the gateway dial no other host: whoever has no rights of the cloud is led to such a node only where a
/// network is listed for him, too.
#[test]
fn a_node_that_lies_about_its_addresses_leads_nobody_elsewhere() {
    let at = |view: &View, domain: Option<Domain>, target: &str| {
        let origin = Origin { domain, asker: Asker::Peer, vouched: true };
        describe(&route("c1", &origin, &Target::parse(target, None).unwrap(), view))
    };
    let (edge, nobody) = (Some(Domain::Pool("a".into())), None);
    let mut view = view();
    let victim = "10.0.9.9".parse().unwrap();
    view.nodes.get_mut("c3").unwrap().addresses = vec![victim, "10.0.0.3".parse().unwrap()];
    for origin in [edge.clone(), nobody.clone()] {
        assert_eq!(at(&view, origin.clone(), "c3:18090"), "direct 10.0.0.3:18090", "what is listed");
        assert_eq!(at(&view, origin, "10.0.9.9:18090"), "NotAllowed");
    }
    view.nodes.get_mut("c3").unwrap().addresses.pop();
    for origin in [edge.clone(), nobody.clone()] {
        assert_eq!(at(&view, origin, "c3:18090"), "NotAllowed");
    }
    // An API server, a scraper of the cloud, dial nodes where they say anyway.
    assert_eq!(at(&view, Some(Domain::Cloud), "c3:18090"), "direct 10.0.9.9:18090");
    // Those that an operator lists, or that are elected of them, are his word; and what is no node of the cloud is not dialled by it.
    assert_eq!(at(&view, edge.clone(), "c2:18090"), "direct 10.0.0.2:18090");
    assert_eq!(at(&view, edge.clone(), "b2:18090"), "pool/b by Reverse b1 then Forward c2");
    view.gateways.get_mut(&Domain::Cloud).unwrap().listed = ["c3".to_owned()].into();
    assert_eq!(at(&view, edge.clone(), "c3:18090"), "direct 10.0.9.9:18090");
    // A network of another port, or for others, vouches for nothing.
    view.gateways.get_mut(&Domain::Cloud).unwrap().listed.clear();
    view.nodes.get_mut("c3").unwrap().addresses = vec!["10.0.0.3".parse().unwrap()];
    view.destinations.pop();
    assert_eq!(at(&view, edge.clone(), "c3:18090"), "NotAllowed");
    view.destinations.push(Rule { from: Callers::Of([Domain::Cloud].into()), ..cloud_network() });
    assert_eq!(at(&view, edge.clone(), "c3:18090"), "NotAllowed");
    view.destinations.push(Rule { ports: vec![1..=1], ..cloud_network() });
    assert_eq!(at(&view, edge.clone(), "c3:18090"), "NotAllowed");
    view.destinations.push(cloud_network());
    assert_eq!(at(&view, edge, "c3:18090"), "direct 10.0.0.3:18090");
}

/// A program of a node of the cloud reaches its own pool's nodes whoever is exposed: it could dial them by itself.
#[test]
fn a_program_of_the_cloud_reaches_its_pool_where_nobody_is_exposed() {
    let mut view = view();
    view.destinations.pop();
    view.gateways.clear();
    for node in ["c1", "c3"] {
        view.nodes.get_mut(node).unwrap().pool = Some("y".into());
    }
    check(&view, "c1", "c3:18090", "direct 10.0.0.3:18090");
}

/// Nor does it keep anybody from the address of another node of its domain.
#[test]
fn an_address_that_two_nodes_of_a_domain_claim_is_what_it_is_there() {
    let mut view = view();
    view.destinations.pop();
    let address = view.nodes["c2"].addresses.clone();
    view.nodes.get_mut("c3").unwrap().addresses.extend(address);
    check(&view, "c1", "10.0.0.2:18090", "direct 10.0.0.2:18090");
    // Of two it is that of which the operator says where it is, so others reach it as before.
    let edge = Origin { asker: Asker::Peer, ..Origin::of(Domain::Pool("a".into())) };
    let target = Target::parse("10.0.0.2:18090", None).unwrap();
    assert_eq!(describe(&route("c1", &edge, &target, &view)), "direct 10.0.0.2:18090");
    // The own address, and with it the own loopback, is nobody else's.
    let own = view.nodes["a1"].addresses.clone();
    view.nodes.get_mut("a2").unwrap().addresses.extend(own);
    check(&view, "a1", "192.168.1.10:9999", "direct 127.0.0.1:9999");
    // Nodes of two other domains still have to be named, those of one do not.
    check(&view, "c1", "192.168.1.10:18090", "Ambiguous");
    let other = view.nodes["b2"].addresses.clone();
    view.nodes.get_mut("b1").unwrap().addresses.extend(other);
    check(&view, "c1", "192.168.1.12:18090", "pool/b by Reverse b1 then Forward c2");
}

/// Of solo nodes those alone know who stand for an exposed domain.
#[test]
fn who_is_unknown_is_asked_for_where_all_nodes_are_known() {
    let mut view = view();
    for port in [LISTED, 9999] {
        let target = format!("solo-2:{port}");
        let check = |me, expected| check(&view, me, &target, expected);
        check("a1", "cloud by Forward c1,c2");
        check("a2", "cloud by Forward a1");
        check("solo", "cloud by Forward c1,c2");
        check("c3", "cloud by Forward c1,c2");
        // They decide, so nothing goes in circles.
        check("c1", "Unknown");
        check("c2", "Unknown");
    }
    // What no node is asked for, and a name that is listed for another port.
    check(&view, "a1", "solo-2:22", "NotAllowed");
    check(&view, "a1", "web.ns.svc:18090", "NotAllowed");
    view.gateways.insert(
        Domain::Pool("x".into()),
        GatewayState { exposed: true, endpoints: BTreeSet::new(), ..GatewayState::default() },
    );
    check(&view, "a1", "solo-2:18090", "cloud by Forward c1,c2");
    view.gateways.clear();
    check(&view, "a1", "solo-2:18090", "Unknown");
}

#[test]
fn a_sibling_is_not_asked_back() {
    let view = view();
    let origin = Origin { asker: Asker::Sibling, ..Origin::of(Domain::Cloud) };
    let target = Target::parse("a2:18090", None).unwrap();
    assert_eq!(describe(&route("c1", &origin, &target, &view)), "pool/a by Reverse a1");
}

#[test]
fn cloud_pools_are_domains_of_their_own() {
    let mut view = view();
    for (name, pool) in [("c1", "x"), ("c3", "y")] {
        view.nodes.get_mut(name).unwrap().pool = Some(pool.into());
    }
    view.gateways.remove(&Domain::Cloud);
    let gateway = |node: &str| GatewayState {
        exposed: true,
        endpoints: [node.to_owned()].into(),
        ..GatewayState::default()
    };
    view.gateways.insert(Domain::Pool("x".into()), gateway("c1"));
    view.gateways.insert(Domain::Pool("y".into()), gateway("c3"));
    check(&view, "c1", "c3:18090", "pool/y by Forward c3");
    check(&view, "a1", "c3:18090", "pool/y by Forward c3 then Forward c1");
    check(&view, "c2", "a1:18090", "NoGateway");
    view.gateways.clear();
    check(&view, "a1", "b1:18090", "NoGateway");
    check(&view, "a1", "a2:18090", "direct 192.168.1.11:18090");
}

/// A pool of cloud nodes has the gateway; the control plane is in no pool.
#[test]
fn cloud_nodes_without_a_gateway_are_dialled_by_those_of_a_cloud_pool() {
    let mut view = view();
    for name in ["c1", "c2"] {
        view.nodes.get_mut(name).unwrap().pool = Some("x".into());
    }
    let gateway = view.gateways.remove(&Domain::Cloud).unwrap();
    view.gateways.insert(Domain::Pool("x".into()), gateway);
    check(&view, "c1", "c3:18090", "direct 10.0.0.3:18090");
    check(&view, "c1", "10.0.0.3:18090", "direct 10.0.0.3:18090");
    check(&view, "c1", "c3:22", "NotAllowed");
    check(&view, "c1", "c3:9999", "NotAllowed");
    // From the edge, by the gateway; also by who does not know the node, as on the edge.
    check(&view, "a1", "c3:18090", "cloud by Forward c1,c2");
    check(&view, "solo", "c3:18090", "cloud by Forward c1,c2");
    let from_edge = Origin::of(Domain::Pool("a".into()));
    let target = Target::parse("c3:18090", None).unwrap();
    assert_eq!(describe(&route("c1", &from_edge, &target, &view)), "direct 10.0.0.3:18090");
    // An edge node without a gateway is none of the cloud's; and a domain that has one is asked, whoever stands for it.
    view.gateways.remove(&Domain::Pool("b".into()));
    check(&view, "c1", "b2:18090", "pool/b by Forward c2");
    view.gateways.insert(Domain::Cloud, GatewayState::default());
    check(&view, "c1", "c3:18090", "cloud by Forward c2");
    view.gateways.remove(&Domain::Cloud);
    view.nodes.get_mut("c3").unwrap().pool = Some("y".into());
    check(&view, "c1", "c3:18090", "direct 10.0.0.3:18090");
}

/// Who asks over a reverse link has sent the stream here because this node should know; it does not go back.
#[test]
fn what_came_over_a_reverse_link_is_not_sent_back() {
    let view = view();
    let origin = Origin { asker: Asker::Reverse, ..Origin::of(Domain::Cloud) };
    let check = |target: &str, expected: &str| {
        let target = Target::parse(target, None).unwrap();
        assert_eq!(describe(&route("a1", &origin, &target, &view)), expected);
    };
    check("a2:18090", "direct 192.168.1.11:18090");
    check("a1:9999", "direct 127.0.0.1:9999");
    check("a-1025:18090", "Unknown");
    check("b2:18090", "NoGateway");
    check("c1:18090", "NoGateway");
    check("a2:22", "NotAllowed");
}

/// A node's name may end with a number. What does is looked for among nodes and never resolved: it might be an address to a resolver.
#[test]
fn names_that_end_with_a_number_are_nodes_or_nothing() {
    let mut view = view();
    let node = view.nodes["a2"].clone();
    view.nodes.insert("rack-3.12".into(), node);
    let to = Destination::Name { pattern: "*.1".into(), domain: Domain::Cloud };
    view.destinations.push(Rule { to, ports: vec![80..=80], from: Callers::All });
    check(&view, "a1", "rack-3.12:18090", "direct 192.168.1.11:18090");
    check(&view, "c1", "rack-3.12:18090", "pool/a by Reverse a1 then Forward c2");
    check(&view, "c1", "rack-3.13:18090", "Unknown");
    check(&view, "c1", "127.1:80", "NotAllowed");
    check(&view, "c1", "10.0.1:22", "NotAllowed");
}

mod around;
mod neighbours;
mod unasked;

proptest! {
    /// From any node to any node: nobody is asked who is this node itself or stands for nothing, a node without a tunnel asks
    /// its own domain only, and following the first peer of each step ends at the destination's domain in three hops.
    #[test]
    fn streams_arrive(from in 0_usize..8, to in 0_usize..8) {
        let view = view();
        let names: Vec<_> = view.nodes.keys().cloned().collect();
        let target = Target { host: Host::Name(names[to].clone()), port: LISTED };
        let mut me = names[from].clone();
        let mut origin = Origin::of(view.domain_of(&me).unwrap());
        for _ in 0..4 {
            let mine = view.domain_of(&me).unwrap();
            match route(&me, &origin, &target, &view) {
                Route::Direct(_) => {
                    prop_assert_eq!(Some(mine), view.domain_of(&names[to]));
                    return Ok(());
                }
                Route::Through { steps, .. } => {
                    let peers = &steps[0].peers;
                    prop_assert!(!peers.contains(&me));
                    if !view.is_endpoint(&me, &mine) {
                        prop_assert_eq!(peers, &view.endpoints(&mine));
                    }
                    let next = peers.first().unwrap().clone();
                    let sibling = view.domain_of(&next) == Some(mine.clone()) && view.is_endpoint(&me, &mine);
                    let asker = match steps[0].direction {
                        Direction::Reverse => Asker::Reverse,
                        Direction::Forward if sibling => Asker::Sibling,
                        Direction::Forward => Asker::Peer,
                    };
                    origin = Origin { domain: view.speaks_for(&me, mine), asker, vouched: true };
                    me = next;
                }
                Route::Refused(refusal) => prop_assert!(false, "{refusal:?}"),
            }
        }
        prop_assert!(false, "went in circles");
    }
}
