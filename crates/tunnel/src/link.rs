//! One link: an HTTP/2 connection over which one end asks for streams and the other answers.
//!
//! [`ask`] is the end that asks, [`answer`] the other. Both introduce themselves first, watch that the peer is alive, and
//! drain when told to.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use h2::{Ping, PingPong, RecvStream, client::SendRequest};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, sleep_until},
};

use crate::{
    allowance::Allowance,
    ending::Ending,
    hello::{Hello, HelloError},
    links::table::{Link, LinkTable, NewLink, Registration},
    liveness::{Action, Limits as LivenessLimits, Liveness},
    protocol::{Class, Limits, MAX_HELLO},
    route::Direction,
    socket::Traffic,
    stats::Stats,
    view::Domain,
};

pub(crate) mod answer;
pub(crate) mod ask;
mod follow_window;

/// What carries a link.
pub trait Carrier: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Carrier for T {}

/// Why a link ended, or never began.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// HTTP/2 broke, or what is below it.
    #[error("the connection")]
    Http2(#[from] h2::Error),
    /// The peer ended the connection.
    #[error("closed by the peer")]
    Closed,
    /// The peer did not introduce itself in time.
    #[error("not registered in time")]
    HelloTimeout,
    /// The peer's introduction was not accepted.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// The peer does not want the link.
    #[error("refused by the peer: {0}")]
    Refused(String),
    /// The peer answers no more.
    #[error("the peer fell silent")]
    Silent,
    /// The peer does not acknowledge how much it may send.
    #[error("the peer acknowledges no settings")]
    Unacknowledged,
    /// The peer has as many links as it may.
    #[error("too many links")]
    TooMany,
    /// The streams of a link that was shut down did not end in time.
    #[error("streams went on after the end of the drain")]
    DrainTimeout,
}

/// How a link is held.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) instance: Arc<str>,
    pub(crate) limits: Limits,
    pub(crate) table: Arc<LinkTable>,
    pub(crate) stats: Arc<Stats>,
}

impl Terms {
    /// What another link of this peer may hold.
    fn allow(&self, peer: &Peer) -> Result<Arc<Allowance>, LinkError> {
        let allowance = self.table.allowances.take(&peer.node, self.limits.links_of_a_peer_in_all);
        allowance.ok_or(LinkError::TooMany)
    }
}

/// Which link it is to be.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) node: String,
    pub(crate) domain: Domain,
    pub(crate) direction: Direction,
    /// For the end that dialled; the other end is told.
    pub(crate) class: Class,
    /// When its certificate is no longer valid.
    pub(crate) expires: SystemTime,
}

/// Sets up the builder of an HTTP/2 client or server, which have the same methods and no trait.
macro_rules! as_link {
    ($builder:expr, $window:expr) => {{
        let (mut builder, window) = ($builder, $window);
        builder
            .initial_window_size(crate::window::first_stream_window(window))
            .initial_connection_window_size(window)
            .max_frame_size(crate::protocol::MAX_FRAME)
            .max_header_list_size(crate::protocol::MAX_HEADER_LIST)
            .max_send_buffer_size(256 * 1024)
            // Peers are authenticated, and streams of tiny lines or many resets are what tunnels carry. Each short frame that waits in HTTP/2 takes up to 255
            // bytes of this: some 350 that no window counts. A link of a peer that has many has a narrow window at first, and the same bursts.
            .data_frame_budget((4 * window as usize).max(4 << 20))
            .max_local_error_reset_streams(None)
            .max_pending_accept_reset_streams(1000);
        builder
    }};
}
use as_link;

/// Enters a link whose ends have introduced themselves. `asker`: at the end that asks, for no more streams than the other takes.
fn register(
    peer: Peer,
    theirs: &Hello,
    traffic: &Arc<Traffic>,
    asker: Option<SendRequest<Bytes>>,
    terms: &Terms,
) -> Registration {
    let Peer { node, direction, class, expires, .. } = peer;
    // The end that dialled says what for: the one that asks over a forward link, and the other one over a reverse link.
    let dialled = asker.is_some() == (direction == Direction::Forward);
    let streams = usize::try_from(terms.limits.streams).unwrap_or(usize::MAX);
    let theirs_max = asker.as_ref().map(SendRequest::current_max_send_streams);
    let registration = terms.table.add(NewLink {
        peer: node,
        direction,
        class: if dialled { class } else { theirs.class },
        traffic: traffic.clone(),
        streams_max: theirs_max.map_or(streams, |theirs| theirs.min(streams)),
        asker,
        expires,
    });
    terms.stats.link_registered();
    registration
}

/// Reads a short body whole.
async fn short_body(mut body: RecvStream) -> Result<Vec<u8>, LinkError> {
    let mut whole = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk: Bytes = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        whole.extend_from_slice(&chunk);
        if whole.len() > MAX_HELLO {
            return Err(HelloError::Malformed.into());
        }
    }
    Ok(whole)
}

fn hello(terms: &Terms, class: Class) -> Hello {
    Hello::new(terms.instance.as_ref(), class)
}

/// Asks the peer now and then whether it is there; ends when it is not.
async fn watch_liveness(
    mut ping_pong: Option<PingPong>,
    limits: LivenessLimits,
    link: Arc<Link>,
    traffic: Arc<Traffic>,
) -> LinkError {
    let Some(ping_pong) = ping_pong.as_mut() else { return std::future::pending().await };
    let began = Instant::now();
    let mut liveness = Liveness::new(limits);
    loop {
        let now = began.elapsed();
        match liveness.poll(now, traffic.received()) {
            Action::Dead => {
                link.set_silent();
                return LinkError::Silent;
            }
            Action::Ping => {
                if let Err(error) = ping_pong.send_ping(Ping::opaque()) {
                    return error.into();
                }
                liveness.pinged(now, traffic.received());
            }
            Action::Wait(until) => {
                tokio::select! {
                    pong = std::future::poll_fn(|cx| ping_pong.poll_pong(cx)) => match pong {
                        Ok(_) => {
                            if let Some(round_trip) = liveness.answered(began.elapsed()) {
                                link.set_round_trip(round_trip);
                            }
                        }
                        Err(error) => return error.into(),
                    },
                    () = sleep_until(began + until) => {}
                }
            }
        }
    }
}

/// Keeps a link closed to new streams while it is suspended. Ends when one that is has no stream left: it goes, and whoever wants one
/// makes it anew.
async fn left_suspended(link: &Link, traffic: &Traffic, ending: &Ending) {
    loop {
        ending.suspended().await;
        link.set_suspended(true);
        tokio::select! {
            () = wait_for_streams(traffic) => return,
            () = ending.resumed() => link.set_suspended(false),
        }
    }
}

/// Ends when no stream is open.
async fn wait_for_streams(traffic: &Traffic) {
    while traffic.streams() > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Gives a future's result, or says that it took too long.
async fn in_time<T>(
    limit: Duration,
    future: impl Future<Output = Result<T, LinkError>>,
) -> Result<T, LinkError> {
    tokio::time::timeout(limit, future).await.unwrap_or(Err(LinkError::HelloTimeout))
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;
