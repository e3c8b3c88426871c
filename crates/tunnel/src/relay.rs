//! Two connections made one: bytes both ways, the end of each direction by itself, a break of one a break of the other.
//!
//! Who waits for something to read holds no buffer: a thousand idle streams cost little.

use std::{
    future::poll_fn,
    io, mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_util::io::poll_read_buf;

use crate::{
    socket::reset_on_close,
    spare_buffer::{self, SIZE},
};

/// A connection that can be relayed.
pub trait Pipe: AsyncRead + AsyncWrite + Unpin + Send {
    /// Breaks the connection so that its peer notices.
    fn abort(&mut self) {}

    /// Takes over what has come while nobody can use it yet, where it costs less here than where it is.
    fn poll_prefetch(&mut self, _cx: &mut Context<'_>) {}

    /// Whether the peer broke the connection; asked after the peer has ended its direction, when reading tells no more.
    fn poll_broken(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl Pipe for TcpStream {
    fn abort(&mut self) {
        reset_on_close(self);
    }
}

impl Pipe for UnixStream {}

impl Pipe for tokio::io::DuplexStream {}

impl<T: Pipe> Pipe for tokio_rustls::server::TlsStream<T> {
    fn abort(&mut self) {
        self.get_mut().0.abort();
    }
}

impl<P: Pipe + ?Sized> Pipe for Box<P> {
    fn abort(&mut self) {
        (**self).abort();
    }

    fn poll_prefetch(&mut self, cx: &mut Context<'_>) {
        (**self).poll_prefetch(cx);
    }

    fn poll_broken(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        (**self).poll_broken(cx)
    }
}

/// What passed, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// From the first to the second.
    pub up: u64,
    /// From the second to the first.
    pub down: u64,
}

/// Relays until both directions have ended. On an error both connections are broken. `first` is what has been read of `a`
/// already and goes to `b` before all else.
pub async fn relay(a: &mut impl Pipe, b: &mut impl Pipe, first: Vec<u8>) -> (Passed, io::Result<()>) {
    let mut up = Half::new(first);
    let mut down = Half::new(Vec::new());
    let result = poll_fn(|cx| {
        let up_done = up.poll(cx, a, b)?;
        let down_done = down.poll(cx, b, a)?;
        if up_done.is_ready() && down_done.is_ready() {
            return Poll::Ready(Ok(()));
        }
        let broken = up.ended && a.poll_broken(cx).is_ready() || down.ended && b.poll_broken(cx).is_ready();
        if broken { Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())) } else { Poll::Pending }
    })
    .await;
    if result.is_err() {
        a.abort();
        b.abort();
    }
    (Passed { up: up.passed, down: down.passed }, result)
}

/// One direction.
struct Half {
    // What was read; up to `start` it is written.
    buffer: Vec<u8>,
    start: usize,
    // Nothing more comes from the reader.
    ended: bool,
    // And the writer knows.
    done: bool,
    unflushed: bool,
    passed: u64,
}

impl Half {
    fn new(first: Vec<u8>) -> Self {
        Self { buffer: first, start: 0, ended: false, done: false, unflushed: false, passed: 0 }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut impl Pipe,
        writer: &mut impl Pipe,
    ) -> Poll<io::Result<()>> {
        // Others of this thread get their turn after a quarter of a megabyte: a key may be among them.
        let mut turns = 4;
        while !self.done {
            while self.start < self.buffer.len() {
                let polled = Pin::new(&mut *writer).poll_write(cx, &self.buffer[self.start..]);
                let Poll::Ready(written) = polled else {
                    self.shrink();
                    reader.poll_prefetch(cx);
                    return Poll::Pending;
                };
                let written = written?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.start += written;
                self.passed += written as u64;
                self.unflushed = true;
            }
            if self.ended {
                ready!(Pin::new(&mut *writer).poll_shutdown(cx))?;
                self.done = true;
                break;
            }
            if turns == 0 {
                cx.waker().wake_by_ref();
                return self.flush(cx, writer);
            }
            turns -= 1;
            match self.read(cx, reader) {
                Poll::Ready(result) => result?,
                Poll::Pending => return self.flush(cx, writer),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Flushes before waiting; never more than pending.
    fn flush(&mut self, cx: &mut Context<'_>, writer: &mut impl Pipe) -> Poll<io::Result<()>> {
        if self.unflushed {
            ready!(Pin::new(writer).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Pending
    }

    fn read(&mut self, cx: &mut Context<'_>, reader: &mut impl Pipe) -> Poll<io::Result<()>> {
        let mut buffer = mem::take(&mut self.buffer);
        self.start = 0;
        if buffer.capacity() < SIZE {
            buffer = spare_buffer::take();
        }
        buffer.clear();
        let polled = poll_read_buf(Pin::new(reader), cx, &mut buffer);
        if matches!(polled, Poll::Ready(Ok(1..))) {
            self.buffer = buffer;
            return Poll::Ready(Ok(()));
        }
        spare_buffer::give(buffer);
        self.ended = polled.is_ready();
        polled.map_ok(drop)
    }

    /// Little that waits to be written needs no large buffer.
    fn shrink(&mut self) {
        let waiting = &self.buffer[self.start..];
        if waiting.len() < SIZE / 4 && self.buffer.capacity() >= SIZE {
            let waiting = waiting.to_vec();
            spare_buffer::give(mem::replace(&mut self.buffer, waiting));
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// Nothing passes, so nothing is held, whatever passed before.
    #[tokio::test]
    async fn an_idle_direction_holds_no_buffer() {
        let (mut client, mut a) = duplex(1 << 20);
        let (mut b, mut server) = duplex(1 << 20);
        client.write_all(&vec![7; 500_000]).await.unwrap();
        let mut half = Half::new(Vec::new());
        for _ in 0..100 {
            let polled = poll_fn(|cx| Poll::Ready(half.poll(cx, &mut a, &mut b))).await;
            assert!(polled.is_pending());
        }
        assert_eq!(half.passed, 500_000);
        assert_eq!(half.buffer.capacity(), 0);
        server.read_exact(&mut vec![0; 500_000]).await.unwrap();
        // What cannot be written is held, in as much room as it needs.
        let (mut b, _unread) = duplex(10);
        client.write_all(&[7; 50]).await.unwrap();
        let polled = poll_fn(|cx| Poll::Ready(half.poll(cx, &mut a, &mut b))).await;
        assert!(polled.is_pending() && half.passed == 500_010);
        assert!(half.buffer.len() == 40 && half.buffer.capacity() < 100);
    }

    #[tokio::test]
    async fn directions_end_by_themselves() {
        let (mut client, mut a) = duplex(64);
        let (mut b, mut server) = duplex(64);
        let relayed = async move { relay(&mut a, &mut b, b"first ".to_vec()).await };
        let talk = async move {
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            let mut got = String::new();
            server.read_to_string(&mut got).await.unwrap();
            assert_eq!(got, "first question");
            let answer = vec![7; 300_000];
            let (sent, received) = tokio::join!(
                async {
                    server.write_all(&answer).await.unwrap();
                    server.shutdown().await.unwrap();
                },
                async {
                    let mut received = Vec::new();
                    client.read_to_end(&mut received).await.unwrap();
                    received
                }
            );
            let () = sent;
            assert_eq!(received, answer);
        };
        let ((passed, result), ()) = tokio::join!(relayed, talk);
        result.unwrap();
        assert_eq!(passed, Passed { up: 14, down: 300_000 });
    }
}
