//! What the server answers.

use http::Request;
use serde_json::{Value, json};
use testkit::api_server::access::User;
use testkit::api_server::{FakeApiServer, Kind};
use testkit::client::connection::Endpoint;

use crate::support::{CONFIGMAPS, config_map, events, get, get_as, server};

/// Revision 1 is the empty cluster; x, y, z are 2, 3, 4; x is changed at 5, y deleted at 6.
async fn filled() -> FakeApiServer {
    let server = server().await;
    for (name, n) in [("x", 0), ("y", 1), ("z", 2)] {
        server.cluster().create("configmaps", config_map("a", name, n)).unwrap();
    }
    server.cluster().update("configmaps", &config_map("a", "x", 1)).unwrap();
    server.cluster().delete("configmaps", "a/y").unwrap();
    server
}

#[tokio::test]
async fn lists_are_of_the_version_asked_for() {
    let server = filled().await;
    let table = [
        ("", "6: x@5 z@4"),
        ("resourceVersion=0&limit=1", "6: x@5 z@4"),
        ("resourceVersion=3&resourceVersionMatch=Exact", "3: x@2 y@3"),
        ("resourceVersion=4&limit=2", "4: x@2 y@3 +1"),
        ("resourceVersion=3&resourceVersionMatch=NotOlderThan&limit=1", "6: x@5 +1"),
        ("labelSelector=n%3Deven", "6: z@4"),
        ("fieldSelector=metadata.name%3Dx", "6: x@5"),
        ("resourceVersion=99", "504"),
        ("resourceVersion=99&resourceVersionMatch=Exact", "504"),
        ("resourceVersion=junk", "400"),
        ("continue=junk", "400"),
        ("resourceVersionMatch=Exact", "422"),
        ("sendInitialEvents=true", "422"),
        ("labelSelector=a%3D%3D%3D1", "400"),
        ("fieldSelector=spec.x%3D1", "400"),
    ];
    for (query, expected) in table {
        let (status, body) = get(&server, &format!("{CONFIGMAPS}?{query}")).await;
        assert_eq!(list_brief(status, &body), expected, "{query}: {body}");
    }
    server.compact(4);
    let (status, _) =
        get(&server, &format!("{CONFIGMAPS}?resourceVersion=3&resourceVersionMatch=Exact")).await;
    assert_eq!(status, 410);
}

fn list_brief(status: u16, body: &Value) -> String {
    if status != 200 {
        assert_eq!(body["code"], status);
        return status.to_string();
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let item = |item: &Value| {
        format!("{}@{}", text(&item["metadata"]["name"]), text(&item["metadata"]["resourceVersion"]))
    };
    let items: Vec<_> = body["items"].as_array().unwrap().iter().map(item).collect();
    let remaining =
        body["metadata"]["remainingItemCount"].as_u64().map_or(String::new(), |n| format!(" +{n}"));
    format!("{}: {}{remaining}", text(&body["metadata"]["resourceVersion"]), items.join(" "))
}

#[tokio::test]
async fn pages_go_on_at_their_version_and_after_a_compaction_at_any() {
    let server = filled().await;
    let (_, first) = get(&server, &format!("{CONFIGMAPS}?limit=1")).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    server.cluster().create("configmaps", config_map("a", "zz", 0)).unwrap();
    let (status, second) = get(&server, &format!("{CONFIGMAPS}?limit=5&continue={token}")).await;
    assert_eq!(list_brief(status, &second), "6: z@4");
    server.compact(7);
    let (status, expired) = get(&server, &format!("{CONFIGMAPS}?limit=5&continue={token}")).await;
    assert_eq!((status, &expired["reason"]), (410, &json!("Expired")));
    let token = expired["metadata"]["continue"].as_str().unwrap();
    let (status, rest) = get(&server, &format!("{CONFIGMAPS}?limit=5&continue={token}")).await;
    assert_eq!(list_brief(status, &rest), "7: z@4 zz@7");
}

#[tokio::test]
async fn watches_begin_where_asked_and_show_what_selectors_let_through() {
    let server = filled().await;
    let table = [
        ("resourceVersion=1", "ADDED x@2, ADDED y@3, ADDED z@4, MODIFIED x@5, DELETED y@6"),
        ("resourceVersion=6", ""),
        ("resourceVersion=99", ""),
        ("", "ADDED x@5, ADDED z@4"),
        ("allowWatchBookmarks=true", "ADDED x@5, ADDED z@4, BOOKMARK @6 end"),
        ("resourceVersion=1&labelSelector=n%3Deven", "ADDED x@2, ADDED z@4, DELETED x@5"),
        ("resourceVersion=1&labelSelector=n%3Dodd", "ADDED y@3, ADDED x@5, DELETED y@6"),
        ("resourceVersion=1&fieldSelector=metadata.name%3Dy", "ADDED y@3, DELETED y@6"),
        ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", ""),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99", "ERROR 504"),
    ];
    for (query, expected) in table {
        assert_eq!(events(&server, query).await.join(", "), expected, "{query}");
    }
    server.compact(4);
    assert_eq!(events(&server, "resourceVersion=3").await, ["ERROR 410"]);
    assert_eq!(events(&server, "resourceVersion=4").await, ["MODIFIED x@5", "DELETED y@6"]);
}

#[tokio::test]
async fn writes_check_versions() {
    let server = server().await;
    let endpoint = Endpoint::plain(server.address());
    let send = async |method: &str, path: &str, media: &str, body: Value| {
        let request = Request::builder().method(method).uri(path).header("content-type", media);
        let mut answer = endpoint.ask(request, body.to_string()).await.unwrap();
        let body: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        (answer.status.as_u16(), body)
    };
    let json = "application/json";
    let (status, created) = send("POST", CONFIGMAPS, json, config_map("a", "x", 0)).await;
    assert_eq!((status, &created["kind"]), (201, &json!("ConfigMap")));
    assert_eq!(send("POST", CONFIGMAPS, json, config_map("a", "x", 0)).await.0, 409);
    let one = format!("{CONFIGMAPS}/x");
    let merge = "application/merge-patch+json";
    let (status, patched) = send("PATCH", &one, merge, json!({"data": {"n": null, "m": "1"}})).await;
    assert_eq!((status, &patched["data"]), (200, &json!({"m": "1"})));
    assert_eq!(send("PUT", &one, json, created).await.0, 409, "its version is old");
    let (status, same) = send("PUT", &one, json, patched.clone()).await;
    assert_eq!((status, &same), (200, &patched), "nothing changes, nothing is written");
    assert_eq!(send("DELETE", &one, json, json!({})).await.0, 200);
    assert_eq!(send("DELETE", &one, json, json!({})).await.0, 404);
}

#[tokio::test]
async fn a_definition_that_goes_takes_its_objects_with_it() {
    let server = server().await;
    let widgets = Kind { typed: false, ..Kind::built_in("test.dev", "v1", "widgets", "Widget", true) };
    let crds = "customresourcedefinitions.apiextensions.k8s.io";
    let path = widgets.path(Some("a"));
    assert_eq!(get(&server, &path).await.0, 404);
    server.cluster().create(crds, widgets.crd()).unwrap();
    server.cluster().create(&widgets.id(), config_map("a", "w", 0)).unwrap();
    let (_, list) = get(&server, &path).await;
    assert_eq!(list["items"][0]["kind"], "Widget", "items of custom resources say what they are");
    assert_eq!(list["metadata"]["continue"], "");
    let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let query = format!("{path}?watch=1&resourceVersion={version}");
    let mut watch = Endpoint::plain(server.address()).get(&query, "application/json").await.unwrap();
    server.cluster().delete(crds, &widgets.id()).unwrap();
    let seen = watch.bytes().await.unwrap();
    assert!(String::from_utf8_lossy(&seen).starts_with("{\"type\":\"DELETED\""), "and then it ends");
    assert_eq!(get(&server, &path).await.0, 404);
    server.cluster().create(crds, widgets.crd()).unwrap();
    let (_, error) =
        get(&server, &format!("{path}?watch=1&timeoutSeconds=1&resourceVersion={version}")).await;
    assert_eq!(error["object"]["code"], 410, "another resource of the same name");
}

#[tokio::test]
async fn users_are_known_and_judged() {
    let server = server().await;
    let access = server.cluster().access();
    access.add_token("t", User::new("jane", &["devs"]));
    access.set_authorizer(|asked| {
        asked.user.name == "jane" && asked.verb == "list" && asked.field_selector.is_empty()
    });
    assert_eq!(get(&server, CONFIGMAPS).await.0, 403);
    let jane = Endpoint::plain(server.address()).with_token("t");
    assert_eq!(jane.get(CONFIGMAPS, "").await.unwrap().status, 200);
    assert_eq!(jane.get(&format!("{CONFIGMAPS}/x"), "").await.unwrap().status, 403);
    assert_eq!(jane.clone().with_token("?").get(CONFIGMAPS, "").await.unwrap().status, 401);
    let ask = async |path: &str, body: Value| {
        let mut answer = jane.ask(Request::post(path), body.to_string()).await.unwrap();
        serde_json::from_slice::<Value>(&answer.bytes().await.unwrap()).unwrap()["status"].clone()
    };
    let attributes =
        |verb: &str| json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "configmaps"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(ask(path, attributes("list")).await, json!({"allowed": true}));
    assert_eq!(ask(path, attributes("watch")).await, json!({"allowed": false}));
    access.set_authorizer(|_| true);
    let token = ask("/api/v1/namespaces/a/serviceaccounts/sa/token", json!({"spec": {}})).await;
    let review = json!({"spec": {"token": token["token"]}});
    let status = ask("/apis/authentication.k8s.io/v1/tokenreviews", review).await;
    assert_eq!(status["user"]["username"], "system:serviceaccount:a:sa");
}

#[tokio::test]
async fn other_forms_are_served_on_request() {
    let server = filled().await;
    let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let (_, body) = get_as(&server, CONFIGMAPS, list).await;
    assert_eq!(body["kind"], "PartialObjectMetadataList");
    assert_eq!(body["items"][0].get("data"), None);
    let (status, body) = get_as(&server, CONFIGMAPS, "application/json;as=Table;g=meta.k8s.io;v=v1").await;
    assert_eq!((status, &body["rows"][1]["object"]["metadata"]["name"]), (200, &json!("z")));
    for unknown in ["text/plain", "application/*", "*"] {
        assert_eq!(get_as(&server, CONFIGMAPS, unknown).await.0, 406, "{unknown}");
    }
    server.cluster().create("services", config_map("a", "s", 0)).unwrap();
    let protobuf = "application/vnd.kubernetes.protobuf";
    let mut answer = Endpoint::plain(server.address()).get("/api/v1/services", protobuf).await.unwrap();
    assert_eq!(answer.headers["content-type"], protobuf);
    assert!(answer.bytes().await.unwrap().starts_with(b"k8s\0\x0a\x11\x0a\x02v1\x12\x0bServiceList"));
}

#[tokio::test]
async fn discovery_names_what_there_is() {
    let server = server().await;
    let (_, body) =
        get_as(&server, "/api", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").await;
    assert_eq!(body["items"][0]["versions"][0]["resources"][0]["resource"], "configmaps");
    assert_eq!(get(&server, "/apis/discovery.k8s.io/v1").await.1["resources"][0]["kind"], "EndpointSlice");
    assert_eq!(get(&server, "/version").await.1["minor"], "36");
    assert_eq!(get(&server, "/apis/nope/v1").await.0, 404);
    assert_eq!(get(&server, "/api/v1/nope").await.1["reason"], "NotFound");
}
