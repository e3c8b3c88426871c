//! Which way leads to what, who may take it, and where the ways in listen.

use super::*;

#[test]
fn ways_go_by_name_though_addresses_overlap() {
    let plan = at("c1", &cloud());
    let through = |target: &str| match way("c1", &plan, target) {
        Route::Through { domain, .. } => domain.to_string(),
        other => format!("{other:?}"),
    };
    assert_eq!(
        [through("a1:10250"), through("b1:10250"), through("solo:10250")],
        ["pool/a", "pool/b", "node/solo"]
    );
    assert_eq!(way("c1", &plan, "192.168.1.10:10250"), Route::Refused(Refusal::Ambiguous));
    // Nodes of the own domain are dialled.
    let direct = Direct::Addresses(vec!["10.0.0.2:9100".parse().unwrap()]);
    assert_eq!(way("c1", &plan, "c2:9100"), Route::Direct(direct));
    assert_eq!(way("c1", &plan, "c2:22"), Route::Refused(Refusal::NotAllowed));
    assert_eq!(way("c1", &plan, "kube.svc:443"), Route::Direct(Direct::Name("kube.svc".into(), 443)));
    // From the edge the cloud is reached through its gateway, though its domain has another name there.
    let plan = edge("a1", facts(true, Some("a"), ""));
    for target in ["kube.svc:443", "c1:18090", "b1:18090"] {
        let Route::Through { steps, .. } = way("a1", &plan, target) else { panic!("{target}") };
        assert!(
            steps
                .iter()
                .all(|step| step.direction == Direction::Forward && step.peers == ["c1".to_owned()].into()),
            "{target}: {steps:?}"
        );
    }
    let direct = Direct::Addresses(vec!["192.168.1.11:10250".parse().unwrap()]);
    assert_eq!(way("a1", &plan, "a2:10250"), Route::Direct(direct));
}

/// The gateway stands in a pool of cloud nodes, and the control plane in no pool.
#[test]
fn the_control_plane_is_reached_from_a_pool_of_the_cloud() {
    let mut known = cloud();
    known.own = Some(facts(false, Some("servers"), "10.0.0.1"));
    let gateway = known.gateways.remove("cloud").unwrap();
    known.gateways.insert("servers".to_owned(), gateway);
    let plan = at("c1", &known);
    assert_eq!(plan.view.domain_of("c2"), Some(Domain::Cloud));
    assert!(matches!(way("c1", &plan, "c2:10250"), Route::Direct(_)));
    let direct = || Route::Direct(Direct::Addresses(vec!["10.0.0.2:18090".parse().unwrap()]));
    assert_eq!(way("c1", &plan, "c2:18090"), direct());
    // Asked by the edge, which does not know the node. Nobody but the node says where that is.
    let target = tunnel::target::Target::parse("c2:18090", None).unwrap();
    let edge = Origin { asker: Asker::Peer, ..Origin::of(Domain::Pool("a".into())) };
    let by_edge = |plan: &Plan| route("c1", &edge, &target, &plan.view);
    assert_eq!(by_edge(&plan), Route::Refused(Refusal::NotAllowed));
    let listed = known.gateways.get_mut("servers").unwrap();
    listed.listed.insert("c2".to_owned());
    listed.nodes.push(("c2".to_owned(), None));
    assert_eq!(by_edge(&at("c1", &known)), direct());
}

/// Kubelets and the ports that Gateways list are the cloud's to reach, and the own domain's: at the node that asks, at the gateway, and at
/// the other end.
#[test]
fn ports_of_nodes_are_for_the_cloud_and_for_the_own_domain() {
    let mut known = cloud();
    known.gateways.get_mut("cloud").unwrap().ports.insert(9200);
    let (gateway, edge) = (at("c1", &known), |me| {
        at(
            me,
            &Known { gateways: known.gateways.clone(), own: Some(facts(true, None, "")), ..Known::default() },
        )
    });
    let asked = |plan: &Plan, me: &str, by: &str, target: &str| {
        let origin = Origin::of(plan.view.domain_of(by).unwrap());
        let target = tunnel::target::Target::parse(target, None).unwrap();
        match route(me, &origin, &target, &plan.view) {
            Route::Refused(refusal) => Err(refusal),
            Route::Direct(_) => Ok("direct"),
            Route::Through { .. } => Ok("through"),
        }
    };
    for port in [10250, 9445, 9200] {
        for by in ["c1", "c2"] {
            assert_eq!(asked(&gateway, "c1", by, &format!("b1:{port}")), Ok("through"), "{by} {port}");
        }
        for (by, to) in [("a1", "b1"), ("a1", "c1"), ("solo", "b1"), ("b1", "lone"), ("a1", "nobody")] {
            let target = format!("{to}:{port}");
            assert_eq!(asked(&gateway, "c1", by, &target), Err(Refusal::NotAllowed), "{by} {target}");
        }
        // The cloud comes over the links that a pool's endpoint dialled.
        assert_eq!(asked(&edge("b1"), "b1", "c1", &format!("b1:{port}")), Ok("direct"), "{port}");
        assert_eq!(asked(&edge("b1"), "b1", "a1", &format!("b1:{port}")), Err(Refusal::NotAllowed), "{port}");
        assert_eq!(asked(&edge("a1"), "a1", "a2", &format!("a2:{port}")), Ok("direct"), "{port}");
        assert_eq!(asked(&edge("a1"), "a1", "a2", &format!("b1:{port}")), Err(Refusal::NotAllowed), "{port}");
        assert_eq!(asked(&edge("solo"), "solo", "solo", &format!("solo:{port}")), Ok("direct"), "{port}");
    }
    assert_eq!(asked(&gateway, "c1", "a1", "b1:18090"), Ok("through"));
    // With no gateway exposed nobody is of the cloud, and a pool's nodes still reach one another.
    known.gateways.remove("cloud");
    let alone = at("a1", &Known { gateways: known.gateways, own: None, ..Known::default() });
    assert_eq!(asked(&alone, "a1", "a1", "a2:10250"), Ok("direct"));
    assert_eq!(asked(&alone, "a1", "a1", "b1:10250"), Err(Refusal::NotAllowed));
}

/// Whom a rule names may use it along the whole way, the cloud, which forwards, too, and the key of no other node: at the node that asks,
/// at the gateway, and at the other end, which is asked by the gateway.
#[test]
fn a_rule_is_for_those_whom_it_names() {
    let asked = |me: &str, plan: &Plan, by: Option<Domain>, target: &str| {
        let origin = Origin { domain: by, ..Origin::of(Domain::Cloud) };
        let target = tunnel::target::Target::parse(target, None).unwrap();
        !matches!(route(me, &origin, &target, &plan.view), Route::Refused(Refusal::NotAllowed))
    };
    let pool = |name: &str| Some(Domain::Pool(name.to_owned()));
    let solo = Some(Domain::Solo("solo".into()));
    let (gateway, a, b) =
        (at("c1", &cloud()), edge("a1", facts(true, Some("a"), "")), edge("b1", facts(true, Some("b"), "")));
    // The network of the API server's egress: nobody is named.
    for (by, may) in [
        (Some(Domain::Cloud), true),
        (pool("a"), false),
        (pool("b"), false),
        (solo.clone(), false),
        (None, false),
    ] {
        assert_eq!(asked("c1", &gateway, by.clone(), "10.96.0.7:443"), may, "{by:?}");
    }
    assert!(!asked("a1", &a, pool("a"), "10.96.0.7:443"));
    for (by, may) in
        [(Some(Domain::Cloud), true), (pool("a"), true), (pool("c"), false), (solo, false), (None, false)]
    {
        assert_eq!(asked("c1", &gateway, by.clone(), "b1:18091"), may, "{by:?}");
    }
    // The domain of the gateway has another name at the edge.
    assert!(asked("a1", &a, pool("a"), "b1:18091") && asked("b1", &b, b.view.domain_of("c1"), "b1:18091"));
    assert!(!asked("b1", &b, pool("c"), "b1:18091"));
    assert!(!asked("c1", &gateway, pool("a"), "c2:18091"));
}

#[test]
fn ways_in_are_those_of_the_service_and_only_on_gateways() {
    let port = |name: &str, port, target| ServicePort { name: name.to_owned(), port, target };
    let mut known = cloud();
    known.ports = vec![
        port("http-9100", 9100, 10264),
        port("http-9445", 9445, 10264),
        port("https-10250", 10250, 10263),
        port("https-9443", 9443, 10264),
        port("https-22", 22, 22),
        port("https-1", 1, 10262),
        port("grpc-1", 1, 20000),
    ];
    let plan = at("c1", &known);
    let ways = |address: &str| {
        [(10263, WayIn::Tls(10250)), (10264, WayIn::Http([9100, 9445].into()))]
            .map(|(port, way)| (SocketAddr::new(address.parse().unwrap(), port), way))
    };
    assert_eq!(plan.ways_in, ways("10.0.0.1").into());
    assert_eq!(plan.problems.len(), 4, "{:?}", plan.problems);
    // At all internal addresses, but none that means all of them; at another one if somebody says so.
    let own = |addresses: &[&str]| {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Some(NodeFacts { addresses, ..facts(false, None, "") })
    };
    known.own = own(&["10.0.0.1", "0.0.0.0", "127.0.0.1", "fd00::1", "::", "::ffff:10.0.0.1"]);
    assert_eq!(at("c1", &known).ways_in, [ways("10.0.0.1"), ways("fd00::1")].concat().into_iter().collect());
    assert_eq!(super::plan(&given("c1", "0.0.0.0".parse().ok()), &known).ways_in, ways("0.0.0.0").into());
    // Where no address is known there are none, and that is told.
    for unknown in [own(&[]), own(&["0.0.0.0"]), None] {
        known.own = unknown;
        let plan = at("c1", &known);
        assert!(plan.ways_in.is_empty());
        assert_eq!(plan.problems.len(), 5, "{:?}", plan.problems);
        let plan = super::plan(&given("c1", "10.0.0.9".parse().ok()), &known);
        assert_eq!((plan.ways_in, plan.problems.len()), (ways("10.0.0.9").into(), 4));
    }
    known.own = own(&["10.0.0.1"]);
    known.gateways.get_mut("cloud").unwrap().listed = ["c2".to_owned()].into();
    known.gateways.get_mut("cloud").unwrap().endpoints = ["c2".to_owned()].into();
    known.gateways.get_mut("cloud").unwrap().active = ["c2".to_owned()].into();
    assert!(at("c1", &known).ways_in.is_empty());
}
