use super::*;

/// What others do to the list of terms.
type Edit = fn(&mut Value);

/// A `DaemonSet` whose pod template has this affinity; null for none.
pub(super) fn object(affinity: &Value) -> Value {
    let mut object = json!({
        "metadata": { "name": "kube-proxy", "resourceVersion": "7", "annotations": { "a": "b" } },
        "spec": { "template": { "spec": { "containers": [], "newerField": { "deep": [1, 2] } } } },
    });
    if !affinity.is_null() {
        object["spec"]["template"]["spec"]["affinity"] = affinity.clone();
    }
    object
}

pub(super) fn apply(object: &Value, goal: Goal) -> Value {
    let mut after = object.clone();
    json_patch::patch(&mut after, &plan(object, goal).unwrap().patch).unwrap();
    after
}

fn required(terms: &Value) -> Value {
    json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } })
}

fn ours() -> Value {
    json!({ "key": "nodepool.openyurt.io/network-mode", "operator": "NotIn", "values": ["node-network-mode"] })
}

fn linux() -> Value {
    json!({ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] })
}

fn affinity_of(object: &Value) -> Value {
    object["spec"]["template"]["spec"]["affinity"].clone()
}

fn record_of(object: &Value) -> Value {
    serde_json::from_str(object["metadata"]["annotations"][HOSTNET_ADDED].as_str().unwrap()).unwrap()
}

#[test]
fn every_term_gets_the_requirement() {
    let alone = required(&json!([{ "matchExpressions": [ours()] }]));
    let by_name = json!([{ "key": "metadata.name", "operator": "In", "values": ["n"] }]);
    let mut preferred =
        json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1 }] } });
    let preferred_before = preferred.clone();
    preferred["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({ "nodeSelectorTerms": [{ "matchExpressions": [ours()] }] });
    let anti = json!({ "podAntiAffinity": { "x": 1 }, "nodeAffinity": null });
    let mut anti_after = alone.clone();
    anti_after["podAntiAffinity"] = json!({ "x": 1 });
    let cases = [
        ("no affinity", json!(null), alone.clone(), json!({ "newTerm": true, "made": "affinity" })),
        ("empty affinity", json!({}), alone.clone(), json!({ "newTerm": true, "made": "nodeAffinity" })),
        (
            "empty node affinity",
            json!({ "nodeAffinity": {} }),
            alone.clone(),
            json!({ "newTerm": true, "made": "required" }),
        ),
        ("no list", required(&json!(null)), alone.clone(), json!({ "newTerm": true, "made": "terms" })),
        ("no terms", required(&json!([])), alone.clone(), json!({ "newTerm": true })),
        ("other affinity", anti, anti_after, json!({ "newTerm": true, "made": "nodeAffinity" })),
        ("preferred only", preferred_before, preferred, json!({ "newTerm": true, "made": "required" })),
        (
            "two terms, one by name",
            required(&json!([{ "matchExpressions": [linux()] }, { "matchFields": by_name }])),
            required(&json!([
                { "matchExpressions": [linux(), ours()] },
                { "matchFields": by_name, "matchExpressions": [ours()] },
            ])),
            json!({ "terms": [{ "matchExpressions": [linux()] }, { "matchFields": by_name }] }),
        ),
        (
            "one has it, one is empty",
            required(&json!([{ "matchExpressions": [ours()] }, {}, { "matchExpressions": [linux()] }])),
            required(
                &json!([{ "matchExpressions": [ours()] }, {}, { "matchExpressions": [linux(), ours()] }]),
            ),
            json!({ "terms": [{ "matchExpressions": [linux()] }] }),
        ),
        (
            "a newer kind of expression",
            required(&json!([{ "matchMoon": "full" }])),
            required(&json!([{ "matchMoon": "full", "matchExpressions": [ours()] }])),
            json!({ "terms": [{ "matchMoon": "full" }] }),
        ),
    ];
    for (what, before, expected, record) in cases {
        let object = object(&before);
        let planned = plan(&object, Goal::Keep).unwrap();
        assert_eq!((&planned.before, &planned.after), (&before, &expected), "{what}");
        let after = apply(&object, Goal::Keep);
        assert_eq!(affinity_of(&after), expected, "{what}");
        assert_eq!(record_of(&after), record, "{what}");
        assert_eq!(after["metadata"]["annotations"]["a"], "b", "{what}");
    }
}

#[test]
fn what_is_right_is_left_alone() {
    let with = |expression: Value| required(&json!([{ "matchExpressions": [linux(), expression] }]));
    let network_mode = "nodepool.openyurt.io/network-mode";
    let dashed = "nodepool.openyurt.io/host-network";
    let openyurt = "nodepool.openyurt.io/hostnetwork";
    let right = [
        with(ours()),
        with(json!({ "key": network_mode, "operator": "NotIn", "values": ["x", "node-network-mode"] })),
        with(json!({ "key": dashed, "operator": "NotIn", "values": ["true"] })),
        with(json!({ "key": openyurt, "operator": "NotIn", "values": ["true"] })),
        with(json!({ "key": openyurt, "operator": "DoesNotExist" })),
        with(json!({ "key": openyurt, "operator": "In", "values": ["false"] })),
        required(&json!([{}])),
        required(&json!([{ "matchExpressions": [], "matchFields": null }])),
    ];
    for affinity in right {
        assert_eq!(plan(&object(&affinity), Goal::Keep).unwrap().patch, Patch::default(), "{affinity}");
    }
    let wrong = [
        with(json!({ "key": network_mode, "operator": "NotIn", "values": ["true"] })),
        with(json!({ "key": network_mode, "operator": "In", "values": ["node-network-mode"] })),
        with(json!({ "key": openyurt, "operator": "Exists" })),
        with(json!({ "key": openyurt, "operator": "NotIn", "values": [] })),
        with(json!({ "key": "x", "operator": "NotIn", "values": ["true"] })),
    ];
    for affinity in wrong {
        assert!(!plan(&object(&affinity), Goal::Keep).unwrap().is_empty(), "{affinity}");
    }
}

#[test]
fn undo_takes_exactly_what_was_added_though_others_edited() {
    let term = |expressions: Value| json!({ "matchExpressions": expressions });
    let arm = json!({ "key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"] });
    let linux_or_arm = || required(&json!([term(json!([linux()])), term(json!([arm]))]));
    let terms = "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let cases: [(&str, Value, Edit, Value, usize); 7] = [
        (
            "terms in another order",
            linux_or_arm(),
            |terms| terms.as_array_mut().unwrap().reverse(),
            required(&json!([term(json!([arm])), term(json!([linux()]))])),
            0,
        ),
        (
            "a term of their own, with the requirement",
            json!(null),
            |terms| terms.as_array_mut().unwrap().insert(0, json!({ "matchExpressions": [linux(), ours()] })),
            required(&json!([term(json!([linux(), ours()]))])),
            0,
        ),
        (
            "more in our term",
            json!(null),
            |terms| terms[0]["matchExpressions"].as_array_mut().unwrap().push(linux()),
            required(&json!([term(json!([linux()]))])),
            0,
        ),
        (
            "more in their term",
            required(&json!([{ "matchFields": [1] }])),
            |terms| terms[0]["matchExpressions"].as_array_mut().unwrap().insert(0, linux()),
            required(&json!([{ "matchFields": [1], "matchExpressions": [linux()] }])),
            0,
        ),
        (
            "a term is gone",
            linux_or_arm(),
            |terms| drop(terms.as_array_mut().unwrap().remove(0)),
            required(&json!([term(json!([arm]))])),
            1,
        ),
        (
            "a term is another",
            required(&json!([term(json!([linux()]))])),
            |terms| terms[0]["matchExpressions"][0]["values"] = json!(["windows"]),
            required(&json!([term(json!([
                { "key": "kubernetes.io/os", "operator": "In", "values": ["windows"] },
                ours(),
            ]))])),
            1,
        ),
        ("all is reverted", required(&json!([])), |terms| *terms = json!([]), required(&json!([])), 1),
    ];
    for (what, before, edit, expected, lost) in cases {
        let mut edited = apply(&object(&before), Goal::Keep);
        edit(edited["spec"]["template"]["spec"]["affinity"].pointer_mut(terms).unwrap());
        assert_eq!(plan(&edited, Goal::Undo).unwrap().lost, lost, "{what}");
        assert_eq!(apply(&edited, Goal::Undo), object(&expected), "{what}");
    }
}

#[test]
fn of_equal_terms_the_one_that_got_the_requirement_loses_it() {
    let by_name = || json!([{ "key": "metadata.name", "operator": "In", "values": ["n"] }]);
    let theirs = || json!({ "matchExpressions": [ours()], "matchFields": by_name() });
    let without = || json!({ "matchFields": by_name() });
    let other = || json!({ "matchExpressions": [linux(), ours()] });
    // The terms before, how many of the equal ones stand before each that got it, and what others insert in front.
    let cases = [
        (vec![theirs(), without()], json!([1]), vec![]),
        (vec![without(), theirs()], Value::Null, vec![]),
        (vec![theirs(), without(), theirs(), without()], json!([1, 3]), vec![]),
        (vec![theirs(), without()], json!([1]), vec![other(), json!({})]),
    ];
    for (before, equal_before, inserted) in cases {
        let mut kept = apply(&object(&required(&json!(before))), Goal::Keep);
        assert_eq!(record_of(&kept)["equalBefore"], equal_before);
        let terms = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        let list = kept.pointer_mut(terms).unwrap().as_array_mut().unwrap();
        list.splice(0..0, inserted.clone());
        let expected: Vec<Value> = inserted.into_iter().chain(before).collect();
        assert_eq!(apply(&kept, Goal::Undo), object(&required(&json!(expected))));
    }
    // Their equal one was removed, and later another term got the requirement: ours is still ours.
    let mut kept = apply(&object(&required(&json!([theirs(), without()]))), Goal::Keep);
    let required_of = |object: &mut Value, terms: Value| {
        object["spec"]["template"]["spec"]["affinity"] = required(&terms);
    };
    required_of(&mut kept, json!([without(), theirs()]));
    let again = apply(&kept, Goal::Keep);
    assert_eq!(record_of(&again)["terms"], json!([without(), without()]));
    assert_eq!(apply(&again, Goal::Undo), object(&required(&json!([without(), without()]))));
}

#[test]
fn a_reverted_object_gets_the_requirement_again_and_loses_it_once() {
    // An upgrade wrote its own manifest and left the annotations.
    let before = object(&json!({ "podAffinity": {} }));
    let mut reverted = apply(&before, Goal::Keep);
    reverted["spec"] = before["spec"].clone();
    let again = apply(&reverted, Goal::Keep);
    assert_eq!(record_of(&again), json!({ "newTerm": true, "made": "nodeAffinity" }));
    assert_eq!(apply(&again, Goal::Undo), before);
    // What others made meanwhile is not ours to remove.
    reverted["spec"]["template"]["spec"]["affinity"] = json!({ "nodeAffinity": {} });
    assert_eq!(affinity_of(&apply(&reverted, Goal::Undo)), json!({ "nodeAffinity": {} }));
}

#[test]
fn a_term_that_comes_later_is_recorded_too() {
    let before = object(&required(&json!([{ "matchExpressions": [linux()] }])));
    let mut later = apply(&before, Goal::Keep);
    let mut expected = before.clone();
    for object in [&mut later, &mut expected] {
        let required = &mut object["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        required["nodeSelectorTerms"].as_array_mut().unwrap().push(json!({ "matchFields": [2] }));
    }
    assert_eq!(apply(&apply(&later, Goal::Keep), Goal::Undo), expected);
}

#[test]
fn without_a_record_nothing_is_undone() {
    let object = object(&required(&json!([{ "matchExpressions": [ours()] }])));
    assert!(plan(&object, Goal::Undo).unwrap().is_empty());
}

#[test]
fn the_patch_fails_when_the_object_has_changed() {
    let object = object(&json!(null));
    let planned = plan(&object, Goal::Keep).unwrap();
    let mut changed = object.clone();
    changed["metadata"]["resourceVersion"] = json!("8");
    let before = changed.clone();
    assert!(json_patch::patch(&mut changed, &planned.patch).is_err());
    assert_eq!(changed, before);
}

#[test]
fn what_is_malformed_is_named() {
    let mut no_spec = object(&json!(null));
    no_spec["spec"]["template"]["spec"] = json!(null);
    let mut no_version = object(&json!(null));
    no_version["metadata"] = json!({});
    let mut record = object(&json!(null));
    record["metadata"]["annotations"][HOSTNET_ADDED] = json!("{\"terms\":3}");
    let affinity = "spec.template.spec.affinity";
    let terms =
        format!("{affinity}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
    let cases = [
        (json!([]), "the object is a list".to_owned()),
        (no_spec, "spec.template.spec is missing".to_owned()),
        (no_version, "metadata.resourceVersion is missing".to_owned()),
        (record, "annotation isthmus.dev/hostnet-added is no record of ours".to_owned()),
        (object(&json!("x")), format!("{affinity} is a string")),
        (object(&json!({ "nodeAffinity": [] })), format!("{affinity}.nodeAffinity is a list")),
        (object(&required(&json!({}))), format!("{terms} is an object where the API has a list")),
        (object(&required(&json!([3]))), format!("{terms}[0] is a number")),
        (
            object(&required(&json!([{ "matchExpressions": {} }]))),
            format!("{terms}[0].matchExpressions is an object"),
        ),
        (
            object(&required(&json!([{ "matchExpressions": [{ "key": 3 }] }]))),
            format!("{terms}[0].matchExpressions[0].key is a number"),
        ),
    ];
    for (object, expected) in cases {
        let message = plan(&object, Goal::Keep).unwrap_err().to_string();
        assert!(message.starts_with(&expected), "{message:?} is not {expected:?}");
    }
}
