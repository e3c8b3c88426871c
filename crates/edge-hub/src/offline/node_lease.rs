//! The node's own Lease while there is no link: the kubelet's writes are answered, and not kept.
//!
//! Declared policy: a heartbeat that cannot be delivered is worth nothing later, so it is not replayed; and a kubelet that is told of
//! a failure every second only fills its log. The cloud sees the node as not ready, which is true. All other writes fail at once,
//! status included: the kubelet repeats its newest status by itself when the link is back.

use axum::body::Body;
use http::{HeaderValue, Request, Response, header};
use kube_wire::{
    request::{RequestInfo, Verb},
    status::Status,
};

use crate::authenticate::{Authenticator, Caller};

/// How large a Lease may be, in bytes.
const LARGEST: usize = 64 << 10;

/// The name of the Lease, if the request is the node's write of its own.
pub fn of_node<'a>(caller: &Caller, info: &'a RequestInfo, authenticator: &Authenticator) -> Option<&'a str> {
    let path = info.resource()?;
    let name = path.name.as_deref()?;
    let own =
        matches!(caller, Caller::Node) && authenticator.node_user.strip_prefix("system:node:") == Some(name);
    let lease = &*path.resource.group == "coordination.k8s.io"
        && &*path.resource.resource == "leases"
        && path.namespace.as_deref() == Some("kube-node-lease");
    (own && lease && info.verb == Verb::Update).then_some(name)
}

/// Answers the write with what was written.
pub async fn accept(name: &str, request: Request<Body>) -> Result<Response<Body>, Box<Status>> {
    let kind = request.headers().get(header::CONTENT_TYPE).cloned();
    let kind = kind.unwrap_or(HeaderValue::from_static("application/json"));
    let body = axum::body::to_bytes(request.into_body(), LARGEST)
        .await
        .map_err(|error| Box::new(Status::bad_request(format!("edge-hub: Lease {name}: {error}"))))?;
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
