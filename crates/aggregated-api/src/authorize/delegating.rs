//! Asks the API server by `SubjectAccessReview`, and remembers both verdicts for a while.

use std::{sync::Arc, time::Duration};

use futures::future::{BoxFuture, FutureExt};
use kube_wire::request::{ApiPath, Verb};
use parking_lot::Mutex;
use tls::digest::Sha256Digest;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use super::{Attributes, AuthorizationError, Authorizer, Decision};
use crate::remembered::Remembered;

/// How long a verdict is remembered, either way.
const LIFE: Duration = Duration::from_secs(10);
/// How many are remembered.
const CAPACITY: usize = 4096;
/// How many reviews may be under way, and for how long.
const CONCURRENT: usize = 32;
const PATIENCE: Duration = Duration::from_secs(10);

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
    verdicts: Mutex<Remembered<Sha256Digest, Decision>>,
    slots: Semaphore,
}

impl DelegatingAuthorizer {
    /// One that asks `reviewer`.
    pub fn new(reviewer: Arc<dyn AccessReviewer>) -> Self {
        let verdicts = Mutex::new(Remembered::new(CAPACITY, LIFE));
        Self { reviewer, verdicts, slots: Semaphore::new(CONCURRENT) }
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
            let digest = digest(attributes);
            if let Some(known) = self.verdicts.lock().get(&digest, Instant::now()) {
                return Ok(known);
            }
            let review = async {
                let _slot = self.slots.acquire().await.map_err(|error| AuthorizationError(error.into()))?;
                self.reviewer.review(attributes).await.map_err(AuthorizationError)
            };
            let verdict =
                timeout(PATIENCE, review).await.map_err(|error| AuthorizationError(error.into()))??;
            let spare = verdict != Decision::Allowed;
            self.verdicts.lock().insert(digest, verdict.clone(), spare, Instant::now());
            Ok(verdict)
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
