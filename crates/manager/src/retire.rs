//! Connections that a server is about to close: whoever keeps one of HTTP/1.1 for its next request, as kube-apiserver does with a webhook's, would send
//! that request just as it is closed, and get no answer. So while the server serves on before its end each answer says that it is the last of its
//! connection (RFC 9112, 9.6). HTTP/2 says so by itself (GOAWAY).

use axum::Router;
use axum::extract::Request;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Version};
use axum::middleware::{Next, from_fn};
use tokio_util::sync::CancellationToken;

/// The same, but that its answers end their connections from `ending` on.
pub(crate) fn retiring(router: Router, ending: CancellationToken) -> Router {
    router.layer(from_fn(move |request: Request, next: Next| {
        let ending = ending.clone();
        async move {
            let is_kept = request.version() < Version::HTTP_2;
            let mut response = next.run(request).await;
            if is_kept && ending.is_cancelled() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
    }))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn answers_end_their_connections_once_the_server_is_to_end() {
        let ending = CancellationToken::new();
        let router = retiring(Router::new().route("/", get(|| async { "x" })), ending.clone());
        let says_close = async |version: Version| {
            let request = Request::get("/").version(version).body(Body::empty()).unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            answer.headers().get(CONNECTION).is_some_and(|value| value == "close")
        };
        assert!(!says_close(Version::HTTP_11).await);
        ending.cancel();
        assert!(says_close(Version::HTTP_11).await);
        assert!(!says_close(Version::HTTP_2).await, "HTTP/2 forbids it");
    }
}
