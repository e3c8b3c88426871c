//! The rules one by one.

#![allow(clippy::needless_pass_by_value, reason = "json! values read best when passed as they are")]

use json_patch::patch;

use super::*;

mod exclusion;
mod host_network;

const P: &str = "harbour";

/// A pod as the API server sends it, with label `harbour`, changed by a merge patch.
fn pod(change: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "web", "namespace": "default", "labels": { DESIRED_NODE_POOL: P, "app": "web" } },
        "spec": {
            "containers": [{ "name": "web", "image": "web", "ports": [{ "containerPort": 8080, "protocol": "TCP" }] }],
            "dnsPolicy": "ClusterFirst",
            "restartPolicy": "Always",
            "securityContext": {}
        }
    });
    json_patch::merge(&mut pod, &change);
    pod
}

fn affinity(terms: Value) -> Value {
    json!({ "spec": { "affinity": { "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms }
    } } } })
}

fn excluding(change: Value) -> Value {
    let mut pod = pod(json!({ "metadata": {
        "labels": { DESIRED_NODE_POOL: null },
        "annotations": { EXCLUDE_HOST_NETWORK_POOL: "true" }
    } }));
    json_patch::merge(&mut pod, &change);
    pod
}

fn admitted(pod: &Value, network: PoolNetwork) -> (Value, Vec<String>) {
    match plan(pod, network, None) {
        Decision::Admit { patch, warnings } => (serde_json::to_value(patch).unwrap(), warnings),
        Decision::Refuse(refusal) => panic!("refused: {refusal}"),
    }
}

fn refused(pod: &Value, network: PoolNetwork) -> String {
    match plan(pod, network, None) {
        Decision::Admit { patch, .. } => panic!("admitted with {patch}"),
        Decision::Refuse(refusal) => refusal.to_string(),
    }
}

fn host_network_and_binding() -> Value {
    json!([
        { "op": "add", "path": "/spec/hostNetwork", "value": true },
        { "op": "add", "path": "/spec/nodeSelector", "value": { NODE_POOL: P } }
    ])
}

#[test]
fn a_pod_that_wants_a_host_network_pool_gets_host_network_and_is_bound() {
    let (patch, warnings) = admitted(&pod(json!({})), PoolNetwork::Host);
    assert_eq!(patch, host_network_and_binding());
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn an_explicit_host_network_false_is_overridden() {
    let (patch, _) = admitted(&pod(json!({ "spec": { "hostNetwork": false } })), PoolNetwork::Host);
    assert_eq!(patch, host_network_and_binding());
}

#[test]
fn other_keys_of_the_node_selector_stay() {
    let (patch, _) =
        admitted(&pod(json!({ "spec": { "nodeSelector": { "disk": "ssd" } } })), PoolNetwork::Host);
    assert_eq!(
        patch,
        json!([
            { "op": "add", "path": "/spec/hostNetwork", "value": true },
            { "op": "add", "path": "/spec/nodeSelector/apps.openyurt.io~1nodepool", "value": P }
        ])
    );
}

#[test]
fn a_pod_that_binds_itself_gets_host_network_only() {
    for (case, change) in [
        ("node selector", json!({ "spec": { "nodeSelector": { NODE_POOL: P } } })),
        ("node name", json!({ "spec": { "nodeName": "n1" } })),
        (
            "affinity",
            affinity(
                json!([{ "matchExpressions": [{ "key": NODE_POOL, "operator": "In", "values": [P] }] }]),
            ),
        ),
        (
            "each term of the affinity",
            affinity(json!([
                { "matchExpressions": [
                    { "key": NODE_POOL, "operator": "Exists" },
                    { "key": NODE_POOL, "operator": "In", "values": [P, "quay"] },
                    { "key": NODE_POOL, "operator": "In", "values": [P] }
                ] },
                { "matchExpressions": [
                    { "key": "disk", "operator": "In", "values": ["ssd"] },
                    { "key": NODE_POOL, "operator": "In", "values": [P, P] }
                ] },
                {}
            ])),
        ),
    ] {
        let (patch, warnings) = admitted(&pod(change), PoolNetwork::Host);
        assert_eq!(patch, json!([{ "op": "add", "path": "/spec/hostNetwork", "value": true }]), "{case}");
        assert_eq!(warnings, Vec::<String>::new(), "{case}");
    }
}

#[test]
fn an_affinity_that_leaves_other_places_open_is_narrowed() {
    for (case, terms, warns) in [
        ("other key", json!([{ "matchExpressions": [{ "key": "disk", "operator": "Exists" }] }]), false),
        ("any pool", json!([{ "matchExpressions": [{ "key": NODE_POOL, "operator": "Exists" }] }]), false),
        (
            "any but another",
            json!([{ "matchExpressions": [{ "key": NODE_POOL, "operator": "NotIn", "values": ["quay"] }] }]),
            false,
        ),
        ("nowhere", json!([{}, { "matchExpressions": [] }]), false),
        (
            "the node of a DaemonSet's pod",
            json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n1"] }] }]),
            false,
        ),
        (
            "one alternative of two",
            json!([
                { "matchExpressions": [{ "key": NODE_POOL, "operator": "In", "values": [P] }] },
                { "matchExpressions": [{ "key": "disk", "operator": "Exists" }] }
            ]),
            false,
        ),
        (
            "this pool or another",
            json!([{ "matchExpressions": [{ "key": NODE_POOL, "operator": "In", "values": ["quay", P] }] }]),
            true,
        ),
    ] {
        let (patch, warnings) = admitted(&pod(affinity(terms)), PoolNetwork::Host);
        assert_eq!(patch, host_network_and_binding(), "{case}");
        assert_eq!(warnings.len(), usize::from(warns), "{case}: {warnings:?}");
    }
}

#[test]
fn a_pod_that_names_another_pool_is_refused() {
    let required =
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let term = |operator: &str, values: Value| {
        json!({ "matchExpressions": [
            { "key": "disk", "operator": "Exists" },
            { "key": NODE_POOL, "operator": operator, "values": values }
        ] })
    };
    let own = term("In", json!([P]));
    for (change, field, says) in [
        (
            json!({ "spec": { "nodeSelector": { NODE_POOL: "quay" } } }),
            "spec.nodeSelector[apps.openyurt.io/nodepool]".to_owned(),
            r#""quay""#,
        ),
        (
            affinity(json!([term("In", json!(["quay", "dock"]))])),
            format!("{required}[0].matchExpressions[1]"),
            r#""apps.openyurt.io/nodepool In [quay dock]""#,
        ),
        (
            affinity(json!([own, term("NotIn", json!([P]))])),
            format!("{required}[1].matchExpressions[1]"),
            r#""apps.openyurt.io/nodepool NotIn [harbour]""#,
        ),
        (
            affinity(json!([term("DoesNotExist", json!([]))])),
            format!("{required}[0].matchExpressions[1]"),
            r#""apps.openyurt.io/nodepool DoesNotExist""#,
        ),
    ] {
        assert_eq!(
            refused(&pod(change), PoolNetwork::Host),
            format!(
                "{field} is {says}, but label nodepool.openyurt.io/desired-nodepool wants pool \"harbour\": name the \
                 same pool in both, or remove one"
            )
        );
    }
}

#[test]
fn a_preferred_affinity_for_another_pool_is_only_a_wish() {
    let change = json!({ "spec": { "affinity": { "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "preference": { "matchExpressions": [
            { "key": NODE_POOL, "operator": "In", "values": ["quay"] }
        ] } }]
    } } } });
    assert_eq!(admitted(&pod(change), PoolNetwork::Host).0, host_network_and_binding());
}

#[test]
fn a_pod_without_label_and_annotation_is_nobodys_business() {
    let pod = json!({ "metadata": { "labels": null }, "spec": {} });
    for network in [PoolNetwork::Host, PoolNetwork::Container, PoolNetwork::Unknown] {
        assert_eq!(admitted(&pod, network), (json!([]), vec![]));
    }
}

#[test]
fn fields_of_newer_kubernetes_versions_pass_untouched() {
    let change = json!({
        "metadata": { "future": [1, 2.5, null] },
        "spec": {
            "schedulingGroup": { "podGroupName": "g" },
            "evictionResponders": [{ "name": "r", "priority": 9_007_199_254_740_993_i64 }],
            "containers": [{ "name": "web", "future": {}, "ports": [{ "containerPort": 80, "future": "x" }] }]
        }
    });
    let before = pod(change);
    let Decision::Admit { patch: operations, .. } = plan(&before, PoolNetwork::Host, None) else {
        panic!("refused")
    };
    let mut after = before.clone();
    patch(&mut after, &operations).unwrap();
    let spec = after["spec"].as_object_mut().unwrap();
    assert_eq!(spec.remove("hostNetwork"), Some(json!(true)));
    assert_eq!(spec.remove("nodeSelector"), Some(json!({ NODE_POOL: P })));
    assert_eq!(after, before);
}

#[test]
fn json_of_another_type_is_refused_by_its_field() {
    let metadata = "metadata.labels[nodepool.openyurt.io/desired-nodepool]";
    for (pod, message) in [
        (json!([]), "the pod is a list where the API has an object".to_owned()),
        (json!({}), "spec is missing where the API has an object".to_owned()),
        (
            pod(json!({ "metadata": { "labels": { DESIRED_NODE_POOL: 7 } } })),
            format!("{metadata} is a number where the API has a string"),
        ),
        (
            pod(json!({ "metadata": { "annotations": "x" } })),
            "metadata.annotations is a string where the API has an object".to_owned(),
        ),
        (
            pod(json!({ "spec": { "hostNetwork": "true" } })),
            "spec.hostNetwork is a string where the API has a boolean".to_owned(),
        ),
        (
            pod(json!({ "spec": { "affinity": [] } })),
            "spec.affinity is a list where the API has an object".to_owned(),
        ),
        (
            pod(json!({ "spec": { "nodeSelector": true } })),
            "spec.nodeSelector is a boolean where the API has an object".to_owned(),
        ),
        (
            pod(json!({ "spec": { "containers": [null] } })),
            "spec.containers[0] is missing where the API has an object".to_owned(),
        ),
        (
            pod(json!({ "spec": { "containers": [{ "ports": [{ "containerPort": 1.5 }] }] } })),
            "spec.containers[0].ports[0].containerPort is a number where the API has an integer".to_owned(),
        ),
    ] {
        assert_eq!(refused(&pod, PoolNetwork::Host), format!("this is no valid pod: {message}"));
    }
}

/// What becomes of the pod that names node `n1`, of which this is known.
fn with_node(network: PoolNetwork, node: Option<&NamedNode>) -> Decision {
    plan(&pod(json!({ "spec": { "nodeName": "n1" } })), network, node)
}

#[test]
fn a_pod_that_names_a_node_of_the_pool_is_bound() {
    let only_network = json!([{ "op": "add", "path": "/spec/hostNetwork", "value": true }]);
    for (node, warning) in [
        (NamedNode::InPool(P.to_owned()), None),
        (
            NamedNode::Missing,
            Some(
                "spec.nodeName is \"n1\", and there is no such node: name a node of pool \"harbour\", or none and the scheduler \
                 chooses one",
            ),
        ),
    ] {
        let Decision::Admit { patch, warnings } = with_node(PoolNetwork::Host, Some(&node)) else {
            panic!("refused")
        };
        assert_eq!(serde_json::to_value(patch).unwrap(), only_network);
        assert_eq!(warnings, Vec::from_iter(warning), "{node:?}");
    }
}

#[test]
fn a_pod_that_names_a_node_outside_the_pool_is_refused() {
    for (node, membership) in
        [(NamedNode::InPool("quay".to_owned()), "pool \"quay\""), (NamedNode::InNoPool, "no pool")]
    {
        let Decision::Refuse(refusal) = with_node(PoolNetwork::Host, Some(&node)) else { panic!("admitted") };
        assert_eq!(
            refusal.to_string(),
            format!(
                "spec.nodeName is \"n1\", a node of {membership}, but label nodepool.openyurt.io/desired-nodepool wants pool \
                 \"harbour\": name a node of that pool or none, or remove the label"
            )
        );
        // Only a host-network pool's label says where the pod runs.
        assert!(matches!(with_node(PoolNetwork::Container, Some(&node)), Decision::Admit { .. }));
    }
}
