//! Reads from a connection as much as is there, for a reader that asks for little at a time: rustls takes 4 KiB, so that a record
//! would cost five system calls.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use crate::spare_buffer;

/// A connection from which more is read than was asked for; the rest is for the next who asks.
#[derive(Debug)]
pub(crate) struct ReadAhead<T> {
    inner: T,
    // What was read; up to `taken` the reader has it. It holds nothing while it waits.
    ahead: Vec<u8>,
    taken: usize,
}

impl<T> ReadAhead<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, ahead: Vec::new(), taken: 0 }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ReadAhead<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.taken < this.ahead.len() {
            // What is here already costs no system call and is bounded by nothing else: others of this thread get their turn.
            ready!(tokio::task::coop::poll_proceed(cx)).made_progress();
        }
        if this.taken == this.ahead.len() {
            let mut buffer = spare_buffer::take();
            let polled = poll_read_buf(Pin::new(&mut this.inner), cx, &mut buffer);
            if !matches!(polled, Poll::Ready(Ok(1..))) {
                spare_buffer::give(buffer);
                return polled.map_ok(drop);
            }
            (this.ahead, this.taken) = (buffer, 0);
        }
        let some = (this.ahead.len() - this.taken).min(buf.remaining());
        buf.put_slice(&this.ahead[this.taken..this.taken + some]);
        this.taken += some;
        if this.taken == this.ahead.len() {
            spare_buffer::give(std::mem::take(&mut this.ahead));
            this.taken = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ReadAhead<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn bytes_come_in_order_and_nothing_is_held_after_them() {
        let (mut far, near) = duplex(1 << 20);
        let mut near = ReadAhead::new(near);
        let sent: Vec<u8> = (0..=250_u8).cycle().take(200_000).collect();
        far.write_all(&sent).await.unwrap();
        let mut got = Vec::new();
        let mut bite = [0; 4096];
        while got.len() < sent.len() {
            let read = near.read(&mut bite).await.unwrap();
            got.extend_from_slice(&bite[..read]);
        }
        assert_eq!(got, sent);
        assert_eq!(near.ahead.capacity(), 0);
        near.write_all(b"answer").await.unwrap();
        let mut answer = [0; 6];
        far.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"answer");
        drop(far);
        assert_eq!(near.read(&mut bite).await.unwrap(), 0);
    }
}
