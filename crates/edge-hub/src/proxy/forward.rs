//! Handing a request on: streamed both ways, with the caller's own credential, and nothing kept.

use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, Request, Response, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use kube_wire::request::{RequestInfo, ResourcePath, Verb};
use tokio::{io::copy_bidirectional, time::timeout};
use tracing::debug;
use tunnel::hop_by_hop::strip;

use super::places::{Place, UPGRADES};
use crate::{
    authenticate::Caller,
    hub::Hub,
    run::Lifetimes,
    subscriptions::Owner,
    tasks::Tasks,
    upstream::{Credential, Upstream, UpstreamError},
};

/// There are as many as may be.
#[derive(Debug, thiserror::Error)]
#[error("too many connections of exec, attach, port-forward and the like are open already")]
struct TooMany;

/// The head of an answer took longer than it may.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
struct TooLate(Duration);

/// Sends the request of a caller upstream, with its credential, and returns the answer as it comes.
pub(super) async fn forward(
    hub: &Hub,
    caller: &Caller,
    credential: &Credential,
    mut request: Request<Body>,
) -> Result<Response<Body>, UpstreamError> {
    let Hub { upstream, tasks, lifetimes: Lifetimes { head, .. }, .. } = hub;
    let info = RequestInfo::parse(request.method(), request.uri());
    if is_upgrade(request.headers(), &info) {
        // Whoever it is has the head's time for all of it.
        let upgraded = async {
            // It holds nothing up: whom the hub does not know the API server asks.
            let named = hub.name(caller).await.ok();
            let place = UPGRADES.take(named.map(|named| named.owner));
            let place = place.ok_or_else(|| UpstreamError::Broken(Box::new(TooMany)))?;
            upgrade(upstream, tasks, credential, request, place).await
        };
        return timeout(*head, upgraded).await.map_err(|_| too_late(*head))?;
    }
    strip(request.headers_mut());
    let patient = info.resource().is_some_and(|path| {
        path.verb_in_path
            || matches!(
                path.subresource.as_deref(),
                Some("proxy" | "log" | "exec" | "attach" | "portforward")
            )
    });
    let sent = upstream.hand_on(credential, request);
    let answer =
        if patient { sent.await? } else { timeout(*head, sent).await.map_err(|_| too_late(*head))?? };
    let (parts, body) = answer.into_parts();
    Ok(answered(Response::from_parts(parts, Body::new(body))))
}

/// It may have been sent: how far it came is not looked into.
fn too_late(head: Duration) -> UpstreamError {
    UpstreamError::Unanswered(Box::new(TooLate(head)))
}

/// An answer as it goes out over another connection, which may speak another version.
fn answered(mut answer: Response<Body>) -> Response<Body> {
    strip(answer.headers_mut());
    *answer.version_mut() = http::Version::HTTP_11;
    answer
}

/// Whether the request asks for another protocol (SPDY or WebSocket) where there may be one: `exec`, `attach`, `portforward`, `proxy`, `log`
/// and what other API servers have of that kind are all parts of an object. Elsewhere who asks is answered in HTTP.
fn is_upgrade(headers: &HeaderMap, info: &RequestInfo) -> bool {
    let is_part = |path: &ResourcePath| path.subresource.is_some() || path.verb_in_path;
    headers.contains_key(header::UPGRADE) && info.verb != Verb::Watch && info.resource().is_some_and(is_part)
}

async fn upgrade(
    upstream: &Upstream,
    tasks: &Tasks,
    credential: &Credential,
    mut request: Request<Body>,
    place: Place<Option<Owner>>,
) -> Result<Response<Body>, UpstreamError> {
    let theirs = hyper::upgrade::on(&mut request);
    let protocol = request.headers().get(header::UPGRADE).cloned();
    strip(request.headers_mut());
    if let Some(protocol) = protocol {
        request.headers_mut().insert(header::CONNECTION, http::HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert(header::UPGRADE, protocol);
    }
    let mut response = upstream.send_upgrade(credential, request).await?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let ours = hyper::upgrade::on(&mut response);
        tasks.spawn(async move {
            join(ours, theirs).await;
            drop(place);
        });
        return Ok(response.map(Body::new));
    }
    Ok(answered(response.map(Body::new)))
}

/// Copies both ways until both ends are done.
async fn join(ours: OnUpgrade, theirs: OnUpgrade) {
    let joined = async {
        let (ours, theirs) = tokio::try_join!(ours, theirs)?;
        copy_bidirectional(&mut TokioIo::new(ours), &mut TokioIo::new(theirs))
            .await
            .map_err(std::io::Error::other)?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };
    if let Err(error) = joined.await {
        debug!(%error, "upgraded connection");
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn another_protocol_is_asked_for_only_where_there_may_be_one() {
        let mut headers = HeaderMap::new();
        let asks = |headers: &HeaderMap, path: &str| {
            is_upgrade(headers, &RequestInfo::parse(&Method::GET, &path.parse().unwrap()))
        };
        assert!(!asks(&headers, "/api/v1/namespaces/a/pods/p/exec"));
        headers.insert(header::UPGRADE, http::HeaderValue::from_static("websocket"));
        for path in [
            "/api/v1/namespaces/a/pods/p/exec",
            "/api/v1/namespaces/a/pods/p/attach?stdin=1",
            "/api/v1/namespaces/a/pods/p/portforward",
            "/api/v1/namespaces/a/pods/p/log",
            "/api/v1/namespaces/a/services/s:80/proxy/x",
            "/api/v1/nodes/n/proxy/x",
            "/api/v1/proxy/nodes/n/x",
            "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/v/vnc",
        ] {
            assert!(asks(&headers, path), "{path}");
        }
        for path in [
            "/",
            "/healthz",
            "/openapi/v3",
            "/api/v1/pods",
            "/api/v1/pods?watch=1",
            "/api/v1/watch/pods",
            "/api/v1/namespaces/a/pods/p",
            "/apis/exec",
        ] {
            assert!(!asks(&headers, path), "{path}");
        }
    }

    #[test]
    fn what_concerns_the_connection_upstream_stays_there() {
        let answer = Response::builder().version(http::Version::HTTP_2);
        let answer =
            answer.header("connection", "close, x-mine").header("x-mine", "1").header("upgrade", "h2c");
        let answer = answered(answer.header("content-type", "text/plain").body(Body::empty()).unwrap());
        assert_eq!(answer.version(), http::Version::HTTP_11);
        let left: Vec<_> = answer.headers().keys().map(http::HeaderName::as_str).collect();
        assert_eq!(left, ["content-type"]);
    }
}
