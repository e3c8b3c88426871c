//! A Gateway that is there and cannot be read keeps what it has, and a pool its nodes.

use super::*;

/// All that the plan writes is there.
fn write(world: &mut World, plan: &Plan) {
    for service in &plan.services {
        let mut there = service.clone();
        there.spec.as_mut().unwrap().cluster_ip = Some("10.9.9.9".to_owned());
        world.observed.services.insert(service.name_any(), Arc::new(there));
    }
    for slice in &plan.slices {
        world.observed.slices.insert(slice.name_any(), Arc::new(slice.clone()));
    }
    if let Some(names) = &plan.node_names {
        let data = json!({ "data": { (TUNNEL_NODES): names } });
        world.observed.node_names = Some(Arc::new(serde_json::from_value(data).unwrap()));
    }
}

fn stale(plan: &Plan) -> usize {
    plan.stale_services.len() + plan.stale_slices.len()
}

#[test]
fn what_leads_to_a_gateway_that_cannot_be_read_stays() {
    let mut world = world();
    world.hub("c1", Liveness::Alive, &["a"]);
    world.hub("c2", Liveness::Alive, &["a"]);
    world.spec(0, |spec| {
        spec.expose_type = ExposeType::LoadBalancer;
        spec.proxy_config.proxy_http_port = "9100".to_owned();
    });
    let first = world.plan();
    assert_eq!(first.services.len(), 2, "the internal one and the balancer's");
    write(&mut world, &first);
    let right = world.plan();
    assert!(right.services.is_empty() && right.slices.is_empty() && stale(&right) == 0);
    // A field is misspelt.
    world.observed.gateways.remove(0);
    world.observed.unreadable.insert("cloud".to_owned());
    let plan = world.plan();
    assert!(plan.services.is_empty() && plan.slices.is_empty(), "{:?} {:?}", plan.services, plan.slices);
    assert_eq!((stale(&plan), plan.node_names), (0, None));
    assert_eq!(world.reasons(0), ["Elected", "", "Connected"], "the shop's");
    // Who dies leaves the slices all the same.
    world.hub("c1", Liveness::Dead, &[]);
    assert_eq!(backends_of(&world.plan()), ["10.0.0.2"]);
    // One that is gone keeps nothing.
    world.observed.unreadable.clear();
    assert_eq!(stale(&world.plan()), 4);
}

/// Beside one that can be read.
#[test]
fn what_stays_is_not_only_that_of_the_others() {
    let mut world = world();
    world.hub("c1", Liveness::Alive, &[]);
    world.hub("c2", Liveness::Alive, &[]);
    let of_branch = json!({ api::labels::GATEWAY: "branch" });
    world.nodes[3].labels = serde_json::from_value(of_branch).unwrap();
    world.spec(0, |spec| drop(spec.endpoints.pop()));
    let branch = json!({
        "exposeType": "PublicIP", "proxyConfig": { "Replicas": 1, "proxyHTTPSPort": "9101" },
        "endpoints": [{ "nodeName": "c2", "type": "proxy", "publicIP": "192.0.2.2" }],
    });
    world.observed.gateways.insert(0, gateway("branch", &branch));
    let first = world.plan();
    assert_eq!(backends_of(&first), ["10.0.0.1", "10.0.0.2"]);
    write(&mut world, &first);
    world.observed.gateways.remove(0);
    world.observed.unreadable.insert("branch".to_owned());
    let plan = world.plan();
    assert!(plan.services.is_empty() && plan.slices.is_empty() && stale(&plan) == 0, "{:?}", plan.slices);
    world.observed.unreadable.clear();
    let plan = world.plan();
    assert_eq!((plan.services.len(), backends_of(&plan)), (1, vec!["10.0.0.1".to_owned()]));
}

/// A field of the NodePool is misspelt.
#[test]
fn the_nodes_of_a_pool_that_cannot_be_read_stay_behind_its_gateway() {
    let mut world = world();
    world.hub("c1", Liveness::Alive, &["a"]);
    world.hub("c2", Liveness::Alive, &["a"]);
    let seen = |plan: Plan| {
        let nodes: Vec<String> = plan.verdicts[1].nodes.iter().map(|node| node.node_name.clone()).collect();
        let active: Vec<String> = active(&plan, 1).into_iter().map(str::to_owned).collect();
        (
            nodes,
            active,
            plan.verdicts[1].connected.clone(),
            plan.node_names.clone(),
            plan.pool_gateways.delete.len(),
        )
    };
    let before = seen(world.plan());
    assert_eq!(before.0, ["a", "b"]);
    world.observed.pools.clear();
    world.unreadable_pools.insert("shop".to_owned());
    assert_eq!(seen(world.plan()), before);
    // One that is gone has none.
    world.unreadable_pools.clear();
    assert_eq!(seen(world.plan()).0, [""; 0]);
}
