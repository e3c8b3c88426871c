//! TCP as a tunnel needs it: no delay, a short queue, a peer that vanished noticed, a reset that stays a reset; and counting
//! of what passes.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use h2::FlowControl;
use parking_lot::Mutex;
use socket2::SockRef;
use tls::socket::{set, tune};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::{Notify, watch},
};
use tokio_util::{
    io::{InspectReader, InspectWriter},
    sync::CancellationToken,
};
use tracing::debug;

use crate::{allowance::Allowance, crowd::Seat, window};

/// How long data may go unacknowledged.
const USER_TIMEOUT: Duration = Duration::from_secs(15);

/// How much may wait unsent in the kernel: a keystroke waits behind no more than that.
const UNSENT_MAX: u32 = 96 * 1024;

/// How much of a stream's data the kernel may hold that nobody here has read yet, in bytes; it takes twice as much for its own. By itself it would go
/// up to 32 MiB each for readers that stand still, which no window of the tunnel counts: fifty of them used up what memory a machine's
/// kernel has for TCP, and held up everybody else's connections. For the machines next to a node or a gateway it is enough: 1 GB/s at 1 ms.
const UNREAD_MAX: usize = 1024 * 1024;

/// Sets up a connection that carries a link.
pub fn tune_link(socket: &TcpStream) {
    let socket = SockRef::from(socket);
    tune(&socket);
    set([
        ("TCP_USER_TIMEOUT", socket.set_tcp_user_timeout(Some(USER_TIMEOUT))),
        ("TCP_NOTSENT_LOWAT", socket.set_tcp_notsent_lowat(UNSENT_MAX)),
    ]);
}

/// Sets up a connection to a destination or from a client. One whose other end is gone without a word ends by itself, after a minute and a half in
/// which nothing was sent: the end of a stream is no link, so no PING tells. There is no limit for data that is not acknowledged, which
/// would be one for readers that stand still, too.
pub fn tune_stream(socket: &TcpStream) {
    let socket = SockRef::from(socket);
    tune(&socket);
    set([("SO_RCVBUF", socket.set_recv_buffer_size(UNREAD_MAX))]);
}

/// Waits until a peer sends something or closes, and says whether it is the former. A load balancer that checks whether a port is open
/// sends nothing.
pub async fn speaks(socket: &TcpStream) -> bool {
    matches!(socket.peek(&mut [0]).await, Ok(1..))
}

/// Makes the close of a connection a `reset`, be it that of a process that was killed: its peer shall not take what it got for all there is. Or
/// makes it an end in order again, which takes nothing back of what was written.
pub fn reset_on_close(socket: &TcpStream, reset: bool) {
    if let Err(error) = SockRef::from(socket).set_linger(reset.then_some(Duration::ZERO)) {
        debug!(%error, "cannot reset a connection");
    }
}

/// What passed over a link, how many streams are open on it, and what of them is held here.
#[derive(Debug, Default)]
pub struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
    streams: AtomicUsize,
    // For how many streams there is room.
    room: watch::Sender<usize>,
    room_wanted: Notify,
    // Those over which anything may come, by a number of each.
    open: Mutex<BTreeMap<u64, FlowControl>>,
    next: AtomicU64,
    allowance: Weak<Allowance>,
}

impl Traffic {
    /// Of a link that may hold so much.
    pub(crate) fn of(allowance: &Arc<Allowance>) -> Self {
        Self { room: watch::Sender::new(1), allowance: Arc::downgrade(allowance), ..Self::default() }
    }

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
        self.streams.load(Ordering::SeqCst)
    }

    /// How many streams there may be by what the link may hold now. That only grows.
    pub(crate) fn streams_max(&self) -> usize {
        let allowance = self.allowance.upgrade();
        allowance.map_or(usize::MAX, |allowance| window::streams(allowance.bytes()) as usize)
    }

    /// What has come over each stream and is held still, be it that it waits to be read or, once read, to be passed on.
    pub(crate) fn held(&self) -> Vec<usize> {
        self.open.lock().values().map(FlowControl::used_capacity).collect()
    }

    /// Waits until somebody waits for room.
    pub(crate) async fn room_wanted(&self) {
        self.room_wanted.notified().await;
    }

    /// There is room for so many streams now, as the window is made for these. Those that wait look again.
    pub(crate) fn make_room(&self, streams: usize) {
        self.room.send_replace(streams);
    }

    /// Waits until there is room for all streams that are counted. Whoever begins before has a window that is too wide.
    pub(crate) async fn room(&self) {
        // The sender lives as long as this.
        let _ = self.room.subscribe().wait_for(|room| self.streams() <= *room).await;
    }

    /// Counts a stream for as long as the guard is held.
    pub(crate) fn open_stream(self: &Arc<Self>) -> StreamGuard {
        self.open_stream_at(None)
    }

    /// The same, and the place is held as long.
    pub(crate) fn open_stream_at(self: &Arc<Self>, place: Option<Seat>) -> StreamGuard {
        let before = self.streams.fetch_add(1, Ordering::SeqCst);
        if before >= *self.room.borrow() {
            self.room_wanted.notify_one();
        }
        StreamGuard {
            traffic: self.clone(),
            place,
            before,
            begun: None,
            _allowance: self.allowance.upgrade(),
        }
    }
}

/// A stream that is counted.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    traffic: Arc<Traffic>,
    place: Option<Seat>,
    // How many others there were when it was counted.
    before: usize,
    begun: Option<u64>,
    // What has come may be held when the link has ended.
    _allowance: Option<Arc<Allowance>>,
}

impl StreamGuard {
    /// Is cancelled when the stream is to give its place to another.
    pub(crate) fn leave(&self) -> Option<&CancellationToken> {
        self.place.as_ref().map(Seat::leave)
    }

    /// Whether the link may have it beside those that were counted before.
    pub(crate) fn has_place(&self) -> bool {
        self.before < self.traffic.streams_max()
    }

    /// How many streams there were before it.
    pub(crate) fn before(&self) -> usize {
        self.before
    }

    /// Whether it is of a client that nobody vouches for, and so has a place.
    pub(crate) fn is_unvouched(&self) -> bool {
        self.place.is_some()
    }

    /// The stream begins: what comes over it is counted.
    pub(crate) fn begin(&mut self, flow: FlowControl) {
        let number = self.traffic.next.fetch_add(1, Ordering::Relaxed);
        self.traffic.open.lock().insert(number, flow);
        self.begun = Some(number);
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        if let Some(number) = self.begun {
            // The last handle of the stream, which ends with it: outside the lock.
            let flow = self.traffic.open.lock().remove(&number);
            drop(flow);
        }
        self.traffic.streams.fetch_sub(1, Ordering::SeqCst);
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

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn peers_that_vanish_are_noticed_and_readers_that_stand_still_are_left() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tuned = async |tune: fn(&TcpStream)| {
            let socket = TcpStream::connect(address).await.unwrap();
            tune(&socket);
            let socket = SockRef::from(&socket);
            assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
            let asked = (
                socket.tcp_keepalive_time(),
                socket.tcp_keepalive_interval(),
                socket.tcp_keepalive_retries(),
            );
            assert_eq!((asked.0.unwrap(), asked.1.unwrap(), asked.2.unwrap()), tls::socket::KEEPALIVE);
            socket.tcp_user_timeout().unwrap().filter(|limit| !limit.is_zero())
        };
        assert_eq!(tuned(tune_stream).await, None);
        assert_eq!(tuned(tune_link).await, Some(USER_TIMEOUT));
    }
}
