//! Asks the API server by `SubjectAccessReview`, and remembers both verdicts for a while.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use kube_wire::request::{ApiPath, Verb};
use tls::digest::Sha256Digest;

use super::{Attributes, AuthorizationError, Authorizer, Decision};
use crate::delegated::Delegated;

/// Who may do anything.
const MASTERS: &str = "system:masters";

/// Reviews what somebody may do.
pub trait AccessReviewer: Send + Sync + 'static {
    /// Whether this is allowed.
    fn review<'a>(
        &'a self,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, Box<dyn std::error::Error + Send + Sync>>>;
}

/// Decides as the API server does, by asking it.
pub struct DelegatingAuthorizer {
    reviewer: Arc<dyn AccessReviewer>,
    verdicts: Delegated<Decision>,
}

impl DelegatingAuthorizer {
    /// One that asks `reviewer`.
    pub fn new(reviewer: Arc<dyn AccessReviewer>) -> Self {
        Self { reviewer, verdicts: Delegated::new() }
    }
}

/// Everything that a verdict depends on.
fn digest(attributes: &Attributes) -> Sha256Digest {
    // The debug form names and quotes every part, so no two attributes share one.
    Sha256Digest::of(format!("{attributes:?}").as_bytes())
}

impl Authorizer for DelegatingAuthorizer {
    fn authorize<'a>(
        &'a self,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, AuthorizationError>> {
        async move {
            if attributes.user.groups.iter().any(|group| group == MASTERS) {
                return Ok(Decision::Allowed);
            }
            let review = || self.reviewer.review(attributes);
            let is_refusal = |verdict: &Decision| *verdict != Decision::Allowed;
            self.verdicts.answer(digest(attributes), review, is_refusal).await.map_err(AuthorizationError)
        }
        .boxed()
    }
}

/// The verb as reviews of paths have it.
pub(crate) fn path_verb(attributes: &Attributes) -> &'static str {
    match (&attributes.request.path, attributes.request.verb) {
        (ApiPath::NonResource(_), Verb::Get) => "get",
        (ApiPath::NonResource(_), _) => "post",
        (ApiPath::Resource(_), verb) => crate::verbs::verb_name(verb),
    }
}
