//! An API of one small kind in memory, and how it is asked.

use std::sync::Arc;

use aggregated_api::authorize::AuthorizationError;
use aggregated_api::{AggregatedApi, Attributes, Authorizer, Decision, MemoryStorage, ResourceInfo};
use axum::{Router, body::Body, http::Request, response::Response};
use futures::future::{BoxFuture, FutureExt, ready};
use kube_wire::request::Verb;
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// The collection in a namespace.
pub(crate) const GADGETS: &str = "/apis/test.isthmus.dev/v1/namespaces/n/gadgets";

/// Everybody may do anything, except for whoever is called `nobody`.
pub(crate) struct Everybody;

impl Authorizer for Everybody {
    fn authorize<'a>(
        &'a self,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, AuthorizationError>> {
        let denied = attributes.user.name == "nobody";
        let decision = if denied { Decision::Denied("no rule".to_owned()) } else { Decision::Allowed };
        ready(Ok(decision)).boxed()
    }
}

/// What is served.
pub(crate) fn gadgets() -> ResourceInfo {
    let mut info = ResourceInfo::new("test.isthmus.dev", "v1", "Gadget", "gadgets");
    info.namespaced = true;
    info.short_names = vec!["gd".to_owned()];
    info.unadvertised = vec![Verb::Delete, Verb::DeleteCollection];
    info.schema = json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "color": { "type": "string", "enum": ["red", "blue"] },
                    "size": { "type": "integer", "maximum": 10 },
                },
            },
            "status": { "type": "object", "properties": { "phase": { "type": "string" } } },
        },
    });
    info
}

/// The API without anybody to ask who calls.
pub(crate) fn api() -> AggregatedApi {
    AggregatedApi::new().resource(gadgets(), Arc::new(MemoryStorage::new())).authorizer(Arc::new(Everybody))
}

/// A manifest.
pub(crate) fn gadget(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "test.isthmus.dev/v1", "kind": "Gadget", "metadata": { "name": name }, "spec": spec })
}

/// Asks, and reads the whole answer.
pub(crate) async fn ask(router: &Router, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let content_type = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let response = send(router, request.body(body.into()).unwrap()).await;
    let status = response.status().as_u16();
    (status, json_of(response).await)
}

/// Asks for something to read.
pub(crate) async fn get(router: &Router, path: &str, headers: &[(&str, &str)]) -> Response {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(router, request.body(Body::empty()).unwrap()).await
}

/// Sends any request.
pub(crate) async fn send(router: &Router, request: Request<Body>) -> Response {
    router.clone().oneshot(request).await.unwrap()
}

/// The body as JSON; as text, if it is none.
pub(crate) async fn json_of(response: Response) -> Value {
    let body = axum::body::to_bytes(response.into_body(), 64 << 20).await.unwrap();
    serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned().into())
}
