//! TCP as a tunnel needs it: no delay, a short queue, a peer that vanished noticed, a reset that stays a reset; and counting
//! of what passes.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::Notify,
};
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

/// A connection whose bytes are counted.
#[derive(Debug)]
pub struct Metered<T> {
    inner: T,
    traffic: Arc<Traffic>,
}

impl<T> Metered<T> {
    /// Counts what passes over `inner`.
    pub fn new(inner: T, traffic: Arc<Traffic>) -> Self {
        Self { inner, traffic }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Metered<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        let read = buf.filled().len().saturating_sub(before) as u64;
        self.traffic.received.fetch_add(read, Ordering::Relaxed);
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Metered<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.count(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.count(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<T> Metered<T> {
    fn count(&self, polled: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(written)) = polled {
            self.traffic.sent.fetch_add(*written as u64, Ordering::Relaxed);
        }
    }
}
