//! What is made for others to come by: Services, their slices, and names of nodes; and what goes again.

use super::*;
use crate::controllers::gateway::ports::External;

#[test]
fn what_nobody_wants_any_more_is_removed() {
    let mut world = world();
    let mark = |name: &str| json!({ "metadata": { "name": name }, "spec": {}, "addressType": "IPv4" });
    for name in [PROXY_INTERNAL_SERVICE, "x-raven-proxy-svc-0123", "kube-dns"] {
        world
            .observed
            .services
            .insert(name.to_owned(), Arc::new(serde_json::from_value(mark(name)).unwrap()));
        world.observed.slices.insert(name.to_owned(), Arc::new(serde_json::from_value(mark(name)).unwrap()));
    }
    let names = |plan: &Plan| -> Vec<String> {
        let services = plan.stale_services.iter().map(|s| s.name_any());
        services.chain(plan.stale_slices.iter().map(|s| s.name_any())).collect()
    };
    let all = [PROXY_INTERNAL_SERVICE, "x-raven-proxy-svc-0123"];
    assert_eq!(names(&world.plan())[..1], all[1..]);
    world.observed.switches.l7 = false;
    let plan = world.plan();
    assert_eq!(names(&plan), [all, all].concat());
    assert_eq!((plan.services.len(), plan.node_names.as_deref()), (0, Some("")));
    world.observed.switches.l7 = true;
    world.spec(0, |spec| spec.expose_type = ExposeType::None);
    assert_eq!(names(&world.plan()), [all, all].concat());
}

#[test]
fn a_balancer_is_made_once_a_gateway_and_its_address_is_recorded() {
    let mut world = world();
    world.hub("c2", Liveness::Alive, &[]);
    world.spec(0, |spec| spec.expose_type = ExposeType::LoadBalancer);
    let plan = world.plan();
    let name = services::public_name("cloud");
    let made = plan.services.iter().find(|service| service.name_any() == name).unwrap();
    assert_eq!(made.labels()[api::labels::ENDPOINTS_NAME], "c2");
    let slices: Vec<_> = plan.slices.iter().filter(|slice| slice.name_any().starts_with(&name)).collect();
    let nodes: Vec<_> = slices[0].endpoints.iter().flatten().map(|e| e.node_name.clone().unwrap()).collect();
    assert_eq!((slices.len(), nodes), (1, vec!["c2".to_owned()]));
    let mut there = json!(made);
    there["status"] =
        json!({ "loadBalancer": { "ingress": [{ "hostname": "lb.example" }, { "ip": "192.0.2.9" }] } });
    world.observed.services.insert(name.clone(), Arc::new(serde_json::from_value(there).unwrap()));
    let plan = world.plan();
    let hosts: Vec<&str> = plan.verdicts[0].addresses.iter().map(|at| at.host.as_str()).collect();
    assert_eq!(hosts, ["lb.example", "192.0.2.9"]);
    assert!(plan.services.iter().all(|service| service.name_any() != name), "it is right already");
}

#[test]
fn a_load_balancer_leads_to_where_hubs_listen_and_the_condition_says_if_that_is_not_what_was_asked() {
    let mut world = world();
    world.spec(0, |spec| spec.expose_type = ExposeType::LoadBalancer);
    let name = services::public_name("cloud");
    let with_address = |world: &mut World| {
        let service = json!({
            "metadata": { "name": name, "annotations": { api::annotations::PUBLIC_SERVICE_EXTERNAL_IP: "203.0.113.7" } },
        });
        world.observed.services.insert(name.clone(), Arc::new(serde_json::from_value(service).unwrap()));
    };
    with_address(&mut world);
    for (node, port) in [("c1", 10262), ("c2", 10262)] {
        world.hub(node, Liveness::Alive, &[]);
        world.observed.hubs.get_mut(node).unwrap().port = Some(port);
    }
    let exposed = |plan: &Plan| plan.verdicts[0].exposed.clone().unwrap();
    let target = |plan: &Plan| plan.verdicts[0].link_port;
    let plan = world.plan();
    assert_eq!((target(&plan), exposed(&plan).reason), (10262, "AddressKnown"));
    assert!(!exposed(&plan).message.contains("raven-agent-config"));
    // The ConfigMap alone moves no listener.
    world.observed.listeners.external = External::At(10300);
    let plan = world.plan();
    assert_eq!((target(&plan), exposed(&plan).reason), (10262, "AddressKnown"));
    assert!(exposed(&plan).message.contains("raven-agent-config says port 10300"), "{:?}", exposed(&plan));
    // One hub has moved, the other has not: it gets nothing.
    world.observed.hubs.get_mut("c1").unwrap().port = Some(10300);
    let plan = world.plan();
    assert_eq!(
        (target(&plan), exposed(&plan).holds, exposed(&plan).reason),
        (10300, false, "ListenersDiffer")
    );
    assert!(exposed(&plan).message.contains("that of c2 at 10262"), "{:?}", exposed(&plan));
    let slice = plan.slices.iter().find(|slice| slice.name_any().starts_with(&name)).unwrap();
    let nodes: Vec<_> = slice.endpoints.iter().flatten().filter_map(|e| e.node_name.as_deref()).collect();
    assert_eq!(nodes, ["c1"]);
    world.observed.hubs.get_mut("c2").unwrap().port = Some(10300);
    let plan = world.plan();
    assert_eq!((target(&plan), exposed(&plan).reason), (10300, "AddressKnown"));
    assert!(!exposed(&plan).message.contains("raven-agent-config"));
    // Where nobody says anything it is not said that somebody did.
    world.observed.listeners.external = External::Unsaid;
    let plan = world.plan();
    assert_eq!((target(&plan), exposed(&plan).reason), (10300, "AddressKnown"));
    assert!(!exposed(&plan).message.contains("raven-agent-config"), "{:?}", exposed(&plan));
    world.observed.listeners.external = External::Unreadable;
    let said = "raven-agent-config has no port in proxy-external-addr, and the Service leads to 10300,";
    assert!(exposed(&world.plan()).message.contains(said));
}

/// Nobody dials an endpoint whose address is not written, however well its hub works.
#[test]
fn active_endpoints_without_an_address_are_told_of_beside_those_that_have_one() {
    let mut world = world();
    for node in ["c1", "c2"] {
        world.hub(node, Liveness::Alive, &["a"]);
    }
    let mut told = |public: [&str; 2]| {
        world.spec(0, |spec| {
            for (endpoint, public) in spec.endpoints.iter_mut().zip(public) {
                public.clone_into(&mut endpoint.public_ip);
            }
        });
        let verdict = &world.plan().verdicts[0];
        let exposed = verdict.exposed.clone().unwrap();
        (verdict.addresses.len(), exposed.holds, exposed.reason, exposed.message)
    };
    let remedy = "nobody dials them; set publicIP of each in spec.endpoints";
    for (public, addresses, holds, reason, message) in [
        (
            ["192.0.2.1", "192.0.2.2"],
            2,
            true,
            "AddressKnown",
            "dialled at 192.0.2.1:10262, 192.0.2.2:443".to_owned(),
        ),
        (
            ["192.0.2.1", ""],
            1,
            false,
            "NoAddress",
            format!(
                "active endpoints without publicIP: c2: {remedy}; the others are dialled at 192.0.2.1:10262"
            ),
        ),
        (["", ""], 0, false, "NoAddress", format!("active endpoints without publicIP: c1, c2: {remedy}")),
    ] {
        assert_eq!(told(public), (addresses, holds, reason, message));
    }
}

/// With `PublicIP` there is no Service that could follow the hubs, and what nodes dial is in the spec.
#[test]
fn what_ravens_config_map_says_of_links_at_public_addresses_is_told_of_unless_hubs_listen_there() {
    let mut world = world();
    for node in ["c1", "c2"] {
        world.hub(node, Liveness::Alive, &["a"]);
        world.observed.hubs.get_mut(node).unwrap().port = Some(10262);
    }
    let mut told = |external, ports: [Option<u16>; 2]| {
        world.observed.listeners.external = external;
        for (node, port) in ["c1", "c2"].into_iter().zip(ports) {
            world.observed.hubs.get_mut(node).unwrap().port = port;
        }
        let exposed = world.plan().verdicts[0].exposed.clone().unwrap();
        assert_eq!(exposed.reason, "AddressKnown");
        let dialled = "dialled at 192.0.2.1:10262, 192.0.2.2:443";
        let rest = exposed.message.strip_prefix(dialled).unwrap();
        rest.strip_prefix("; ConfigMap raven-agent-config ")
            .map(|rest| rest.split(':').next().unwrap().to_owned())
    };
    let at = External::At;
    for (external, ports, expected) in [
        (External::Unsaid, [Some(443), Some(443)], None),
        (at(10262), [Some(10262), Some(10262)], None),
        (
            at(10300),
            [Some(10262), Some(10262)],
            Some("says port 10300, and the hubs listen at 10262 as they were started"),
        ),
        (
            at(10300),
            [Some(10300), Some(10262)],
            Some("says port 10300, and the hubs listen at 10262 and 10300 as they were started"),
        ),
        // Older hubs do not say where.
        (at(10300), [None, None], Some("says port 10300, and the hubs listen as they were started")),
        (
            External::Unreadable,
            [Some(10262), Some(10262)],
            Some("has no port in proxy-external-addr, and the hubs listen at 10262 as they were started"),
        ),
    ] {
        assert_eq!(told(external, ports).as_deref(), expected, "{external:?} {ports:?}");
    }
    // Nobody is active: there is nothing that it could be about.
    world.observed.hubs.clear();
    let exposed = world.plan().verdicts[0].exposed.clone().unwrap();
    assert_eq!((exposed.reason, exposed.message.contains("raven-agent-config")), ("NotElected", false));
}

#[test]
fn names_are_written_on_change_only_and_never_without_gateways() {
    let mut world = world();
    let file = world.plan().node_names.unwrap();
    let config = |data: Value| Some(Arc::new(serde_json::from_value(json!({ "data": data })).unwrap()));
    world.observed.node_names = config(json!({ (TUNNEL_NODES): file, "theirs": "x" }));
    assert_eq!(world.plan().node_names, None);
    for odd in [json!(null), json!({}), json!({ (TUNNEL_NODES): "" })] {
        world.observed.node_names = config(odd);
        assert_eq!(world.plan().node_names.as_ref(), Some(&file));
    }
    world.observed.gateways.clear();
    assert_eq!(world.plan().node_names, None, "it is empty, and there is nobody to lead to");
    world.observed.node_names = None;
    assert_eq!(world.plan().node_names, None);
}

/// An exposed Gateway `other` before `shop`, with a proxy endpoint of that name.
fn expose_other(world: &mut World, node: &str, proxy_config: &Value) {
    let other = json!({
        "exposeType": "PublicIP", "proxyConfig": proxy_config,
        "endpoints": [{ "nodeName": node, "type": "proxy", "publicIP": "192.0.2.9" }],
    });
    world.observed.gateways.insert(1, gateway("other", &other));
}

/// The names of the internal Service's ports, as the plan has them written.
fn port_names(plan: &Plan) -> Vec<String> {
    let service = plan.services.iter().find(|service| service.name_any() == PROXY_INTERNAL_SERVICE).unwrap();
    service.spec.iter().flat_map(|spec| spec.ports.iter().flatten()).filter_map(|p| p.name.clone()).collect()
}

#[test]
fn a_port_that_is_http_for_one_and_https_for_another_is_told_of() {
    let mut world = world();
    world.hub("c1", Liveness::Alive, &["a"]);
    world.hub("c2", Liveness::Alive, &[]);
    world.spec(0, |spec| spec.proxy_config.proxy_http_port = "9100,9445".to_owned());
    assert_eq!(world.reasons(0)[1], "AddressKnown");
    world.nodes[3].labels = serde_json::from_value(json!({ api::labels::GATEWAY: "other" })).unwrap();
    world.spec(0, |spec| drop(spec.endpoints.pop()));
    expose_other(&mut world, "c2", &json!({ "Replicas": 1, "proxyHTTPSPort": "9100" }));
    let plan = world.plan();
    let exposed = plan.verdicts[0].exposed.as_ref().unwrap();
    assert_eq!((exposed.holds, exposed.reason), (false, "PortsDiffer"));
    assert!(exposed.message.contains("9100, which Gateway other lists as HTTPS"), "{}", exposed.message);
    assert!(!exposed.message.contains("9445"), "{}", exposed.message);
    // Its own lists may say both, and one that is turned off lists nothing.
    world.spec(0, |spec| spec.proxy_config.proxy_http_port = "10250".to_owned());
    assert_eq!(world.reasons(0)[1], "PortsDiffer");
    world.spec(0, |spec| spec.proxy_config.proxy_http_port = "9100".to_owned());
    world.spec(1, |spec| spec.proxy_config.replicas = 0);
    assert_eq!(world.reasons(0)[1], "AddressKnown");
}

/// The one that comes later is told, and the other goes on.
#[test]
fn a_port_stays_what_it_is_when_another_gateway_comes() {
    let mut world = world();
    world.hub("c1", Liveness::Alive, &["a"]);
    world.hub("c2", Liveness::Alive, &["a"]);
    world.spec(0, |spec| spec.proxy_config.proxy_http_port = "9100".to_owned());
    let first = world.plan();
    assert_eq!(port_names(&first), ["http-9100", "https-10250"]);
    for service in first.services {
        world.observed.services.insert(service.name_any(), Arc::new(service));
    }
    world.nodes[3].labels = serde_json::from_value(json!({ api::labels::GATEWAY: "other" })).unwrap();
    world.spec(0, |spec| drop(spec.endpoints.pop()));
    expose_other(&mut world, "c2", &json!({ "Replicas": 1, "proxyHTTPSPort": "9100" }));
    let plan = world.plan();
    assert_eq!((active(&plan, 1), plan.services.len()), (vec!["c2"], 0), "the Service is right as it is");
    let exposed = |index: usize| plan.verdicts[index].exposed.clone().unwrap();
    assert_eq!((exposed(0).reason, exposed(1).reason), ("AddressKnown", "PortsDiffer"));
    let said = "proxyHTTPSPort lists 9100, which Gateway cloud lists as HTTP: ";
    assert!(exposed(1).message.starts_with(said), "{}", exposed(1).message);
}

/// Its endpoint is no node, or its hub does not run: nobody serves what it lists.
#[test]
fn a_gateway_that_elects_nobody_breaks_no_port_of_another() {
    for node in ["cloud-9", "c3"] {
        let mut world = world();
        let third = NodeView { name: "c3".to_owned(), ..world.nodes[3].clone() };
        world.nodes.insert(4, third);
        world.nodes[4].labels = serde_json::from_value(json!({ api::labels::GATEWAY: "other" })).unwrap();
        world.hub("c1", Liveness::Alive, &["a"]);
        world.hub("c2", Liveness::Alive, &["a"]);
        world.spec(0, |spec| spec.proxy_config.proxy_http_port = "9100".to_owned());
        expose_other(&mut world, node, &json!({ "Replicas": 1, "proxyHTTPSPort": "10250,9100" }));
        let plan = world.plan();
        assert_eq!(active(&plan, 1), [""; 0], "{node}");
        assert_eq!(port_names(&plan), ["http-9100", "https-10250"], "{node}");
        assert_eq!(plan.verdicts[0].exposed.as_ref().unwrap().reason, "AddressKnown", "{node}");
        // The one that worked dies, too: its ports stay, and with them the Service and its address.
        for service in plan.services {
            world.observed.services.insert(service.name_any(), Arc::new(service));
        }
        world.observed.hubs.clear();
        let plan = world.plan();
        assert_eq!(
            (active(&plan, 0), plan.services.len(), plan.stale_services.len()),
            (vec![], 0, 0),
            "{node}"
        );
    }
}

#[test]
fn a_node_that_is_called_like_a_service_is_left_out_and_told_of() {
    let mut world = world();
    world.hub("c1", Liveness::Alive, &[]);
    let name = "kubernetes.default.svc.cluster.local";
    world.nodes.push(NodeView { name: name.to_owned(), ..world.nodes[4].clone() });
    world.nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let plan = world.plan();
    assert_eq!(plan.node_names.as_deref(), Some("10.9.9.9\ta\n10.9.9.9\tb\n10.9.9.9\tsolo"));
    assert_eq!(plan.misnamed, [name.to_owned()].into());
}
