//! Which filter a client gets, when it is replaced, and who must list anew.

use http::{HeaderMap, HeaderValue, header};
use kube_wire::{request::Verb, resource_version::ResourceVersion};

use super::*;
use crate::{
    filters::{Client, Filters, Place, Rules, reader},
    subscriptions::{Key, Owner},
};

const AT: ResourceVersion = ResourceVersion::new(1).unwrap();

fn kube_proxy(account: &str) -> Client {
    let headers = HeaderMap::from_iter([(header::USER_AGENT, HeaderValue::from_static("kube-proxy/v1.36"))]);
    Client::of(&Owner::User(format!("system:serviceaccount:kube-system:{account}").into()), &headers)
}

fn named(account: &str) -> Box<str> {
    reader(&kube_proxy(account), &Key::pooled(&slices()), false)
}

fn slices() -> GroupVersionResource {
    GroupVersionResource::new("discovery.k8s.io", "v1", "endpointslices")
}

fn filters() -> Filters {
    Filters::new(Rules::default(), CaseView::default().into(), None)
}

#[test]
fn clients_that_share_a_set_share_the_filter_and_what_it_made() {
    let filters = filters();
    let choose = |account| filters.choose(&kube_proxy(account), Verb::Watch, &slices(), "").unwrap();
    let (one, other) = (choose("kube-proxy"), choose("another"));
    assert!(Arc::ptr_eq(&one, &other));
    let slice = serde_json::json!({
        "kind": "EndpointSlice",
        "metadata": { "name": "kubernetes", "namespace": "default", "resourceVersion": "1" },
        "addressType": "IPv4",
    });
    let object = Arc::new(Object::from_protobuf(encode::object(&slice).into()).unwrap());
    let (Outcome::Replace(a), Outcome::Replace(b)) =
        (one.outcome(&object, Telling::Event), other.outcome(&object, Telling::Event))
    else {
        panic!("the slice is changed");
    };
    assert!(Arc::ptr_eq(&a, &b));
}

#[test]
fn a_view_replaces_the_filters_that_would_answer_otherwise() {
    let filters = filters();
    let services = GroupVersionResource::new("", "v1", "services");
    let slices = slices();
    let choose =
        |resource: &_| filters.choose(&kube_proxy("kube-proxy"), Verb::Watch, resource, "n").unwrap();
    let (topology, ports) = (choose(&slices), choose(&services));
    let mut view = View::clone(&filters.view());
    view.topology = Arc::new([(ObjectKey::new("n", "s"), Topology::Node)].into());
    let revision = filters.revision();
    filters.change_view(|now| *now = view.clone());
    assert!(revision.has_changed().unwrap());
    assert!(Arc::ptr_eq(&ports, &choose(&services)) && !Arc::ptr_eq(&topology, &choose(&slices)));
    // Nobody asks for the pool: its nodes do not matter.
    let topology = choose(&slices);
    view.pool_nodes = None;
    filters.change_view(|now| *now = view.clone());
    assert!(Arc::ptr_eq(&topology, &choose(&slices)));
    view.pool = Some("other".into());
    filters.change_view(|now| *now = view);
    assert!(Arc::ptr_eq(&topology, &choose(&slices)) && !Arc::ptr_eq(&ports, &choose(&services)));
}

/// A slice of Service `n/s` with an endpoint on each of three nodes, at version 900.
fn on_three_nodes() -> Arc<Object> {
    let on = |node: &str| serde_json::json!({ "addresses": ["10.0.0.1"], "nodeName": node });
    let slice = serde_json::json!({
        "kind": "EndpointSlice",
        "metadata": {
            "name": "s-1", "namespace": "n", "resourceVersion": "900", "labels": { "kubernetes.io/service-name": "s" },
        },
        "addressType": "IPv4",
        "endpoints": [on("a"), on("b"), on("far")],
    });
    Arc::new(Object::from_protobuf(encode::object(&slice).into()).unwrap())
}

fn endpoints(slice: &Object) -> usize {
    json(&slices(), slice)["endpoints"].as_array().unwrap().len()
}

/// What an informer is told: an object that comes again at the version that it has is unchanged to it.
#[test]
fn what_is_shown_otherwise_stands_at_another_version() {
    let filters = filters();
    let object = on_three_nodes();
    let told = |told: Telling| {
        let filter = filters.choose(&kube_proxy("x"), Verb::Watch, &slices(), "").unwrap();
        let shown = filter.shown(&object, told);
        (endpoints(&shown), shown.resource_version().get())
    };
    let change = |topology: &[(&str, Topology)], nodes: &[&str]| {
        filters.change_view(|view| {
            let topology = topology.iter().map(|(name, wanted)| (ObjectKey::new("n", name), *wanted));
            view.topology = Arc::new(topology.collect());
            view.pool_nodes = Some(Arc::new(nodes.iter().map(|node| (*node).into()).collect()));
        });
    };
    assert_eq!(
        (told(Telling::State), told(Telling::Event)),
        ((3, 900), (3, 900)),
        "nobody ever asked for a topology"
    );
    let mut versions = vec![900];
    for (topology, nodes, endpoints) in [
        (Topology::Node, &["a", "b"][..], 1),
        (Topology::Pool, &["a", "b"], 2),
        (Topology::Pool, &["a"], 1),
        (Topology::Pool, &["a", "b"], 2),
        (Topology::Former, &["a", "b"], 3),
        (Topology::Pool, &["a", "b"], 2),
    ] {
        change(&[("s", topology)], nodes);
        let (shown, version) = told(Telling::State);
        assert_eq!((shown, told(Telling::Event)), (endpoints, (endpoints, 900)), "{topology:?} {nodes:?}");
        assert!(version < 900 && !versions.contains(&version), "{version} after {versions:?}");
        let filter = filters.choose(&kube_proxy("x"), Verb::Watch, &slices(), "").unwrap();
        assert_eq!(filter.lists_at_its_own(&object), topology == Topology::Former, "after a restart");
        versions.push(version);
        assert_eq!(told(Telling::State), (shown, version), "the same as long as the view is");
    }
    // What does not concern this Service changes its version, and that is all.
    change(&[("s", Topology::Pool), ("other", Topology::Node)], &["a", "b"]);
    assert_eq!(told(Telling::State).0, 2);
}

/// A list waits between the choice of its filter and its answer, and its reader comes back by the filter that is in force then.
#[test]
fn what_is_stated_stands_at_another_version_than_what_the_next_view_shows() {
    let filters = filters();
    let (reader, object) = (named("kube-proxy"), on_three_nodes());
    let chosen = || {
        let (filter, view) = filters.in_force(&kube_proxy("kube-proxy"), Verb::List, &slices(), "");
        (filter.unwrap(), view.turn)
    };
    let ask_for = |service: &str| {
        filters.change_view(|view| {
            view.topology = Arc::new([(ObjectKey::new("n", service), Topology::Node)].into());
        });
    };
    ask_for("another");
    filters.show(&reader, Some(&*chosen().0), AT, Place::WHOLE);
    filters.change_view(|view| view.topology = Arc::default());
    let (filter, turn) = chosen();
    ask_for("s");
    let otherwise = filters.saw_otherwise(&reader, Some(&*filter), turn);
    assert!(!otherwise.is_nothing());
    let stated = otherwise.state(filter.shown(&object, Telling::State), object.resource_version());
    filters.show(&reader, Some(&*filter), AT, Place::WHOLE);
    let shown = chosen().0.shown(&object, Telling::State);
    assert_eq!((endpoints(&stated), endpoints(&shown)), (3, 1));
    let versions = [&object, &stated, &shown].map(|object| object.resource_version());
    assert!(
        versions[0] > versions[1] && versions[0] > versions[2] && versions[1] != versions[2],
        "{versions:?}"
    );
}

#[test]
fn a_client_goes_on_only_from_what_it_saw_through_the_same_filter() {
    let filters = filters();
    let (client, reader) = (kube_proxy("kube-proxy"), named("kube-proxy"));
    let choose = || filters.choose(&client, Verb::Watch, &slices(), "");
    let first = choose();
    // Of a client that never listed nobody knows what it saw.
    assert!(!filters.goes_on(&reader, first.as_deref(), AT) && filters.goes_on(&reader, None, AT));
    filters.show(&reader, first.as_deref(), AT, Place::WHOLE);
    assert!(filters.goes_on(&reader, first.as_deref(), AT));
    assert!(!filters.goes_on(&named("another"), first.as_deref(), AT));
    let mut view = View::clone(&filters.view());
    view.topology = Arc::new([(ObjectKey::new("n", "s"), Topology::Node)].into());
    filters.change_view(|now| *now = view);
    assert!(!filters.goes_on(&reader, choose().as_deref(), AT));
    // Rules that leave the client unfiltered are a change as well.
    filters.set_rules(Rules { enabled: [].into(), ..Rules::default() });
    assert!(choose().is_none() && !filters.goes_on(&reader, None, AT));
}

#[test]
fn another_run_of_the_hub_knows_what_was_shown_and_through_which_view() {
    let (client, reader) = (kube_proxy("kube-proxy"), named("kube-proxy"));
    let choose = |filters: &Filters| filters.choose(&client, Verb::Watch, &slices(), "");
    let topology = |wanted: &[(&str, Topology)]| {
        let mut view = View::from(CaseView::default());
        view.topology =
            Arc::new(wanted.iter().map(|(name, wanted)| (ObjectKey::new("n", name), *wanted)).collect());
        view
    };
    let before = Filters::new(Rules::default(), topology(&[("s", Topology::Pool)]), None);
    before.show(&reader, choose(&before).as_deref(), AT, Place::WHOLE);
    let stored = before.export().unwrap();
    assert!(before.export().is_none(), "nothing new to write");
    let goes_on = |view: View| {
        let after = Filters::new(Rules::default(), View { turn: 7, ..view }, Some(&stored));
        after.goes_on(&reader, choose(&after).as_deref(), AT)
    };
    assert!(goes_on(topology(&[("s", Topology::Pool)])));
    assert!(goes_on(topology(&[("s", Topology::Pool), ("t", Topology::Former)])), "as one that never asked");
    for changed in [&[][..], &[("s", Topology::Node)], &[("s", Topology::Pool), ("t", Topology::Node)]] {
        assert!(!goes_on(topology(changed)), "{changed:?}");
    }
    let mut nodes = topology(&[("s", Topology::Pool)]);
    nodes.pool_nodes = Some(Arc::new(["a".into()].into()));
    assert!(!goes_on(nodes));
    let off = Rules { enabled: [].into(), ..Rules::default() };
    let unfiltered = Filters::new(off, topology(&[]), Some(&stored));
    assert!(!unfiltered.goes_on(&reader, None, AT), "it never saw what was hidden");
}

#[test]
fn filters_that_cannot_act_are_left_out() {
    let kubelet = HeaderMap::from_iter([(header::USER_AGENT, HeaderValue::from_static("kubelet/v1.36"))]);
    let kubelet = Client::of(&Owner::Node, &kubelet);
    let services = GroupVersionResource::new("", "v1", "services");
    let pods = GroupVersionResource::new("", "v1", "pods");
    let view = |hub| View::from(CaseView { hub, ..CaseView::default() });
    let filters = |hub| Filters::new(Rules::default(), view(hub), None);
    let (without, with) = (filters(None), filters(CaseView::default().hub));
    for resource in [services, pods] {
        assert!(without.choose(&kubelet, Verb::Watch, &resource, "").is_none(), "{resource}");
        assert!(with.choose(&kubelet, Verb::Watch, &resource, "").is_some(), "{resource}");
    }
}

#[test]
fn rules_choose_by_component_resource_and_verb_in_a_fixed_order() {
    let mut rules = Rules::default();
    let services = (Verb::List, Filtered::Services);
    let choose = |rules: &Rules, (verb, resource), namespace: &str| -> Vec<String> {
        let names = rules.choose(&kube_proxy("x"), verb, resource, namespace);
        names.iter().map(ToString::to_string).collect()
    };
    assert_eq!(choose(&rules, services, ""), ["discardcloudservice", "nodeportisolation"]);
    assert!(choose(&rules, (Verb::Get, Filtered::Services), "").is_empty());
    assert_eq!(choose(&rules, (Verb::List, Filtered::EndpointSlices), "n"), ["servicetopology"]);
    rules.components.insert(FilterName::MasterService, ["kube-proxy".into()].into());
    assert_eq!(
        choose(&rules, services, "default"),
        ["discardcloudservice", "nodeportisolation", "masterservice"]
    );
    assert_eq!(choose(&rules, services, "n"), ["discardcloudservice", "nodeportisolation"]);
    rules.enabled.clear();
    assert!(choose(&rules, services, "").is_empty());
}
