//! One HTTP/2 connection to an API server: how many streams it has, and whether the server still answers over it.
//!
//! A path that is gone is the kernel's to notice (see [`super::Timing`]). A server that stands still while its kernel goes on
//! acknowledging is noticed here: whoever waits for an answer while nothing at all comes over the connection has the server asked
//! for a sign of life, and when there is none either, the connection is given up.
//!
//! It is asked with the credential of who waits: an API server says good-bye to a connection (GOAWAY) over which somebody asks whom it does
//! not know.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::body::Body;
use http::{HeaderValue, Request, Response, header};
use hyper::client::conn::http2::SendRequest;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    Endpoint, Timing, USER_AGENT, UpstreamError,
    answer::{Answer, Source},
    connector::{ConnectError, Connector, Http2, Showing},
    counted::Heard,
    session::Driver,
};

/// What the server is asked for a sign of life: answered without a look at etcd or at anybody's rights, and any status will do.
const SIGN_OF_LIFE: &str = "/livez/ping";

/// So many streams a connection may have open, and requests beyond go over another one. An API server takes 100 unless told
/// otherwise and lets further requests wait for one to end, which watches do not.
const STREAMS: usize = 90;

/// The longest pause before a server that gave a sign of life, but no answer, is asked for another one.
const LONGEST: Duration = Duration::from_secs(8);

/// Nothing came: no answer, and no sign of life when one was asked for.
#[derive(Debug, thiserror::Error)]
#[error("the API server says nothing")]
struct Silent;

/// Why a request got no answer over a connection.
pub(super) enum SendError {
    /// It was not sent: the connection takes no more requests.
    Unsent(Box<Request<Body>>, UpstreamError),
    /// What became of it is not known.
    Failed(UpstreamError),
}

/// A connection.
pub(super) struct Lane {
    authority: String,
    sender: SendRequest<Body>,
    timing: Timing,
    heard: Arc<Heard>,
    /// Shared with every answer whose body is still read.
    streams: Arc<()>,
    /// Held by who asks for a sign of life: one request at a time does for all that wait.
    asking: Mutex<()>,
    closing: AtomicBool,
    given_up: CancellationToken,
}

impl Lane {
    /// Connects. The connection lives as long as its driver runs.
    pub(super) async fn open(
        connector: &Connector,
        endpoint: &Endpoint,
        showing: Showing,
    ) -> Result<(Arc<Self>, Driver), ConnectError> {
        let given_up = CancellationToken::new();
        let Http2 { sender, connection, heard } = connector.http2(endpoint, showing, &given_up).await?;
        let lane = Self {
            authority: endpoint.authority(),
            sender,
            timing: connector.timing(),
            heard,
            streams: Arc::new(()),
            asking: Mutex::new(()),
            closing: AtomicBool::new(false),
            given_up: given_up.clone(),
        };
        let driver: Driver = Box::pin(async move {
            tokio::select! {
                () = given_up.cancelled() => debug!("a connection that says nothing is given up"),
                ended = connection => if let Err(error) = ended {
                    debug!(%error, "connection");
                },
            }
        });
        Ok((Arc::new(lane), driver))
    }

    /// Whether no further request can be sent: the server said good-bye or the connection broke.
    pub(super) fn is_closed(&self) -> bool {
        self.closing.load(Relaxed) || self.sender.is_closed()
    }

    /// Whether the server takes another request at once.
    pub(super) fn has_room(&self) -> bool {
        Arc::strong_count(&self.streams) <= STREAMS
    }

    /// How long ago the server last said something.
    pub(super) fn heard_ago(&self) -> Duration {
        self.heard.ago()
    }

    /// Sends a request that has its URI, and waits for the head of the answer for as long as the server is alive.
    pub(super) async fn send(
        self: &Arc<Self>,
        request: Request<Body>,
    ) -> Result<Response<Answer>, SendError> {
        let stream = self.streams.clone();
        let mut sender = self.sender.clone();
        let caller = request.headers().get(header::AUTHORIZATION).cloned();
        let answer = async {
            // Not ready means that the connection takes no more requests.
            if let Err(error) = sender.ready().await {
                return Err((Some(request), error));
            }
            let sent = sender.try_send_request(request).await;
            sent.map_err(|mut error| (error.take_message(), error.into_error()))
        };
        tokio::select! {
            answer = answer => match answer {
                Ok(answer) => {
                    let source = Source::new(self.clone(), caller.clone());
                    Ok(answer.map(|body| Answer::new(body, source, stream)))
                }
                Err((unsent, error)) => {
                    let error = UpstreamError::Broken(Box::new(error));
                    Err(match unsent {
                        Some(request) => {
                            self.closing.store(true, Relaxed);
                            SendError::Unsent(Box::new(request), error)
                        }
                        None => SendError::Failed(error),
                    })
                }
            },
            () = self.silence(caller.as_ref()) => {
                Err(SendError::Failed(UpstreamError::Broken(Box::new(Silent))))
            }
        }
    }

    /// Returns when nothing came for so long that the connection was given up.
    async fn silence(&self, caller: Option<&HeaderValue>) {
        let mut since = Instant::now();
        let mut patience = self.timing.patience;
        loop {
            let due = since.max(self.heard.at()) + patience;
            if Instant::now() < due {
                sleep_until(due).await;
            } else if self.is_alive(caller).await {
                since = Instant::now();
                patience = (patience * 2).min(LONGEST);
            } else {
                return;
            }
        }
    }

    /// Asks for a sign of life, with the credential of a caller if the connection shows none. Without one the connection is given up.
    pub(super) async fn is_alive(&self, caller: Option<&HeaderValue>) -> bool {
        let wanted = Instant::now();
        let _asking = self.asking.lock().await;
        if self.heard.at() > wanted {
            return true;
        }
        if self.given_up.is_cancelled() {
            return false;
        }
        let uri = format!("https://{}{SIGN_OF_LIFE}", self.authority);
        let request = Request::get(uri)
            .header(header::HOST, &self.authority)
            .header(header::USER_AGENT, USER_AGENT)
            .body(Body::empty());
        let Ok(mut request) = request else { return false };
        if let Some(caller) = caller {
            request.headers_mut().insert(header::AUTHORIZATION, caller.clone());
        }
        let mut sender = self.sender.clone();
        // Whatever comes will do, were it the end of the connection: that is noticed elsewhere.
        let answered = timeout(self.timing.probe_timeout, sender.send_request(request)).await.is_ok();
        let alive = answered || self.heard.at() > wanted;
        if !alive {
            self.given_up.cancel();
        }
        alive
    }
}
