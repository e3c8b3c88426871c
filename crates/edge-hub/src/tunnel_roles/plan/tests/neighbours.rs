//! The nodes of a pool without a Gateway, as one of them dials the others.

use super::*;

/// In a pool without a Gateway each node stands for itself, and its programs reach the others at once.
#[test]
fn the_nodes_of_a_pool_without_a_gateway_are_dialled_directly() {
    let pool_nodes = api::pool_nodes::read(
        "s1/192.168.1.20,s2/192.168.1.21,s2/fd00::21,twin/192.168.1.20,liar/127.0.0.1,c1/192.168.1.22,a2/192.168.1.23",
    );
    let known = |pool: Option<&str>| Known {
        gateways: gateways(),
        own: Some(facts(true, pool, "192.168.1.20")),
        pool_nodes: pool_nodes.clone(),
        ..Known::default()
    };
    let alone = at("s1", &known(Some("shop")));
    assert_eq!((alone.role, alone.accepts, &alone.problems[..]), (Role::Agent, Accepts::Nobody, &[][..]));
    assert_eq!(alone.view.domain_of("s1"), Some(Domain::Solo("s1".into())));
    assert_eq!(alone.view.domain_of("s2"), None, "it is no node that the tunnel knows");
    let said = |plan: &Plan, target: &str| match way("s1", plan, target) {
        Route::Direct(Direct::Addresses(addresses)) => addresses[0].to_string(),
        Route::Through { domain, .. } => domain.to_string(),
        other => format!("{other:?}"),
    };
    for (target, expected) in [
        ("s2:10250", "192.168.1.21:10250"),
        ("s2:18090", "192.168.1.21:18090"),
        ("192.168.1.21:9100", "192.168.1.21:9100"),
        ("s2:22", "Refused(NotAllowed)"),
        // One with this node's own address is not in its site, and loopback is no address of others.
        ("twin:10250", "pool/cloud"),
        ("liar:10250", "pool/cloud"),
        ("s1:10250", "192.168.1.20:10250"),
        // Gateways say where they are.
        ("c1:10250", "Refused(NotAllowed)"),
        ("a2:10250", "Refused(NotAllowed)"),
        ("a2:18090", "pool/a"),
        // Of another pool, or of this one and not told of.
        ("s3:10250", "pool/cloud"),
        ("s3:18090", "pool/cloud"),
    ] {
        assert_eq!(said(&alone, target), expected, "{target}");
    }
    // From the cloud it is as if there were none.
    let from_cloud = Origin { asker: Asker::Reverse, ..Origin::of(Domain::Pool("cloud".into())) };
    let target = tunnel::target::Target::parse("s2:10250", None).unwrap();
    assert_eq!(route("s1", &from_cloud, &target, &alone.view), Route::Refused(Refusal::Unknown));
    // What the manager does not tell is as it was: they are too many, or have no address.
    let untold = at("s1", &Known { pool_nodes: BTreeMap::new(), ..known(Some("shop")) });
    assert_eq!(said(&untold, "s2:10250"), "pool/cloud", "who refuses it");
    // A node behind a Gateway has the nodes of the Gateway, and one of the cloud is not alone.
    let behind = at("a1", &Known { own: Some(facts(true, Some("a"), "")), ..known(None) });
    let cloud = at("c2", &Known { own: Some(facts(false, Some("region"), "")), ..known(None) });
    for plan in [behind, cloud] {
        assert_eq!(plan.view.neighbours, BTreeMap::new());
    }
}
