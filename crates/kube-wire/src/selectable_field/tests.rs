use bytes::Bytes;
use serde_json::json;

use super::SelectableFields;
use crate::{
    object::Object,
    protobuf::{put_bytes, put_number},
    resource::GroupVersionResource,
};

fn message(fields: &[(u64, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, content) in fields {
        put_bytes(&mut out, *number, content);
    }
    out
}

fn value(object: &Object, group: &str, resource: &str, label: &str) -> String {
    let fields = SelectableFields::of(&GroupVersionResource::new(group, "v1", resource));
    let (field, _) = fields.get(label).unwrap();
    object.field(&field).into_owned()
}

/// One object in both encodings; `message` is all but its metadata.
fn both(mut json: serde_json::Value, rest: &[u8]) -> [Object; 2] {
    json["metadata"] = json!({"name": "a", "namespace": "n", "resourceVersion": "7"});
    let mut raw = Vec::new();
    put_bytes(&mut raw, 1, &message(&[(1, b"a"), (3, b"n"), (6, b"7")]));
    raw.extend_from_slice(rest);
    [Object::from_json(Bytes::from(json.to_string())).unwrap(), Object::from_protobuf(raw.into()).unwrap()]
}

#[test]
fn fields_are_the_same_in_both_encodings() {
    let mut spec = message(&[(3, b"Always"), (8, b"sa"), (10, b"edge-1"), (19, b"default-scheduler")]);
    put_number(&mut spec, 11, 1);
    let status =
        message(&[(1, b"Running"), (6, b"10.0.0.1"), (11, b"edge-2"), (12, &message(&[(1, b"10.0.0.2")]))]);
    let pod = json!({
        "spec": {
            "restartPolicy": "Always", "serviceAccountName": "sa", "nodeName": "edge-1",
            "schedulerName": "default-scheduler", "hostNetwork": true
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.1", "nominatedNodeName": "edge-2", "podIPs": [{"ip": "10.0.0.2"}]
        },
    });
    for pod in both(pod, &message(&[(2, &spec), (3, &status)])) {
        for (label, expected) in [
            ("metadata.name", "a"),
            ("metadata.namespace", "n"),
            ("spec.nodeName", "edge-1"),
            ("spec.host", "edge-1"),
            ("spec.restartPolicy", "Always"),
            ("spec.schedulerName", "default-scheduler"),
            ("spec.serviceAccountName", "sa"),
            ("spec.hostNetwork", "true"),
            ("status.phase", "Running"),
            ("status.podIP", "10.0.0.2"),
            ("status.podIPs", ""),
            ("status.nominatedNodeName", "edge-2"),
        ] {
            assert_eq!(value(&pod, "", "pods", label), expected, "{label} {:?}", pod.encoding());
        }
    }
    let event = json!({"involvedObject": {"kind": "Pod", "uid": "u"}, "reportingComponent": "kubelet", "type": "Normal"});
    let raw = message(&[(2, &message(&[(1, b"Pod"), (4, b"u")])), (9, b"Normal"), (14, b"kubelet")]);
    for event in both(event, &raw) {
        for (label, expected) in [
            ("involvedObject.kind", "Pod"),
            ("involvedObject.uid", "u"),
            ("involvedObject.name", ""),
            ("source", "kubelet"),
            ("type", "Normal"),
        ] {
            assert_eq!(value(&event, "", "events", label), expected, "{label} {:?}", event.encoding());
        }
    }
    let mut status = Vec::new();
    put_number(&mut status, 1, 3);
    for controller in both(json!({"status": {"replicas": 3}}), &message(&[(3, &status)])) {
        assert_eq!(value(&controller, "", "replicationcontrollers", "status.replicas"), "3");
    }
    for empty in both(json!({}), &[]) {
        assert_eq!(value(&empty, "", "nodes", "spec.unschedulable"), "false");
        assert_eq!(value(&empty, "batch", "jobs", "status.successful"), "0");
        assert_eq!(value(&empty, "", "secrets", "type"), "");
    }
}

#[test]
fn custom_resources_have_the_fields_they_list() {
    let fields = SelectableFields::custom([".spec.color", ".spec.size", ".spec.on", r".spec.a\.b"]);
    let [object, _] = both(json!({"spec": {"color": "bl\"ue", "size": 3, "on": true, "a.b": "c"}}), &[]);
    for (label, expected) in [
        ("spec.color", "bl\"ue"),
        ("spec.size", "3"),
        ("spec.on", "true"),
        (r"spec.a\.b", "c"),
        ("metadata.name", "a"),
    ] {
        assert_eq!(object.field(&fields.get(label).unwrap().0), expected, "{label}");
    }
    assert_eq!(fields.get("spec.other"), None);
    assert_eq!(fields.refuse("spec.other"), "field label not supported: spec.other");
}

#[test]
fn a_custom_resource_without_namespaces_has_no_such_field() {
    for (group, resource, expected) in [
        ("example.com", "widgets", false),
        ("", "pods", true),
        // Without a table the API server takes both of each.
        ("rbac.authorization.k8s.io", "clusterroles", true),
    ] {
        let fields = SelectableFields::of(&GroupVersionResource::new(group, "v1", resource));
        assert!(fields.get("metadata.namespace").is_some(), "{resource}");
        let fields = fields.without_namespace();
        assert_eq!(fields.get("metadata.namespace").is_some(), expected, "{resource}");
        assert!(fields.get("metadata.name").is_some(), "{resource}");
    }
    let fields = SelectableFields::custom([".spec.color"]).without_namespace();
    assert!(fields.get("spec.color").is_some() && fields.get("metadata.namespace").is_none());
    assert_eq!(fields.refuse("metadata.namespace"), "field label not supported: metadata.namespace");
}
