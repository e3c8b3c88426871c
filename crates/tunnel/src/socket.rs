//! TCP as a tunnel needs it: no delay, a short queue, a peer that vanished noticed, a reset that stays a reset; and counting
//! of what passes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::Notify,
};
use tokio_util::io::{InspectReader, InspectWriter};
use tracing::debug;

use crate::window::stream_window;

/// How long data may go unacknowledged.
const USER_TIMEOUT: Duration = Duration::from_secs(15);

/// How much may wait unsent in the kernel: a keystroke waits behind no more than that.
const UNSENT_MAX: u32 = 96 * 1024;

/// Sets up a connection that carries a link.
pub fn tune_link(socket: &TcpStream) {
    let socket = SockRef::from(socket);
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(10));
    let results = [
        ("TCP_NODELAY", socket.set_tcp_nodelay(true)),
        ("TCP_USER_TIMEOUT", socket.set_tcp_user_timeout(Some(USER_TIMEOUT))),
        ("TCP_NOTSENT_LOWAT", socket.set_tcp_notsent_lowat(UNSENT_MAX)),
        ("SO_KEEPALIVE", socket.set_tcp_keepalive(&keepalive)),
    ];
    // It works without them, less well.
    for (option, result) in results {
        if let Err(error) = result {
            debug!(option, %error, "cannot set a socket option");
        }
    }
}

/// Sets up a connection to a destination or from a client.
pub fn tune_stream(socket: &TcpStream) {
    if let Err(error) = SockRef::from(socket).set_tcp_nodelay(true) {
        debug!(%error, "cannot turn Nagle's algorithm off");
    }
}

/// Waits until a peer sends something or closes, and says whether it is the former. A load balancer that checks whether a port is open
/// sends nothing.
pub async fn speaks(socket: &TcpStream) -> bool {
    matches!(socket.peek(&mut [0]).await, Ok(1..))
}

/// Makes the close of a connection a reset: its peer shall not take what it got for all there is.
pub fn reset_on_close(socket: &TcpStream) {
    if let Err(error) = SockRef::from(socket).set_linger(Some(Duration::ZERO)) {
        debug!(%error, "cannot reset a connection");
    }
}

/// What passed over a link, and how many streams are open on it.
#[derive(Debug, Default)]
pub struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
    streams: AtomicUsize,
    window_changed: Notify,
}

impl Traffic {
    /// Bytes received, with TLS taken off and framing on.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Streams that are open.
    pub fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Waits until streams should have another window than before.
    pub(crate) async fn window_changed(&self) {
        self.window_changed.notified().await;
    }

    /// Counts a stream for as long as the guard is held.
    pub(crate) fn open_stream(self: &Arc<Self>) -> StreamGuard {
        let before = self.streams.fetch_add(1, Ordering::Relaxed);
        self.compare(before, before + 1);
        StreamGuard { traffic: self.clone() }
    }

    fn compare(&self, before: usize, after: usize) {
        if stream_window(before) != stream_window(after) {
            self.window_changed.notify_one();
        }
    }
}

/// A stream that is counted.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    traffic: Arc<Traffic>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let before = self.traffic.streams.fetch_sub(1, Ordering::Relaxed);
        self.traffic.compare(before, before.saturating_sub(1));
    }
}

/// A connection that shows what passes to two tallies.
pub(crate) type Metered<T> = InspectReader<InspectWriter<T, Tally>, Tally>;

/// Is shown what was read, or what was written.
pub(crate) type Tally = Box<dyn FnMut(&[u8]) + Send + Sync>;

/// Counts in `traffic` what passes over `inner`.
pub(crate) fn metered<T: AsyncRead + AsyncWrite>(inner: T, traffic: Arc<Traffic>) -> Metered<T> {
    let sent = traffic.clone();
    let sent: Tally = Box::new(move |data| count(&sent.sent, data));
    InspectReader::new(InspectWriter::new(inner, sent), Box::new(move |data| count(&traffic.received, data)))
}

fn count(total: &AtomicU64, data: &[u8]) {
    total.fetch_add(data.len() as u64, Ordering::Relaxed);
}
