//! The admission webhook: what every replica answers to the API server.
//!
//! `AdmissionReview` in, `AdmissionReview` out. Decisions are made in pure files (`pod/plan.rs`, `node_pool/plan.rs`); here
//! is what surrounds them: reading the request, looking up what the decision needs, metrics and the log. It must not
//! write anything. What cannot be decided, because the API server cannot be asked, is answered with an HTTP error, so
//! that the `failurePolicy` of the webhook applies.

mod metrics;
pub mod node_pool;
pub mod nodes;
pub mod pod;
mod review;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{self, DefaultBodyLimit};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use thiserror::Error;
use tokio::time::Instant;

use crate::pools::{FindError, Pools};
pub use metrics::Metrics;
use metrics::{Outcome, Webhook};
use nodes::{Nodes, NodesError};
use review::{Answer, Request, ReviewError};

/// Where pods are asked about at their creation; the name is `OpenYurt`'s.
pub const PODS_PATH: &str = "/mutate-core-openyurt-io-v1-pod";

/// Where `NodePool`s are asked about at their deletion.
pub const NODE_POOLS_PATH: &str = "/validate-apps-openyurt-io-nodepool";

/// Two objects of the 3 MiB that the API server takes at most, and 1 MiB for what is around them.
const BODY_LIMIT: usize = 7 * 1024 * 1024;

/// What the handlers work with.
#[derive(Clone)]
pub struct State {
    /// The pools that pods may want.
    pub pools: Pools,
    /// Who knows the nodes of a pool.
    pub nodes: Arc<dyn Nodes>,
    /// What is counted.
    pub metrics: Metrics,
}

/// The webhook's paths.
pub fn router(state: State) -> Router {
    Router::new()
        .route(PODS_PATH, post(pods))
        .route(NODE_POOLS_PATH, post(node_pools))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(state)
}

type Body = Result<Bytes, BytesRejection>;

async fn pods(state: extract::State<State>, headers: HeaderMap, body: Body) -> Response {
    let begun = Instant::now();
    let answer = async {
        let request = read(&headers, body)?;
        let answer = pod::answer(&request, &state.pools, state.nodes.as_ref()).await?;
        Ok((request, answer))
    };
    respond(Webhook::Pod, &state.metrics, begun, answer.await)
}

async fn node_pools(state: extract::State<State>, headers: HeaderMap, body: Body) -> Response {
    let begun = Instant::now();
    let answer = async {
        let request = read(&headers, body)?;
        let answer = node_pool::answer(&request, state.nodes.as_ref()).await?;
        Ok((request, answer))
    };
    respond(Webhook::NodePool, &state.metrics, begun, answer.await)
}

/// Why a request has no answer.
#[derive(Debug, Error)]
enum Unanswered {
    #[error("the content type must be application/json, not {0:?}")]
    ContentType(String),
    #[error("the body could not be read: {0}")]
    Body(#[from] BytesRejection),
    #[error(transparent)]
    Review(#[from] ReviewError),
    #[error(transparent)]
    Pool(#[from] FindError),
    #[error("node pool \"{pool}\" cannot be read, so it is not known what its pods need: {error}")]
    UnreadablePool { pool: String, error: Arc<str> },
    #[error("the nodes of node pool \"{pool}\" could not be listed: {source}")]
    Nodes { pool: String, source: NodesError },
    #[error("node \"{node}\" of spec.nodeName could not be looked up: {source}")]
    Node { node: String, source: NodesError },
}

impl Unanswered {
    fn code(&self) -> StatusCode {
        match self {
            Self::ContentType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Body(rejection) => rejection.status(),
            Self::Review(_) => StatusCode::BAD_REQUEST,
            Self::Pool(_) | Self::UnreadablePool { .. } | Self::Nodes { .. } | Self::Node { .. } => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }
}

fn read(headers: &HeaderMap, body: Body) -> Result<Request, Unanswered> {
    let content_type = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if !media_type.eq_ignore_ascii_case(b"application/json") {
        return Err(Unanswered::ContentType(String::from_utf8_lossy(content_type).into_owned()));
    }
    Ok(Request::from_json(&body?)?)
}

fn respond(
    webhook: Webhook,
    metrics: &Metrics,
    begun: Instant,
    answer: Result<(Request, Answer), Unanswered>,
) -> Response {
    let (outcome, response) = match answer {
        Ok((request, answer)) => {
            let outcome = Outcome::of(&answer);
            if let Answer::Refuse { message } = &answer {
                tracing::info!(
                    webhook = webhook.name(),
                    namespace = request.namespace,
                    name = request.name(),
                    user = request.user_info.username,
                    dry_run = request.dry_run,
                    why = message,
                    "refused"
                );
            }
            (outcome, review::response(&request.uid, answer))
        }
        Err(error) => {
            let code = error.code();
            let outcome = if code.is_client_error() { Outcome::Invalid } else { Outcome::Error };
            tracing::warn!(webhook = webhook.name(), code = code.as_u16(), %error, "unanswered");
            (outcome, (code, review::status(code.as_u16(), &error.to_string())).into_response())
        }
    };
    metrics.observe(webhook, outcome, begun.elapsed());
    response
}

#[cfg(test)]
mod tests;
