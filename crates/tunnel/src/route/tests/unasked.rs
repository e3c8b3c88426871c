//! Those who come in where nobody is asked who it is.

use super::*;

/// The key of a node of the cloud makes a gateway dial no other host for them, be it by its own way in or by that of one which asks it.
#[test]
fn who_comes_in_unasked_is_not_led_where_a_node_of_the_cloud_says() {
    let mut view = view();
    view.destinations.pop();
    view.destinations.extend(Rule::nodes(&KUBELETS, None, [Domain::Cloud]));
    view.nodes.get_mut("c3").unwrap().addresses = vec!["10.0.9.9".parse().unwrap()];
    let at = |view: &View, vouched, asker, target: &str| {
        let origin = Origin { asker, vouched, ..Origin::of(Domain::Cloud) };
        describe(&route("c1", &origin, &Target::parse(target, None).unwrap(), view))
    };
    for asker in [Asker::Own, Asker::Peer] {
        for target in ["c3:10250", "c3:18090", "10.0.9.9:9100"] {
            assert_eq!(at(&view, false, asker, target), "NotAllowed", "{asker:?} {target}");
            let port = target.rsplit(':').next().unwrap();
            assert_eq!(at(&view, true, asker, target), format!("direct 10.0.9.9:{port}"), "{asker:?}");
        }
        // What ways in are for, and those for which an operator vouches.
        for (target, expected) in [
            ("b2:10250", "pool/b by Reverse b1 then Forward c2"),
            ("solo:9100", "node/solo by Reverse solo then Forward c2"),
            ("c1:10250", "direct 10.0.0.1:10250"),
            ("c2:10250", "direct 10.0.0.2:10250"),
        ] {
            assert_eq!(at(&view, false, asker, target), expected, "{asker:?}");
        }
    }
    // Where an operator says in which network such nodes are, that is his word.
    let listed = Destination::Network { network: "10.0.8.0/22".parse().unwrap(), domain: Domain::Cloud };
    let from = Callers::Of([Domain::Cloud].into());
    view.destinations.push(Rule { to: listed, ports: vec![9100..=9100], from });
    assert_eq!(at(&view, false, Asker::Own, "c3:9100"), "direct 10.0.9.9:9100");
    assert_eq!(at(&view, false, Asker::Own, "c3:10250"), "NotAllowed");
}
