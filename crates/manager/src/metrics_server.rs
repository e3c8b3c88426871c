//! `/metrics` over HTTPS, for those who may read it: a bearer token is reviewed (`TokenReview`), and its user needs the
//! verb `get` on the non-resource URL `/metrics` (`SubjectAccessReview`). Verdicts are remembered for a minute.
//!
//! It serves metrics and nothing else; where it listens and with which certificate is its caller's business.

mod review;
mod verdicts;

use std::{future::Future, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
};
use daemon::metrics::Metrics;
use parking_lot::Mutex;
use tls::digest::Sha256Digest;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};
use tracing::warn;

pub use self::review::KubernetesReviewer;
use self::verdicts::Verdicts;

/// What [`KubernetesReviewer`] asks for: the path and the verb that a scraper needs to be allowed.
const PATH: &str = "/metrics";

/// How many reviews may be under way: strangers with made-up tokens must not flood the API server.
const CONCURRENT_REVIEWS: usize = 8;

/// How long a request waits for its review, its turn included.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// A token longer than this is none.
const MAX_TOKEN: usize = 16 * 1024;

/// What a review found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// May read.
    Allowed,
    /// The token is not one.
    Unauthenticated,
    /// The token is good, and its user may not read.
    Forbidden,
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
#[error("review")]
pub struct ReviewError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// Who decides on tokens.
pub trait Reviewer: Send + Sync + 'static {
    /// Whether whoever holds `token` may read metrics. Must not log it.
    fn review(&self, token: &str) -> impl Future<Output = Result<Verdict, ReviewError>> + Send;
}

struct Gate<R> {
    reviewer: R,
    verdicts: Mutex<Verdicts>,
    slots: Semaphore,
}

/// `/metrics`, behind `reviewer`.
pub fn router(metrics: Arc<Metrics>, reviewer: impl Reviewer) -> Router {
    let gate = Gate {
        reviewer,
        verdicts: Mutex::new(Verdicts::default()),
        slots: Semaphore::new(CONCURRENT_REVIEWS),
    };
    daemon::metrics::router(metrics).route_layer(from_fn_with_state(Arc::new(gate), authorize))
}

async fn authorize<R: Reviewer>(State(gate): State<Arc<Gate<R>>>, request: Request, next: Next) -> Response {
    let Some(token) = bearer(request.headers()) else {
        return unauthenticated();
    };
    match gate.verdict(token).await {
        Ok(Verdict::Allowed) => next.run(request).await,
        Ok(Verdict::Unauthenticated) => unauthenticated(),
        Ok(Verdict::Forbidden) => StatusCode::FORBIDDEN.into_response(),
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            warn!(error, "cannot review who reads metrics");
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    }
}

impl<R: Reviewer> Gate<R> {
    async fn verdict(&self, token: &str) -> Result<Verdict, ReviewError> {
        let digest = Sha256Digest::of(token.as_bytes());
        if let Some(verdict) = self.verdicts.lock().get(&digest, Instant::now()) {
            return Ok(verdict);
        }
        let review = async {
            let _slot = self.slots.acquire().await.map_err(|error| ReviewError(Box::new(error)))?;
            self.reviewer.review(token).await
        };
        let verdict =
            timeout(REVIEW_TIMEOUT, review).await.map_err(|error| ReviewError(Box::new(error)))??;
        self.verdicts.lock().insert(digest, verdict, Instant::now());
        Ok(verdict)
    }
}

/// The token of `Authorization: Bearer …` (RFC 6750, 2.1; the scheme in any case, RFC 9110, 11.1).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    let good = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= MAX_TOKEN;
    good.then_some(token)
}

fn unauthenticated() -> Response {
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")]).into_response()
}

#[cfg(test)]
mod tests;
