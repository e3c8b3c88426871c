//! The rules one by one.

#![allow(clippy::needless_pass_by_value, reason = "json! values read best when passed as they are")]

use json_patch::patch;

use super::*;

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
    match plan(pod, network) {
        Decision::Admit { patch, warnings } => (serde_json::to_value(patch).unwrap(), warnings),
        Decision::Refuse(refusal) => panic!("refused: {refusal}"),
    }
}

fn refused(pod: &Value, network: PoolNetwork) -> String {
    match plan(pod, network) {
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
            r#""apps.openyurt.io/nodepool DoesNotExist []""#,
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
fn other_pools_change_nothing_and_warn() {
    let pod = pod(json!({ "spec": { "nodeSelector": { NODE_POOL: "quay" }, "hostUsers": false } }));
    for (network, warning) in [
        (
            PoolNetwork::Container,
            "node pool \"harbour\" is not a host-network pool: label nodepool.openyurt.io/desired-nodepool changes nothing",
        ),
        (
            PoolNetwork::Unknown,
            "node pool \"harbour\" of label nodepool.openyurt.io/desired-nodepool does not exist: the pod is admitted unchanged; create the pool, then the pod anew",
        ),
    ] {
        assert_eq!(admitted(&pod, network), (json!([]), vec![warning.to_owned()]));
    }
}

#[test]
fn a_pod_without_label_and_annotation_is_nobodys_business() {
    let pod = json!({ "metadata": { "labels": null }, "spec": {} });
    for network in [PoolNetwork::Host, PoolNetwork::Container, PoolNetwork::Unknown] {
        assert_eq!(admitted(&pod, network), (json!([]), vec![]));
    }
}

#[test]
fn what_host_network_cannot_give_is_refused() {
    for (spec, message) in [
        (
            json!({ "hostUsers": false }),
            "spec.hostUsers is false, and a user namespace of its own rules host network out: remove spec.hostUsers",
        ),
        (
            json!({ "hostnameOverride": "web.example" }),
            "spec.hostnameOverride is set, and a pod with host network has its node's host name: remove spec.hostnameOverride",
        ),
        (
            json!({ "securityContext": { "sysctls": [
                { "name": "kernel.shm_rmid_forced", "value": "1" },
                { "name": "net.core.somaxconn", "value": "1024" }
            ] } }),
            "spec.securityContext.sysctls[1].name is \"net.core.somaxconn\", which would be a setting of the node: \
             remove this sysctl and set it on the pool's nodes if it is needed",
        ),
        (
            json!({ "securityContext": { "sysctls": [{ "name": "net/ipv4/tcp_syncookies", "value": "1" }] } }),
            "spec.securityContext.sysctls[0].name is \"net/ipv4/tcp_syncookies\", which would be a setting of the node: \
             remove this sysctl and set it on the pool's nodes if it is needed",
        ),
        (
            json!({ "containers": [{ "ports": [{ "containerPort": 8080, "hostPort": 80 }] }] }),
            "spec.containers[0].ports[0].hostPort is 80 and containerPort is 8080, and no port is mapped: let the \
             process listen on the host port and set both to it, or remove hostPort",
        ),
        (
            json!({ "initContainers": [{ "ports": [{ "containerPort": 8080, "hostPort": 80 }] }] }),
            "spec.initContainers[0].ports[0].hostPort is 80 and containerPort is 8080, and no port is mapped: let the \
             process listen on the host port and set both to it, or remove hostPort",
        ),
        (
            json!({ "containers": [
                { "ports": [{ "containerPort": 53, "protocol": "UDP" }, { "containerPort": 53 }] },
                { "ports": [{ "containerPort": 53, "protocol": "TCP" }] }
            ] }),
            "spec.containers[1].ports[0] has TCP port 53 as spec.containers[0].ports[1] has, and a port of the node can \
             be taken only once: give it another port, or declare the port once",
        ),
    ] {
        assert_eq!(
            refused(&pod(json!({ "spec": spec })), PoolNetwork::Host),
            format!(
                "pool \"harbour\" gives its pods host network, but {message}, or choose a pool without host network"
            )
        );
    }
}

#[test]
fn what_host_network_can_give_is_admitted() {
    for spec in [
        json!({ "hostUsers": true }),
        json!({ "hostUsers": null, "hostnameOverride": null }),
        json!({ "containers": [{ "ports": [{ "containerPort": 8080, "hostPort": 8080 }, { "containerPort": 1 }] }] }),
        json!({ "containers": [{ "ports": [
            { "containerPort": 80, "hostIP": "10.0.0.1" }, { "containerPort": 80, "hostIP": "10.0.0.2" }
        ] }] }),
        // Init containers run before the others.
        json!({ "initContainers": [
            { "ports": [{ "containerPort": 8080 }] }, { "ports": [{ "containerPort": 8080 }] }
        ] }),
    ] {
        assert_eq!(
            admitted(&pod(json!({ "spec": spec })), PoolNetwork::Host).0,
            host_network_and_binding(),
            "{spec}"
        );
    }
}

#[test]
fn a_pod_that_asks_for_host_network_itself_is_the_api_servers_to_judge() {
    let change =
        json!({ "spec": { "hostNetwork": true, "hostUsers": false, "nodeSelector": { NODE_POOL: P } } });
    assert_eq!(admitted(&pod(change), PoolNetwork::Host), (json!([]), vec![]));
}

#[test]
fn a_dns_policy_that_needs_cluster_dns_is_warned_of() {
    let change = json!({ "spec": { "dnsPolicy": "ClusterFirstWithHostNet" } });
    let (patch, warnings) = admitted(&pod(change), PoolNetwork::Host);
    assert_eq!(patch, host_network_and_binding());
    assert_eq!(
        warnings,
        [
            "spec.dnsPolicy ClusterFirstWithHostNet needs cluster DNS, which nodes of host-network pool \"harbour\" may lack: use Default"
        ]
    );
}

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
    let Decision::Admit { patch: operations, .. } = plan(&before, PoolNetwork::Host) else {
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
