//! Writes: what they make of metadata, and what they are refused for, as the API server does of custom resources.

use std::sync::Arc;

use aggregated_api::{AggregatedApi, MemoryStorage};
use axum::{Router, body::Body, http::Request};
use serde_json::{Value, json};

use crate::api::{Everybody, GADGETS, api, ask, gadget, gadgets, json_of, send};

/// Asks with a type of the body; returns status, warnings and body.
async fn tell(router: &Router, request: (&str, &str, &str), body: &Value) -> (u16, Vec<String>, Value) {
    let (method, path, media_type) = request;
    let request = Request::builder().method(method).uri(path).header("content-type", media_type);
    let response = send(router, request.body(Body::from(body.to_string())).unwrap()).await;
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect();
    (response.status().as_u16(), warnings, json_of(response).await)
}

#[tokio::test]
async fn who_owns_what_is_forgotten_for_an_empty_entry_and_not_for_an_empty_list() {
    let router = api().router();
    ask(&router, "POST", GADGETS, &gadget("a", &json!({ "color": "red" }))).await;
    let path = format!("{GADGETS}/a");
    let owners = |body: &Value| {
        body["metadata"]["managedFields"].as_array().map_or(0, |entries| {
            assert!(entries.iter().all(|entry| entry["fieldsV1"].is_object()), "{body}");
            entries.len()
        })
    };
    for (query, fields, left) in [
        ("?dryRun=All", json!([]), 1),
        ("", json!([]), 1),
        ("/status", json!([{}]), 1),
        ("?dryRun=All", json!([{}]), 0),
        ("", json!(null), 1),
        ("", json!([{}]), 0),
        // And from then on nothing is recorded.
        ("", json!([]), 0),
    ] {
        let change = json!({ "metadata": { "managedFields": fields } });
        let (status, body) = ask(&router, "PATCH", &format!("{path}{query}"), &change).await;
        assert_eq!((status, owners(&body)), (200, left), "{query} {fields}");
    }
}

fn owner(uid: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid })
}

#[tokio::test]
async fn members_of_owners_have_their_types() {
    let router = api().router();
    for (member, wrong, kind) in [
        ("name", json!(5), "number into Go struct field OwnerReference.ownerReferences.name of type string"),
        (
            "uid",
            json!({}),
            "object into Go struct field OwnerReference.ownerReferences.uid of type types.UID",
        ),
        (
            "controller",
            json!("yes"),
            "string into Go struct field OwnerReference.ownerReferences.controller of type bool",
        ),
    ] {
        let mut owned = owner("1");
        owned[member] = wrong;
        let mut object = gadget("owned", &json!({}));
        object["metadata"]["ownerReferences"] = json!([owned]);
        let (status, refused) = ask(&router, "POST", GADGETS, &object).await;
        assert_eq!(status, 400, "{member}: {refused}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(&format!("json: cannot unmarshal {kind}")), "{message}");
    }
}

#[tokio::test]
async fn an_owner_stands_once_and_has_no_members_that_nobody_knows() {
    let router = api().router();
    let mut strange = owner("2");
    strange["bogus"] = json!(1);
    let mut object = gadget("a", &json!({}));
    object["metadata"]["ownerReferences"] = json!([owner("1"), owner("1"), strange]);
    let (status, warnings, made) = tell(&router, ("POST", GADGETS, "application/json"), &object).await;
    assert_eq!((status, &made["metadata"]["ownerReferences"]), (201, &json!([owner("1"), owner("2")])));
    let [unknown, twice] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(unknown.contains("unknown field \\\"metadata.ownerReferences[2].bogus\\\""), "{unknown}");
    assert!(twice.contains("duplicate entries; API server") && twice.ends_with("observed: 1\""), "{twice}");
    let path = format!("{GADGETS}/a");
    let change = json!({ "metadata": { "ownerReferences": [owner("3"), owner("3")] } });
    let (status, warnings, made) =
        tell(&router, ("PATCH", &path, "application/merge-patch+json"), &change).await;
    assert_eq!((status, &made["metadata"]["ownerReferences"]), (200, &json!([owner("3")])));
    assert!(warnings.len() == 1 && warnings[0].contains("after mutating admission happens"), "{warnings:?}");
    let strict = format!("{path}?fieldValidation=Strict");
    let change = json!({ "metadata": { "ownerReferences": [strange] } });
    let (status, _, refused) =
        tell(&router, ("PATCH", &strict, "application/merge-patch+json"), &change).await;
    assert_eq!(status, 422, "{refused}");
}

#[tokio::test]
async fn what_is_wrong_with_metadata_is_said() {
    let router = api().router();
    let mut events = owner("1");
    events["kind"] = "Event".into();
    let mut controllers = [owner("1"), owner("2")];
    for one in &mut controllers {
        one["controller"] = true.into();
    }
    let mut grouped = owner("1");
    grouped["apiVersion"] = "a/b/c".into();
    for (metadata, words) in [
        (json!({ "finalizers": ["orphan", "foregroundDeletion"] }), Some("cannot be both set")),
        (json!({ "ownerReferences": [events] }), Some("is disallowed from being an owner")),
        (json!({ "ownerReferences": controllers }), Some("in references for Node/n and Node/n")),
        (json!({ "ownerReferences": [grouped] }), Some("version must not be empty")),
        (json!({ "name": "x".repeat(254) }), Some("must be no more than 253 ")),
        (json!({ "name": "A" }), Some("metadata.name: Invalid value")),
        (json!({ "name": "", "generateName": "A.b-" }), Some("metadata.generateName: Invalid value")),
        // The dash at the end and what is before it are looked at as one letter.
        (json!({ "name": "", "generateName": "a.-" }), None),
        (json!({ "name": "", "generateName": "-" }), Some("metadata.generateName: Invalid value")),
        (json!({ "name": "" }), Some("name or generateName is required")),
    ] {
        let mut object = gadget("a", &json!({}));
        object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let (status, body) = ask(&router, "POST", &format!("{GADGETS}?dryRun=All"), &object).await;
        match words {
            Some(words) => {
                let message = body["message"].as_str().unwrap();
                assert!(status == 422 && message.contains(words), "{metadata}: {message}");
            }
            // What is made of it is no name.
            None => assert!(!body["message"].as_str().unwrap().contains("generateName"), "{body}"),
        }
    }
}

#[tokio::test]
async fn a_creation_whose_path_names_an_object_makes_no_other() {
    let router = api().router();
    let path = format!("{GADGETS}/a");
    let (status, body) = ask(&router, "POST", &path, &gadget("b", &json!({}))).await;
    let words = "the name of the object (b) does not match the name on the URL (a)";
    assert_eq!((status, &body["message"]), (400, &json!(words)));
    let mut unnamed = gadget("", &json!({}));
    unnamed["metadata"]["generateName"] = "b-".into();
    assert_eq!(ask(&router, "POST", &path, &unnamed).await.0, 400);
    assert_eq!(ask(&router, "POST", &path, &gadget("a", &json!({}))).await.0, 201);
}

#[tokio::test]
async fn a_generated_name_that_is_taken_says_when_to_try_again() {
    let router = api().router();
    let mut object = gadget("a", &json!({}));
    assert_eq!(ask(&router, "POST", GADGETS, &object).await.0, 201);
    let (status, body) = ask(&router, "POST", GADGETS, &object).await;
    assert_eq!((status, body["details"].get("retryAfterSeconds")), (409, None));
    object["metadata"]["generateName"] = "a-".into();
    let (status, body) = ask(&router, "POST", GADGETS, &object).await;
    assert_eq!((status, &body["reason"]), (409, &json!("AlreadyExists")));
    assert_eq!(body["details"]["retryAfterSeconds"], 1);
    let words = "gadgets.test.isthmus.dev \"a\" already exists, the server was not able to generate a unique name for the object";
    assert_eq!(body["message"], words);
}

#[tokio::test]
async fn a_creation_looks_at_its_body_before_its_options_and_an_update_after_them() {
    let router = api().router();
    let body = gadget("a", &json!({}));
    let query = "dryRun=Some";
    let create = format!("{GADGETS}?{query}");
    assert_eq!(tell(&router, ("POST", &create, "text/plain"), &body).await.0, 415);
    let update = format!("{GADGETS}/a?{query}");
    assert_eq!(tell(&router, ("PUT", &update, "text/plain"), &body).await.0, 422);
}

#[tokio::test]
async fn operations_with_strange_members_are_warned_of() {
    let router = api().router();
    ask(&router, "POST", GADGETS, &gadget("a", &json!({}))).await;
    let json_patch = "application/json-patch+json";
    let change = json!([{ "op": "add", "path": "/spec/size", "value": 3, "comment": "x" }]);
    let words = r#"json patch unknown field \"[0].comment\""#;
    for (validation, status, warned) in [("Warn", 200, 1), ("Ignore", 200, 0), ("Strict", 422, 0)] {
        let path = format!("{GADGETS}/a?fieldValidation={validation}");
        let (code, warnings, body) = tell(&router, ("PATCH", &path, json_patch), &change).await;
        assert_eq!((code, warnings.len()), (status, warned), "{validation}: {warnings:?} {body}");
        assert!(warnings.iter().all(|warning| warning.contains(words)), "{warnings:?}");
    }
    for (media_type, query, message) in [
        (
            json_patch,
            "",
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            json_patch,
            "?fieldValidation=Ignore",
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch",
        ),
    ] {
        let path = format!("{GADGETS}/a{query}");
        let (status, _, body) = tell(&router, ("PATCH", &path, media_type), &json!({})).await;
        assert_eq!((status, body["message"].as_str().unwrap()), (400, message));
    }
    let path = format!("{GADGETS}/a?fieldValidation=Ignore");
    let (status, _, body) = tell(&router, ("PATCH", &path, "application/merge-patch+json"), &json!(7)).await;
    assert_eq!((status, &body["message"]), (400, &json!("Invalid JSON Patch")));
}

#[tokio::test]
async fn who_writes_is_printable_and_short() {
    let router = api().router();
    let body = gadget("a", &json!({}));
    for (manager, words) in [
        ("%C3%A9%00%07", Some(["U+0000 (at position 2)", "U+0007 (at position 3)"])),
        ("a%20b", None),
        ("%E2%80%8B", Some(["U+200B (at position 0)", ""])),
    ] {
        let path = format!("{GADGETS}?dryRun=All&fieldManager={manager}");
        let (status, answer) = ask(&router, "POST", &path, &body).await;
        let message = answer["message"].as_str().unwrap_or_default();
        let expected =
            words.map_or((201, true), |words| (422, words.iter().all(|one| message.contains(one))));
        assert_eq!((status, true), expected, "{manager}: {message}");
    }
    let request = Request::post(format!("{GADGETS}?dryRun=All")).header("content-type", "application/json");
    let request = request.header("user-agent", "é".repeat(100)).body(Body::from(body.to_string())).unwrap();
    let made = json_of(send(&router, request).await).await;
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "é".repeat(64));
}

/// An API of which the garbage collector knows.
fn collected() -> Router {
    let mut info = gadgets();
    info.unadvertised.clear();
    AggregatedApi::new()
        .resource(info, Arc::new(MemoryStorage::new()))
        .authorizer(Arc::new(Everybody))
        .router()
}

#[tokio::test]
async fn a_deletion_without_a_policy_leaves_the_one_before() {
    let router = collected();
    let path = format!("{GADGETS}/a");
    let mut object = gadget("a", &json!({}));
    object["metadata"]["finalizers"] = json!(["test.isthmus.dev/one"]);
    assert_eq!(ask(&router, "POST", GADGETS, &object).await.0, 201);
    let both = json!(["test.isthmus.dev/one", "foregroundDeletion"]);
    for (options, status, finalizers) in [
        (json!({ "propagationPolicy": "Foreground" }), 200, &both),
        (json!({}), 200, &both),
        (json!({ "propagationPolicy": "Foreground" }), 200, &both),
        // Who waits for dependents, in the words of before, is told that it only begins.
        (json!({ "orphanDependents": false, "dryRun": ["All"] }), 202, &json!(["test.isthmus.dev/one"])),
        (json!({ "orphanDependents": true }), 200, &json!(["test.isthmus.dev/one", "orphan"])),
    ] {
        let (code, body) = ask(&router, "DELETE", &path, &options).await;
        assert_eq!((code, &body["metadata"]["finalizers"]), (status, finalizers), "{options}");
    }
    // When it goes is said once.
    for (metadata, status) in [
        (json!({ "deletionTimestamp": "2020-01-01T00:00:00Z" }), 200),
        (json!({ "deletionGracePeriodSeconds": 30 }), 422),
        (json!({ "finalizers": null }), 200),
    ] {
        let (code, body) = ask(&router, "PATCH", &path, &json!({ "metadata": metadata })).await;
        assert_eq!(code, status, "{metadata}: {body}");
    }
    assert_eq!(ask(&router, "GET", &path, &Value::Null).await.0, 404);
    assert_eq!(ask(&router, "POST", GADGETS, &gadget("b", &json!({}))).await.0, 201);
    let change = json!({ "metadata": { "deletionGracePeriodSeconds": 30 } });
    let (code, body) = ask(&router, "PATCH", &format!("{GADGETS}/b"), &change).await;
    let words = "metadata.deletionGracePeriodSeconds: Invalid value: 30: field is immutable";
    assert!(code == 422 && body["message"].as_str().unwrap().contains(words), "{body}");
}

#[tokio::test]
async fn a_deletion_of_many_looks_at_what_is_listed_first() {
    let router = api().router();
    let path = format!("{GADGETS}?labelSelector=(");
    let (status, body) = ask(&router, "DELETE", &path, &json!({ "dryRun": ["Some"] })).await;
    assert_eq!(status, 400, "{body}");
    for name in ["a", "b", "c"] {
        ask(&router, "POST", GADGETS, &gadget(name, &json!({}))).await;
    }
    let (status, body) = ask(&router, "DELETE", &format!("{GADGETS}?limit=2"), &Value::Null).await;
    assert_eq!((status, body["items"].as_array().unwrap().len()), (200, 2));
    let (_, left) = ask(&router, "GET", GADGETS, &Value::Null).await;
    assert_eq!(left["items"][0]["metadata"]["name"], "c");
}

#[tokio::test]
async fn finalizers_that_name_nobody_are_warned_of() {
    let router = api().router();
    let path = format!("{GADGETS}/a");
    let mut object = gadget("a", &json!({}));
    object["metadata"]["finalizers"] = json!(["one", "a.two", "a.b/three", "orphan"]);
    let (status, warnings, _) = tell(&router, ("POST", GADGETS, "application/json"), &object).await;
    let [dotted, bare] = &warnings[..] else { panic!("{warnings:?}") };
    assert_eq!(status, 201);
    let words = "metadata.finalizers: \\\"one\\\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other \
                 finalizer writers";
    assert!(bare.contains(words), "{bare}");
    assert!(dotted.contains("a.two") && dotted.contains("name including a path (/) to avoid"), "{dotted}");
    // Only of those that are new.
    let change = json!({ "metadata": { "finalizers": ["one", "a.two", "four"] } });
    let (status, warnings, _) =
        tell(&router, ("PATCH", &path, "application/merge-patch+json"), &change).await;
    assert!(status == 200 && warnings.len() == 1 && warnings[0].contains("four"), "{warnings:?}");
}

#[tokio::test]
async fn what_is_wrong_with_an_update_is_told_as_often_as_it_is_looked_at() {
    let router = api().router();
    ask(&router, "POST", GADGETS, &gadget("a", &json!({}))).await;
    for (metadata, causes) in [
        (json!({ "labels": { "not ok": "x" } }), 3),
        (json!({ "annotations": { "/": "x" } }), 9),
        (json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "n" }] }), 3),
        (json!({ "finalizers": ["bad finalizer"] }), 1),
        (json!({ "uid": "other" }), 2),
        (json!({ "generateName": "a/%" }), 2),
        (json!({ "generateName": "Not a name" }), 0),
    ] {
        let path = format!("{GADGETS}/a?dryRun=All");
        let (status, body) = ask(&router, "PATCH", &path, &json!({ "metadata": metadata })).await;
        let told = body["details"]["causes"].as_array().map_or(0, Vec::len);
        assert_eq!((status, told), (if causes == 0 { 200 } else { 422 }, causes), "{metadata}: {body}");
    }
}
