//! What holds for every object.

use proptest::prelude::*;

use super::tests::{apply, object};
use super::*;

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(8, 60, 5, |inner| {
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
            "metadata", "annotations", "resourceVersion", "spec", "template", "affinity", "nodeAffinity",
            "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms", "matchExpressions", "matchFields",
            "key", "operator", "values", "In", "NotIn", NETWORK_MODE, NODE_NETWORK_MODE, HOSTNET_ADDED, "{}",
            "{\"newTerm\":true,\"made\":\"affinity\"}", "{\"terms\":[{}]}",
        ]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn expression() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![NETWORK_MODE, HOST_NETWORK_NODE[0].0, "disk"]);
    let operator = prop::sample::select(vec!["In", "NotIn", "Exists", "DoesNotExist"]);
    let values = prop::sample::subsequence(vec![NODE_NETWORK_MODE, "true", "ssd"], 1..3);
    (key, operator, values).prop_map(|(key, operator, values)| match operator {
        "In" | "NotIn" => json!({ "key": key, "operator": operator, "values": values }),
        _ => json!({ "key": key, "operator": operator }),
    })
}

fn term() -> impl Strategy<Value = Value> {
    let fields = json!([{ "key": "metadata.name", "operator": "In", "values": ["n"] }]);
    prop_oneof![
        8 => prop::collection::vec(expression(), 0..3).prop_map(|all| json!({ "matchExpressions": all })),
        1 => Just(json!({})),
        1 => Just(json!({ "matchFields": fields })),
        1 => expression().prop_map(move |one| json!({ "matchFields": fields, "matchExpressions": [one] })),
    ]
}

/// Affinities as the API server may have them, and some that are only nearly so. None has a null inside.
fn affinity() -> impl Strategy<Value = Value> {
    let terms = prop::collection::vec(term(), 0..4);
    let required = prop_oneof![
        1 => Just(json!({})),
        9 => terms.prop_map(|terms| json!({ "nodeSelectorTerms": terms })),
    ];
    let node = prop_oneof![
        1 => Just(json!({})),
        1 => Just(json!({ "preferredDuringSchedulingIgnoredDuringExecution": [] })),
        8 => required.prop_map(|required| json!({ "requiredDuringSchedulingIgnoredDuringExecution": required })),
    ];
    prop_oneof![
        1 => Just(Value::Null),
        1 => Just(json!({})),
        1 => Just(json!({ "podAntiAffinity": { "x": [] } })),
        8 => node.prop_map(|node| json!({ "nodeAffinity": node, "podAffinity": {} })),
    ]
}

proptest! {
    #[test]
    fn no_json_makes_it_panic(value in any_json(), affinity in any_json(), annotation in word()) {
        let mut nearly = object(&affinity);
        nearly["metadata"]["annotations"][HOSTNET_ADDED] = json!(annotation);
        for object in [value, nearly] {
            for goal in [Goal::Keep, Goal::Undo] {
                if let Ok(planned) = plan(&object, goal) {
                    let mut after = object.clone();
                    prop_assert!(json_patch::patch(&mut after, &planned.patch).is_ok());
                }
            }
        }
    }

    #[test]
    fn a_second_time_changes_nothing(affinity in affinity()) {
        for goal in [Goal::Keep, Goal::Undo] {
            let once = apply(&object(&affinity), goal);
            prop_assert!(plan(&once, goal).unwrap().is_empty(), "{goal:?}: {once}");
        }
    }

    #[test]
    fn undo_is_the_inverse(affinity in affinity()) {
        let before = object(&affinity);
        prop_assert_eq!(apply(&apply(&before, Goal::Keep), Goal::Undo), before);
    }

    #[test]
    fn afterwards_no_term_reaches_host_network_nodes(affinity in affinity()) {
        let after = apply(&object(&affinity), Goal::Keep);
        let terms = terms(&after).unwrap();
        prop_assert!(!terms.is_empty());
        for term in terms.iter().map(|term| term.as_object().unwrap()) {
            prop_assert!(term.values().all(is_nothing) || keeps_off(term, "").unwrap());
        }
    }

    #[test]
    fn empty_terms_stay_empty(affinity in affinity()) {
        let empty = |object: &Value| {
            let terms = terms(object).unwrap();
            terms.iter().filter(|term| term.as_object().unwrap().values().all(is_nothing)).count()
        };
        let before = object(&affinity);
        prop_assert_eq!(empty(&apply(&before, Goal::Keep)), empty(&before));
    }
}
