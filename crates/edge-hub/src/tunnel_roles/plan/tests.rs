use std::sync::LazyLock;

use api::ExposeType;
use tunnel::route::{Asker, Direct, Direction, Origin, Refusal, Route, route};

use super::*;

mod idle;
mod neighbours;
mod ways;

fn gateway(exposed: bool, endpoints: &[&str], nodes: &[(&str, &str)]) -> Gateway {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    Gateway {
        expose_type: if exposed { ExposeType::PublicIP } else { ExposeType::None },
        endpoints: names(endpoints),
        listed: names(endpoints),
        active: names(endpoints),
        nodes: nodes.iter().map(|(node, address)| ((*node).to_owned(), address.parse().ok())).collect(),
        ..Gateway::default()
    }
}

fn facts(edge: bool, pool: Option<&str>, address: &str) -> NodeFacts {
    NodeFacts {
        edge,
        pool: pool.map(str::to_owned),
        gateway: None,
        addresses: address.parse().into_iter().collect(),
    }
}

/// A cloud gateway on `c1`, a pool `a` of `a1` (its endpoint) and `a2`, a pool `b` whose `b1` has the address of `a1`.
fn gateways() -> BTreeMap<String, Gateway> {
    let mut cloud = gateway(true, &["c1"], &[("c1", "10.0.0.1")]);
    cloud.addresses = vec![("203.0.113.7:10262".to_owned(), Some("c1".to_owned()))];
    cloud.ports = [9100, 10250].into();
    let a = gateway(false, &["a1"], &[("a1", "192.168.1.10"), ("a2", "192.168.1.11")]);
    let b = gateway(false, &["b1"], &[("b1", "192.168.1.10")]);
    [("cloud".to_owned(), cloud), ("a".to_owned(), a), ("b".to_owned(), b)].into()
}

fn at(me: &str, known: &Known) -> Plan {
    plan(&given(me, None), known)
}

fn given(me: &str, ways_in: Option<IpAddr>) -> Given<'_> {
    static DESTINATIONS: LazyLock<[DestinationRule; 4]> = LazyLock::new(|| {
        ["kube.svc=443", "nodes=18090", "10.96.0.0/12=443", "nodes@pool/b=18091:pool/a"]
            .map(|rule| rule.parse().unwrap())
    });
    Given { me, listen_port: 10262, destinations: &*DESTINATIONS, ways_in }
}

/// As the hub of an edge node knows the cluster.
fn edge(me: &str, own: NodeFacts) -> Plan {
    at(me, &Known { gateways: gateways(), own: Some(own), ..Known::default() })
}

/// As the hub of the cloud gateway's node knows it.
fn cloud() -> Known {
    let nodes = [
        ("c1", facts(false, None, "10.0.0.1")),
        ("c2", facts(false, None, "10.0.0.2")),
        ("a1", facts(true, Some("a"), "192.168.1.10")),
        ("solo", facts(true, None, "192.168.1.10")),
        ("lone", facts(false, Some("edge-pool"), "192.168.1.12")),
        ("labelled", NodeFacts { gateway: Some("a".to_owned()), ..facts(true, None, "192.168.1.13") }),
    ];
    Known {
        gateways: gateways(),
        own: Some(facts(false, None, "10.0.0.1")),
        nodes: nodes.map(|(name, facts)| (name.to_owned(), facts)).into(),
        edge_pools: [("edge-pool".to_owned(), true)].into(),
        ..Known::default()
    }
}

fn way(me: &str, plan: &Plan, target: &str) -> Route {
    let origin = Origin::of(plan.view.domain_of(me).unwrap());
    route(me, &origin, &tunnel::target::Target::parse(target, None).unwrap(), &plan.view)
}

#[test]
fn roles_follow_from_what_gateways_list() {
    let edge_facts = || facts(true, Some("a"), "");
    assert_eq!(edge("a1", edge_facts()).role, Role::Agent);
    assert_eq!(edge("a2", edge_facts()).role, Role::None);
    // In no Gateway: solo if the node or its pool is of the edge.
    assert_eq!(edge("solo", facts(true, None, "")).role, Role::Agent);
    assert_eq!(edge("c2", facts(false, None, "")).role, Role::None);
    let mut known =
        Known { gateways: gateways(), own: Some(facts(false, Some("p"), "")), ..Known::default() };
    assert_eq!(at("n", &known).role, Role::None);
    known.edge_pools.insert("p".to_owned(), true);
    assert_eq!(at("n", &known).role, Role::Agent);
    // Its pool has a Gateway that does not list it yet: it waits.
    known.gateways.insert("p".to_owned(), gateway(false, &[], &[]));
    assert_eq!(at("n", &known).role, Role::None);
    // Listed and not elected: it listens all the same, so that it can be.
    let mut known = cloud();
    assert_eq!(at("c1", &known).role, Role::Gateway);
    known.gateways.get_mut("cloud").unwrap().active.clear();
    assert_eq!(at("c1", &known).role, Role::Gateway);
    known.gateways.get_mut("cloud").unwrap().listed = ["c2".to_owned()].into();
    known.gateways.get_mut("cloud").unwrap().endpoints = ["c2".to_owned()].into();
    assert_eq!(at("c1", &known).role, Role::None);
    // Without a list it is who was elected.
    let cloud_gateway = known.gateways.get_mut("cloud").unwrap();
    cloud_gateway.listed.clear();
    cloud_gateway.endpoints.clear();
    assert_eq!(at("c1", &known).role, Role::None);
    known.gateways.get_mut("cloud").unwrap().active = ["c1".to_owned()].into();
    assert_eq!(at("c1", &known).role, Role::Gateway);
    assert_eq!(
        at("nobody", &Known::default()),
        Plan {
            view: View {
                destinations: at("nobody", &Known::default()).view.destinations,
                is_partial: true,
                ..View::default()
            },
            idle: at("nobody", &Known::default()).idle,
            ..Plan::default()
        }
    );
}

#[test]
fn who_watches_no_nodes_does_not_know_that_one_is_gone() {
    assert!(edge("a1", facts(true, Some("a"), "")).view.is_partial);
    assert!(!at("c1", &cloud()).view.is_partial);
}

#[test]
fn who_is_no_exposed_gateway_has_no_right_to_their_name() {
    for (what, plan, expected) in [
        ("an exposed gateway", at("c1", &cloud()), false),
        ("a pool's endpoint", edge("a1", facts(true, Some("a"), "")), true),
        ("one that has nobody to forward for", edge("b1", facts(true, Some("b"), "")), true),
        ("an ordinary node", edge("a2", facts(true, Some("a"), "")), true),
        ("a node alone", edge("solo", facts(true, None, "")), true),
        ("before Gateways are known", Plan::default(), false),
        ("without Gateways", at("c1", &Known::default()), false),
    ] {
        assert_eq!(plan.has_no_right_to_exposed_name(), expected, "{what}");
    }
    let mut known = cloud();
    known.gateways.get_mut("cloud").unwrap().listed = ["c2".to_owned()].into();
    known.gateways.get_mut("cloud").unwrap().endpoints = ["c2".to_owned()].into();
    assert!(at("c1", &known).has_no_right_to_exposed_name(), "one that is not listed any more");
}

#[test]
fn an_ordinary_node_asks_its_pools_endpoint_which_accepts_its_pool_alone() {
    let endpoint = edge("a1", facts(true, Some("a"), ""));
    assert_eq!((endpoint.role, endpoint.accepts), (Role::Agent, Accepts::OwnPool));
    let ordinary = edge("a2", facts(true, Some("a"), ""));
    assert_eq!((ordinary.role, ordinary.accepts), (Role::None, Accepts::Nobody));
    assert_eq!(ordinary.listening["a1"].addresses, ["192.168.1.10:10262".to_owned()].into());
    // The endpoint of another pool is not dialled, although it has the same address.
    assert!(!ordinary.listening.contains_key("b1"));
    for target in ["c1:18090", "b1:18090", "kube.svc:443"] {
        let Route::Through { steps, .. } = way("a2", &ordinary, target) else { panic!("{target}") };
        assert_eq!(steps.len(), 1, "{target}");
        assert_eq!(steps[0].direction, Direction::Forward, "{target}");
        assert_eq!(steps[0].peers, ["a1".to_owned()].into(), "{target}");
    }
    assert!(matches!(way("a2", &ordinary, "a1:10250"), Route::Direct(_)));
    // Nobody to forward for: nothing is listened on.
    assert_eq!(edge("b1", facts(true, Some("b"), "")).accepts, Accepts::Nobody);
    assert_eq!(edge("solo", facts(true, None, "")).accepts, Accepts::Nobody);
    assert_eq!(at("c1", &cloud()).accepts, Accepts::Everyone);
}

#[test]
fn domains_are_pools_the_cloud_and_lone_edge_nodes() {
    let plan = at("c1", &cloud());
    let domain = |node: &str| plan.view.domain_of(node).map(|domain| domain.to_string()).unwrap_or_default();
    let domains = ["c1", "c2", "a1", "a2", "labelled", "solo", "lone", "x"].map(domain);
    assert_eq!(domains, ["cloud", "cloud", "pool/a", "pool/a", "pool/a", "node/solo", "node/lone", ""]);
    assert!(plan.view.is_exposed(&Domain::Cloud) && plan.view.is_endpoint("c1", &Domain::Cloud));
    assert!(plan.view.is_endpoint("solo", &Domain::Solo("solo".into())));
    assert_eq!(plan.problems, [""; 0]);
    // A pool of cloud nodes with a gateway of its own is another domain.
    let mut known = cloud();
    known.gateways.insert("region".to_owned(), gateway(true, &["r1"], &[("r1", "10.0.0.1")]));
    known.nodes.insert("r1".to_owned(), facts(false, Some("region"), "10.0.0.1"));
    let plan = at("c1", &known);
    assert_eq!(plan.view.domain_of("r1"), Some(Domain::Pool("region".into())));
    assert!(plan.view.is_exposed(&Domain::Pool("region".into())));
    // Of two Gateways for the cloud the older stands for it, and the other for nothing: as the manager has it.
    let second = Gateway {
        created: Some("2026-01-02T00:00:00Z".parse().unwrap()),
        ..gateway(true, &["c2"], &[("c1", "10.0.0.1"), ("c2", "10.0.0.2")])
    };
    known.gateways.insert("a-second".to_owned(), second);
    known.gateways.get_mut("cloud").unwrap().created = Some("2026-01-01T00:00:00Z".parse().unwrap());
    let plan = at("c1", &known);
    assert_eq!(plan.view.endpoints(&Domain::Cloud), ["c1".to_owned()].into());
    assert_eq!(plan.view.domain_of("c2"), Some(Domain::Cloud));
    assert!(!plan.view.gateways.contains_key(&Domain::Pool("a-second".into())));
    let problem = "Gateway a-second counts for nothing: the cloud nodes are behind cloud, which is older";
    assert_eq!(plan.problems, [problem]);
    known.gateways.remove("a-second");
    // A node behind two pools is told of, and in one of them.
    known.gateways.get_mut("b").unwrap().nodes.push(("a2".to_owned(), None));
    let plan = at("c1", &known);
    assert_eq!(plan.view.domain_of("a2"), Some(Domain::Pool("a".into())));
    assert_eq!(plan.problems, ["node a2 is behind two Gateways, a and b: a counts"]);
}

/// The manager's cases are in its `domains`: pools come from NodePools.
#[test]
fn a_label_that_names_no_node_pool_is_no_pool() {
    let mut known = cloud();
    known.gateways.insert("ghost".to_owned(), gateway(false, &[], &[]));
    known.edge_pools.insert("a".to_owned(), true);
    for (name, edge) in [("lost", true), ("stray", false)] {
        known.nodes.insert(name.to_owned(), facts(edge, Some("ghost"), "192.168.1.20"));
    }
    // The cloud's gateway itself.
    known.own = Some(facts(false, Some("ghost"), "10.0.0.1"));
    known.nodes.insert("c1".to_owned(), facts(false, Some("ghost"), "10.0.0.1"));
    let domains = |known: &Known| {
        let view = at("c1", known).view;
        ["c1", "lost", "stray", "a1"].map(|node| view.domain_of(node).unwrap().to_string())
    };
    // Before pools are read the labels count.
    assert_eq!(domains(&known), ["pool/cloud", "pool/ghost", "pool/ghost", "pool/a"]);
    known.knows_pools = true;
    assert_eq!(domains(&known), ["cloud", "node/lost", "cloud", "pool/a"]);
    known.edge_pools.insert("ghost".to_owned(), true);
    assert_eq!(domains(&known), ["pool/cloud", "pool/ghost", "pool/ghost", "pool/a"]);
    // As the node knows it, which reads its own pool alone: it stands for itself, and waits for nobody.
    let mut known = Known {
        gateways: known.gateways,
        own: Some(facts(true, Some("ghost"), "192.168.1.20")),
        ..Known::default()
    };
    assert_eq!(at("lost", &known).role, Role::None);
    known.knows_pools = true;
    assert_eq!(at("lost", &known).role, Role::Agent);
    known.edge_pools.insert("ghost".to_owned(), true);
    assert_eq!(at("lost", &known).role, Role::None);
}

/// A node that says nothing of itself counts as a cloud node: so the rights of the cloud are for those that an exposed Gateway lists, by
/// whose word nodes are in it, and for those that are elected.
#[test]
fn cloud_nodes_that_no_gateway_lists_do_not_speak_for_the_cloud() {
    let mut known = cloud();
    known.nodes.insert("again".to_owned(), facts(false, None, "10.0.0.9"));
    known.nodes.insert(
        "labelled".to_owned(),
        NodeFacts { gateway: Some("cloud".to_owned()), ..facts(false, None, "") },
    );
    known.gateways.get_mut("cloud").unwrap().listed.insert("c3".to_owned());
    // It counts for nothing, and says whom its operator trusts all the same.
    let second = Gateway { listed: ["c4".to_owned()].into(), ..gateway(true, &["c2"], &[]) };
    known.gateways.insert("second".to_owned(), second);
    let plan = at("c1", &known);
    assert_eq!(plan.problems.len(), 1, "{:?}", plan.problems);
    let speaks = |node: &str| plan.view.speaks_for(node, Domain::Cloud).is_some();
    for (node, expected) in
        [("c1", true), ("c3", true), ("c4", true), ("c2", false), ("again", false), ("labelled", false)]
    {
        assert_eq!(speaks(node), expected, "{node}");
    }
    assert_eq!(plan.view.domain_of("again"), Some(Domain::Cloud));
    assert_eq!(plan.view.domain_of("labelled"), Some(Domain::Cloud));
    let domain = plan.view.speaks_for("again", Domain::Cloud);
    let nobody = Origin { domain, asker: Asker::Peer, vouched: true };
    let asked = |target: &str| {
        let target = tunnel::target::Target::parse(target, None).unwrap();
        route("c1", &nobody, &target, &plan.view)
    };
    for target in ["a1:10250", "b1:9100", "solo:10255", "c1:10250", "c2:9100"] {
        assert_eq!(asked(target), Route::Refused(Refusal::NotAllowed), "{target}");
    }
    // What is listed for everyone it may reach.
    assert!(matches!(asked("a1:18090"), Route::Through { .. }));
    assert!(matches!(asked("kube.svc:443"), Route::Direct(_)));
}

#[test]
fn gateways_are_dialled_where_their_status_says() {
    let addresses = |plan: &Plan, node: &str| {
        plan.listening.get(node).map(|at| at.addresses.iter().cloned().collect::<Vec<_>>().join(","))
    };
    let plan = edge("a1", facts(true, Some("a"), ""));
    assert_eq!(addresses(&plan, "c1").as_deref(), Some("203.0.113.7:10262"));
    assert_eq!(addresses(&plan, "b1"), None, "who is not exposed is not dialled");
    // Behind a load balancer each endpoint is looked for at the same address.
    let mut known = Known { gateways: gateways(), own: Some(facts(true, Some("a"), "")), ..Known::default() };
    let cloud = known.gateways.get_mut("cloud").unwrap();
    cloud.active.insert("c2".to_owned());
    cloud.addresses = vec![("lb.example:443".to_owned(), None)];
    let plan = at("a1", &known);
    assert_eq!(
        ["c1", "c2"].map(|node| addresses(&plan, node).unwrap()),
        ["lb.example:443", "lb.example:443"]
    );
    // A sibling is dialled at its own address.
    let mut known = self::cloud();
    let cloud = known.gateways.get_mut("cloud").unwrap();
    cloud.active.insert("c2".to_owned());
    cloud.nodes.push(("c2".to_owned(), "10.0.0.2".parse().ok()));
    assert_eq!(addresses(&at("c1", &known), "c2").as_deref(), Some("10.0.0.2:10262"));
}

/// An ordinary node of the cloud knows no Nodes but its own; which Gateway it is behind the manager has written.
#[test]
fn of_two_exposed_gateways_a_cloud_node_takes_the_one_that_it_is_behind() {
    let mut known =
        Known { gateways: gateways(), own: Some(facts(false, None, "10.0.0.9")), ..Known::default() };
    let region = gateway(true, &["r1"], &[("r1", "10.1.0.1")]);
    known.gateways.insert("region".to_owned(), region);
    let ours = |known: &Known| at("c9", known).view.endpoints(&Domain::Cloud);
    for (older, newer) in [("region", "cloud"), ("cloud", "region")] {
        for (name, second) in [(older, 1), (newer, 2)] {
            known.gateways.get_mut(name).unwrap().created =
                format!("2026-01-01T00:00:0{second}Z").parse().ok();
        }
        known.gateways.get_mut("cloud").unwrap().nodes.retain(|(node, _)| node != "c9");
        // As long as nobody has written it, the older one.
        let expected = if older == "cloud" { "c1" } else { "r1" };
        assert_eq!(ours(&known), BTreeSet::from([expected.to_owned()]), "{older}");
        known.gateways.get_mut("cloud").unwrap().nodes.push(("c9".to_owned(), "10.0.0.9".parse().ok()));
        assert_eq!(ours(&known), BTreeSet::from(["c1".to_owned()]), "{older}");
    }
}

#[test]
fn that_there_is_nobody_to_dial_is_told() {
    let addressed = |known: &mut Known, host: &str| {
        let addresses = [(host.to_owned(), None)];
        known.gateways.get_mut("cloud").unwrap().addresses =
            addresses.into_iter().filter(|(host, _): &(String, Option<String>)| !host.is_empty()).collect();
    };
    let mut known = cloud();
    let told = |known: &Known, me: &str| {
        let problems = at(me, known).problems;
        problems.iter().any(|problem| problem.starts_with("there is nobody to dial: "))
    };
    for (host, expected) in [("", true), ("192.0.2.1:10262", false)] {
        addressed(&mut known, host);
        // The endpoint of a pool, which it is itself as well; and who dials nobody.
        known.own = Some(facts(true, Some("a"), "192.168.1.10"));
        assert_eq!(["a1", "a2"].map(|me| told(&known, me)), [expected, false], "{host:?}");
        known.own = Some(facts(true, None, "192.168.1.10"));
        assert_eq!(told(&known, "solo"), expected, "{host:?}");
    }
    known.gateways.get_mut("cloud").unwrap().active.clear();
    assert!(told(&known, "solo"));
}
