//! All filters by cases, in both encodings, and on objects of anybody.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use kube_wire::{
    object::{Encoding, Object},
    resource::{GroupVersionResource, ObjectKey},
    transcode,
};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use super::{FilterName, Filtered, Outcome, Telling, Topology, View, filter};

mod difference;
mod encode;
mod registry;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    filters: Vec<String>,
    #[serde(default)]
    view: CaseView,
    before: Value,
    /// What the client is shown; absent: the object as it is. `dropped: true`: nothing.
    after: Option<Value>,
    #[serde(default)]
    dropped: bool,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CaseView {
    pool: Option<String>,
    nodes: Option<Vec<String>>,
    hub: Option<SocketAddr>,
    topology: BTreeMap<String, String>,
}

impl Default for CaseView {
    fn default() -> Self {
        Self {
            pool: Some("p".into()),
            nodes: Some(vec!["a".into(), "b".into()]),
            hub: Some(([169, 254, 2, 1], 10268).into()),
            topology: BTreeMap::new(),
        }
    }
}

impl From<CaseView> for View {
    fn from(case: CaseView) -> Self {
        let CaseView { pool, nodes, hub, topology } = case;
        let mut view = View::of_node("a", pool.as_deref(), hub);
        view.pool_nodes = nodes.map(|nodes| Arc::new(nodes.into_iter().map(Into::into).collect()));
        view.topology = Arc::new(
            topology
                .iter()
                .map(|(service, topology)| {
                    let (namespace, name) = service.split_once('/').unwrap();
                    let topology = match topology.as_str() {
                        "node" => Topology::Node,
                        "pool" => Topology::Pool,
                        "former" => Topology::Former,
                        _ => panic!("{topology}"),
                    };
                    (ObjectKey::new(namespace, name), topology)
                })
                .collect(),
        );
        view
    }
}

fn resource(object: &Value) -> (GroupVersionResource, Filtered) {
    let (group, plural) = match object["kind"].as_str().unwrap() {
        "Service" => ("", "services"),
        "Endpoints" => ("", "endpoints"),
        "EndpointSlice" => ("discovery.k8s.io", "endpointslices"),
        "ConfigMap" => ("", "configmaps"),
        "Pod" => ("", "pods"),
        kind => panic!("{kind}"),
    };
    let resource = GroupVersionResource::new(group, "v1", plural);
    let filtered = Filtered::of(&resource).unwrap();
    (resource, filtered)
}

fn json(resource: &GroupVersionResource, object: &Object) -> Value {
    let text = match object.encoding() {
        Encoding::Json => object.body().to_vec(),
        Encoding::Protobuf => transcode::to_json(resource, object.body(), true).unwrap(),
    };
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn each_filter_shows_what_its_cases_say() {
    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("tests/cases.yaml")).unwrap();
    for case in cases {
        let Case { name, filters, view, before, after, dropped } = case;
        let view = View::from(view);
        let names: Vec<FilterName> = filters.iter().map(|name| name.parse().unwrap()).collect();
        let (resource, filtered) = resource(&before);
        let protobuf = Object::from_protobuf(encode::object(&before).into()).unwrap();
        let text = transcode::to_json(&resource, protobuf.body(), true).unwrap();
        let as_json = Object::from_json(text.into()).unwrap();
        // The same noise that the API server adds to the object is added to what is expected.
        let expected = after.map(|after| {
            let after = Object::from_protobuf(encode::object(&after).into()).unwrap();
            json(&resource, &after)
        });
        for object in [protobuf, as_json] {
            let label = format!("{name} ({:?})", object.encoding());
            let outcome = filter(&names, filtered, &object, &view, Telling::Event);
            match (&outcome, &expected) {
                (Outcome::Drop, None) => assert!(dropped, "{label}"),
                (Outcome::Keep, None) => assert!(!dropped, "{label}"),
                (Outcome::Replace(shown), Some(expected)) => {
                    assert_eq!(&json(&resource, shown), expected, "{label}");
                    assert_eq!(
                        filter(&names, filtered, shown, &view, Telling::Event),
                        Outcome::Keep,
                        "{label}, twice"
                    );
                }
                _ => panic!("{label}: {outcome:?} instead of {expected:?}"),
            }
        }
    }
}

const ALL: [Filtered; 5] =
    [Filtered::Services, Filtered::Endpoints, Filtered::EndpointSlices, Filtered::ConfigMaps, Filtered::Pods];

fn eager_view() -> View {
    CaseView {
        topology: BTreeMap::from([("default/kubernetes".into(), "pool".into())]),
        ..CaseView::default()
    }
    .into()
}

/// Whatever it is, it is survived, and filtering again changes nothing.
fn survives(object: &Object) {
    for filtered in ALL {
        let filter =
            |object: &Object| filter(&FilterName::ALL, filtered, object, &eager_view(), Telling::Event);
        if let Outcome::Replace(shown) = filter(object) {
            assert_eq!(filter(&shown), Outcome::Keep);
        }
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "(https|KUBERNETES_SERVICE_HOST|IPv4|a|)".prop_map(Value::from),
    ];
    let keys = "(spec|ports|name|port|clusterIP|clusterIPs|endpoints|nodeName|subsets|addresses|containers|env|value|data|addressType)";
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys, inner, 0..5).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn arbitrary_json_is_survived(rest in prop::collection::btree_map("(spec|endpoints|ports|subsets|data|addressType)", value(), 0..4)) {
        let mut object: Value = rest.into_iter().collect::<serde_json::Map<_, _>>().into();
        object["metadata"] = serde_json::json!({ "name": "kubernetes", "namespace": "default", "resourceVersion": "1" });
        survives(&Object::from_json(object.to_string().into()).unwrap());
    }

    #[test]
    fn arbitrary_messages_are_survived(
        fields in prop::collection::vec((1..22_u64, prop::collection::vec((1..9_u64, prop::collection::vec(any::<u8>(), 0..12)), 0..4)), 0..6),
    ) {
        let mut body = encode::object(&serde_json::json!({
            "kind": "Service",
            "metadata": { "name": "kubernetes", "namespace": "default", "resourceVersion": "1" },
        }));
        for (number, inner) in fields.into_iter().filter(|(number, _)| *number != 1) {
            let mut message = Vec::new();
            for (number, content) in inner {
                encode::put(&mut message, number, &content);
            }
            encode::put(&mut body, number, &message);
        }
        if let Ok(object) = Object::from_protobuf(body.into()) {
            survives(&object);
        }
    }
}
