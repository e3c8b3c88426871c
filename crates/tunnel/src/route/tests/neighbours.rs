//! Nodes of one pool that are domains by themselves, as one of them sees it.

use super::*;

/// As `solo` sees it, whose pool has a node with an address, one with addresses that are never dialled, and one without.
pub(super) fn alone() -> View {
    let mut view = with_defaults("solo");
    let neighbours: [(&str, &[&str]); 3] = [
        ("near", &["192.168.1.11", "fd00::11"]),
        ("liar", &["127.0.0.1", "169.254.169.254", "10.96.0.10"]),
        ("lost", &[]),
    ];
    let addresses = |list: &[&str]| list.iter().map(|address| address.parse().unwrap()).collect();
    view.neighbours = neighbours.map(|(name, list)| (name.to_owned(), addresses(list))).into();
    view
}

#[test]
fn a_node_dials_those_of_its_pool_at_once() {
    let view = alone();
    let check = |target: &str, expected: &str| check(&view, "solo", target, expected);
    for port in KUBELETS.into_iter().chain([LISTED]) {
        let both = format!("direct 192.168.1.11:{port},[fd00::11]:{port}");
        check(&format!("near:{port}"), &both);
        // By its address, too, before nodes elsewhere that have the same: a2.
        check(&format!("192.168.1.11:{port}"), &format!("direct 192.168.1.11:{port}"));
        check(&format!("[fd00::11]:{port}"), &format!("direct [fd00::11]:{port}"));
        // The node itself is what it was.
        check(&format!("solo:{port}"), &format!("direct 192.168.1.10:{port}"));
    }
    // At other ports it is no neighbour: as before.
    check("near:22", "NotAllowed");
    check("near:9999", "cloud by Forward c1,c2");
    // Another pool's nodes, and names that nobody here knows.
    check("a2:10250", "NotAllowed");
    check("a2:18090", "pool/a by Forward c1,c2");
    check("far:10250", "cloud by Forward c1,c2");
    check("far:18090", "cloud by Forward c1,c2");
    // Without an address the way is that of before, and so it is with none that may be dialled.
    check("lost:10250", "cloud by Forward c1,c2");
    check("lost:18090", "cloud by Forward c1,c2");
    check("liar:10250", "direct 10.96.0.10:10250");
    for target in ["127.0.0.1:10250", "169.254.169.254:18090"] {
        check(target, "NotAllowed");
    }
    // What is listed as a network is no neighbour's.
    check("10.96.0.10:18090", "cloud by Forward c1,c2");
}

#[test]
fn rules_name_a_neighbour_as_the_node_that_it_is() {
    let mut view = alone();
    let solo = |name: &str| Domain::Solo(name.to_owned());
    let of = |domain, port: u16| Rule {
        to: Destination::Nodes { domain: Some(domain) },
        ports: vec![port..=port],
        from: Callers::Of([solo("solo")].into()),
    };
    view.destinations.extend([of(solo("near"), 9200), of(solo("other"), 9300)]);
    check(&view, "solo", "near:9200", "direct 192.168.1.11:9200,[fd00::11]:9200");
    // Of others: where it is asked whether there is such a node, it is decided.
    check(&view, "solo", "near:9300", "cloud by Forward c1,c2");
    // A name that is listed is that, whoever calls himself so.
    view.neighbours.insert("web.svc".into(), vec!["192.168.1.12".parse().unwrap()]);
    let to = Destination::Name { pattern: "*.svc".into(), domain: Domain::Cloud };
    view.destinations.push(Rule { to, ports: vec![10250..=10250], from: Callers::All });
    check(&view, "solo", "web.svc:10250", "cloud by Forward c1,c2");
    check(&view, "solo", "web.svc:9100", "direct 192.168.1.12:9100");
}

/// A node alone forwards for nobody, whoever asks and whatever his rights are.
#[test]
fn nobody_is_led_to_a_neighbour() {
    let view = alone();
    let own = Some(Domain::Solo("solo".into()));
    let origins = [own, Some(Domain::Cloud), Some(Domain::Pool("a".into())), None];
    for asker in [Asker::Reverse, Asker::Peer, Asker::Sibling] {
        for domain in origins.clone() {
            let origin = Origin { domain, asker, vouched: true };
            for target in ["near:10250", "near:18090", "192.168.1.11:10250", "[fd00::11]:18090"] {
                let target = Target::parse(target, None).unwrap();
                let way = route("solo", &origin, &target, &view);
                assert!(!matches!(way, Route::Direct(_)), "{origin:?} {target}: {}", describe(&way));
                let before = View { neighbours: BTreeMap::new(), ..view.clone() };
                assert_eq!(way, route("solo", &origin, &target, &before), "{origin:?} {target}");
            }
        }
    }
    let cloud = Origin { asker: Asker::Reverse, ..Origin::of(Domain::Cloud) };
    let target = Target::parse("near:10250", None).unwrap();
    assert_eq!(describe(&route("solo", &cloud, &target, &view)), "Unknown");
}
