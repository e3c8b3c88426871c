//! Which filter a client gets, when it is replaced, and who must list anew.

use http::{HeaderMap, HeaderValue, header};
use kube_wire::request::Verb;

use super::*;
use crate::{
    filters::{Client, Filters, Rules},
    subscriptions::{Key, Owner},
};

fn kube_proxy(account: &str) -> Client {
    let headers = HeaderMap::from_iter([(header::USER_AGENT, HeaderValue::from_static("kube-proxy/v1.36"))]);
    Client::of(&Owner::User(format!("system:serviceaccount:kube-system:{account}").into()), &headers)
}

fn slices() -> GroupVersionResource {
    GroupVersionResource::new("discovery.k8s.io", "v1", "endpointslices")
}

fn filters() -> Filters {
    Filters::new(Rules::default(), CaseView::default().into())
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
    let (Outcome::Replace(a), Outcome::Replace(b)) = (one.outcome(&object), other.outcome(&object)) else {
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

#[test]
fn a_client_goes_on_only_from_what_it_saw_through_the_same_filter() {
    let filters = filters();
    let (client, key) = (kube_proxy("kube-proxy"), Key::pooled(&slices()));
    let choose = || filters.choose(&client, Verb::Watch, &slices(), "");
    let first = choose();
    // After a restart of the hub nobody knows what the client saw.
    assert!(!filters.saw(&client, &key, first.as_deref()) && filters.saw(&client, &key, None));
    filters.show(&client, &key, first.as_deref());
    assert!(filters.saw(&client, &key, first.as_deref()));
    assert!(!filters.saw(&kube_proxy("another"), &key, first.as_deref()));
    let mut view = View::clone(&filters.view());
    view.topology = Arc::new([(ObjectKey::new("n", "s"), Topology::Node)].into());
    filters.change_view(|now| *now = view);
    assert!(!filters.saw(&client, &key, choose().as_deref()));
    // Rules that leave the client unfiltered are a change as well.
    filters.set_rules(Rules { enabled: [].into(), ..Rules::default() });
    assert!(choose().is_none() && !filters.saw(&client, &key, None));
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
