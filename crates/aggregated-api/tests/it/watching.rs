//! Watches: what they begin with, what they tell, how they end.

use std::time::Duration;

use axum::Router;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::api::{GADGETS, api, ask, gadget, get, json_of};

/// The events of a watch that ends by itself.
async fn events(router: &Router, query: &str) -> Vec<Value> {
    events_of(router, &format!("{GADGETS}?watch=1&{query}")).await
}

async fn events_of(router: &Router, path: &str) -> Vec<Value> {
    let response = get(router, path, &[]).await;
    assert_eq!(response.status(), 200, "{path}");
    let mut body = response.into_body().into_data_stream();
    let mut text = Vec::new();
    while let Some(chunk) = timeout(Duration::from_hours(2), body.next()).await.unwrap() {
        text.extend_from_slice(&chunk.unwrap());
    }
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

fn told(events: &[Value]) -> Vec<String> {
    let short = |event: &Value| {
        let (kind, object) = (event["type"].as_str().unwrap(), &event["object"]);
        let end = &object["metadata"]["annotations"]["k8s.io/initial-events-end"];
        match kind {
            "BOOKMARK" if end == "true" => "END".to_owned(),
            "BOOKMARK" => kind.to_owned(),
            "ERROR" => format!("ERROR {}", object["code"]),
            _ => format!("{kind} {}", object["metadata"]["name"].as_str().unwrap()),
        }
    };
    events.iter().map(short).collect()
}

#[tokio::test(start_paused = true)]
async fn a_watch_begins_as_it_is_asked_to() {
    let router = api().router();
    let mut versions = Vec::new();
    for name in ["b", "a"] {
        let (_, made) = ask(&router, "POST", GADGETS, &gadget(name, &json!({ "color": "red" }))).await;
        versions.push(made["metadata"]["resourceVersion"].as_str().unwrap().to_owned());
    }
    let first = &versions[0];
    for (query, expected) in [
        ("timeoutSeconds=1".to_owned(), &["ADDED a", "ADDED b"][..]),
        ("timeoutSeconds=1&resourceVersion=0".to_owned(), &["ADDED a", "ADDED b"]),
        (format!("timeoutSeconds=1&resourceVersion={first}"), &["ADDED a"]),
        (
            "timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true".to_owned(),
            &["ADDED a", "ADDED b", "END"],
        ),
        ("timeoutSeconds=1&fieldSelector=metadata.name%3Db".to_owned(), &["ADDED b"]),
        ("timeoutSeconds=1&resourceVersion=1".to_owned(), &["ERROR 410"]),
        ("timeoutSeconds=70&allowWatchBookmarks=true".to_owned(), &["ADDED a", "ADDED b", "END", "BOOKMARK", "BOOKMARK"]),
    ] {
        assert_eq!(told(&events(&router, &query).await), expected, "{query}");
    }
    let refused = get(&router, &format!("{GADGETS}?watch=1&sendInitialEvents=true"), &[]).await;
    assert_eq!(refused.status(), 422);
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_an_object_by_its_path_is_of_no_other() {
    let router = api().router();
    for name in ["a", "b"] {
        ask(&router, "POST", GADGETS, &gadget(name, &json!({ "color": "red" }))).await;
    }
    let (root, rest) = GADGETS.split_once("/namespaces/").unwrap();
    let (_, plural) = rest.rsplit_once('/').unwrap();
    let within = format!("{root}/watch/namespaces/{rest}");
    for (path, query, expected) in [
        (format!("{within}/a"), "", &["ADDED a"][..]),
        (format!("{root}/watch/{plural}/b"), "", &["ADDED b"]),
        (format!("{within}/a"), "&fieldSelector=metadata.name%3Da", &["ADDED a"]),
        (format!("{within}/c"), "", &[]),
        // No name of an object, and no selector either.
        (format!("{within}/a%2Cmetadata.name%3Db"), "", &[]),
        (format!("{within}/a%5C"), "", &[]),
        (within.clone(), "", &["ADDED a", "ADDED b"]),
        (format!("{root}/watch/{plural}"), "", &["ADDED a", "ADDED b"]),
    ] {
        let path = format!("{path}?timeoutSeconds=1{query}");
        assert_eq!(told(&events_of(&router, &path).await), expected, "{path}");
    }
    for query in ["metadata.name%3Db", "metadata.namespace%3Dx", "metadata.name%21%3Da"] {
        let path = format!("{within}/a?timeoutSeconds=1&fieldSelector={query}");
        let refused = get(&router, &path, &[]).await;
        assert_eq!(refused.status(), 400, "{query}");
        let said = json_of(refused).await;
        assert_eq!(said["message"], "fieldSelector metadata.name doesn't match requested name");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_stream_cannot_be_written_in_is_refused_last() {
    let router = api().router();
    ask(&router, "POST", GADGETS, &gadget("a", &json!({ "color": "red" }))).await;
    let table = |encoding: &str| format!("application/{encoding};as=Table;v=v1;g=meta.k8s.io");
    for (accept, query, status) in [
        ("application/yaml", "", 406),
        // The first that is accepted counts, whatever else is.
        ("application/yaml,application/json", "", 406),
        ("application/yaml", "&labelSelector=(", 400),
        ("application/yaml", "&sendInitialEvents=true", 422),
        ("application/yaml", "&resourceVersion=x", 500),
        ("text/plain", "&labelSelector=(", 406),
        (&table("yaml"), "&includeObject=Any", 400),
        (&table("yaml"), "&includeObject=None", 406),
        (&table("json"), "&includeObject=Any", 400),
        ("application/yaml;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "", 406),
        ("application/json", "&includeObject=Any", 200),
    ] {
        let path = format!("{GADGETS}?watch=1&timeoutSeconds=1{query}");
        let response = get(&router, &path, &[("accept", accept)]).await;
        assert_eq!(response.status(), status, "{accept} {query}");
        if status == 406 && accept != "text/plain" {
            let said = json_of(response).await.to_string();
            assert!(said.contains("application/json;stream=watch"), "{said}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_lists_ends_at_its_first_event() {
    let router = api().router();
    let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let began = tokio::time::Instant::now();
    let path = format!("{GADGETS}?watch=1&timeoutSeconds=30");
    let response = get(&router, &path, &[("accept", accept)]).await;
    assert_eq!(response.status(), 200);
    ask(&router, "POST", GADGETS, &gadget("a", &json!({ "color": "red" }))).await;
    assert_eq!(json_of(response).await, json!(""));
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_state_is_told_in_tables_without_objects_too() {
    let router = api().router();
    ask(&router, "POST", GADGETS, &gadget("a", &json!({ "color": "red" }))).await;
    let path = format!("{GADGETS}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&includeObject=None");
    let accept = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let text = json_of(get(&router, &path, &[accept]).await).await;
    let events: Vec<Value> =
        text.as_str().unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let carried: Vec<_> = events.iter().map(|event| &event["object"]["rows"][0]["object"]).collect();
    assert_eq!(carried[0], &Value::Null);
    assert_eq!(carried[1]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[tokio::test]
async fn a_watch_tells_what_happens() {
    let router = api().router();
    let path = format!("{GADGETS}?watch=1&labelSelector=on%3Dyes&timeoutSeconds={}", i64::MAX);
    let response = get(&router, &path, &[]).await;
    let mut body = response.into_body().into_data_stream();
    ask(&router, "POST", GADGETS, &gadget("a", &json!({}))).await;
    let path = format!("{GADGETS}/a");
    for patch in [
        json!({ "metadata": { "labels": { "on": "yes" } } }),
        json!({ "spec": { "size": 1 } }),
        json!({ "metadata": { "labels": { "on": "no" } } }),
        json!({ "spec": { "size": 2 } }),
        json!({ "metadata": { "labels": { "on": "yes" } } }),
    ] {
        assert_eq!(ask(&router, "PATCH", &path, &patch).await.0, 200);
    }
    assert_eq!(ask(&router, "DELETE", &path, &Value::Null).await.0, 200);
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let chunk = timeout(Duration::from_mins(1), body.next()).await.unwrap().unwrap().unwrap();
        let lines = chunk.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        seen.extend(lines.map(|line| serde_json::from_slice::<Value>(line).unwrap()));
    }
    assert_eq!(told(&seen), ["ADDED a", "MODIFIED a", "DELETED a", "ADDED a", "DELETED a"]);
    let versions: Vec<u64> = seen
        .iter()
        .map(|event| event["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap())
        .collect();
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
}

#[tokio::test(start_paused = true)]
async fn a_version_to_come_is_waited_for_and_then_refused() {
    let router = api().router();
    let far = u64::MAX / 2;
    let query = format!("{GADGETS}?resourceVersion={far}&resourceVersionMatch=NotOlderThan");
    let (status, body) = ask(&router, "GET", &query, &Value::Null).await;
    assert_eq!((status, &body["details"]["causes"][0]["reason"]), (504, &json!("ResourceVersionTooLarge")));
    let query = format!(
        "timeoutSeconds=9&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={far}"
    );
    assert_eq!(told(&events(&router, &query).await), ["ERROR 504"]);
}
