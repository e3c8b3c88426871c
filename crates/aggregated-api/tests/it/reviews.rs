//! What the API server is asked of a caller: a review says of which objects alone a request is, so that who may not read all may read some.

use std::sync::Arc;

use aggregated_api::KubernetesReviews;
use aggregated_api::authorize::DelegatingAuthorizer;
use axum::Router;
use kube::{Client, Config};
use parking_lot::Mutex;
use serde_json::Value;
use testkit::api_server::FakeApiServer;

use crate::api::{GADGETS, api, ask};

/// An API whose callers are reviewed by that server.
fn reviewed_by(server: &FakeApiServer) -> Router {
    let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
    let reviews = Arc::new(KubernetesReviews::new(client));
    api().authorizer(Arc::new(DelegatingAuthorizer::new(reviews))).router()
}

#[tokio::test]
async fn reviews_carry_selectors() {
    let server = FakeApiServer::start().await.unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    server.cluster().access().set_authorizer(move |asked| {
        if asked.resource == "subjectaccessreviews" {
            return true;
        }
        let told = format!("{} {:?} {:?}", asked.verb, asked.field_selector, asked.label_selector);
        log.lock().push(told.clone());
        // Who may have what is of one team, whatever else is selected by.
        asked.label_selector.split(',').any(|requirement| requirement == "team=a")
    });
    let router = reviewed_by(&server);
    for (method, query, status, reviewed) in [
        ("GET", "", 403, r#"list "" """#),
        ("GET", "?labelSelector=team%3Da", 200, r#"list "" "team=a""#),
        // Remembered by all that it depends on: the same is not asked again, another selector is.
        ("GET", "?labelSelector=team%3Da", 200, ""),
        ("GET", "?labelSelector=team+in+(a,b)", 403, r#"list "" "team=a|b""#),
        ("GET", "?labelSelector=team!%3Da", 403, r#"list "" "team!=a""#),
        ("GET", "?labelSelector=!team,x", 403, r#"list "" "!team,x""#),
        (
            "GET",
            "?labelSelector=team%3Da,x&fieldSelector=metadata.namespace!%3Dm",
            200,
            r#"list "metadata.namespace!=m" "team=a,x""#,
        ),
        ("GET", "?fieldSelector=metadata.namespace%3Dn", 403, r#"list "metadata.namespace=n" """#),
        ("GET", "?watch=1&timeoutSeconds=1&labelSelector=team%3Da", 200, r#"watch "" "team=a""#),
        ("DELETE", "?labelSelector=team%3Da", 200, r#"deletecollection "" "team=a""#),
        ("DELETE", "", 403, r#"deletecollection "" """#),
        // What cannot be read limits nothing: that review is known. Who may is told what is wrong, below.
        ("GET", "?labelSelector=team%3Da,,", 403, ""),
        ("GET", "/a?labelSelector=team%3Da", 403, r#"get "" """#),
        ("POST", "?labelSelector=team%3Da", 403, r#"create "" """#),
    ] {
        let (answered, body) = ask(&router, method, &format!("{GADGETS}{query}"), &Value::Null).await;
        assert_eq!(answered, status, "{method} {query}: {body}");
        assert_eq!(std::mem::take(&mut *seen.lock()).join("; "), reviewed, "{method} {query}");
    }
    // Of another namespace nothing is remembered.
    server.cluster().access().set_authorizer(|_| true);
    let path = format!("{}?labelSelector=team%3Db,,", GADGETS.replace("/n/", "/m/"));
    let (answered, body) = ask(&router, "GET", &path, &Value::Null).await;
    assert_eq!(answered, 400, "{body}");
}
