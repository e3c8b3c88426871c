//! What is no resource: discovery, documents, health, the version.

use std::sync::Arc;

use aggregated_api::VersionInfo;
use serde_json::json;

use crate::api::{api, get, json_of};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[tokio::test]
async fn discovery_is_whole_and_tagged() {
    let router = api().router();
    let response = get(&router, "/apis", &[("accept", &format!("{AGGREGATED},application/json"))]).await;
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    let (tag, vary, kind) = (header("etag"), header("vary"), header("content-type"));
    assert_eq!((vary.as_str(), kind.as_str()), ("Accept", AGGREGATED));
    let list = json_of(response).await;
    let resource = &list["items"][0]["versions"][0]["resources"][0];
    assert_eq!(resource["verbs"], json!(["get", "list", "patch", "create", "update", "watch"]));
    assert_eq!(resource["responseKind"]["kind"], "Gadget");
    assert_eq!(resource["subresources"][0]["subresource"], "status");

    let again = get(&router, "/apis", &[("accept", AGGREGATED), ("if-none-match", &tag)]).await;
    assert_eq!(again.status(), 304);
    let legacy = json_of(get(&router, "/apis", &[("accept", "application/json")]).await).await;
    assert_eq!(
        (&legacy["kind"], &legacy["groups"][0]["name"]),
        (&json!("APIGroupList"), &json!("test.isthmus.dev"))
    );
    let list = json_of(get(&router, "/apis/test.isthmus.dev/v1", &[]).await).await;
    assert_eq!(list["resources"][0]["shortNames"], json!(["gd"]));
    assert_eq!(list["resources"][1]["name"], "gadgets/status");
    for path in ["/apis/test.isthmus.dev/v2", "/apis/other", "/nothing"] {
        assert_eq!(get(&router, path, &[]).await.status(), 404, "{path}");
    }
}

#[tokio::test]
async fn documents_describe_the_kind() {
    let router = api().router();
    let root = json_of(get(&router, "/openapi/v3", &[]).await).await;
    let url = root["paths"]["apis/test.isthmus.dev/v1"]["serverRelativeURL"].as_str().unwrap();
    let response = get(&router, url, &[]).await;
    let tag = response.headers()["etag"].to_str().unwrap().to_owned();
    assert!(url.ends_with(tag.trim_matches('"')));
    let document = json_of(response).await;
    let schemas = &document["components"]["schemas"];
    let kind = &schemas["dev.isthmus.test.v1.Gadget"];
    assert_eq!(kind["x-kubernetes-group-version-kind"][0]["kind"], "Gadget");
    assert_eq!(kind["properties"]["spec"]["properties"]["size"]["maximum"], 10);
    // Every reference leads somewhere.
    let text = document.to_string();
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(schemas.get(name).is_some(), "{name} is not described");
    }
    let patch =
        &document["paths"]["/apis/test.isthmus.dev/v1/namespaces/{namespace}/gadgets/{name}"]["patch"];
    let names: Vec<_> =
        patch["parameters"].as_array().unwrap().iter().map(|all| all["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"fieldValidation") && names.contains(&"dryRun"), "{names:?}");
    assert_eq!(get(&router, url, &[("if-none-match", &tag)]).await.status(), 304);

    let document = json_of(get(&router, "/openapi/v2", &[]).await).await;
    for part in document.to_string().split("#/definitions/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(document["definitions"].get(name).is_some(), "{name} is not defined");
    }
}

#[tokio::test]
async fn health_is_told_by_check() {
    let version = VersionInfo { git_version: "v1.2.3".to_owned(), ..VersionInfo::default() };
    let router = api()
        .ready("warm", Arc::new(|| Err("cold".to_owned())))
        .note("coverage", Arc::new(|| "3 of 4".to_owned()))
        .version(version)
        .router();
    for (path, status, text) in [
        ("/healthz", 200, "ok"),
        ("/livez", 200, "ok"),
        ("/livez?verbose", 200, "[+]ping ok\nlivez check passed\n"),
        ("/readyz", 500, "[+]ping ok\n[-]warm failed: reason withheld\nreadyz check failed\n"),
        ("/readyz?exclude=warm", 200, "ok"),
        ("/readyz?exclude=warm&exclude=coverage", 200, "ok"),
        (
            "/readyz?exclude=warm&verbose",
            200,
            "[+]ping ok\n[+]warm excluded: ok\n[+]coverage ok: 3 of 4\nreadyz check passed\n",
        ),
        ("/readyz/coverage", 200, "ok"),
        ("/readyz/ping", 200, "ok"),
        ("/readyz/warm", 500, "internal server error: cold\n"),
        ("/livez/warm", 404, "404 page not found\n"),
    ] {
        let response = get(&router, path, &[]).await;
        assert_eq!((response.status().as_u16(), json_of(response).await), (status, json!(text)), "{path}");
    }
    assert_eq!(json_of(get(&router, "/version", &[]).await).await["gitVersion"], "v1.2.3");
}
