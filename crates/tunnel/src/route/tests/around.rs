//! Who is asked for a node of the own pool that does not take this one's connection.

use super::*;
use crate::route::around::around;

fn asked(view: &View, me: &str, asker: Asker, target: &str) -> String {
    let origin = Origin { asker, ..Origin::of(view.domain_of(me).unwrap()) };
    let steps = around(me, &origin, &Target::parse(target, None).unwrap(), view);
    let steps: Vec<_> = steps
        .iter()
        .map(|step| {
            let peers: Vec<_> = step.peers.iter().map(String::as_str).collect();
            format!("{:?} {}", step.direction, peers.join(","))
        })
        .collect();
    steps.join(" then ")
}

#[test]
fn the_others_that_stand_for_the_pool_are_asked_for_its_nodes() {
    for (me, target, expected) in [
        ("a2", "a1:10250", "Forward a1"),
        ("a2", "192.168.1.10:10250", "Forward a1"),
        // There is no other.
        ("a1", "a2:10250", ""),
        ("c1", "c3:10250", "Forward c2"),
        ("c1", "c2:10250", "Forward c2"),
        ("c1", "10.0.0.3:10250", "Forward c2"),
        // It does not speak for the cloud, and would be refused.
        ("c3", "c1:10250", ""),
        // This node itself; other domains, which are asked anyway; what is no node.
        ("a2", "a2:10250", ""),
        ("a2", "192.168.1.11:10250", ""),
        ("a2", "b2:10250", ""),
        ("c1", "a2:10250", ""),
        ("c1", "192.168.1.11:10250", ""),
        ("c1", "web.ns.svc:80", ""),
        ("c1", "10.96.0.1:443", ""),
        ("solo", "solo:10250", ""),
    ] {
        let view = with_defaults(me);
        assert_eq!(asked(&view, me, Asker::Own, target), expected, "{me} to {target}");
        // Who came over a link has other ways, and never goes in circles.
        for asker in [Asker::Peer, Asker::Sibling, Asker::Reverse] {
            assert_eq!(asked(&view, me, asker, target), "", "{asker:?} by {me} to {target}");
        }
    }
}

/// They have links to the cloud alone, which lets nobody to another's nodes but by a rule.
#[test]
fn the_cloud_is_asked_for_a_neighbour_where_a_rule_names_it() {
    let mut view = neighbours::alone();
    for (target, expected) in [
        ("near:18090", "Forward c1,c2"),
        ("near:10250", ""),
        ("near:9200", ""),
        // Another's elsewhere, too.
        ("192.168.1.11:18090", ""),
    ] {
        assert_eq!(asked(&view, "solo", Asker::Own, target), expected, "{target}");
    }
    let solo = |name: &str| Domain::Solo(name.to_owned());
    let to = Destination::Nodes { domain: Some(solo("near")) };
    let rule = Rule { to, ports: vec![9200..=9200], from: Callers::Of([solo("solo")].into()) };
    view.destinations.push(rule);
    assert_eq!(asked(&view, "solo", Asker::Own, "near:9200"), "Forward c1,c2");
    assert_eq!(asked(&view, "solo", Asker::Reverse, "near:9200"), "");
}
