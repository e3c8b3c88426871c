use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::*;

fn schema() -> Atom {
    Atom::of_object(&json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "color": { "type": "string" },
                    "size": { "type": "integer" },
                    "on": { "type": "boolean" },
                    "tags": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
                    "ports": {
                        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                        "items": { "type": "object", "properties": { "name": { "type": "string" }, "port": { "type": "integer" } } },
                    },
                },
            },
        },
    }))
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(object) = value else { panic!("no object") };
    object
}

fn writer(manager: &str) -> Writer<'_> {
    Writer { manager, api_version: "g/v1", subresource: "", has_status: true, now: Timestamp::UNIX_EPOCH }
}

fn apply(
    live: &Map<String, Value>,
    config: &Map<String, Value>,
    atom: &Atom,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Map<String, Value>, Status> {
    applied(live, config, atom, writer, force).map(|applied| applied.object)
}

/// Manager, operation and fields of each entry.
fn owners(object: &Map<String, Value>) -> Vec<(String, String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    entries
        .iter()
        .map(|entry| (text(&entry["manager"]), text(&entry["operation"]), entry["fieldsV1"].clone()))
        .collect()
}

/// What an API server 1.36 answered to the same requests on a custom resource of this schema.
#[test]
fn fields_are_owned_as_by_the_api_server() {
    let schema = schema();
    let mut made = object(
        json!({ "metadata": { "name": "a", "generateName": "a" }, "spec": { "color": "red", "on": true } }),
    );
    updated(None, &mut made, &schema, &writer("test"));
    let spec = json!({ ".": {}, "f:color": {}, "f:on": {} });
    let first = json!({ "f:metadata": { "f:generateName": {} }, "f:spec": spec });
    assert_eq!(owners(&made), [("test".to_owned(), "Update".to_owned(), first)]);

    let mut sized = made.clone();
    sized["spec"]["size"] = 3.into();
    updated(Some(&made), &mut sized, &schema, &writer("test"));
    let config = |spec: Value| object(json!({ "metadata": { "name": "a" }, "spec": spec }));
    let conflict = apply(&sized, &config(json!({ "size": 5 })), &schema, &writer("m1"), false).unwrap_err();
    let words = "Apply failed with 1 conflict: conflict with \"test\" using g/v1: .spec.size";
    assert_eq!((conflict.code, conflict.message.as_str()), (409, words));

    let wanted = json!({ "size": 5, "ports": [{ "name": "p1", "port": 1 }], "tags": ["t1"] });
    let forced = apply(&sized, &config(wanted), &schema, &writer("m1"), true).unwrap();
    let p1 = json!({ ".": {}, "f:name": {}, "f:port": {} });
    let own = json!({ "f:spec": { "f:ports": { "k:{\"name\":\"p1\"}": p1 }, "f:size": {}, "f:tags": { "v:\"t1\"": {} } } });
    assert_eq!(owners(&forced)[0], ("m1".to_owned(), "Apply".to_owned(), own));
    assert_eq!(owners(&forced)[1].2["f:spec"], spec);

    let other = config(json!({ "size": 6, "ports": [{ "name": "p1", "port": 2 }] }));
    let conflict = apply(&forced, &other, &schema, &writer("m2"), false).unwrap_err();
    let words = "Apply failed with 2 conflicts: conflicts with \"m1\":\n- .spec.size\n- .spec.ports[name=\"p1\"].port";
    assert_eq!(conflict.message, words);

    let other = config(json!({ "size": 5, "ports": [{ "name": "p2", "port": 2 }], "tags": ["t2"] }));
    let shared = apply(&forced, &other, &schema, &writer("m2"), false).unwrap();
    assert_eq!(shared["spec"]["tags"], json!(["t1", "t2"]));

    let less = config(json!({ "ports": [{ "name": "p1", "port": 1 }] }));
    let less = apply(&shared, &less, &schema, &writer("m1"), false).unwrap();
    assert_eq!(less["spec"]["tags"], json!(["t2"]), "nobody wants t1 now");
    assert_eq!(less["spec"]["size"], 5, "m2 still wants it");
    assert_eq!(less["spec"]["ports"], json!([{ "name": "p1", "port": 1 }, { "name": "p2", "port": 2 }]));
    assert_eq!(less["spec"]["color"], "red");
}

#[test]
fn what_nobody_recorded_is_left_so() {
    let old = object(json!({ "metadata": { "name": "a" }, "spec": { "size": 1 } }));
    let mut new = object(json!({ "metadata": { "name": "a" }, "spec": { "size": 2 } }));
    updated(Some(&old), &mut new, &schema(), &writer("test"));
    assert_eq!(owners(&new), []);
}

#[test]
fn who_writes_nothing_new_owns_nothing_new() {
    let schema = schema();
    let mut made = object(json!({ "metadata": { "name": "a" }, "spec": { "size": 1 } }));
    updated(None, &mut made, &schema, &writer("one"));
    let mut same = made.clone();
    updated(Some(&made), &mut same, &schema, &writer("two"));
    assert_eq!(same, made);
    let mut changed = made.clone();
    changed["spec"]["size"] = 2.into();
    updated(Some(&made), &mut changed, &schema, &writer("two"));
    let names: Vec<_> = owners(&changed).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["one", "two"], "one still owns `spec`");
    let mut gone = changed.clone();
    gone.remove("spec");
    updated(Some(&changed), &mut gone, &schema, &writer("two"));
    assert_eq!(owners(&gone), []);
}
