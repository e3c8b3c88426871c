//! Handing a request on: streamed both ways, with the caller's own credential, and nothing kept.

use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use kube_wire::request::RequestInfo;
use tokio::{io::copy_bidirectional, time::timeout};
use tracing::debug;

use crate::{
    tasks::Tasks,
    upstream::{Credential, Upstream, UpstreamError},
};

/// Headers that concern one connection only (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// How long the head of an answer may take: the API server itself gives a request up after a minute. What it passes to others
/// (`proxy`, logs of containers) may take as long as those like.
const HEAD: Duration = Duration::from_secs(75);

/// Sends the request upstream and returns the answer as it comes.
pub(super) async fn forward(
    upstream: &Upstream,
    tasks: &Tasks,
    credential: &Credential,
    mut request: Request<Body>,
) -> Result<Response<Body>, UpstreamError> {
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
        timeout(HEAD, sent).await.map_err(|elapsed| UpstreamError::Broken(Box::new(elapsed)))??
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

fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    headers.remove("keep-alive");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_concerns_one_connection_stays_there() {
        let given = [
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("accept", "application/json"),
            ("authorization", "Bearer x"),
        ];
        let mut headers: HeaderMap =
            given.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        strip(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "authorization"]);
    }
}
