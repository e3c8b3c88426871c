//! Whose writes come so far, as clients see it.

use aggregated_api::authenticate::AuthenticationError;
use aggregated_api::authorize::AuthorizationError;
use aggregated_api::{AggregatedApi, Attributes, Authenticator, Authorizer, Decision, Peer};
use axum::Router;
use axum::body::Body;
use http::HeaderMap;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;

pub(super) const PATH: &str = "/apis/slo.koordinator.sh/v1beta1/nodemetrics";

/// Believes whoever says who they are, and lets them do anything.
struct Credulous;

impl Authenticator for Credulous {
    fn authenticate<'a>(
        &'a self,
        _peer: &'a Peer,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<Option<User>, AuthenticationError>> {
        let said = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let extra =
            said("node").map(|node| ("authentication.kubernetes.io/node-name".to_owned(), vec![node]));
        let name = said("user").unwrap_or_default();
        let user = User { name, extra: extra.into_iter().collect(), ..User::default() };
        future::ready(Ok(Some(user))).boxed()
    }
}

impl Authorizer for Credulous {
    fn authorize<'a>(&'a self, _: &'a Attributes) -> BoxFuture<'a, Result<Decision, AuthorizationError>> {
        future::ready(Ok(Decision::Allowed)).boxed()
    }
}

pub(super) fn api(storage: NodeMetricStorage) -> Router {
    AggregatedApi::new()
        .resource(crate::resource("v1beta1").unwrap(), Arc::new(storage))
        .authenticator(Arc::new(Credulous))
        .authorizer(Arc::new(Credulous))
        .router()
}

/// Who asks: a user's name, and the node that a token is bound to.
type Who = (&'static str, Option<&'static str>);

const ALICE: Who = ("alice", None);

async fn ask(api: &Router, (user, node): Who, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let kind = match (method, path.contains("fieldManager")) {
        ("PATCH", true) => "application/apply-patch+yaml",
        ("PATCH", false) => "application/merge-patch+json",
        _ => "application/json",
    };
    let mut request = http::Request::builder().method(method).uri(format!("{PATH}{path}"));
    request = request.header("content-type", kind).header("user", user);
    if let Some(node) = node {
        request = request.header("node", node);
    }
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let response = api.clone().oneshot(request.body(body).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (code, serde_json::from_slice(&body).unwrap())
}

fn manifest(name: &str) -> Value {
    json!({ "apiVersion": "slo.koordinator.sh/v1beta1", "kind": "NodeMetric", "metadata": { "name": name }, "spec": {} })
}

#[tokio::test]
async fn a_trial_is_refused_for_what_the_write_is_refused_for() {
    let api = api(fixture(1).storage);
    for (method, path) in [
        ("POST", "?"),
        ("POST", "?dryRun=All"),
        ("PATCH", "/nowhere?fieldManager=me"),
        ("PATCH", "/nowhere?fieldManager=me&dryRun=All"),
    ] {
        let (code, status) = ask(&api, ALICE, method, path, &manifest("nowhere")).await;
        assert_eq!(code, 400, "{method} {path}: {status}");
        let message = status["message"].as_str().unwrap();
        assert!(message.starts_with("there is no Node \"nowhere\""), "{message}");
    }
    // Of a Node whose object somebody has deleted, both make one.
    assert_eq!(ask(&api, ALICE, "DELETE", "/n0000", &Value::Null).await.0, 200);
    for path in ["?dryRun=All", "?"] {
        assert_eq!(ask(&api, ALICE, "POST", path, &manifest("n0000")).await.0, 201, "{path}");
    }
}

#[tokio::test]
async fn nobody_of_a_node_speaks_for_another() {
    let api = api(fixture(2).storage);
    let node: Who = ("system:node:n0000", None);
    let pod: Who = ("system:serviceaccount:koordinator-system:koord", Some("n0000"));
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    let status = json!({ "status": { "podsMetric": [{ "name": "p" }] } });
    let own = "node \"n0000\" may write its own NodeMetric and no other";
    let bound = "a pod of node \"n0000\" may write the status of that node's NodeMetric and of no other";
    // Who; what they do; why not.
    for (who, method, path, body, why) in [
        (node, "PATCH", "/n0000/status", &status, None),
        (node, "PATCH", "/n0000", &labels, None),
        (node, "PATCH", "/n0001/status", &status, Some(own)),
        (node, "PATCH", "/n0001/status?dryRun=All", &status, Some(own)),
        (node, "PATCH", "/n0001", &labels, Some(own)),
        (node, "DELETE", "/n0001", &Value::Null, Some(own)),
        (node, "POST", "?", &manifest("n0001"), Some(own)),
        (pod, "PATCH", "/n0000/status", &status, None),
        (pod, "PATCH", "/n0001/status", &status, Some(bound)),
        // As Koordinator's manager does, which runs somewhere.
        (pod, "PATCH", "/n0001", &labels, None),
        (pod, "DELETE", "/n0001", &Value::Null, None),
        (pod, "POST", "?", &manifest("n0001"), None),
        (ALICE, "PATCH", "/n0001/status", &status, None),
    ] {
        let (code, answer) = ask(&api, who, method, path, body).await;
        let Some(why) = why else {
            assert!((200..300).contains(&code), "{who:?} {method} {path}: {answer}");
            continue;
        };
        assert_eq!(
            (code, &answer["reason"]),
            (403, &json!("Forbidden")),
            "{who:?} {method} {path}: {answer}"
        );
        let message = answer["message"].as_str().unwrap();
        assert_eq!(message, format!("nodemetrics.slo.koordinator.sh \"n0001\" is forbidden: {why}"));
    }
}
