//! What goes wrong between a server and its clients: refused and reset connections, silence, slowness, broken answers.
//!
//! Faults act beneath HTTP, on each connection's reads and writes, so that clients see what they see on a bad network.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ServerConfig;
use tls::listener::TlsListener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;

#[derive(Debug, Default)]
struct Wakers {
    read: Mutex<Option<Waker>>,
    write: Mutex<Option<Waker>>,
}

/// The faults of one server.
#[derive(Debug)]
pub(crate) struct Faults {
    /// Whether connections are refused; the listener follows it.
    refusing: watch::Sender<bool>,
    /// Connections accepted before the last cut are dead.
    cuts: AtomicU64,
    accepted: AtomicU64,
    silent: watch::Sender<bool>,
    rate: Mutex<Option<u64>>,
    connections: Mutex<Vec<Weak<Wakers>>>,
    /// Answers that break off after so many bytes: the next to a request whose path or query contains that.
    cut_after: Mutex<VecDeque<(String, u64)>>,
    failures: Mutex<VecDeque<u16>>,
    /// What every request is answered with whose path begins so, if it is.
    failing: Mutex<Option<(String, u16)>>,
    /// Writes that are carried out and not answered: the next whose path begins so.
    lost: Mutex<VecDeque<String>>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            refusing: watch::channel(false).0,
            cuts: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            silent: watch::channel(false).0,
            rate: Mutex::default(),
            connections: Mutex::default(),
            cut_after: Mutex::default(),
            failures: Mutex::default(),
            failing: Mutex::default(),
            lost: Mutex::default(),
        }
    }
}

impl Faults {
    pub(crate) fn cut(&self) {
        self.refusing.send_replace(true);
        self.reset();
    }

    pub(crate) fn refuses(&self) -> bool {
        *self.refusing.borrow()
    }

    /// Tells of each cut and each healing.
    pub(crate) fn refusals(&self) -> watch::Receiver<bool> {
        self.refusing.subscribe()
    }

    /// Tells of each silence and its end.
    fn silences(&self) -> watch::Receiver<bool> {
        self.silent.subscribe()
    }

    /// How many cuts there have been: what begins now is ended by the next.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::SeqCst)
    }

    /// How many connections there have been.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::SeqCst)
    }

    pub(crate) fn reset(&self) {
        self.cuts.fetch_add(1, Ordering::SeqCst);
        self.wake();
    }

    pub(crate) fn heal(&self) {
        self.silent.send_replace(false);
        self.refusing.send_replace(false);
        *self.rate.lock() = None;
        self.cut_after.lock().clear();
        self.failures.lock().clear();
        *self.failing.lock() = None;
        self.lost.lock().clear();
        self.wake();
    }

    pub(crate) fn black_hole(&self) {
        self.silent.send_replace(true);
    }

    pub(crate) fn throttle(&self, bytes_per_second: Option<u64>) {
        *self.rate.lock() = bytes_per_second.map(|rate| rate.max(1));
        self.wake();
    }

    pub(crate) fn cut_after(&self, of: &str, bytes: u64) {
        self.cut_after.lock().push_back((of.to_owned(), bytes));
    }

    pub(crate) fn take_cut_after(&self, path: &str, query: &str) -> Option<u64> {
        let next = self
            .cut_after
            .lock()
            .pop_front_if(|(of, _)| [path, query].iter().any(|asked| asked.contains(of.as_str())));
        next.map(|(_, bytes)| bytes)
    }

    pub(crate) fn fail_next(&self, status: u16) {
        self.failures.lock().push_back(status);
    }

    pub(crate) fn take_failure(&self, path: &str) -> Option<u16> {
        let always = || {
            let failing = self.failing.lock();
            failing.as_ref().filter(|(below, _)| path.starts_with(below)).map(|(_, status)| *status)
        };
        self.failures.lock().pop_front().or_else(always)
    }

    pub(crate) fn lose_answer(&self, below: &str) {
        self.lost.lock().push_back(below.to_owned());
    }

    /// Whether the answer to a write to that path is lost; the connections are reset then.
    pub(crate) fn loses_answer(&self, path: &str) -> bool {
        let loses = self.lost.lock().pop_front_if(|below| path.starts_with(below.as_str())).is_some();
        if loses {
            self.reset();
        }
        loses
    }

    pub(crate) fn fail(&self, below: &str, status: u16) {
        *self.failing.lock() = Some((below.to_owned(), status));
    }

    fn wake(&self) {
        self.connections.lock().retain(|connection| {
            let Some(connection) = connection.upgrade() else { return false };
            for waker in [connection.read.lock().take(), connection.write.lock().take()].into_iter().flatten()
            {
                waker.wake();
            }
            true
        });
    }
}

/// A connection that can be reset from outside.
pub(crate) trait Reset {
    /// Lets the peer see a reset when this is closed.
    fn reset(&self);
}

impl Reset for TcpStream {
    fn reset(&self) {
        _ = self.set_zero_linger();
    }
}

impl Reset for TlsStream<TcpStream> {
    fn reset(&self) {
        _ = self.get_ref().0.set_zero_linger();
    }
}

/// A connection with faults.
pub(crate) struct Faulty<C> {
    pub(crate) inner: C,
    faults: Arc<Faults>,
    born: u64,
    wakers: Arc<Wakers>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<C: Reset> Faulty<C> {
    /// `born`: how many cuts there had been when the connection began, which may be before its handshake.
    pub(crate) fn new(inner: C, born: u64, faults: Arc<Faults>) -> Self {
        let wakers = Arc::<Wakers>::default();
        faults.connections.lock().push(Arc::downgrade(&wakers));
        faults.accepted.fetch_add(1, Ordering::SeqCst);
        Self { inner, faults, born, wakers, pause: None }
    }

    fn check(&self, slot: &Mutex<Option<Waker>>, cx: &Context<'_>) -> Poll<io::Result<()>> {
        // Before looking, so that a change between looking and waiting is not missed.
        *slot.lock() = Some(cx.waker().clone());
        if self.faults.cuts() > self.born {
            self.inner.reset();
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if *self.faults.silent.borrow() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

impl<C: AsyncRead + Reset + Unpin> AsyncRead for Faulty<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.check(&self.wakers.read, cx))?;
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

/// How often a throttled connection sends.
const SLICE: Duration = Duration::from_millis(20);

impl<C: AsyncWrite + Reset + Unpin> AsyncWrite for Faulty<C> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.check(&self.wakers.write, cx))?;
        let rate = *self.faults.rate.lock();
        let Some(rate) = rate else {
            self.pause = None;
            return Pin::new(&mut self.inner).poll_write(cx, buf);
        };
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let slice = (rate / 50).max(1);
        let some = buf.len().min(usize::try_from(slice).unwrap_or(usize::MAX));
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, buf.get(..some).unwrap_or(buf)))?;
        let earned = Duration::from_nanos(1_000_000_000_u64.saturating_mul(written as u64) / rate);
        self.pause = Some(Box::pin(tokio::time::sleep(earned.max(SLICE.min(earned)))));
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.check(&self.wakers.write, cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.check(&self.wakers.write, cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Accepts on one port unless connections are refused; then the port is closed. Of a silent server its kernel accepts them, and nobody shakes hands.
pub(crate) struct FaultyListener<L> {
    address: SocketAddr,
    listener: Option<L>,
    wrap: Box<dyn Fn(TcpListener) -> L + Send>,
    faults: Arc<Faults>,
    refusing: watch::Receiver<bool>,
    silent: watch::Receiver<bool>,
}

impl FaultyListener<TcpListener> {
    pub(crate) fn plain(listener: TcpListener, faults: Arc<Faults>) -> io::Result<Self> {
        Self::new(listener, faults, Box::new(|listener| listener))
    }
}

impl FaultyListener<TlsListener> {
    pub(crate) fn tls(listener: TcpListener, config: ServerConfig, faults: Arc<Faults>) -> io::Result<Self> {
        let wrap =
            move |listener| TlsListener::new(listener, config.clone(), tls::listener::Limits::default());
        Self::new(listener, faults, Box::new(wrap))
    }
}

impl<L> FaultyListener<L> {
    fn new(
        listener: TcpListener,
        faults: Arc<Faults>,
        wrap: Box<dyn Fn(TcpListener) -> L + Send>,
    ) -> io::Result<Self> {
        let (refusing, silent) = (faults.refusals(), faults.silences());
        let (address, listener) = (listener.local_addr()?, Some(wrap(listener)));
        Ok(Self { address, listener, wrap, faults, refusing, silent })
    }
}

impl<L> axum::serve::Listener for FaultyListener<L>
where
    L: axum::serve::Listener<Addr = SocketAddr>,
    L::Io: Reset,
{
    type Io = Faulty<L::Io>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            if *self.refusing.borrow_and_update() {
                self.listener = None;
                if self.refusing.wait_for(|refusing| !refusing).await.is_err() {
                    return std::future::pending().await;
                }
            }
            let Some(listener) = &mut self.listener else {
                // Sockets of connections that were closed may hold the port for a moment.
                match TcpListener::bind(self.address).await {
                    Ok(listener) => self.listener = Some((self.wrap)(listener)),
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
                continue;
            };
            let is_silent = *self.silent.borrow_and_update();
            tokio::select! {
                (io, address) = listener.accept(), if !is_silent => {
                    return (Faulty::new(io, self.faults.cuts(), self.faults.clone()), address);
                }
                changed = self.refusing.changed() => if changed.is_err() {
                    return std::future::pending().await;
                },
                changed = self.silent.changed() => if changed.is_err() {
                    return std::future::pending().await;
                },
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}
