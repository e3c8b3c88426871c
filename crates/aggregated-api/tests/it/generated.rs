//! Requests made up at random: whatever is asked, the answer is one of those that the API has, and what is stored stays sound.

use axum::{Router, body::Body, http::Request};
use proptest::prelude::*;
use serde_json::Value;

use crate::api::{GADGETS, api, json_of, send};

/// A request: method, path below the collection, query, media type, body.
fn request() -> impl Strategy<Value = (String, String, String, String, String)> {
    let method = prop::sample::select(vec!["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]);
    let path = prop::sample::select(vec!["", "/a", "/b", "/a/status", "/a/other", "/A_"]);
    let query = prop::sample::select(vec![
        "",
        "dryRun=All",
        "fieldValidation=Strict",
        "fieldManager=m",
        "fieldManager=m&force=true",
        "limit=1",
        "limit=1&continue=x",
        "resourceVersion=0",
        "labelSelector=a%3Db",
        "fieldSelector=spec.x%3Dy",
        "watch=1&timeoutSeconds=1",
    ]);
    let media_type = prop::sample::select(vec![
        "application/json",
        "application/yaml",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/apply-patch+yaml",
        "text/plain",
    ]);
    let spec = prop::sample::select(vec![
        "{}",
        r#"{"color":"red"}"#,
        r#"{"size":11}"#,
        r#"{"x":[{"y":null}]}"#,
        "[]",
        "null",
    ]);
    let body = prop_oneof![
        4 => (prop::sample::select(vec!["a", "b", "A_"]), spec).prop_map(|(name, spec)| format!(
            r#"{{"apiVersion":"test.isthmus.dev/v1","kind":"Gadget","metadata":{{"name":"{name}"}},"spec":{spec}}}"#
        )),
        1 => Just(r#"[{"op":"add","path":"/spec","value":{"size":3}}]"#.to_owned()),
        1 => "[\\[\\]{}:,\"a1 -]{0,20}".prop_map(String::from),
    ];
    let text = |select: &str| select.to_owned();
    (method, path, query, media_type, body).prop_map(move |(method, path, query, media_type, body)| {
        (text(method), text(path), text(query), text(media_type), body)
    })
}

async fn ask(router: &Router, request: &(String, String, String, String, String)) -> (u16, Value) {
    let (method, path, query, media_type, body) = request;
    let built = Request::builder()
        .method(method.as_str())
        .uri(format!("{GADGETS}{path}?{query}"))
        .header("content-type", media_type.as_str())
        .body(Body::from(body.clone()))
        .unwrap();
    let response = send(router, built).await;
    (response.status().as_u16(), json_of(response).await)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn answers_are_sound(requests in prop::collection::vec(request(), 1..20)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let router = api().router();
            let mut last = 0_u64;
            for request in &requests {
                let (status, body) = ask(&router, request).await;
                if status >= 400 && body.is_object() {
                    prop_assert_eq!(&body["kind"], "Status", "{:?}", request);
                    prop_assert_eq!(body["code"].as_u64(), Some(status.into()), "{:?}", request);
                    prop_assert!(!body["message"].as_str().unwrap().is_empty());
                }
                // Only an error of types in an apply has no translation.
                prop_assert!(status < 500 || request.3 == "application/apply-patch+yaml", "{:?}: {}", request, body);
                let list = ("GET".to_owned(), String::new(), String::new(), String::new(), String::new());
                let (status, list) = ask(&router, &list).await;
                prop_assert_eq!(status, 200);
                let version: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
                prop_assert!(version >= last, "versions never go back");
                last = version;
                for item in list["items"].as_array().unwrap() {
                    let metadata = &item["metadata"];
                    let own: u64 = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
                    prop_assert!(own <= version);
                    prop_assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
                    prop_assert!(metadata["generation"].as_u64().unwrap() >= 1);
                    let spec = &item["spec"];
                    prop_assert!(spec.is_null() || spec.is_object(), "{}", item);
                    prop_assert!(spec["size"].as_i64().unwrap_or(0) <= 10, "{}", item);
                    prop_assert!(spec.get("x").is_none(), "{}", item);
                }
            }
            Ok(())
        })?;
    }
}
