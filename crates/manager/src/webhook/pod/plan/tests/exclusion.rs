//! Pods that are kept off host-network nodes, and those that must not be.

use super::*;

fn requirement() -> Value {
    json!({ "key": "nodepool.openyurt.io/hostnetwork", "operator": "NotIn", "values": ["true"] })
}

#[test]
fn the_annotation_makes_a_term_where_there_is_none() {
    let terms = json!([{ "matchExpressions": [requirement()] }]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    for (change, path, value) in [
        (
            json!({}),
            "/spec/affinity".to_owned(),
            json!({ "nodeAffinity": { required: { "nodeSelectorTerms": terms } } }),
        ),
        (
            json!({ "spec": { "affinity": { "podAffinity": {} } } }),
            "/spec/affinity/nodeAffinity".to_owned(),
            json!({ required: { "nodeSelectorTerms": terms } }),
        ),
        (
            json!({ "spec": { "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [] } } } }),
            format!("/spec/affinity/nodeAffinity/{required}"),
            json!({ "nodeSelectorTerms": terms }),
        ),
        (
            affinity(json!([])),
            format!("/spec/affinity/nodeAffinity/{required}/nodeSelectorTerms"),
            terms.clone(),
        ),
    ] {
        let (patch, _) = admitted(&excluding(change), PoolNetwork::Unknown);
        assert_eq!(patch, json!([{ "op": "add", "path": path, "value": value }]));
    }
}

#[test]
fn the_annotation_goes_to_each_term_but_not_to_those_that_match_nothing() {
    let pod = excluding(affinity(json!([
        { "matchExpressions": [{ "key": "disk", "operator": "Exists" }] },
        {},
        { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n1"] }] },
        { "matchExpressions": [requirement()] },
        { "matchExpressions": [] }
    ])));
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let (patch, _) = admitted(&pod, PoolNetwork::Unknown);
    assert_eq!(
        patch,
        json!([
            { "op": "add", "path": format!("{terms}/0/matchExpressions/-"), "value": requirement() },
            { "op": "add", "path": format!("{terms}/2/matchExpressions"), "value": [requirement()] }
        ])
    );
}

#[test]
fn a_pod_that_wants_only_nodes_outside_host_network_pools_is_refused() {
    let field = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1].\
                 matchExpressions[0]";
    let term = |key: &str, operator: &str, values: Value| {
        affinity(json!([
            { "matchExpressions": [{ "key": "disk", "operator": "Exists" }] },
            { "matchExpressions": [{ "key": key, "operator": operator, "values": values }] }
        ]))
    };
    let hostnetwork = "nodepool.openyurt.io/hostnetwork";
    for (change, field, says) in [
        (
            json!({ "spec": { "nodeSelector": { hostnetwork: "false" } } }),
            "spec.nodeSelector[nodepool.openyurt.io/hostnetwork]",
            "\"false\"",
        ),
        (
            term(hostnetwork, "DoesNotExist", json!([])),
            field,
            "\"nodepool.openyurt.io/hostnetwork DoesNotExist\"",
        ),
        (
            term("nodepool.openyurt.io/host-network", "NotIn", json!(["true"])),
            field,
            "\"nodepool.openyurt.io/host-network NotIn [true]\"",
        ),
        (
            term(hostnetwork, "NotIn", json!(["true", "yes"])),
            field,
            "\"nodepool.openyurt.io/hostnetwork NotIn [true yes]\"",
        ),
        (
            term("nodepool.openyurt.io/network-mode", "In", json!(["pod"])),
            field,
            "\"nodepool.openyurt.io/network-mode In [pod]\"",
        ),
    ] {
        assert_eq!(
            refused(&pod(change.clone()), PoolNetwork::Host),
            format!(
                "{field} is {says}, which no node of a host-network pool fulfils, but label \
                 nodepool.openyurt.io/desired-nodepool wants pool \"harbour\", which is one: remove one of them"
            )
        );
        admitted(&pod(change), PoolNetwork::Container);
    }
    // What such a node fulfils is no reason, and the policy's own requirement is taken out.
    for harmless in [
        json!({ "spec": { "nodeSelector": { hostnetwork: "true" } } }),
        term(hostnetwork, "Exists", json!([])),
        term(hostnetwork, "NotIn", json!(["true"])),
    ] {
        admitted(&pod(harmless), PoolNetwork::Host);
    }
}

#[test]
fn any_other_value_of_the_annotation_means_nothing() {
    for value in ["false", "True", ""] {
        let change = json!({ "metadata": { "annotations": { EXCLUDE_HOST_NETWORK_POOL: value } } });
        assert_eq!(admitted(&excluding(change), PoolNetwork::Unknown).0, json!([]), "{value}");
    }
}

#[test]
fn label_and_annotation_contradict_for_host_network_pools_only() {
    let both = pod(json!({ "metadata": { "annotations": { EXCLUDE_HOST_NETWORK_POOL: "true" } } }));
    assert_eq!(
        refused(&both, PoolNetwork::Host),
        "metadata.annotations[apps.openyurt.io/exclude-host-network-pool] keeps the pod off host-network pools, but \
         label nodepool.openyurt.io/desired-nodepool wants pool \"harbour\", which is one: remove the annotation or the \
         label"
    );
    for network in [PoolNetwork::Container, PoolNetwork::Unknown] {
        let (patch, warnings) = admitted(&both, network);
        assert_eq!(patch[0]["path"], "/spec/affinity");
        assert_eq!(warnings.len(), 1);
    }
}

/// What keeps this pod, which stays without host network, off the nodes of host-network pools.
fn kept_off(pod: &Value) -> Value {
    let (patch, _) = admitted(pod, PoolNetwork::Container);
    assert_eq!(admitted(pod, PoolNetwork::Unknown).0, patch);
    patch
}

#[test]
fn a_labelled_pod_without_host_network_is_kept_off_and_warned() {
    let whole = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [requirement()] }]
    } } });
    let expected = json!([{ "op": "add", "path": "/spec/affinity", "value": whole }]);
    let changes = [
        json!({}),
        // It names the nodes of some pool, of which nobody says that it is not a host-network pool.
        json!({ "spec": { "nodeSelector": { NODE_POOL: "quay" }, "hostUsers": false } }),
        json!({ "spec": { "nodeSelector": { "nodepool.openyurt.io/hostnetwork": "true" } } }),
        json!({ "spec": { "hostNetwork": false, "nodeName": "" } }),
        json!({ "metadata": { "ownerReferences": [{ "kind": "DaemonSet" }] } }),
    ];
    for change in changes {
        for (network, warning) in [
            (
                PoolNetwork::Container,
                "node pool \"harbour\" is not a host-network pool: label nodepool.openyurt.io/desired-nodepool only keeps the \
                 pod off host-network nodes; name a host-network pool, or remove the label",
            ),
            (
                PoolNetwork::Unknown,
                "node pool \"harbour\" of label nodepool.openyurt.io/desired-nodepool does not exist: the pod gets no host \
                 network and is kept off host-network nodes; create the pool, then the pod anew",
            ),
        ] {
            let found = admitted(&pod(change.clone()), network);
            assert_eq!(found, (expected.clone(), vec![warning.to_owned()]), "{change}");
        }
    }
    // An empty label wants a pool that cannot exist.
    let empty = pod(json!({ "metadata": { "labels": { DESIRED_NODE_POOL: "" } } }));
    assert_eq!(kept_off(&empty), expected);
    assert_eq!(
        admitted(&empty, PoolNetwork::Unknown).1,
        [
            "label nodepool.openyurt.io/desired-nodepool is empty: name a pool, or remove it; until then the pod gets no host \
             network and is kept off host-network nodes"
        ]
    );
}

#[test]
fn a_pod_that_keeps_off_already_gets_no_patch() {
    let expression = |key: &str, operator: &str, values: Value| {
        affinity(json!([{ "matchExpressions": [
            { "key": "disk", "operator": "Exists" },
            { "key": key, "operator": operator, "values": values }
        ] }]))
    };
    for change in [
        json!({ "spec": { "nodeSelector": { "nodepool.openyurt.io/hostnetwork": "false" } } }),
        json!({ "spec": { "nodeSelector": { "nodepool.openyurt.io/host-network": "" } } }),
        expression("nodepool.openyurt.io/hostnetwork", "NotIn", json!(["true"])),
        expression("nodepool.openyurt.io/hostnetwork", "In", json!(["false"])),
        expression("nodepool.openyurt.io/host-network", "NotIn", json!(["yes", "true"])),
        expression("nodepool.openyurt.io/network-mode", "NotIn", json!(["node-network-mode"])),
        expression("nodepool.openyurt.io/network-mode", "DoesNotExist", Value::Null),
        affinity(json!([{}])),
        // It has host network of its own, or its node already.
        json!({ "spec": { "hostNetwork": true } }),
        json!({ "spec": { "nodeName": "n1" } }),
    ] {
        assert_eq!(kept_off(&pod(change.clone())), json!([]), "{change}");
    }
    for change in [
        expression("nodepool.openyurt.io/hostnetwork", "NotIn", json!(["false"])),
        expression("nodepool.openyurt.io/hostnetwork", "In", json!(["true", "false"])),
        expression("nodepool.openyurt.io/hostnetwork", "Exists", Value::Null),
        expression(NODE_POOL, "In", json!(["quay"])),
    ] {
        assert_eq!(kept_off(&pod(change.clone()))[0]["value"], requirement(), "{change}");
    }
}

/// The pod's affinity after the webhook gave it host network; before it, each was as the policy leaves pods.
fn affinity_in_the_pool(affinity: Value) -> Value {
    let mut pod = pod(json!({ "spec": { "affinity": affinity } }));
    let Decision::Admit { patch: operations, .. } = plan(&pod, PoolNetwork::Host, None) else {
        panic!("refused")
    };
    patch(&mut pod, &operations).unwrap();
    assert_eq!(pod["spec"]["hostNetwork"], true);
    pod["spec"].get("affinity").cloned().unwrap_or_default()
}

#[test]
fn a_pod_that_gets_host_network_loses_what_the_policy_added() {
    let required = |terms: Value| json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
    let ours = || required(json!([{ "matchExpressions": [requirement()] }]));
    let preferred = json!([{ "weight": 1, "preference": { "matchExpressions": [{ "key": "disk", "operator": "Exists" }] } }]);
    let disk = json!({ "key": "disk", "operator": "In", "values": ["ssd"], "future": 1 });
    let field = json!([{ "key": "metadata.name", "operator": "In", "values": ["n1"] }]);

    assert_eq!(affinity_in_the_pool(json!({ "nodeAffinity": ours() })), Value::Null);
    assert_eq!(
        affinity_in_the_pool(json!({ "nodeAffinity": ours(), "podAffinity": { "future": 1 } })),
        json!({ "podAffinity": { "future": 1 } })
    );
    let mut both = ours();
    both["preferredDuringSchedulingIgnoredDuringExecution"] = preferred.clone();
    assert_eq!(
        affinity_in_the_pool(json!({ "nodeAffinity": both })),
        json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": preferred } })
    );
    let terms = json!([
        { "matchExpressions": [disk, requirement()], "future": 2 },
        {},
        { "matchFields": field, "matchExpressions": [requirement()] },
        { "matchExpressions": [requirement()] }
    ]);
    assert_eq!(
        affinity_in_the_pool(json!({ "nodeAffinity": required(terms) })),
        json!({ "nodeAffinity": required(json!([
            { "matchExpressions": [disk], "future": 2 },
            {},
            { "matchFields": field }
        ])) })
    );
}

#[test]
fn a_pod_that_binds_itself_is_bound_without_the_requirement_too() {
    let own = json!({ "key": NODE_POOL, "operator": "In", "values": [P] });
    let (found, _) =
        admitted(&pod(affinity(json!([{ "matchExpressions": [own, requirement()] }]))), PoolNetwork::Host);
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    assert_eq!(
        found,
        json!([
            { "op": "add", "path": "/spec/hostNetwork", "value": true },
            { "op": "add", "path": terms, "value": [{ "matchExpressions": [own] }] }
        ])
    );
}
