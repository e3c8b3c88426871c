//! The one way to the API server: which server is used, whether it answers, and requests over the link to it.
//!
//! ```text
//!  link (a task) ─► connector ─► session: h2 with the node's certificate, h2 without one for callers with a token
//!      │ publishes the session, or that there is none              ▲
//!      └────────────────────────────► Upstream::send, hand_on ─────┘
//! ```
//! Certificates may be replaced: the link connects anew, requests go over the new connection, and streams over the old one go on.
//! A request that finds no session fails at once: whether to answer it from what is held is its caller's business.

mod answer;
mod connector;
mod counted;
mod cut;
mod dial;
mod endpoint;
mod illness;
pub mod json;
mod known;
mod lane;
mod link;
mod pace;
mod path;
mod servers;
mod session;
mod unverified;

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use tokio::sync::watch;

pub use self::answer::{Answer, Connection, Source};
pub use self::connector::{Connector, TlsMaterial, TlsMaterialError};
pub use self::dial::{BoxStream, Connected, Dial, Stream, Tcp};
pub use self::endpoint::{Endpoint, EndpointError};
pub(crate) use self::link::jittered;
pub use self::link::{Link, LinkState};
pub use self::servers::{Server, ServerState};
use self::{
    servers::Servers,
    session::{Errand, Session},
};

/// How the hub names itself in its own requests.
pub const USER_AGENT: &str = concat!("edge-hub/", env!("CARGO_PKG_VERSION"));

/// With whose credential a request goes upstream. There is no other: an identity is never lent.
#[derive(Clone)]
pub enum Credential {
    /// The hub's own client certificate: for the hub itself and for callers that the operator let act as the node.
    Node,
    /// The caller's `Authorization` header, unchanged, over a connection without a client certificate.
    Bearer(HeaderValue),
}

/// A redacted view: the header never reaches a log.
impl std::fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Node => "Node",
            Self::Bearer(_) => "Bearer(…)",
        })
    }
}

/// How the link is kept, and how soon it is noticed that it is not there any more.
///
/// Each layer notices what it can for the fewest bytes ([ADR 17](../../../docs/adr/0017-idle-link.md)): TCP's own probes, which carry
/// nothing, that packets vanish while nobody asks for anything; PINGs whatever it is, soon while somebody does, and now and then else.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How long a connection may take to come about, TLS included; that may take three round trips, however long they are.
    pub connect: Duration,
    /// How long nothing may be acknowledged before TCP probes the path, and how often it does so then.
    pub path_probe_after: Duration,
    /// The pause between two such probes.
    pub path_probe_interval: Duration,
    /// How long nothing may be acknowledged at all: neither probes nor what was sent. Over a long way three round trips.
    pub path_timeout: Duration,
    /// How long a connection may be silent before it is asked for a sign of life, while somebody asks for something.
    pub ping_after_asked: Duration,
    /// How long after the last request, or its answer, that is so: longer than a kubelet pauses between two signs of its node's life.
    pub asked_within: Duration,
    /// How long a connection may be silent when nobody asks.
    pub ping_after: Duration,
    /// How long a sign of life may take. Over a long way three round trips.
    pub ping_timeout: Duration,
    /// The first and the longest pause between attempts.
    pub backoff: (Duration, Duration),
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(4),
            path_probe_after: Duration::from_secs(1),
            path_probe_interval: Duration::from_secs(1),
            path_timeout: Duration::from_secs(3),
            ping_after_asked: Duration::from_secs(2),
            asked_within: Duration::from_secs(15),
            ping_after: Duration::from_secs(20),
            ping_timeout: Duration::from_millis(1800),
            backoff: (Duration::from_millis(200), Duration::from_secs(5)),
        }
    }
}

/// Why a request got no answer from upstream.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// There is no link; the reason is that of the last attempt.
    #[error("the API server cannot be reached: {0}")]
    Offline(String),
    /// There was no connection to send it over, or the server refused it before it began with it; or what it was answered broke off.
    #[error("the connection to the API server broke: {0}")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It may have been sent before the connection broke, or no answer came in time: whether the server has done it is not known.
    #[error("the connection to the API server broke: {0}")]
    Unanswered(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Sends requests over the link that its task keeps.
#[derive(Clone)]
pub struct Upstream {
    state: watch::Receiver<LinkState>,
    servers: Servers,
    renew: Arc<tokio::sync::Notify>,
}

impl Upstream {
    /// Whether there is a link, and how that changes.
    pub fn state(&self) -> watch::Receiver<LinkState> {
        self.state.clone()
    }

    /// Whether there is a link now.
    pub fn is_up(&self) -> bool {
        matches!(*self.state.borrow(), LinkState::Up(_))
    }

    /// The API servers in their order, and what is known of each.
    pub fn servers(&self) -> Vec<Server> {
        self.servers.all()
    }

    /// Waits for a link; if there is none within that time, says why as far as that is known.
    pub(crate) async fn connected(&self, within: Duration) -> Result<(), String> {
        let mut state = self.state();
        let up = async { state.wait_for(|state| matches!(state, LinkState::Up(_))).await.is_ok() };
        let up = tokio::time::timeout(within, up).await;
        if up == Ok(true) {
            return Ok(());
        }
        Err(match &*self.state.borrow() {
            LinkState::Up(_) => "the link ended".to_owned(),
            LinkState::Down { reason, .. } => reason.clone(),
        })
    }

    /// Sends a request of the hub's own, whose URI has a path and no authority. Its body is streamed, and so is the answer's, which the hub reads as it
    /// comes.
    pub async fn send(
        &self,
        credential: &Credential,
        request: Request<Body>,
    ) -> Result<Response<Answer>, UpstreamError> {
        self.ask(credential, Errand::Own, request).await
    }

    /// The same of a request whose answer a caller reads, or does not.
    pub async fn hand_on(
        &self,
        credential: &Credential,
        request: Request<Body>,
    ) -> Result<Response<Answer>, UpstreamError> {
        self.ask(credential, Errand::HandedOn, request).await
    }

    async fn ask(
        &self,
        credential: &Credential,
        errand: Errand,
        request: Request<Body>,
    ) -> Result<Response<Answer>, UpstreamError> {
        let session = self.session()?;
        let result = session.send(credential, errand, request).await;
        if session.is_closing() {
            // The server asked us to leave (GOAWAY), or the link broke: what runs may end, new requests go elsewhere.
            self.renew.notify_one();
        }
        result
    }

    /// Sends a request that asks for another protocol (`exec`, `attach`, `port-forward`), over a connection of its own.
    pub async fn send_upgrade(
        &self,
        credential: &Credential,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        self.session()?.send_upgrade(credential, request).await
    }

    fn session(&self) -> Result<Arc<Session>, UpstreamError> {
        match &*self.state.borrow() {
            LinkState::Up(session) => Ok(session.clone()),
            LinkState::Down { reason, .. } => Err(UpstreamError::Offline(reason.clone())),
        }
    }
}
