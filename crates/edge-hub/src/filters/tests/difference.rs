//! What need not be looked at when a filter takes the place of another is shown the same by both.

use super::*;
use crate::filters::{Difference, Filter, LocalPod, LocalPods};

/// A view of small choices: two Services and two pods, each of which may be so or so.
fn view() -> impl Strategy<Value = View> {
    let topology = prop::collection::btree_map(
        prop_oneof![Just("n/s"), Just("n/other")],
        prop_oneof![Just(Topology::Node), Just(Topology::Pool), Just(Topology::Former)],
        0..3,
    );
    let pod = (any::<bool>(), 1..3_u8).prop_map(|(ready, n)| LocalPod {
        name: "n/p".into(),
        addresses: vec![[10, 0, 0, n].into()],
        ready,
    });
    let pods = prop::collection::btree_map(prop_oneof![Just("uid-1"), Just("uid-2")], pod, 0..3);
    let nodes = prop::option::of(prop::collection::btree_set(prop_oneof![Just("a"), Just("b")], 0..3));
    let pool = prop::option::of(prop_oneof![Just("p"), Just("q")]);
    let hub = prop::option::of(Just(SocketAddr::from(([169, 254, 2, 1], 10268))));
    (topology, pods, nodes, pool, hub).prop_map(|(topology, pods, nodes, pool, hub)| {
        let mut view = View::of_node("a", pool, hub);
        let key = |name: &str| {
            let (namespace, name) = name.split_once('/').unwrap();
            ObjectKey::new(namespace, name)
        };
        view.topology = Arc::new(topology.into_iter().map(|(name, wanted)| (key(name), wanted)).collect());
        view.local_pods =
            Arc::new(LocalPods { pods: pods.into_iter().map(|(uid, pod)| (uid.into(), pod)).collect() });
        view.pool_nodes = nodes.map(|nodes| Arc::new(nodes.into_iter().map(Into::into).collect()));
        view
    })
}

fn names() -> impl Strategy<Value = Vec<FilterName>> {
    prop::collection::btree_set(prop::sample::select(FilterName::ALL.to_vec()), 0..4)
        .prop_map(|names| names.into_iter().collect())
}

/// Slices and endpoints of both Services and of none, with endpoints on two nodes and of two pods, and the Service `kubernetes`.
fn objects() -> Vec<(Filtered, Value)> {
    let on = |node: &str, uid: &str| serde_json::json!({ "addresses": ["10.0.0.1"], "nodeName": node, "targetRef": { "uid": uid } });
    let slice = |name: &str, labels: Value, endpoints: Value| {
        let metadata =
            serde_json::json!({ "name": name, "namespace": "n", "resourceVersion": "90", "labels": labels });
        serde_json::json!({ "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4", "endpoints": endpoints })
    };
    let of = |service: &str| serde_json::json!({ "kubernetes.io/service-name": service });
    let mut objects = vec![
        (
            Filtered::EndpointSlices,
            slice("1", of("s"), serde_json::json!([on("a", "uid-1"), on("b", "uid-2")])),
        ),
        (
            Filtered::EndpointSlices,
            slice("2", of("other"), serde_json::json!([on("b", "uid-2"), on("far", "u")])),
        ),
        (
            Filtered::EndpointSlices,
            slice("3", serde_json::json!({}), serde_json::json!([on("far", "uid-1")])),
        ),
    ];
    for name in ["s", "other", "none"] {
        let metadata = serde_json::json!({ "name": name, "namespace": "n", "resourceVersion": "90" });
        let address = |ip: &str, node: &str, uid: &str| serde_json::json!({ "ip": ip, "nodeName": node, "targetRef": { "uid": uid } });
        let addresses = [address("10.0.0.1", "b", "uid-1"), address("10.0.0.2", "far", "uid-2")];
        let subsets = serde_json::json!([{ "addresses": addresses }]);
        objects.push((
            Filtered::Endpoints,
            serde_json::json!({ "kind": "Endpoints", "metadata": metadata, "subsets": subsets }),
        ));
    }
    let kubernetes =
        serde_json::json!({ "name": "kubernetes", "namespace": "default", "resourceVersion": "90" });
    let spec = serde_json::json!({ "clusterIP": "10.96.0.1", "ports": [{ "name": "https", "port": 443 }] });
    objects.push((
        Filtered::Services,
        serde_json::json!({ "kind": "Service", "metadata": kubernetes, "spec": spec }),
    ));
    objects
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

    #[test]
    fn what_need_not_be_looked_at_is_shown_the_same(
        (before, then) in (names(), view()), (now, present) in (names(), view()), same in any::<bool>(), is_json in any::<bool>(),
    ) {
        let now = if same { before.clone() } else { now };
        for (resource, object) in objects() {
            let message = Object::from_protobuf(encode::object(&object).into()).unwrap();
            let object = if is_json { Object::from_json(object.to_string().into()).unwrap() } else { message };
            let object = Arc::new(object);
            let of = |names: &[FilterName], view: &View| {
                (!names.is_empty()).then(|| Filter::new(resource, names.into(), Arc::new(view.clone())))
            };
            let (before, now) = (of(&before, &then), of(&now, &present));
            let shown = |filter: &Option<Filter>| {
                filter.as_ref().map_or(Outcome::Keep, |filter| filter.outcome(&object, Telling::Event))
            };
            if !Difference::between(before.as_ref(), now.as_ref()).may_concern(&object) {
                prop_assert_eq!(shown(&before), shown(&now));
            }
        }
    }
}

/// Of thousands of slices few have to be looked at.
#[test]
fn one_pod_or_one_service_concerns_few_objects() {
    let all: Vec<_> = objects()
        .into_iter()
        .filter(|(resource, _)| *resource == Filtered::EndpointSlices)
        .map(|(_, object)| Object::from_protobuf(encode::object(&object).into()).unwrap())
        .collect();
    let filter = |change: &dyn Fn(&mut View)| {
        let mut view = View::from(CaseView::default());
        view.topology = Arc::new([(ObjectKey::new("n", "s"), Topology::Pool)].into());
        change(&mut view);
        let names = [FilterName::ServiceTopology, FilterName::LocalPods];
        Filter::new(Filtered::EndpointSlices, names.into(), view.into())
    };
    let concerns = |now: &Filter| {
        let difference = Difference::between(Some(&filter(&|_| {})), Some(now));
        all.iter().map(|object| difference.may_concern(object)).collect::<Vec<_>>()
    };
    let pod = LocalPod { name: "n/p".into(), addresses: vec![[10, 0, 0, 9].into()], ready: true };
    let moved = LocalPods { pods: BTreeMap::from([("uid-1".into(), pod)]) };
    assert_eq!(concerns(&filter(&|_| {})), [false, false, false]);
    assert_eq!(concerns(&filter(&|view| view.local_pods = Arc::new(moved.clone()))), [true, false, true]);
    assert_eq!(concerns(&filter(&|view| view.pool_nodes = None)), [true, false, false]);
    assert_eq!(
        concerns(&filter(&|view| Arc::make_mut(&mut view.topology)
            .extend([(ObjectKey::new("n", "other"), Topology::Node)]))),
        [false, true, false]
    );
}
