//! Handing a request on: streamed both ways, with the caller's own credential, and nothing kept.

use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, Request, Response, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use kube_wire::request::RequestInfo;
use tokio::{io::copy_bidirectional, time::timeout};
use tracing::debug;
use tunnel::hop_by_hop::strip;

use crate::{
    hub::Hub,
    run::Lifetimes,
    tasks::Tasks,
    upstream::{Credential, Upstream, UpstreamError},
};

/// The head of an answer took longer than it may.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
struct TooLate(Duration);

/// Sends the request upstream and returns the answer as it comes.
pub(super) async fn forward(
    hub: &Hub,
    credential: &Credential,
    mut request: Request<Body>,
) -> Result<Response<Body>, UpstreamError> {
    let Hub { upstream, tasks, lifetimes: Lifetimes { head, .. }, .. } = hub;
    if is_upgrade(request.headers()) {
        return upgrade(upstream, tasks, credential, request).await;
    }
    strip(request.headers_mut());
    let patient = RequestInfo::parse(request.method(), request.uri()).resource().is_some_and(|path| {
        path.verb_in_path
            || matches!(
                path.subresource.as_deref(),
                Some("proxy" | "log" | "exec" | "attach" | "portforward")
            )
    });
    let sent = upstream.send(credential, request);
    let answer = if patient {
        sent.await?
    } else {
        timeout(*head, sent).await.map_err(|_| UpstreamError::Broken(Box::new(TooLate(*head))))??
    };
    let (mut parts, body) = answer.into_parts();
    strip(&mut parts.headers);
    // The answer goes out over another connection, which may speak another version.
    parts.version = http::Version::HTTP_11;
    Ok(Response::from_parts(parts, Body::new(body)))
}

/// Whether the request asks for another protocol: `exec`, `attach`, `port-forward` (SPDY or WebSocket).
fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE)
}

async fn upgrade(
    upstream: &Upstream,
    tasks: &Tasks,
    credential: &Credential,
    mut request: Request<Body>,
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
        tasks.spawn(join(ours, theirs));
    }
    Ok(response.map(Body::new))
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
