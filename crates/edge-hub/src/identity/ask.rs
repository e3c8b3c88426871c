//! Asks for a certificate and waits for it. What is under way survives a restart: the key is in its file, and the request's name
//! follows from it.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{
    BootstrapToken, IdentityConfig,
    files::{Files, Own},
    meters::Failure,
    signing_request::{Answer, PATH, SigningRequest},
};
use crate::upstream::{
    Connector, Credential, Endpoint, Link, Upstream,
    json::{self, JsonError},
};

/// How often it is looked whether a request was answered: at first, and at most.
const LOOK: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// How long one attempt waits for an answer. The request stays; the next attempt goes on with it.
const PATIENCE: Duration = Duration::from_mins(15);

/// How long an API server may take to be connected, for who has only a token.
const CONNECT: Duration = Duration::from_secs(15);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(super) struct AskError {
    /// For the counter.
    pub(super) failure: Failure,
    /// For people.
    pub(super) reason: String,
}

impl AskError {
    pub(super) fn new(failure: Failure, reason: impl Into<String>) -> Self {
        Self { failure, reason: reason.into() }
    }

    fn of(error: &JsonError) -> Self {
        match error {
            JsonError::Status(StatusCode::UNAUTHORIZED) => Self::new(
                Failure::Refused,
                "the API server does not know the credential (401): a bootstrap token may have expired",
            ),
            JsonError::Status(status) => Self::new(
                Failure::Refused,
                format!("the API server answered {status} to the request for a certificate"),
            ),
            other => Self::new(Failure::Unreachable, other.to_string()),
        }
    }
}

/// Asks over the hub's own link, with the certificate that it shows.
pub(super) async fn with_certificate(
    config: &IdentityConfig,
    files: &Files,
    upstream: &Upstream,
) -> Result<Own, AskError> {
    ask(config, files, upstream, &Credential::Node).await
}

/// Asks with a token, over a link of its own that shows no certificate.
pub(super) async fn with_token(
    config: &IdentityConfig,
    files: &Files,
    token: &BootstrapToken,
    endpoints: &[Endpoint],
    connector: Arc<Connector>,
) -> Result<Own, AskError> {
    let (link, upstream) = Link::without_certificate(endpoints.to_vec(), connector);
    let asked = async {
        let unreachable = |reason: String| AskError::new(Failure::Unreachable, reason);
        upstream.connected(CONNECT).await.map_err(unreachable)?;
        ask(config, files, &upstream, &Credential::Bearer(token.header())).await
    };
    tokio::select! {
        () = link.run(CancellationToken::new()) => Err(AskError::new(Failure::Unreachable, "the link ended")),
        asked = asked => asked,
    }
}

async fn ask(
    config: &IdentityConfig,
    files: &Files,
    upstream: &Upstream,
    credential: &Credential,
) -> Result<Own, AskError> {
    let stored = |reason: String| AskError::new(Failure::Store, reason);
    let key = files.next_key().map_err(stored)?;
    let request = SigningRequest::new(files.purpose(), &config.node, &key, config.validity)
        .map_err(|error| AskError::new(Failure::Unusable, error.to_string()))?;
    match json::post(upstream, credential, PATH, &request.object).await {
        Ok(_) => info!(request = request.name, "asked for a certificate"),
        Err(JsonError::Status(StatusCode::CONFLICT)) => {
            info!(request = request.name, "asked for a certificate before");
        }
        Err(error) => return Err(AskError::of(&error)),
    }
    let deadline = Instant::now() + PATIENCE;
    let mut pause = LOOK.0;
    let chain = loop {
        sleep(pause).await;
        pause = (pause * 3 / 2).min(LOOK.1);
        let found = match json::get(upstream, credential, &request.path()).await {
            Ok(found) => found,
            Err(JsonError::Status(StatusCode::NOT_FOUND)) => {
                return Err(AskError::new(Failure::Denied, format!("request {} was removed", request.name)));
            }
            Err(error) => return Err(AskError::of(&error)),
        };
        let again = |failure, reason: String| {
            files.drop_next_key().map_err(stored)?;
            Err(AskError::new(failure, reason))
        };
        match request.answer(&found) {
            Answer::Issued(chain) => break chain,
            Answer::Pending if Instant::now() < deadline => {}
            Answer::Pending => {
                let reason =
                    format!("request {} is not answered: is the Isthmus manager running?", request.name);
                return Err(AskError::new(Failure::Unanswered, reason));
            }
            Answer::Denied(reason) => return again(Failure::Denied, format!("denied, {reason}")),
            Answer::Failed(reason) => {
                return again(Failure::Denied, format!("approved and not signed, {reason}"));
            }
            Answer::NotOurs => {
                return again(Failure::Denied, format!("request {} is of somebody else", request.name));
            }
        }
    };
    // A certificate that is not ours will not become so: another request is made next time.
    files.keep(&config.node, &chain, &key).map_err(|reason| {
        let _ = files.drop_next_key();
        AskError::new(Failure::Unusable, reason)
    })
}
