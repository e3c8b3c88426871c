//! What the table says of kinds, resources and scopes, and that it is whole.

use crate::resource::GroupVersionResource;
use crate::transcode::table::{self, Message, Value};
use crate::transcode::{MetaMessage, ResourceOfKind, kind_of, knows, meta_to_json, resource_of, to_json};

#[test]
fn kinds_and_resources_are_found_both_ways() {
    for (group, version, resource, kind, namespaced) in [
        ("", "v1", "pods", "Pod", true),
        ("", "v1", "endpoints", "Endpoints", true),
        ("", "v1", "nodes", "Node", false),
        ("", "v1", "bindings", "Binding", true),
        ("apps", "v1", "daemonsets", "DaemonSet", true),
        ("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true),
        ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true),
        ("networking.k8s.io", "v1", "ingressclasses", "IngressClass", false),
        ("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true),
        ("coordination.k8s.io", "v1", "leases", "Lease", true),
        ("apiregistration.k8s.io", "v1", "apiservices", "APIService", false),
        ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false),
        ("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", true),
    ] {
        let gvr = GroupVersionResource::new(group, version, resource);
        assert_eq!(kind_of(&gvr), Some(kind));
        assert_eq!(resource_of(group, version, kind), Some(ResourceOfKind { resource, namespaced }));
        assert!(knows(&gvr));
    }
}

#[test]
fn what_is_not_built_in_is_not_known() {
    for (group, version, resource) in [
        ("", "v1", "scales"),
        ("", "v1", ""),
        ("a.io", "v1", "pods"),
        ("apps", "v9", "deployments"),
        ("zz", "zz", "zz"),
    ] {
        let gvr = GroupVersionResource::new(group, version, resource);
        assert!(!knows(&gvr) && kind_of(&gvr).is_none(), "{gvr}");
        assert!(to_json(&gvr, b"", true).is_err(), "{gvr}");
    }
    assert_eq!(resource_of("autoscaling", "v1", "Scale"), None);
    assert_eq!(resource_of("", "v1", "PodList"), None);
}

/// Every message that a kind leads to can be read: no index in the table points outside of it.
#[test]
fn the_table_is_whole() {
    let mut seen = 0;
    for kind in table::resources() {
        let gvr = GroupVersionResource::new(kind.group(), kind.version(), kind.resource());
        assert_eq!(
            table::resource(&gvr).map(table::Kind::name),
            Some(kind.name()),
            "{gvr} is not found by search"
        );
        let json = to_json(&gvr, b"", true).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!((&value["kind"], &value["apiVersion"]), (&kind.name().into(), &gvr.api_version().into()));
        seen += walk(table::message(kind.message()), 12);
    }
    assert!(seen > 10_000, "{seen} fields");
}

/// Reads all fields below a message, to a depth.
fn walk(message: Message, depth: usize) -> usize {
    let mut seen = message.len();
    for field in (0..message.len()).map(|index| message.field(index)) {
        assert_eq!(
            message.position(field.number()).map(|at| message.field(at).number()),
            Some(field.number())
        );
        assert!(
            matches!(field.place(), table::Place::Named(name) if name.is_ascii() && !name.is_empty())
                || field.place() == table::Place::Inline
        );
        if let Value::Message(below) = field.value()
            && depth > 0
            && seen < 2000
        {
            seen += walk(table::message(below), depth - 1);
        }
    }
    seen
}

#[test]
fn messages_that_are_no_resources_are_written_alone() {
    let meta = super::length(1, b"a");
    for (message, raw, typed, expected) in [
        (MetaMessage::ObjectMeta, meta.clone(), true, r#"{"name":"a"}"#),
        (MetaMessage::ListMeta, super::length(2, b"7"), true, r#"{"resourceVersion":"7"}"#),
        (MetaMessage::PartialObjectMetadata, super::length(1, &meta), false, r#"{"metadata":{"name":"a"}}"#),
        (
            MetaMessage::PartialObjectMetadata,
            super::length(1, &meta),
            true,
            r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}"#,
        ),
        (
            MetaMessage::Status,
            [super::length(1, b""), super::length(2, b"Failure"), super::integer(6, 404)].concat(),
            true,
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":404}"#,
        ),
    ] {
        let json = meta_to_json(message, &raw, typed).unwrap();
        assert_eq!(String::from_utf8(json).unwrap(), expected);
    }
}
