//! Large answers in few records and few calls of the kernel.
//!
//! An HTTP/2 server writes each frame of 16 KiB behind its head of nine bytes and flushes it: two TLS records, of which the second holds nine
//! bytes, and a call of the kernel. An answer of a hundred kilobytes to each of some watchers costs more by that than by its bytes. Here records are
//! filled, and a flush behind a large write waits for what is written next.

use std::io::{self, IoSlice, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::serve::Listener;
use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::listener::TlsListener;

/// What fits into a record.
const RECORD: usize = 16 << 10;

/// So much in records is given to the kernel before more is taken.
const QUEUE: usize = 4 * RECORD;

/// What is left of a write waits for the next one if it is shorter. To keep more would cost more, as it is copied once more, than the record that it
/// fills only partly.
const REST: usize = RECORD / 4;

/// More is likely to follow a write of so much.
const LARGE: usize = 8 << 10;

/// A listener of connections that send large answers. Their latency is that of others: nothing waits for time to pass.
pub struct FullRecordsListener(TlsListener);

impl FullRecordsListener {
    /// The connections of `listener`.
    pub fn new(listener: TlsListener) -> Self {
        Self(listener)
    }
}

impl Listener for FullRecordsListener {
    type Io = FullRecords<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = self.0.accept().await;
        (FullRecords::new(stream), address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

/// A server's TLS stream whose records are full.
pub struct FullRecords<S> {
    tls: TlsStream<S>,
    /// What is too short for a record: less than [`REST`].
    tail: Vec<u8>,
    /// About how much is in records that the kernel has not taken yet.
    queued: usize,
    /// A large write has not been flushed yet.
    written_large: bool,
    /// The caller was told that all is flushed; it is before the caller's task sleeps.
    owes_flush: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> FullRecords<S> {
    /// Takes over a stream whose handshake is done.
    pub fn new(mut tls: TlsStream<S>) -> Self {
        // The bound is [`QUEUE`].
        tls.get_mut().1.set_buffer_limit(None);
        Self { tls, tail: Vec::new(), queued: 0, written_large: false, owes_flush: false }
    }

    /// The state of the connection, with the client's certificate.
    pub fn connection(&self) -> &ServerConnection {
        self.tls.get_ref().1
    }

    /// All that was written goes to the kernel.
    fn poll_flush_now(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.tail.is_empty() {
            self.tls.get_mut().1.writer().write_all(&self.tail)?;
            self.tail.clear();
        }
        ready!(Pin::new(&mut self.tls).poll_flush(cx))?;
        self.queued = 0;
        self.owes_flush = false;
        Poll::Ready(Ok(()))
    }

    /// Records go to the session, and a rest that is too short for one waits.
    fn take(&mut self, bufs: &[IoSlice<'_>], length: usize) -> io::Result<()> {
        let all = self.tail.len() + length;
        let rest = all % RECORD;
        let now = if rest < REST { all - rest } else { all };
        let now_of_bufs = now.saturating_sub(self.tail.len());
        if now > 0 {
            let mut records = Vec::with_capacity(1 + bufs.len());
            records.push(IoSlice::new(&self.tail));
            records.extend(split(bufs, now_of_bufs).map(|(now, _)| IoSlice::new(now)));
            let taken = self.tls.get_mut().1.writer().write_vectored(&records)?;
            if taken != now {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.queued += now;
            self.tail.clear();
        }
        for (_, later) in split(bufs, now_of_bufs) {
            self.tail.extend_from_slice(later);
        }
        Ok(())
    }
}

/// Of each buffer what belongs to the first `at` bytes of all, and the rest.
fn split<'a>(bufs: &'a [IoSlice<'_>], mut at: usize) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    bufs.iter().map(move |buf| {
        let parts = buf.split_at(at.min(buf.len()));
        at -= parts.0.len();
        parts
    })
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for FullRecords<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.owes_flush {
            // Reading does not wait for it; the task is woken for either.
            let _ = this.poll_flush_now(cx)?;
        }
        Pin::new(&mut this.tls).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for FullRecords<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.queued >= QUEUE {
            ready!(Pin::new(&mut this.tls).poll_flush(cx))?;
            this.queued = 0;
        }
        let length = bufs.iter().map(|buf| buf.len()).sum();
        this.take(bufs, length)?;
        this.written_large = length >= LARGE;
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if std::mem::take(&mut this.written_large) {
            // Whoever has no more to write flushes again or waits for something else; in either case it is polled once more.
            this.owes_flush = true;
            cx.waker().wake_by_ref();
            return Poll::Ready(Ok(()));
        }
        this.poll_flush_now(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_flush_now(cx))?;
        Pin::new(&mut this.tls).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
