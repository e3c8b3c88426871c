//! The user behind a token: asked of the API server while there is a link, checked against the cluster's keys while there is none.

use std::{collections::HashMap, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tls::digest::Sha256Digest;
use tokio::time::Instant;
use tracing::debug;

use super::{
    Token, User,
    jwt::{Expected, KeySet, claimed_expiry},
};
use crate::{
    offline::documents::unix_seconds,
    upstream::{Credential, Upstream, json},
};

/// How long an answer of the API server is believed without asking again.
const BELIEVED: Duration = Duration::from_mins(2);

/// How many answers are remembered.
const REMEMBERED: usize = 1024;

/// What is needed to check tokens without a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offline {
    /// The cluster's keys.
    pub keys: KeySet,
    /// Issuer and audiences.
    pub expected: Expected,
}

/// Asking for the means of checking tokens without a link.
pub mod offline {
    use super::{Credential, Expected, KeySet, Offline, Upstream};
    use crate::upstream::json::{JsonError, get};

    /// Asks the cluster for its issuer and keys (KEP-1393). Its audience is its issuer, unless it was told another.
    pub async fn ask(upstream: &Upstream) -> Result<Offline, JsonError> {
        let discovery = get(upstream, &Credential::Node, "/.well-known/openid-configuration").await?;
        let keys = get(upstream, &Credential::Node, "/openid/v1/jwks").await?;
        let issuer = discovery["issuer"].as_str().unwrap_or_default().to_owned();
        let keys: KeySet =
            serde_json::from_value(keys).map_err(|error| JsonError::Unreadable(Box::new(error)))?;
        Ok(Offline { keys, expected: Expected { audiences: vec![issuer.clone()], issuer } })
    }
}

/// Why nobody can be named.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token is not good (401).
    #[error("the token is not valid: {0}")]
    Refused(String),
    /// It could not be checked: no link, and no keys from an earlier one (503).
    #[error("the token cannot be checked: {0}")]
    Unavailable(String),
    /// The API server could not check it just now (429).
    #[error("the token cannot be checked now: {0}")]
    Passing(String),
}

struct Answer {
    result: Result<Arc<User>, TokenError>,
    until: Instant,
}

/// Names the users behind tokens.
pub struct Tokens {
    upstream: Upstream,
    offline: ArcSwapOption<Offline>,
    answers: Mutex<HashMap<Sha256Digest, Answer>>,
    /// Tokens that the API server refused last, until they expire: a signature says nothing against that.
    refused: Mutex<HashMap<Sha256Digest, i64>>,
}

#[derive(Serialize, Deserialize)]
struct ReviewedUser {
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Vec<Box<str>>,
}

impl Token {
    /// Whether a token that was good has expired since; one that does not say when has not.
    pub fn has_expired(&self) -> bool {
        claimed_expiry(self.expose()).is_some_and(|expiry| expiry <= unix_now())
    }
}

impl Tokens {
    /// Asks over `upstream`.
    pub fn new(upstream: Upstream) -> Self {
        Self {
            upstream,
            offline: ArcSwapOption::empty(),
            answers: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// Takes the means of checking tokens without a link.
    pub fn set_offline(&self, offline: Offline) {
        self.offline.store(Some(Arc::new(offline)));
    }

    /// The user behind `token`.
    pub async fn user(&self, token: &Token) -> Result<Arc<User>, TokenError> {
        let digest = token.digest();
        let now = Instant::now();
        if let Some(answer) = self.answers.lock().get(&digest).filter(|answer| answer.until > now) {
            return answer.result.clone();
        }
        let result = match self.review(token).await {
            // Nothing of this is kept: it costs little, and once there is a link the API server is to say.
            Err(unchecked @ (TokenError::Unavailable(_) | TokenError::Passing(_))) => {
                return self.check_offline(token, unchecked);
            }
            result => result,
        };
        let expiry = claimed_expiry(token.expose());
        self.note_refusal(digest, result.is_err(), expiry.unwrap_or(i64::MAX));
        let until = expiry.map(|expiry| expiry.saturating_sub(unix_now()));
        let until = until
            .map_or(BELIEVED, |left| Duration::from_secs(u64::try_from(left).unwrap_or(0)).min(BELIEVED));
        {
            let mut answers = self.answers.lock();
            if answers.len() >= REMEMBERED {
                answers.retain(|_, answer| answer.until > now);
            }
            if answers.len() < REMEMBERED {
                answers.insert(digest, Answer { result: result.clone(), until: now + until });
            }
        }
        result
    }

    async fn review(&self, token: &Token) -> Result<Arc<User>, TokenError> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": token.expose() },
        });
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let answer = json::post(&self.upstream, &Credential::Node, path, &review).await.map_err(|error| {
            let reason = error.to_string();
            if error.is_passing() { TokenError::Passing(reason) } else { TokenError::Unavailable(reason) }
        })?;
        let status = &answer["status"];
        if status["authenticated"].as_bool() != Some(true) {
            let why = status["error"].as_str().unwrap_or("the API server does not know it");
            return Err(TokenError::Refused(why.to_owned()));
        }
        let user: ReviewedUser = serde_json::from_value(status["user"].clone())
            .map_err(|error| TokenError::Unavailable(format!("unexpected TokenReview: {error}")))?;
        Ok(Arc::new(User { name: user.username.into(), groups: user.groups }))
    }

    /// The API server has refused the token otherwise than in a review of it.
    pub fn refuse(&self, token: &Token) {
        let digest = token.digest();
        self.answers.lock().remove(&digest);
        self.note_refusal(digest, true, claimed_expiry(token.expose()).unwrap_or(i64::MAX));
    }

    fn note_refusal(&self, digest: Sha256Digest, is_refused: bool, expiry: i64) {
        let mut refused = self.refused.lock();
        if !is_refused {
            refused.remove(&digest);
            return;
        }
        if refused.len() >= REMEMBERED {
            let now = unix_now();
            refused.retain(|_, expiry| *expiry > now);
        }
        if refused.len() < REMEMBERED {
            refused.insert(digest, expiry);
        }
    }

    fn check_offline(&self, token: &Token, unchecked: TokenError) -> Result<Arc<User>, TokenError> {
        let offline = self.offline.load();
        let Some(offline) = offline.as_ref() else { return Err(unchecked) };
        debug!(reason = %unchecked, "checking a token without the API server");
        if self.refused.lock().contains_key(&token.digest()) {
            return Err(TokenError::Refused("the API server refused it while it could be asked".to_owned()));
        }
        match offline.keys.verify(token.expose(), &offline.expected, unix_now()) {
            Ok((user, _)) => Ok(Arc::new(user)),
            Err(refused) => Err(TokenError::Refused(refused.to_string())),
        }
    }
}

fn unix_now() -> i64 {
    i64::try_from(unix_seconds()).unwrap_or(i64::MAX)
}
