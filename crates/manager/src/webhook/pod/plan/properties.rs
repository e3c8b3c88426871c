//! What holds for every pod.

use api::labels::HOST_NETWORK;
use json_patch::patch;
use proptest::prelude::*;

use super::*;

const P: &str = "p";

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(word(), inner, 0..6).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// Mostly names that the plan looks at, so that it gets far.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        9 => prop::sample::select(vec![
            "metadata", "labels", "annotations", "spec", "hostNetwork", "hostUsers", "nodeName", "nodeSelector",
            "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms",
            "matchExpressions", "matchFields", "key", "operator", "values", "In", "NotIn", "true", "containers",
            "initContainers", "ports", "containerPort", "hostPort", "securityContext", "sysctls", "name", "net.x", P,
            "q", NODE_POOL, DESIRED_NODE_POOL, EXCLUDE_HOST_NETWORK_POOL,
        ]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn any_network() -> impl Strategy<Value = PoolNetwork> {
    prop::sample::select(vec![PoolNetwork::Host, PoolNetwork::Container, PoolNetwork::Unknown])
}

fn expression() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![NODE_POOL, "disk", HOST_NETWORK]);
    let operator = prop::sample::select(vec!["In", "NotIn", "Exists", "DoesNotExist"]);
    let values = prop::sample::subsequence(vec![P, "q", "ssd", "true"], 1..3);
    (key, operator, values).prop_map(|(key, operator, values)| match operator {
        "In" | "NotIn" => json!({ "key": key, "operator": operator, "values": values }),
        _ => json!({ "key": key, "operator": operator }),
    })
}

fn terms() -> impl Strategy<Value = Option<Vec<Value>>> {
    let term = prop_oneof![
        8 => prop::collection::vec(expression(), 0..3).prop_map(|all| json!({ "matchExpressions": all })),
        1 => Just(json!({})),
        1 => Just(json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n1"] }] })),
    ];
    prop::option::of(prop::collection::vec(term, 1..4))
}

/// Pods that are what the API has, as far as the plan looks.
fn any_pod() -> impl Strategy<Value = Value> {
    let labelled = prop::option::weighted(0.8, Just(P));
    let annotated = prop::option::weighted(0.3, Just("true"));
    let selector = prop::option::of(prop::sample::select(vec![
        json!({}),
        json!({ "disk": "ssd" }),
        json!({ NODE_POOL: P }),
        json!({ HOST_NETWORK: "false" }),
        json!({ NODE_POOL: "q", "disk": "ssd" }),
    ]));
    let host_network = prop::option::of(any::<bool>());
    (labelled, annotated, selector, host_network, terms()).prop_map(
        |(label, annotation, selector, host_network, terms)| {
            json!({
                "metadata": {
                    "labels": { DESIRED_NODE_POOL: label },
                    "annotations": { EXCLUDE_HOST_NETWORK_POOL: annotation }
                },
                "spec": {
                    "hostNetwork": host_network,
                    "nodeSelector": selector,
                    "affinity": { "nodeAffinity": terms.map(|terms| json!({
                        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms }
                    })) }
                }
            })
        },
    )
}

/// The scheduler's reading of node selector and required node affinity, for a node `n1` with these labels.
fn runs_on(pod: &Value, labels: &[(&str, &str)]) -> bool {
    let label = |key: &str| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
    let holds = |expression: &Value| {
        let found = label(expression["key"].as_str().unwrap());
        let among = || expression["values"].as_array().unwrap().iter().any(|value| value.as_str() == found);
        match expression["operator"].as_str().unwrap() {
            "In" => found.is_some() && among(),
            "NotIn" => found.is_none() || !among(),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            other => panic!("operator {other}"),
        }
    };
    let selected = pod["spec"]["nodeSelector"]
        .as_object()
        .is_none_or(|selector| selector.iter().all(|(key, value)| label(key) == value.as_str()));
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    selected
        && required.as_array().is_none_or(|terms| {
            terms.iter().any(|term| {
                let expressions = term["matchExpressions"].as_array().map_or(&[][..], Vec::as_slice);
                (term["matchFields"].is_array() || !expressions.is_empty()) && expressions.iter().all(holds)
            })
        })
}

fn has_policys_requirement(pod: &Value) -> bool {
    let required =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let requirement = json!({ "key": HOST_NETWORK, "operator": "NotIn", "values": [TRUE] });
    pod.pointer(required).and_then(Value::as_array).is_some_and(|terms| {
        let expressions = terms.iter().filter_map(|term| term["matchExpressions"].as_array()).flatten();
        expressions.into_iter().any(|expression| *expression == requirement)
    })
}

fn nodes() -> Vec<Vec<(&'static str, &'static str)>> {
    let mut nodes = Vec::new();
    for pool in [None, Some(P), Some("q"), Some("ssd")] {
        for disk in [None, Some("ssd"), Some(P)] {
            for mark in [None, Some(TRUE)] {
                let labels = [(NODE_POOL, pool), ("disk", disk), (HOST_NETWORK, mark)];
                nodes.push(labels.into_iter().filter_map(|(key, value)| Some((key, value?))).collect());
            }
        }
    }
    nodes
}

fn applied(pod: &Value, operations: &Patch) -> Value {
    let mut after = pod.clone();
    patch(&mut after, operations).unwrap();
    after
}

proptest! {
    // A multiple, so that `PROPTEST_CASES` counts here, too.
    #![proptest_config(ProptestConfig::with_cases(8 * ProptestConfig::default().cases))]

    #[test]
    fn no_json_makes_it_panic_and_each_patch_applies(pod in any_json(), network in any_network()) {
        if let Decision::Admit { patch, .. } = plan(&pod, network, None) {
            applied(&pod, &patch);
        }
    }

    #[test]
    fn json_within_a_pod_makes_it_neither_panic(junk in any_json(), place in 0..6_usize, network in any_network()) {
        let place = ["/spec", "/metadata", "/spec/affinity", "/spec/affinity/nodeAffinity", "/spec/containers", "/spec/nodeSelector"][place];
        let mut pod = json!({
            "metadata": { "labels": { DESIRED_NODE_POOL: P } },
            "spec": { "affinity": { "nodeAffinity": {} }, "containers": [], "nodeSelector": {} }
        });
        *pod.pointer_mut(place).unwrap() = junk;
        if let Decision::Admit { patch, .. } = plan(&pod, network, None) {
            let after = applied(&pod, &patch);
            let again = plan(&after, network, None);
            prop_assert!(matches!(&again, Decision::Admit { patch, .. } if patch.is_empty()), "{again:?}");
        }
    }

    #[test]
    fn its_own_result_needs_nothing_more(pod in any_pod(), network in any_network()) {
        if let Decision::Admit { patch, .. } = plan(&pod, network, None) {
            let after = applied(&pod, &patch);
            match plan(&after, network, None) {
                Decision::Admit { patch, .. } => prop_assert_eq!(patch, Patch(vec![])),
                Decision::Refuse(refusal) => prop_assert!(false, "{refusal}"),
            }
        }
    }

    #[test]
    fn a_pod_for_a_host_network_pool_runs_there_and_nowhere_else(pod in any_pod()) {
        let wanted = pod["metadata"]["labels"][DESIRED_NODE_POOL] == P;
        let excluded = pod["metadata"]["annotations"][EXCLUDE_HOST_NETWORK_POOL] == TRUE;
        match plan(&pod, PoolNetwork::Host, None) {
            // Taken out whoever wrote it; that is tested by itself.
            Decision::Admit { .. } if wanted && has_policys_requirement(&pod) => {}
            Decision::Admit { patch, .. } if wanted => {
                let after = applied(&pod, &patch);
                prop_assert_eq!(&after["spec"]["hostNetwork"], &json!(true));
                for node in nodes() {
                    let in_pool = node.contains(&(NODE_POOL, P));
                    if in_pool && !node.contains(&(HOST_NETWORK, TRUE)) {
                        continue;
                    }
                    prop_assert_eq!(runs_on(&after, &node), runs_on(&pod, &node) && in_pool, "{:?}", node);
                }
            }
            Decision::Admit { patch, .. } => {
                let after = applied(&pod, &patch);
                for node in nodes() {
                    let keeps_off = excluded && node.contains(&(HOST_NETWORK, TRUE));
                    prop_assert_eq!(runs_on(&after, &node), runs_on(&pod, &node) && !keeps_off, "{:?}", node);
                }
            }
            Decision::Refuse(Refusal::OtherPool { .. } | Refusal::Excluded { .. } | Refusal::OtherNodes { .. }) => {
                prop_assert!(wanted);
            }
            Decision::Refuse(refusal) => prop_assert!(false, "{refusal}"),
        }
    }

    #[test]
    fn a_labelled_pod_without_host_network_runs_on_no_host_network_node(
        pod in any_pod(),
        network in prop::sample::select(vec![PoolNetwork::Container, PoolNetwork::Unknown]),
    ) {
        let wanted = pod["metadata"]["labels"][DESIRED_NODE_POOL] == P;
        let Decision::Admit { patch, .. } = plan(&pod, network, None) else { panic!("refused") };
        let after = applied(&pod, &patch);
        let excluded = pod["metadata"]["annotations"][EXCLUDE_HOST_NETWORK_POOL] == TRUE;
        let keeps_off = excluded || wanted && pod["spec"]["hostNetwork"] != true;
        for node in nodes() {
            let open = !(keeps_off && node.contains(&(HOST_NETWORK, TRUE)));
            prop_assert_eq!(runs_on(&after, &node), runs_on(&pod, &node) && open, "{:?}", node);
        }
    }

    /// The policy comes before the webhook: whatever it adds must make no difference to a pod that gets host network.
    #[test]
    fn the_policy_makes_no_difference_to_a_pod_that_gets_host_network(pod in any_pod()) {
        let Decision::Admit { patch: by_policy, .. } = plan(&pod, PoolNetwork::Unknown, None) else { panic!("refused") };
        let kept_off = applied(&pod, &by_policy);
        match (plan(&pod, PoolNetwork::Host, None), plan(&kept_off, PoolNetwork::Host, None)) {
            (Decision::Admit { patch: alone, .. }, Decision::Admit { patch: after_policy, .. })
                if pod["metadata"]["labels"][DESIRED_NODE_POOL] == P =>
            {
                let (alone, after_policy) = (applied(&pod, &alone), applied(&kept_off, &after_policy));
                for node in nodes() {
                    prop_assert_eq!(runs_on(&after_policy, &node), runs_on(&alone, &node), "{:?}", node);
                }
            }
            (Decision::Refuse(alone), Decision::Refuse(after_policy)) => prop_assert_eq!(alone, after_policy),
            (alone, after_policy) => {
                prop_assert!(pod["metadata"]["labels"][DESIRED_NODE_POOL] != P, "{alone:?} but {after_policy:?}");
            }
        }
    }
}
