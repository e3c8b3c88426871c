//! One HTTP/2 connection to an API server: how many streams it has, and whether the server still answers over it.
//!
//! Whoever waits for an answer while nothing at all comes over the connection has the server asked for a sign of life (see
//! [`super::pace`]), and when there is none either, the connection is given up. A PING is asked and not a path of the API server: it is 78
//! bytes both ways, needs nobody's credential, and is answered by a server that is busy.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::body::Body;
use http::{Request, Response};
use hyper::client::conn::http2::SendRequest;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    Endpoint, Timing, UpstreamError,
    answer::{Answer, Source},
    connector::{ConnectError, Connector, Http2, Showing},
    counted::Heard,
    cut::Cut,
    pace::Asking,
    session::{Driver, Errand},
};

/// So many streams a connection may have open, and requests beyond go over another one. An API server takes 100 unless told
/// otherwise and lets further requests wait for one to end, which watches do not.
const STREAMS: usize = 90;

/// What a busy machine may add to the time after which a connection that says nothing is given up.
const SLACK: Duration = Duration::from_secs(1);

/// Nothing came: no answer, and no sign of life when one was asked for.
#[derive(Debug, thiserror::Error)]
#[error("the API server says nothing")]
struct Silent;

/// Why a request got no answer over a connection.
pub(super) enum SendError {
    /// It was not sent: the connection takes no more requests.
    Unsent(Box<Request<Body>>, UpstreamError),
    /// It cannot be sent again: it is gone, and the error says whether it may have arrived.
    Failed(UpstreamError),
}

/// A connection.
pub(super) struct Lane {
    sender: SendRequest<Body>,
    heard: Arc<Heard>,
    asking: Arc<Asking>,
    timing: Timing,
    /// Shared with every answer whose body is still read.
    streams: Arc<()>,
    closing: AtomicBool,
    given_up: CancellationToken,
    ended: CancellationToken,
}

impl Lane {
    /// Connects. The connection lives as long as its driver runs.
    pub(super) async fn open(
        connector: &Connector,
        endpoint: &Endpoint,
        showing: Showing,
        errand: Errand,
    ) -> Result<(Arc<Self>, Driver), ConnectError> {
        let given_up = CancellationToken::new();
        let Http2 { sender, connection, heard } =
            connector.http2(endpoint, showing, errand, &given_up).await?;
        let ended = CancellationToken::new();
        let lane = Self {
            sender,
            heard,
            asking: connector.asking().clone(),
            timing: connector.timing(),
            streams: Arc::new(()),
            closing: AtomicBool::new(false),
            given_up: given_up.clone(),
            ended: ended.clone(),
        };
        let heard = lane.heard.clone();
        let driver: Driver = Box::pin(async move {
            let _ended = ended.drop_guard();
            tokio::select! {
                () = given_up.cancelled() => debug!("a connection is given up"),
                ended = connection => if let Err(error) = ended {
                    debug!(%error, "connection");
                    if is_timeout(&error) {
                        heard.give_up();
                    }
                },
            }
        });
        Ok((Arc::new(lane), driver))
    }

    /// Whether no further request can be sent: the server said good-bye or the connection broke.
    pub(super) fn is_closed(&self) -> bool {
        self.closing.load(Relaxed) || self.sender.is_closed()
    }

    /// Whether it ended, or is about to, because nothing came over it any more.
    pub(super) fn fell_silent(&self) -> bool {
        self.heard.is_given_up() || self.given_up.is_cancelled()
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
        if self.given_up.is_cancelled() {
            return Err(SendError::Unsent(Box::new(request), UpstreamError::Broken(Box::new(Silent))));
        }
        let stream = self.streams.clone();
        let mut sender = self.sender.clone();
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
                    let source = Source::new(self.clone());
                    Ok(answer.map(|body| Answer::of(body, source, stream)))
                }
                Err((unsent, error)) => {
                    let cut = Cut::of(&error);
                    Err(match unsent {
                        Some(request) => {
                            self.closing.store(true, Relaxed);
                            SendError::Unsent(Box::new(request), UpstreamError::Broken(Box::new(cut)))
                        }
                        None => SendError::Failed(cut.under_way()),
                    })
                }
            },
            () = self.given_up.cancelled() => {
                Err(SendError::Failed(UpstreamError::Unanswered(Box::new(Silent))))
            }
        }
    }

    /// Asks for a sign of life, unless there was one a moment ago. Without one the connection is given up.
    pub(super) async fn is_alive(&self) -> bool {
        let wanted = Instant::now();
        let _waiting = self.asking.begin();
        tokio::select! {
            () = self.heard.after(wanted) => true,
            () = self.ended.cancelled() => false,
            // hyper ends the connection by then; what it may not do is to keep somebody waiting.
            () = self.silent_since(wanted) => {
                self.given_up.cancel();
                false
            }
        }
    }

    /// Ends it with all that is under way.
    pub(super) fn give_up(&self) {
        self.given_up.cancel();
    }

    /// Returns when the server had its time for a sign of life: from then, or from when something was last taken of an upload.
    async fn silent_since(&self, wanted: Instant) {
        let path = &self.heard.path;
        loop {
            let longest = self.timing.ping_after_asked + path.patience(self.timing.ping_timeout) + SLACK;
            let end = wanted.max(path.taken()) + longest;
            if Instant::now() >= end {
                return;
            }
            sleep_until(end).await;
        }
    }

    /// Returns when the connection has ended.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Whether it is no connection any more.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }
}

/// Whether the kernel gave the connection up: the other end acknowledged nothing.
fn is_timeout(error: &hyper::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::TimedOut)
        {
            return true;
        }
        source = error.source();
    }
    false
}
