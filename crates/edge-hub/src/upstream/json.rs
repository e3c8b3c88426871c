//! Small JSON requests of the hub's own: reviews, discovery documents.

use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use tokio::time::timeout;

use super::{Credential, Upstream, UpstreamError};

/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// How large an answer may be, in bytes.
const LIMIT: usize = 4 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// No link, or it broke.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// Took too long.
    #[error("no answer within {DEADLINE:?}")]
    Deadline,
    /// The server said no.
    #[error("the API server answered {0}")]
    Status(StatusCode),
    /// The answer is too large, broke off, or is no JSON.
    #[error("unreadable answer: {0}")]
    Unreadable(Box<dyn std::error::Error + Send + Sync>),
}

impl JsonError {
    /// Whether the API server says that it cannot answer just now: it has too much to do, or is ill. A slow line is none of that.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Status(status) if status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS)
    }
}

/// POSTs `body` and reads the answer.
pub async fn post(
    upstream: &Upstream,
    credential: &Credential,
    path: &str,
    body: &Value,
) -> Result<Value, JsonError> {
    request(upstream, credential, Method::POST, path, Body::from(body.to_string())).await
}

/// PUTs `body` and reads the answer.
pub async fn put(
    upstream: &Upstream,
    credential: &Credential,
    path: &str,
    body: &Value,
) -> Result<Value, JsonError> {
    request(upstream, credential, Method::PUT, path, Body::from(body.to_string())).await
}

/// GETs a document.
pub async fn get(upstream: &Upstream, credential: &Credential, path: &str) -> Result<Value, JsonError> {
    request(upstream, credential, Method::GET, path, Body::empty()).await
}

async fn request(
    upstream: &Upstream,
    credential: &Credential,
    method: Method,
    path: &str,
    body: Body,
) -> Result<Value, JsonError> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, "application/json")
        // The cluster's keys are served as application/jwk-set+json only, and refused (406) to whoever takes nothing else.
        .header(header::ACCEPT, "application/json, */*")
        .header(header::USER_AGENT, super::USER_AGENT)
        .body(body)
        .map_err(|error| JsonError::Unreadable(Box::new(error)))?;
    let exchange = async {
        let response = upstream.send(credential, request).await?;
        if !response.status().is_success() {
            return Err(JsonError::Status(response.status()));
        }
        let body =
            Limited::new(response.into_body(), LIMIT).collect().await.map_err(JsonError::Unreadable)?;
        serde_json::from_slice(&body.to_bytes()).map_err(|error| JsonError::Unreadable(Box::new(error)))
    };
    timeout(DEADLINE, exchange).await.unwrap_or(Err(JsonError::Deadline))
}
