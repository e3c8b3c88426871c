mod dialling;
mod missed;
mod partly;
mod reached;
mod settling;
mod trust;
mod unreadable;

use std::time::Duration;

use api::names::{PROXY_INTERNAL_SERVICE, TUNNEL_NODES};
use serde_json::{Value, json};

use super::*;
use crate::controllers::gateway::domains::{Rules, claim_cloud};
use crate::nodes::NodeView;

/// A cluster that a test puts together.
struct World {
    observed: Observed,
    nodes: Vec<NodeView>,
    /// Pools that are there and cannot be read.
    unreadable_pools: BTreeSet<String>,
    memory: Memory,
}

fn gateway(name: &str, spec: &Value) -> Arc<Gateway> {
    let gateway =
        json!({ "metadata": { "name": name, "uid": format!("u-{name}"), "generation": 1 }, "spec": spec });
    Arc::new(serde_json::from_value(gateway).unwrap())
}

/// An exposed Gateway `cloud` with endpoints c1 and c2, and one `shop` of a pool with the nodes a and b behind NAT.
fn world() -> World {
    let cloud = json!({
        "exposeType": "PublicIP",
        "proxyConfig": { "Replicas": 2, "proxyHTTPSPort": "10250" },
        "endpoints": [
            { "nodeName": "c1", "type": "proxy", "publicIP": "192.0.2.1" },
            { "nodeName": "c2", "type": "proxy", "publicIP": "192.0.2.2", "port": 443 },
        ],
    });
    let node = |name: &str, ip: &str, labels: Value| NodeView {
        name: name.to_owned(),
        ready: true,
        internal_ip: Some(ip.to_owned()),
        labels: serde_json::from_value(labels).unwrap(),
        pod_cidrs: vec!["10.1.0.0/24".to_owned(), "fd00::/64".to_owned()],
        ..NodeView::default()
    };
    let shop = json!({ api::labels::NODE_POOL: "shop" });
    let nodes = vec![
        node("a", "192.168.1.10", shop.clone()),
        node("b", "192.168.1.11", shop),
        node("c1", "10.0.0.1", json!({})),
        node("c2", "10.0.0.2", json!({})),
        node("solo", "192.168.1.10", json!({ api::labels::IS_EDGE_WORKER: "true" })),
    ];
    let pool: NodePool = serde_json::from_value(
        json!({ "metadata": { "name": "shop", "uid": "p" }, "spec": { "type": "Edge" } }),
    )
    .unwrap();
    let now = Instant::now();
    let service =
        json!({ "metadata": { "name": PROXY_INTERNAL_SERVICE }, "spec": { "clusterIP": "10.9.9.9" } });
    let observed = Observed {
        now,
        time: Timestamp::constant(1_800_000_000, 5),
        switches: Switches { l7: true, l3: true },
        listeners: Listeners::of(None),
        gateways: vec![gateway("cloud", &cloud), gateway("shop", &json!({}))],
        unreadable: BTreeSet::new(),
        malformed_selectors: BTreeMap::new(),
        untrusted_selectors: BTreeSet::new(),
        members: Vec::new(),
        cloud_is_of: BTreeMap::new(),
        pools: vec![Arc::new(pool)],
        for_edge_pools: false,
        hubs: BTreeMap::new(),
        services: [(PROXY_INTERNAL_SERVICE.to_owned(), Arc::new(serde_json::from_value(service).unwrap()))]
            .into(),
        slices: BTreeMap::new(),
        node_names: None,
    };
    World { observed, nodes, unreadable_pools: BTreeSet::new(), memory: Memory::new(now) }
}

impl World {
    fn hub(&mut self, node: &str, liveness: Liveness, links: &[&str]) {
        let links = links.iter().map(|node| ((*node).to_owned(), 12)).collect();
        let (siblings, silent) = (BTreeSet::new(), BTreeSet::new());
        self.observed
            .hubs
            .insert(node.to_owned(), Hub { liveness, links, siblings, silent, port: None, ways_in: None });
    }

    /// One gateway says that a node answers no more.
    fn misses(&mut self, node: &str, silent: &str) {
        let hub = self.observed.hubs.get_mut(node).unwrap();
        hub.links.remove(silent);
        hub.silent.insert(silent.to_owned());
    }

    /// One gateway says that it has a link to another.
    fn sees(&mut self, node: &str, sibling: &str) {
        self.observed.hubs.get_mut(node).unwrap().siblings.insert(sibling.to_owned());
    }

    /// Where a gateway says that it takes what the internal Service leads to it.
    fn listens(&mut self, node: &str, at: &[&str]) {
        let ways_in = at.iter().map(|at| at.parse().unwrap()).collect();
        self.observed.hubs.get_mut(node).unwrap().ways_in = Some(ways_in);
    }

    fn spec(&mut self, index: usize, change: impl FnOnce(&mut api::GatewaySpec)) {
        change(&mut Arc::make_mut(&mut self.observed.gateways[index]).spec);
    }

    fn plan(&mut self) -> Plan {
        let observed = &mut self.observed;
        let read = observed.pools.iter().map(|pool| (pool.name_any(), Some(pool.spec.type_)));
        let pools = read.chain(self.unreadable_pools.iter().map(|name| (name.clone(), None))).collect();
        let rules = Rules::new(&observed.gateways, &observed.unreadable, pools);
        observed.members = self.nodes.iter().map(|node| rules.member(node)).collect();
        observed.cloud_is_of = claim_cloud(&observed.gateways, &mut observed.members);
        observed.untrusted_selectors = rules.untrusted();
        observed.malformed_selectors = rules.malformed;
        let (plan, memory) = plan(&self.observed, &self.memory);
        self.memory = memory;
        plan
    }

    /// The reasons of the conditions of the Gateway at that place: Elected, Exposed, Connected.
    fn reasons(&mut self, index: usize) -> [&'static str; 3] {
        let plan = self.plan();
        let Verdict { elected, exposed, connected, .. } = &plan.verdicts[index];
        [elected.reason, exposed.as_ref().map_or("", |finding| finding.reason), connected.reason]
    }
}

fn active(plan: &Plan, index: usize) -> Vec<&str> {
    plan.verdicts[index].active.iter().map(|endpoint| endpoint.node_name.as_str()).collect()
}

fn backends_of(plan: &Plan) -> Vec<String> {
    let slice =
        plan.slices.iter().find(|slice| slice.name_any().starts_with(PROXY_INTERNAL_SERVICE)).unwrap();
    slice.endpoints.iter().flatten().map(|endpoint| endpoint.addresses.join(",")).collect()
}

#[test]
fn a_cluster_whose_hubs_work_is_in_force() {
    let mut world = world();
    world.hub("c1", Liveness::Alive, &["a"]);
    world.hub("c2", Liveness::Alive, &["a", "solo"]);
    let plan = world.plan();
    assert_eq!((active(&plan, 0), active(&plan, 1)), (vec!["c1", "c2"], vec!["a"]));
    let (cloud, shop) = (&plan.verdicts[0], &plan.verdicts[1]);
    let hosts: Vec<String> =
        cloud.addresses.iter().map(|at| format!("{} {} {}", at.host, at.port, at.node_name)).collect();
    assert_eq!(hosts, ["192.0.2.1 10262 c1", "192.0.2.2 443 c2"]);
    assert_eq!(cloud.active[0].config["enable-l7-proxy"], "true");
    let links: Vec<String> =
        shop.links.iter().map(|l| format!("{} {} {}", l.node_name, l.gateway, l.round_trip_millis)).collect();
    assert_eq!(links, ["a c1 12", "a c2 12"]);
    let nodes: Vec<&str> = shop.nodes.iter().map(|node| node.node_name.as_str()).collect();
    assert_eq!((nodes, shop.nodes[0].subnets.len()), (vec!["a", "b"], 2));
    assert_eq!(backends_of(&plan), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(plan.node_names.as_deref(), Some("10.9.9.9\ta\n10.9.9.9\tb\n10.9.9.9\tsolo"));
    assert_eq!(world.reasons(0), ["Elected", "AddressKnown", "Accepting"]);
    assert_eq!(world.reasons(1), ["Elected", "", "Connected"]);
}

#[test]
fn nodes_beyond_what_a_status_names_are_told_of() {
    let mut world = world();
    world.hub("c1", Liveness::Alive, &["a"]);
    let template = world.nodes[1].clone();
    // "a" and "b" are two of them.
    let more = (2..1024).map(|number| NodeView { name: format!("n{number:04}"), ..template.clone() });
    world.nodes.extend(more);
    assert_eq!(world.reasons(1), ["Elected", "", "Connected"]);
    world.nodes.extend((0..76).map(|number| NodeView { name: format!("o{number}"), ..template.clone() }));
    let plan = world.plan();
    let connected = &plan.verdicts[1].connected;
    assert_eq!((connected.holds, connected.reason), (false, "TooManyNodes"));
    assert!(connected.message.starts_with("76 of 1100 nodes are not reached"), "{}", connected.message);
    // An exposed gateway's hubs know all nodes.
    world.spec(1, |spec| spec.expose_type = ExposeType::PublicIP);
    assert_ne!(world.reasons(1)[2], "TooManyNodes");
}

/// What is done, and the reasons that the conditions of both Gateways have then.
type Amiss = (&'static str, fn(&mut World), ([&'static str; 3], [&'static str; 3]));

#[test]
fn what_is_amiss_has_a_reason() {
    let cloud = |change: fn(&mut World)| {
        let mut world = world();
        world.hub("c1", Liveness::Alive, &["a"]);
        world.hub("c2", Liveness::Alive, &[]);
        change(&mut world);
        let _ = world.plan();
        (world.reasons(0), world.reasons(1))
    };
    let fine = ["Elected", "", "Connected"];
    let cases: [Amiss; 13] = [
        (
            "L7 is off",
            |w| w.observed.switches.l7 = false,
            (["L7Disabled"; 3], ["L7Disabled", "", "L7Disabled"]),
        ),
        (
            "no replicas",
            |w| w.spec(0, |s| s.proxy_config.replicas = 0),
            (["ReplicasZero", "ReplicasZero", "NotElected"], fine),
        ),
        (
            "no hub",
            |w| w.observed.hubs.clear(),
            (["NoTunnel", "NotElected", "NotElected"], ["Elected", "", "NoExposedGateway"]),
        ),
        (
            "dead hubs",
            |w| {
                w.hub("c1", Liveness::Dead, &["a"]);
                w.hub("c2", Liveness::Dead, &[]);
            },
            (["NoTunnel", "NotElected", "NotElected"], ["Elected", "", "NoExposedGateway"]),
        ),
        (
            "one dead hub",
            |w| w.hub("c2", Liveness::Dead, &[]),
            (["TooFewEndpoints", "AddressKnown", "Accepting"], fine),
        ),
        (
            "dead nodes",
            |w| {
                w.observed.hubs.clear();
                w.nodes[2].ready = false;
                w.nodes[3].ready = false;
            },
            (["NoReadyNode", "NotElected", "NotElected"], ["Elected", "", "NoExposedGateway"]),
        ),
        (
            "no addresses",
            |w| w.spec(0, |s| s.endpoints.iter_mut().for_each(|e| e.public_ip.clear())),
            (["Elected", "NoAddress", "Accepting"], fine),
        ),
        (
            "a balancer without address",
            |w| w.spec(0, |s| s.expose_type = ExposeType::LoadBalancer),
            (["Elected", "AddressPending", "Accepting"], fine),
        ),
        (
            "no such nodes",
            |w| w.spec(0, |s| s.endpoints.iter_mut().for_each(|e| e.node_name.push('x'))),
            (["NoEndpoint", "NotElected", "NotElected"], ["Elected", "", "NoExposedGateway"]),
        ),
        (
            "no node",
            |w| drop(w.nodes.drain(..2)),
            (["Elected", "AddressKnown", "Accepting"], ["NoEndpoint", "", "NotElected"]),
        ),
        (
            "edge nodes not ready",
            |w| {
                w.nodes[0].ready = false;
                w.nodes[1].ready = false;
                w.hub("c1", Liveness::Alive, &[]);
            },
            (["Elected", "AddressKnown", "NoLinks"], ["NoReadyNode", "", "NotElected"]),
        ),
        (
            "a node that is not ready but works",
            |w| w.nodes[0].ready = false,
            (["Elected", "AddressKnown", "Accepting"], fine),
        ),
        (
            "no link",
            |w| w.hub("c1", Liveness::Alive, &[]),
            (["Elected", "AddressKnown", "NoLinks"], ["Elected", "", "NoTunnel"]),
        ),
    ];
    for (what, change, expected) in cases {
        let reasons = cloud(change);
        assert_eq!(reasons, expected, "{what}");
    }
}

#[test]
fn an_edge_endpoint_without_a_link_gives_way() {
    let mut world = world();
    world.hub("c1", Liveness::Alive, &[]);
    let first = world.plan();
    assert_eq!(active(&first, 1), ["a"]);
    let start = world.observed.now;
    assert_eq!(first.look_at, Some(start + Duration::from_secs(10)), "it is told of");
    world.observed.now = start + Duration::from_secs(10);
    let due = world.plan().look_at.unwrap();
    assert_eq!(due, start + Duration::from_secs(15));
    world.observed.now = due;
    let second = world.plan();
    assert_eq!((active(&second, 1), second.verdicts[1].connected.reason), (vec!["b"], "NoTunnel"));
}

/// A gateway of the edge that lost power: the last of the cloud's gateways to notice ends its time.
#[test]
fn an_edge_endpoint_that_answers_no_more_gives_way_at_once() {
    let mut world = world();
    world.hub("c1", Liveness::Alive, &["a"]);
    world.hub("c2", Liveness::Alive, &["a"]);
    assert_eq!(active(&world.plan(), 1), ["a"]);
    world.observed.now += Duration::from_mins(1);
    world.misses("c1", "a");
    assert_eq!(active(&world.plan(), 1), ["a"], "the other one has a link");
    world.misses("c2", "a");
    assert_eq!(active(&world.plan(), 1), ["b"]);
}

/// Its kubelet has stopped, its hub runs. It dials only while it is elected, so it could not show that it works without its place.
#[test]
fn an_only_edge_endpoint_that_is_not_ready_keeps_its_place_while_it_dials_anew() {
    let mut world = world();
    world.nodes.remove(1);
    world.hub("c1", Liveness::Alive, &["a"]);
    assert_eq!(world.reasons(1), ["Elected", "", "Connected"]);
    world.nodes[0].ready = false;
    assert_eq!(world.reasons(1), ["Elected", "", "Connected"]);
    world.hub("c1", Liveness::Alive, &[]);
    for _ in 0..5 {
        let plan = world.plan();
        let Verdict { elected, connected, .. } = &plan.verdicts[1];
        assert_eq!((active(&plan, 1), elected.reason), (vec!["a"], "Elected"));
        assert_eq!((connected.holds, connected.reason), (false, "NoTunnel"));
        assert!(connected.message.contains("not ready are a"), "{}", connected.message);
        world.observed.now += Duration::from_secs(15);
    }
    world.hub("c1", Liveness::Alive, &["a"]);
    assert_eq!(world.reasons(1), ["Elected", "", "Connected"]);
}

#[test]
fn a_dead_gateway_leaves_the_slices_and_an_unknown_one_stays_if_it_was_there() {
    let mut world = world();
    world.hub("c1", Liveness::Alive, &[]);
    world.hub("c2", Liveness::Dead, &[]);
    assert_eq!(backends_of(&world.plan()), ["10.0.0.1"]);
    world.hub("c1", Liveness::Dead, &[]);
    let empty = world.plan();
    assert_eq!(
        (backends_of(&empty), empty.stale_slices.len()),
        (Vec::<String>::new(), 0),
        "the slice stays, empty"
    );
    // A new leader of the manager: it knows who was active from the status, and has not seen any report change yet.
    let mut world = self::world();
    world.hub("c1", Liveness::Unknown, &["a"]);
    world.hub("c2", Liveness::Unknown, &[]);
    let cloud = Arc::make_mut(&mut world.observed.gateways[0]);
    let was = cloud.spec.endpoints[..1].to_vec();
    cloud.status = Some(api::GatewayStatus::new(&cloud.spec, Vec::new(), was));
    let plan = world.plan();
    assert_eq!((active(&plan, 0), backends_of(&plan)), (vec!["c1"], vec!["10.0.0.1".to_owned()]));
    assert_eq!(plan.verdicts[1].connected.reason, "Connected");
}

/// Its path to the API server alone is cut: its report lapses, and its tunnels are up.
#[test]
fn a_silent_gateway_leaves_the_slices_and_keeps_its_tunnels() {
    let mut world = world();
    world.hub("c1", Liveness::Alive, &["a"]);
    world.hub("c2", Liveness::Alive, &["a"]);
    assert_eq!(active(&world.plan(), 0), ["c1", "c2"]);
    world.hub("c1", Liveness::Silent, &["a"]);
    world.sees("c2", "c1");
    let plan = world.plan();
    assert_eq!((active(&plan, 0), backends_of(&plan)), (vec!["c1", "c2"], vec!["10.0.0.2".to_owned()]));
    assert_eq!(world.reasons(0), ["TooFewEndpoints", "AddressKnown", "Accepting"]);
    // Whoever works goes first.
    let places = |world: &mut World, number| world.spec(0, |spec| spec.proxy_config.replicas = number);
    places(&mut world, 1);
    assert_eq!(active(&world.plan(), 0), ["c2"]);
    places(&mut world, 2);
    assert_eq!(active(&world.plan(), 0), ["c2"], "who is not elected has to say that it lives");
    // It is back, silent again, and now nobody has a link to it: it is dead.
    world.hub("c1", Liveness::Alive, &["a"]);
    assert_eq!(active(&world.plan(), 0), ["c1", "c2"]);
    world.hub("c1", Liveness::Silent, &["a"]);
    world.hub("c2", Liveness::Alive, &["a"]);
    assert_eq!(active(&world.plan(), 0), ["c2"]);
    // The last one: nobody could tell, and edge nodes would gain nothing by giving their links to it up.
    world.hub("c2", Liveness::Silent, &["a"]);
    let plan = world.plan();
    assert_eq!((active(&plan, 0), backends_of(&plan)), (vec!["c2"], Vec::<String>::new()));
    assert_eq!(world.reasons(0), ["NoTunnel", "AddressKnown", "NoTunnel"]);
    // One that ended in order said so.
    world.hub("c2", Liveness::Dead, &[]);
    assert_eq!(active(&world.plan(), 0), [""; 0]);
}
