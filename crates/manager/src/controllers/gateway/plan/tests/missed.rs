//! Links that are missed, and ways in that do not listen.

use api::Endpoint;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

impl World {
    /// Both hubs of the cloud live, with these links.
    fn cloud(&mut self, c1: &[&str], c2: &[&str]) {
        self.hub("c1", Liveness::Alive, c1);
        self.hub("c2", Liveness::Alive, c2);
    }

    /// Plans each second until then: who is active of the cloud's Gateway, when that changed.
    fn changes(&mut self, seconds: u32) -> Vec<(u32, String)> {
        let (start, mut changes) = (self.observed.now, Vec::<(u32, String)>::new());
        for second in 0..=seconds {
            self.observed.now = start + SECOND * second;
            let who = active(&self.plan(), 0).join(" ");
            if changes.last().is_none_or(|(_, last)| *last != who) {
                changes.push((second, who));
            }
        }
        changes
    }
}

fn connected(world: &mut World) -> (bool, &'static str, String) {
    let connected = world.plan().verdicts[0].connected.clone();
    (connected.holds, connected.reason, connected.message)
}

/// What is done, and what is said then: whether it holds, the reason, a part of the message.
type Said<'a> = (fn(&mut World), bool, &'a str, &'a str);

#[test]
fn an_exposed_gateway_is_connected_when_somebody_is() {
    let mut world = world();
    world.cloud(&[], &[]);
    let cases: [Said<'_>; 8] = [
        (
            |_| {},
            false,
            "NoLinks",
            "no node has a link to c1, c2: missed are a, solo: does TCP 192.0.2.1:10262, 192.0.2.2:443 answer from there",
        ),
        (
            |w| w.cloud(&[], &["solo"]),
            true,
            "Accepting",
            "links of solo are accepted by c1, c2; missed are a",
        ),
        (
            |w| {
                w.cloud(&[], &[]);
                w.spec(0, |spec| spec.endpoints.iter_mut().for_each(|e| e.public_ip.clear()));
            },
            false,
            "NoLinks",
            "missed are a, solo, and there is no address that they could dial, see condition Exposed",
        ),
        // Who dials for others is who is elected.
        (|w| w.nodes[0].ready = false, false, "NoLinks", "missed are b, solo,"),
        (|w| w.nodes[4].ready = false, false, "NoLinks", "missed are b,"),
        (|w| w.nodes[1].ready = false, false, "NoLinks", "missed are b, solo, and none of them is ready"),
        (|w| w.spec(1, |spec| spec.proxy_config.replicas = 0), false, "NoLinks", "missed are solo, and none"),
        (|w| drop(w.nodes.remove(4)), true, "Accepting", "no node dials yet; links are accepted by c1, c2"),
    ];
    for (change, holds, reason, message) in cases {
        change(&mut world);
        let said = connected(&mut world);
        assert_eq!((said.0, said.1), (holds, reason), "{}", said.2);
        assert!(said.2.contains(message), "{} is not {message}", said.2);
    }
}

/// Whose kube-proxy reads straight from the API server does not come to a balancer's IP.
#[test]
fn where_kube_proxy_may_lead_past_the_balancer_that_is_said() {
    let said = |ingress: Value| {
        let mut world = world();
        world.cloud(&[], &[]);
        world.spec(0, |spec| spec.expose_type = ExposeType::LoadBalancer);
        let name = services::public_name("cloud");
        let service =
            json!({ "metadata": { "name": name }, "status": { "loadBalancer": { "ingress": [ingress] } } });
        world.observed.services.insert(name, Arc::new(serde_json::from_value(service).unwrap()));
        world.plan();
        // What dials has had its time.
        world.observed.now += SECOND * 10;
        let verdicts = world.plan().verdicts;
        [0, 1].map(|which: usize| {
            let connected = &verdicts[which].connected;
            let past = "it must read through edge-hub, else it leads what is for 192.0.2.9 past the balancer";
            (connected.reason, connected.message.contains(past))
        })
    };
    for (ingress, is_told) in [
        (json!({ "ip": "192.0.2.9" }), true),
        (json!({ "ip": "192.0.2.9", "ipMode": "VIP" }), true),
        (json!({ "ip": "192.0.2.9", "ipMode": "Proxy" }), false),
        (json!({ "hostname": "lb.example" }), false),
    ] {
        assert_eq!(said(ingress.clone()), [("NoLinks", is_told), ("NoTunnel", is_told)], "{ingress}");
    }
}

/// What works, and yet is not as it was meant.
#[test]
fn endpoints_that_do_not_serve_are_told_of_beside_those_that_do() {
    let mut world = world();
    world.cloud(&["solo"], &["solo"]);
    let said = |world: &mut World, which: usize| {
        let verdict = &world.plan().verdicts[which];
        [verdict.elected.clone(), verdict.connected.clone()]
    };
    let endpoint = |name: &str, type_| Endpoint { node_name: name.to_owned(), type_, ..Endpoint::default() };
    world.spec(0, |spec| spec.endpoints.push(endpoint("mispelt", EndpointType::Proxy)));
    let [elected, _] = said(&mut world, 0);
    assert!(
        elected.holds && elected.message.contains("mispelt: no such node is behind the gateway"),
        "{elected:?}"
    );
    // As one that is listed without a type.
    world.spec(1, |spec| spec.endpoints = vec![endpoint("a", EndpointType::Tunnel)]);
    let [elected, connected] = said(&mut world, 1);
    assert!(elected.holds && elected.message.contains("set spec.endpoints[].type to proxy"), "{elected:?}");
    assert!(!connected.holds && connected.message.contains("no endpoint is of type proxy"), "{connected:?}");
}

/// The address of c1 is dead: its hub lives, and nobody comes.
#[test]
fn an_exposed_endpoint_to_which_nobody_comes_gives_way() {
    let dead = |change: fn(&mut World)| {
        let mut world = world();
        world.spec(0, |spec| spec.proxy_config.replicas = 1);
        world.cloud(&[], &[]);
        change(&mut world);
        world.changes(600)
    };
    let shown = |changes: &[(u32, String)]| -> Vec<(u32, String)> { changes.to_vec() };
    let of = |list: &[(u32, &str)]| -> Vec<(u32, String)> {
        list.iter().map(|(second, who)| (*second, (*who).to_owned())).collect()
    };
    // The first minute of a manager is not counted.
    assert_eq!(
        shown(&dead(|_| {})),
        of(&[(0, "c1"), (60, "c2"), (120, "c1"), (180, "c2"), (300, "c1"), (420, "c2")])
    );
    let stays = of(&[(0, "c1")]);
    assert_eq!(dead(|w| w.hub("c2", Liveness::Dead, &[])), stays, "there is no other");
    assert_eq!(dead(|w| w.hub("c2", Liveness::Unknown, &[])), stays, "nor one that shows that it lives");
    assert_eq!(dead(|w| w.hub("c1", Liveness::Alive, &["a"])), stays, "somebody came");
    assert_eq!(dead(|w| w.spec(0, |s| s.endpoints[1].public_ip.clear())), stays, "the other has no address");
    assert_eq!(
        dead(|w| w.spec(0, |s| s.endpoints.iter_mut().for_each(|e| e.public_ip.clear()))),
        stays,
        "nor has anybody"
    );
    assert_eq!(dead(|w| w.nodes.iter_mut().for_each(|node| node.ready = false)), stays, "all are offline");
    assert_eq!(dead(|w| w.spec(0, |s| s.expose_type = ExposeType::LoadBalancer)), stays, "no balancer yet");
    // Who has no address is not elected before one who has.
    assert_eq!(dead(|w| w.spec(0, |s| s.endpoints[0].public_ip.clear())), of(&[(0, "c2")]));
}

#[test]
fn the_trial_is_of_nodes_that_are_missed_now() {
    let mut world = world();
    world.spec(0, |spec| spec.proxy_config.replicas = 1);
    world.cloud(&["a"], &[]);
    assert_eq!(world.changes(600).len(), 1);
    // The site goes down with all that dials; it is back an hour later, and dials in its time.
    world.nodes[0].ready = false;
    world.nodes[1].ready = false;
    world.nodes[4].ready = false;
    world.cloud(&[], &[]);
    assert_eq!(world.changes(3600).len(), 1);
    world.nodes[0].ready = true;
    world.observed.now += SECOND;
    let back = world.observed.now;
    assert_eq!(world.plan().look_at, Some(back + SECOND * 10), "the shop's own is told of");
    world.observed.now = back + SECOND * 10;
    assert_eq!(world.plan().look_at, Some(back + SECOND * 15), "the shop's own");
    world.observed.now = back;
    assert_eq!(world.changes(29).len(), 1);
    world.observed.now += SECOND;
    assert_eq!(active(&world.plan(), 0), ["c2"]);
    // It is linked there: that is kept.
    world.cloud(&[], &["a"]);
    assert_eq!(world.changes(3600).len(), 1);
}

/// A new leader goes on with who was elected, and has seen nothing of links yet.
#[test]
fn a_new_leader_puts_nobody_on_trial_in_its_first_minute() {
    let mut world = world();
    world.spec(0, |spec| spec.proxy_config.replicas = 1);
    let cloud = Arc::make_mut(&mut world.observed.gateways[0]);
    let was = cloud.spec.endpoints[1..].to_vec();
    cloud.status = Some(api::GatewayStatus::new(&cloud.spec, Vec::new(), was));
    world.hub("c1", Liveness::Unknown, &[]);
    world.hub("c2", Liveness::Unknown, &[]);
    assert_eq!(world.changes(3).last().unwrap().1, "c2");
    world.cloud(&[], &[]);
    let changes = world.changes(60);
    assert_eq!(changes, [(0, "c2".to_owned()), (57, "c1".to_owned())]);
}

#[test]
fn a_gateway_is_led_to_only_where_it_listens() {
    let mut world = world();
    world.cloud(&["a"], &["a"]);
    world.spec(0, |spec| spec.proxy_config.proxy_http_port = "9100".to_owned());
    let led = |plan: &Plan| -> Vec<String> {
        let of = |slice: &EndpointSlice| {
            let nodes: Vec<_> =
                slice.endpoints.iter().flatten().filter_map(|e| e.node_name.clone()).collect();
            let ports: Vec<_> =
                slice.ports.iter().flatten().filter_map(|p| p.port).map(|p| p.to_string()).collect();
            format!("{}: {}", nodes.join(" "), ports.join(" "))
        };
        plan.slices.iter().map(of).collect()
    };
    let exposed = |plan: &Plan| {
        let exposed = plan.verdicts[0].exposed.clone().unwrap();
        (exposed.reason, exposed.message)
    };
    assert_eq!(led(&world.plan()), ["c1 c2: 10264 10263"], "older hubs do not say");
    world.listens("c1", &["10.0.0.1:10263", "10.0.0.1:10264"]);
    world.listens("c2", &["10.0.0.2:10264"]);
    let plan = world.plan();
    assert_eq!(led(&plan), ["c2: 10264", "c1: 10264 10263"]);
    assert_eq!(exposed(&plan).0, "AddressKnown", "hubs are given the time to follow");
    let due = plan.look_at.unwrap();
    assert_eq!(due, world.observed.now + SECOND * 5);
    world.observed.now = due;
    let (reason, message) = exposed(&world.plan());
    assert_eq!(reason, "WaysInClosed");
    assert!(message.starts_with("c2 does not listen at 10263 for port 10250: "), "{message}");
    assert!(message.contains("`edge-hub status` on the node"), "{message}");
    // That something else is to be mended as well does not hide it.
    world.spec(0, |spec| spec.endpoints[1].public_ip.clear());
    let (reason, both) = exposed(&world.plan());
    assert_eq!(reason, "NoAddress");
    assert!(
        both.starts_with("active endpoints without publicIP: c2: ")
            && both.ends_with(&format!("; {message}")),
        "{both}"
    );
    world.spec(0, |spec| "192.0.2.2".clone_into(&mut spec.endpoints[1].public_ip));
    // Nowhere: it is in no slice, for one without ports would be of all ports.
    world.listens("c2", &[]);
    assert_eq!(led(&world.plan()), ["c1: 10264 10263"]);
    // It is as it should be.
    world.listens("c2", &["10.0.0.2:10263", "10.0.0.2:10264"]);
    let plan = world.plan();
    assert_eq!((led(&plan), exposed(&plan).0), (vec!["c1 c2: 10264 10263".to_owned()], "AddressKnown"));
    // What was carried out and is wanted no more goes.
    world.listens("c2", &["10.0.0.2:10264"]);
    for slice in world.plan().slices {
        world.observed.slices.insert(slice.name_any(), Arc::new(slice));
    }
    world.listens("c2", &["10.0.0.2:10263", "10.0.0.2:10264"]);
    let plan = world.plan();
    assert_eq!((led(&plan), plan.stale_slices.len()), (vec!["c1 c2: 10264 10263".to_owned()], 1));
}

/// A node alone is rejected at one of two gateways.
#[test]
fn a_node_that_is_linked_to_some_of_the_gateways_alone_is_told_of() {
    let mut world = world();
    world.cloud(&["a", "solo"], &["a", "solo"]);
    let both = "links of a, solo are accepted by c1, c2";
    assert_eq!(connected(&mut world).2, both);
    world.cloud(&["a", "solo"], &["a"]);
    let plan = world.plan();
    let Verdict { connected: said, lacking, .. } = &plan.verdicts[0];
    assert_eq!((said.message.as_str(), lacking.missed, lacking.in_part), (both, 0, 1), "it may dial anew");
    assert_eq!(plan.look_at, Some(world.observed.now + SECOND * 30));
    world.observed.now += SECOND * 29;
    assert_eq!(connected(&mut world).2, both);
    world.observed.now += SECOND;
    let alone = format!("{both}; solo by c1 alone");
    assert_eq!(connected(&mut world), (true, "Accepting", alone.clone()));
    // Who has no link at all stands behind it.
    let new = NodeView { name: "new".to_owned(), ..world.nodes[4].clone() };
    world.nodes.insert(4, new);
    assert_eq!(connected(&mut world).2, format!("{alone}; missed are new"));
    world.nodes.remove(4);
    // A new leader takes nothing back, and does not tell of others at once.
    let condition = |message: &str| {
        let condition = json!({
            "type": "Connected", "status": "True", "reason": "Accepting", "message": message, "lastTransitionTime": "2027-01-01T00:00:00Z",
        });
        serde_json::from_value(json!({ "conditions": [condition] })).unwrap()
    };
    for (told, expected) in [(both, both), (alone.as_str(), alone.as_str())] {
        Arc::make_mut(&mut world.observed.gateways[0]).status = Some(condition(told));
        world.memory = Memory::new(world.observed.now);
        assert_eq!(connected(&mut world).2, expected);
    }
    // It has both again.
    world.cloud(&["a", "solo"], &["a", "solo"]);
    assert_eq!(connected(&mut world).2, both);
}

#[test]
fn what_is_said_of_many_nodes_that_are_linked_in_part_is_short() {
    let mut world = world();
    let template = world.nodes.remove(4);
    let names: Vec<String> = (0..500).map(|number| format!("solo{number:03}")).collect();
    world.nodes.extend(names.iter().map(|name| NodeView { name: name.clone(), ..template.clone() }));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut said = |c1: &[&str], c2: &[&str]| {
        world.cloud(c1, c2);
        connected(&mut world);
        world.observed.now += SECOND * 30;
        let (_, _, message) = connected(&mut world);
        assert!(message.len() < 300, "{message}");
        message.split_once("accepted by c1, c2; ").unwrap().1.split_once("; missed").unwrap().0.to_owned()
    };
    assert_eq!(said(&names[..2], &names[1..3]), "solo000 by c1 alone; solo002 by c2 alone");
    assert_eq!(said(&names[..300], &names[..250]), "more than 40 nodes by some of them alone");
}

/// The chart does not name it any more: it may not report, and its tunnels are up.
#[test]
fn an_endpoint_that_keeps_its_place_is_counted_as_active_and_as_one_that_does_not_report() {
    let renew = "c2: its hub does not renew ConfigMap isthmus-gateway-c2: `edge-hub status` on the node says why, and the chart's value \
                 edgeHub.gatewayNodes must name it";
    let keeps = "; its tunnels may be up, so it keeps its place while nobody else can have it";
    let mut world = world();
    world.cloud(&["a"], &["a"]);
    assert_eq!(active(&world.plan(), 0), ["c1", "c2"]);
    world.hub("c2", Liveness::Silent, &["a"]);
    world.sees("c1", "c2");
    let said = |world: &mut World| {
        let verdict = &world.plan().verdicts[0];
        let status = api::GatewayStatus::new(&verdict.gateway.spec, Vec::new(), verdict.active.clone());
        (status.proxy_endpoints, verdict.elected.reason, verdict.elected.message.clone())
    };
    let told = format!("2 of 2 proxy endpoints are active, and 1 of 2 report; {renew}{keeps}");
    assert_eq!(said(&mut world), ("2/2".to_owned(), "TooFewEndpoints", told));
    // Nobody has a link to it: it is dead, and gives its place up.
    world.hub("c1", Liveness::Alive, &["a"]);
    let told = format!("1 of 2 proxy endpoints are active; {renew}");
    assert_eq!(said(&mut world), ("1/2".to_owned(), "TooFewEndpoints", told));
}
