//! The user behind a token: asked of the API server while there is a link, checked against the cluster's keys while there is none.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tls::digest::Sha256Digest;
use tokio::{sync::Notify, time::Instant};
use tracing::debug;

use super::{
    Token, User,
    jwt::{Expected, KeySet, Refused, claimed_begin, claimed_expiry},
    known_time::{KnownTime, clock},
    refusals::Refusals,
};
use crate::{
    make_room::make_room,
    queue::Queue,
    upstream::{Credential, Upstream, json},
};

/// How long an answer of the API server is believed without asking again.
const BELIEVED: Duration = Duration::from_mins(2);

/// How many answers are remembered. When there are more, the oldest of whoever has most goes.
const REMEMBERED: usize = 1024;

/// How many tokens are asked about at a time: whoever shows ever new ones has no more of the link than that. So many of those that a key of the
/// cluster signed, and so many others.
const REVIEWS: usize = 16;

/// How many more of each may wait for that.
const WAITING: usize = 256;

/// After so many more tokens those are forgotten that nobody waits for any more.
const FORGET_AFTER: usize = 64;

/// How many audiences of the API server are remembered; it has one or two.
const AUDIENCES: usize = 16;

/// What is needed to check tokens without a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offline {
    /// The cluster's keys.
    pub keys: KeySet,
    /// Issuer and audiences.
    pub expected: Expected,
    /// The API server's own audiences, as far as its reviews of good tokens named them; they are more than a guess.
    #[serde(default)]
    pub learnt: Vec<String>,
}

impl Offline {
    /// The user of a token that is good at `now`, and since when it is (Unix seconds).
    fn user(&self, token: &str, now: i64) -> Result<(User, i64), Refused> {
        let Expected { issuer, audiences } = &self.expected;
        let audiences = if self.learnt.is_empty() { audiences } else { &self.learnt };
        let expected = Expected { issuer: issuer.clone(), audiences: audiences.clone() };
        self.keys.verify(token, &expected, now)
    }
}

/// Asking for the means of checking tokens without a link.
pub mod offline {
    use super::{Credential, Expected, KeySet, Offline, Upstream};
    use crate::upstream::json::{JsonError, get};

    /// Asks the cluster for its issuer and keys (KEP-1393). Its audience is its issuer, unless it was told another (`--api-audiences`): that
    /// only its reviews say.
    pub async fn ask(upstream: &Upstream) -> Result<Offline, JsonError> {
        let discovery = get(upstream, &Credential::Node, "/.well-known/openid-configuration").await?;
        let keys = get(upstream, &Credential::Node, "/openid/v1/jwks").await?;
        let issuer = discovery["issuer"].as_str().unwrap_or_default().to_owned();
        let keys: KeySet =
            serde_json::from_value(keys).map_err(|error| JsonError::Unreadable(Box::new(error)))?;
        let expected = Expected { audiences: vec![issuer.clone()], issuer };
        Ok(Offline { keys, expected, learnt: Vec::new() })
    }
}

/// What is known of a token without asking anybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// A key of the cluster signed it for this user, or the API server has taken it a moment ago.
    IssuedTo(Box<str>),
    /// It says that a key of the cluster signed it, and that is not so.
    MadeUp,
    /// Neither.
    Unknown,
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
    /// Whose token it is; of what was refused and no key of the cluster signed, nobody's.
    whose: Option<Box<str>>,
    until: Instant,
}

/// What became of asking about a token, for all who showed it while it was asked.
type Turn = tokio::sync::Mutex<Option<Result<Arc<User>, TokenError>>>;

/// Tokens that are being asked about: who shows one meanwhile is answered with it.
#[derive(Default)]
struct Asking {
    turns: HashMap<Sha256Digest, Weak<Turn>>,
    forget_at: usize,
}

/// Names the users behind tokens.
pub struct Tokens {
    upstream: Upstream,
    offline: ArcSwapOption<Offline>,
    answers: Mutex<HashMap<Sha256Digest, Answer>>,
    asking: Mutex<Asking>,
    /// Those wait here that a key of the cluster signed: what nobody issued is not before them.
    issued: Queue,
    others: Queue,
    /// Tokens that the API server refused last.
    refused: Mutex<Refusals>,
    /// The audiences that reviews named.
    learnt: Mutex<Vec<String>>,
    /// There are others than before.
    learning: Notify,
    /// By which tokens end.
    pub time: KnownTime,
}

#[derive(Serialize, Deserialize)]
struct ReviewedUser {
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Vec<Box<str>>,
}

impl Tokens {
    /// Asks over `upstream`; `refused` is what [`Tokens::export`] gave before a restart, and `been` a time that has been (Unix seconds).
    pub fn new(upstream: Upstream, refused: Option<&[u8]>, been: Option<i64>) -> Self {
        let time = KnownTime::default();
        if let Some(been) = been {
            time.has_been(been);
        }
        Self {
            upstream,
            offline: ArcSwapOption::empty(),
            answers: Mutex::default(),
            asking: Mutex::default(),
            issued: Queue::new(REVIEWS, WAITING),
            others: Queue::new(REVIEWS, WAITING),
            refused: Mutex::new(Refusals::restore(refused.unwrap_or_default(), clock())),
            learnt: Mutex::default(),
            learning: Notify::new(),
            time,
        }
    }

    /// Takes the means of checking tokens without a link, and gives them back with all that reviews said of them, to be kept.
    pub fn set_offline(&self, mut offline: Offline) -> Arc<Offline> {
        let mut learnt = self.learnt.lock();
        add(&mut learnt, std::mem::take(&mut offline.learnt));
        offline.learnt.clone_from(&learnt);
        let offline = Arc::new(offline);
        self.offline.store(Some(offline.clone()));
        offline
    }

    /// Comes to pass when reviews have said more of the API server's audiences.
    pub async fn learns(&self) {
        self.learning.notified().await;
    }

    /// A review of a good token named these audiences of the API server.
    fn learn(&self, audiences: Vec<String>) {
        let mut learnt = self.learnt.lock();
        if add(&mut learnt, audiences) {
            if let Some(offline) = self.offline.load_full() {
                self.offline.store(Some(Arc::new(Offline { learnt: learnt.clone(), ..(*offline).clone() })));
            }
            self.learning.notify_one();
        }
    }

    /// The user behind `token`.
    pub async fn user(&self, token: &Token) -> Result<Arc<User>, TokenError> {
        let digest = token.digest();
        if let Some(answer) = self.believed(&digest) {
            return answer;
        }
        if self.is_forged(token) {
            return Err(TokenError::Refused(Refused::Signature.to_string()));
        }
        let turn = self.turn(digest);
        let mut outcome = turn.lock().await;
        if let Some(outcome) = &*outcome {
            return outcome.clone();
        }
        let result = self.ask(token, digest).await;
        *outcome = Some(result.clone());
        result
    }

    /// Whether a token that was good has expired since; one that does not say when has not.
    pub fn has_expired(&self, token: &Token) -> bool {
        claimed_expiry(token.expose()).is_some_and(|expiry| expiry <= self.time.now())
    }

    fn believed(&self, token: &Sha256Digest) -> Option<Result<Arc<User>, TokenError>> {
        let answers = self.answers.lock();
        answers.get(token).filter(|answer| answer.until > Instant::now()).map(|answer| answer.result.clone())
    }

    /// Whether the cluster's keys say that it is made up: such ones cost the link nothing.
    fn is_forged(&self, token: &Token) -> bool {
        let offline = self.offline.load();
        offline
            .as_ref()
            .is_some_and(|offline| offline.keys.is_forged(token.expose(), &offline.expected.issuer))
    }

    /// The name of its user, if the API server has taken it a moment ago.
    pub fn reviewed(&self, token: &Token) -> Option<Box<str>> {
        let user = self.believed(&token.digest())?.ok()?;
        Some(user.name.clone())
    }

    /// What is known of a token that need not be asked about, as its request is handed on.
    pub fn standing(&self, token: &Token) -> Standing {
        let believed = self.believed(&token.digest());
        let owner = match &believed {
            Some(Ok(user)) => Some(user.name.clone()),
            Some(Err(_)) | None => self.signed_for(token),
        };
        match owner {
            Some(owner) => Standing::IssuedTo(owner),
            None if believed.is_none() && self.is_forged(token) => Standing::MadeUp,
            None => Standing::Unknown,
        }
    }

    /// Whose it is, if a key of the cluster signed it.
    fn signed_for(&self, token: &Token) -> Option<Box<str>> {
        self.offline.load().as_ref().and_then(|offline| offline.keys.signed_for(token.expose()))
    }

    /// That of those who show this token now.
    fn turn(&self, token: Sha256Digest) -> Arc<Turn> {
        let Asking { turns, forget_at } = &mut *self.asking.lock();
        if let Some(turn) = turns.get(&token).and_then(Weak::upgrade) {
            return turn;
        }
        // Not each time: they may be many.
        if turns.len() >= *forget_at {
            turns.retain(|_, turn| turn.strong_count() > 0);
            *forget_at = 2 * turns.len() + FORGET_AFTER;
        }
        let turn = Arc::<Turn>::default();
        turns.insert(token, Arc::downgrade(&turn));
        turn
    }

    async fn ask(&self, token: &Token, digest: Sha256Digest) -> Result<Arc<User>, TokenError> {
        let is_issued = self.signed_for(token).is_some();
        let queue = if is_issued { &self.issued } else { &self.others };
        let Some(turn) = queue.turn().await else {
            return Err(TokenError::Passing("too many others are asked about".to_owned()));
        };
        let reviewed = self.review(token).await;
        drop(turn);
        let result = match reviewed {
            // Nothing of this is kept: it costs little, and once there is a link the API server is to say.
            Err(unchecked @ (TokenError::Unavailable(_) | TokenError::Passing(_))) => {
                return self.check_offline(token, unchecked);
            }
            result => result,
        };
        let (now, expiry) = (Instant::now(), claimed_expiry(token.expose()));
        let whose = match &result {
            Ok(user) => {
                self.refused.lock().forget(&digest);
                if let Some(begin) = claimed_begin(token.expose()).filter(|_| is_issued) {
                    self.time.is_within(begin, expiry.unwrap_or(i64::MAX));
                }
                Some(user.name.clone())
            }
            Err(_) => self.note_refusal(token, digest),
        };
        let until = expiry.map(|expiry| expiry.saturating_sub(self.time.now()));
        let until = until
            .map_or(BELIEVED, |left| Duration::from_secs(u64::try_from(left).unwrap_or(0)).min(BELIEVED));
        self.remember(digest, Answer { result: result.clone(), whose, until: now + until }, now);
        result
    }

    /// What was refused and would pass by its signature, to be stored, if there is other than at the last call; no token can be had back from it.
    pub fn export(&self) -> Option<Vec<u8>> {
        self.refused.lock().export()
    }

    fn remember(&self, token: Sha256Digest, answer: Answer, now: Instant) {
        let mut answers = self.answers.lock();
        let is_over = |answer: &Answer| answer.until <= now;
        make_room(&mut answers, REMEMBERED, is_over, |_, answer| (&answer.whose, answer.until));
        answers.insert(token, answer);
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
        // The review names no audience, so that these are those of the API server that the token is for.
        self.learn(serde_json::from_value(status["audiences"].clone()).unwrap_or_default());
        Ok(Arc::new(User { name: user.username.into(), groups: user.groups }))
    }

    /// The API server has refused the token otherwise than in a review of it.
    pub fn refuse(&self, token: &Token) {
        let digest = token.digest();
        self.answers.lock().remove(&digest);
        self.note_refusal(token, digest);
    }

    /// Keeps that the token was refused, and says whose it is if the cluster signed it.
    fn note_refusal(&self, token: &Token, digest: Sha256Digest) -> Option<Box<str>> {
        let whose = self.signed_for(token);
        self.refused.lock().note(digest, whose.clone(), claimed_expiry(token.expose()), clock());
        whose
    }

    fn check_offline(&self, token: &Token, unchecked: TokenError) -> Result<Arc<User>, TokenError> {
        let offline = self.offline.load();
        let Some(offline) = offline.as_ref() else { return Err(unchecked) };
        debug!(reason = %unchecked, "checking a token without the API server");
        if self.refused.lock().hold(&token.digest()) {
            return Err(TokenError::Refused("the API server refused it while it could be asked".to_owned()));
        }
        match offline.user(token.expose(), self.time.now()) {
            Ok((user, since)) => {
                self.time.has_been(since);
                Ok(Arc::new(user))
            }
            Err(Refused::Endless) => {
                Err(TokenError::Unavailable(format!("{unchecked}; {}", Refused::Endless)))
            }
            Err(refused) => Err(TokenError::Refused(refused.to_string())),
        }
    }
}

/// Adds those that are not there, as far as there is room; says whether there were any.
fn add(all: &mut Vec<String>, more: Vec<String>) -> bool {
    let before = all.len();
    for audience in more {
        if all.len() < AUDIENCES && !all.contains(&audience) {
            all.push(audience);
        }
    }
    all.len() > before
}

#[cfg(test)]
mod tests {
    use super::{super::jwt::tests::Signer, *};

    const NOW: i64 = 2_000_000_000;

    #[test]
    fn what_reviews_name_as_audience_counts_and_is_kept_with_the_keys() {
        let signer = Signer::new();
        let expected = Expected { issuer: "i".to_owned(), audiences: vec!["i".to_owned()] };
        let guessed = Offline { keys: signer.keys(), expected, learnt: Vec::new() };
        let (api, issuer) = (signer.token("api", NOW, NOW + 9), signer.token("i", NOW, NOW + 9));
        assert!(guessed.user(&api, NOW).is_err() && guessed.user(&issuer, NOW).is_ok());
        let told = Offline { learnt: vec!["api".to_owned()], ..guessed };
        assert!(told.user(&api, NOW).is_ok());
        assert_eq!(told.user(&issuer, NOW), Err(Refused::NotForUs), "the guess was wrong");
        let kept: Offline = serde_json::from_slice(&serde_json::to_vec(&told).unwrap()).unwrap();
        assert_eq!(kept, told);
        let before = r#"{"keys":{"keys":[]},"expected":{"issuer":"i","audiences":["i"]}}"#;
        assert!(
            serde_json::from_str::<Offline>(before).unwrap().learnt.is_empty(),
            "as it was stored before"
        );
    }

    #[test]
    fn no_more_audiences_are_learnt_than_there_is_room_for() {
        let mut all = Vec::new();
        assert!(add(&mut all, vec!["a".to_owned(), "b".to_owned()]));
        assert!(!add(&mut all, vec!["b".to_owned()]));
        assert!(add(&mut all, (0..99).map(|n| n.to_string()).collect()));
        assert_eq!(all.len(), AUDIENCES);
    }
}
