//! Why a node holds no link.

use super::*;

#[test]
fn who_holds_no_link_at_rest_says_why() {
    let cloud_node = "so it counts as a cloud node, whose gateways hold the links";
    let unlabelled = format!("and is not labelled openyurt.io/is-edge-worker=true, {cloud_node}");
    let known = |own| Known { gateways: gateways(), own: Some(own), ..Known::default() };
    // As it is where somebody forgot to label the node.
    let mut node = known(facts(false, None, "192.168.1.30"));
    assert_eq!(at("n", &node).idle, Some(format!("this node is in no pool {unlabelled}")));
    node.gateways.clear();
    let nobody = format!("this node is in no pool {unlabelled}; no Gateway is exposed");
    assert_eq!(at("n", &node).idle, Some(nobody));
    let mut node = known(facts(false, Some("p"), "192.168.1.30"));
    let of_pool = |what: &str| Some(format!("this node {what}, {unlabelled}"));
    assert_eq!(at("n", &node).idle, of_pool("is in NodePool p, which is not read yet"));
    node.knows_pools = true;
    assert_eq!(at("n", &node).idle, of_pool("is labelled for NodePool p, which is not there"));
    node.edge_pools.insert("p".to_owned(), false);
    assert_eq!(at("n", &node).idle, of_pool("is in NodePool p, which is not of type Edge"));
    node.gateways.insert("p".to_owned(), gateway(false, &[], &[]));
    assert_eq!(at("n", &node).idle.as_deref(), Some("its pool's Gateway has no active endpoint"));
    node.gateways.insert("p".to_owned(), gateway(true, &["r1"], &[]));
    let unlisted = "this node is behind Gateway p, which is exposed and does not list it";
    assert_eq!(at("n", &node).idle.as_deref(), Some(unlisted));
    assert_eq!(
        at("nobody", &Known::default()).idle.as_deref(),
        Some("this node's own Node is not known yet; no Gateway is exposed")
    );
}

#[test]
fn a_spare_says_who_is_elected() {
    let of_a = || facts(true, Some("a"), "");
    assert_eq!(edge("a2", of_a()).idle.as_deref(), Some("spare: a1 is its pool's endpoint"));
    let mut two = Known { gateways: gateways(), own: Some(of_a()), ..Known::default() };
    two.gateways.get_mut("a").unwrap().active.insert("a3".to_owned());
    assert_eq!(at("a2", &two).idle.as_deref(), Some("spare: a1, a3 are its pool's endpoints"));
    // Whoever is to have links says nothing.
    for plan in [edge("a1", of_a()), edge("solo", facts(true, None, "")), at("c1", &cloud())] {
        assert_eq!(plan.idle, None);
    }
    let mut listed = cloud();
    let gateway = listed.gateways.get_mut("cloud").unwrap();
    gateway.listed.insert("c2".to_owned());
    gateway.endpoints.insert("c2".to_owned());
    let plan = at("c2", &listed);
    assert_eq!((plan.role, plan.idle.as_deref()), (Role::Gateway, Some("spare: c1 is the cloud's endpoint")));
}
