//! Bounds: bodies, requests at a time, rights; and that credentials go no further than they must.

use std::sync::Arc;

use aggregated_api::authenticate::AuthenticationError;
use aggregated_api::{Authenticator, Intercept, Limits, Peer, User};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use futures::future::{BoxFuture, FutureExt, ready};
use kube_wire::request::ResourcePath;
use serde_json::{Value, json};

use crate::api::{GADGETS, api, ask, gadget, get, json_of, send};

#[tokio::test]
async fn bodies_are_bounded() {
    let router = api().limits(Limits { body: 200, ..Limits::default() }).router();
    let (status, body) =
        ask(&router, "POST", GADGETS, &gadget("a", &json!({ "color": "x".repeat(300) }))).await;
    assert_eq!((status, &body["message"]), (413, &json!("Request entity too large: limit is 200")));
}

#[tokio::test]
async fn too_many_requests_are_told_to_come_again() {
    let limits = Limits { reading: 0, writing: 0, ..Limits::default() };
    let router = api().limits(limits).router();
    let response = get(&router, GADGETS, &[]).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (429, &"1".parse().unwrap())
    );
    assert_eq!(ask(&router, "DELETE", &format!("{GADGETS}/a"), &Value::Null).await.0, 429);
    let watch = get(&router, &format!("{GADGETS}?watch=1&timeoutSeconds=0"), &[]).await;
    assert_eq!(watch.status(), 200, "a watch takes no room");
    for path in ["/readyz", "/apis", "/apis/test.isthmus.dev/v1", "/openapi/v2", "/openapi/v3", "/version"] {
        assert_eq!(get(&router, path, &[]).await.status(), 200, "nor does {path}");
    }
}

/// Everybody is whoever they say.
pub(crate) struct Believe;

impl Authenticator for Believe {
    fn authenticate<'a>(
        &'a self,
        _: &'a Peer,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<Option<User>, AuthenticationError>> {
        let name = headers.get("x-remote-user").and_then(|name| name.to_str().ok()).map(str::to_owned);
        ready(Ok(name.map(|name| User { name, ..User::default() }))).boxed()
    }
}

/// Says what it was handed.
struct Tell;

impl Intercept for Tell {
    fn intercept(
        &self,
        path: ResourcePath,
        user: User,
        request: Request,
    ) -> BoxFuture<'_, Result<Response, Request>> {
        let names: Vec<_> = request.headers().keys().map(ToString::to_string).collect();
        let told = json!({ "user": user.name, "groups": user.groups, "name": path.name, "headers": names });
        ready(Ok(told.to_string().into_response())).boxed()
    }
}

#[tokio::test]
async fn who_may_not_is_told_so_and_claims_go_no_further() {
    let router = api().authenticator(Arc::new(Believe)).intercept(Arc::new(Tell)).router();
    let path = format!("{GADGETS}/a");
    let refused = json_of(get(&router, &path, &[("x-remote-user", "nobody")]).await).await;
    let words = "gadgets.test.isthmus.dev \"a\" is forbidden: User \"nobody\" cannot get resource \"gadgets\" in API group \
                 \"test.isthmus.dev\" in the namespace \"n\": no rule";
    assert_eq!((&refused["code"], &refused["message"]), (&json!(403), &json!(words)));
    let refused = json_of(get(&router, "/apis", &[("x-remote-user", "nobody")]).await).await;
    assert_eq!(refused["message"], "forbidden: User \"nobody\" cannot get path \"/apis\": no rule");

    let claims =
        [("x-remote-user", "eve"), ("x-remote-group", "system:masters"), ("authorization", "Bearer x")];
    let told = json_of(get(&router, &path, &claims).await).await;
    let expected = json!({ "user": "eve", "groups": ["system:authenticated"], "name": "a", "headers": [] });
    assert_eq!(told, expected);
    let told = json_of(get(&router, &path, &[]).await).await;
    assert_eq!(told["user"], "system:anonymous");
}

#[tokio::test]
async fn bodies_of_unknown_types_are_refused() {
    let router = api().router();
    for (method, content_type) in
        [("POST", "text/plain"), ("PATCH", "application/strategic-merge-patch+json")]
    {
        let path = if method == "POST" { GADGETS.to_owned() } else { format!("{GADGETS}/a") };
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        assert_eq!(send(&router, request.body("{}".into()).unwrap()).await.status(), 415, "{content_type}");
    }
}
