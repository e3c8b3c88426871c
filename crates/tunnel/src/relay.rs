//! Two connections made one: bytes both ways, the end of each direction by itself, a break of one a break of the other.
//!
//! Who waits for something to read holds no buffer: a thousand idle streams cost little.
//!
//! A TCP connection is set to end with a reset for as long as it is relayed, so whatever ends the relay, be it that its link died, that a drain ran
//! out or that the process was killed, nobody takes half of what was sent for all of it. A Unix socket knows no reset: there the
//! end of what its peer reads is all that it is told.

use std::{
    future::poll_fn,
    io, mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, Interest},
    net::{TcpStream, UnixStream},
    time::{Instant, Sleep, sleep},
};
use tokio_util::io::poll_read_buf;

use crate::{
    socket::reset_on_close,
    spare_buffer::{self, SIZE},
};

/// How often it is looked whether a peer is still there whose bytes wait, where nothing tells.
const LOOK: Duration = Duration::from_secs(1);

/// A connection that can be relayed.
pub trait Pipe: AsyncRead + AsyncWrite + Unpin + Send {
    /// Breaks the connection so that its peer notices.
    fn abort(&mut self) {}

    /// Whether dropping the connection breaks it, too, so that its peer notices. Nothing to do where it does anyway, or cannot.
    fn set_broken_by_drop(&mut self, _broken: bool) {}

    /// Takes over what has come while nobody can use it yet, where it costs less here than where it is.
    fn poll_prefetch(&mut self, _cx: &mut Context<'_>) {}

    /// Whether the peer broke the connection; asked when reading does not tell: after the peer has `ended` its direction, or while
    /// what it sent cannot be written.
    fn poll_broken(&mut self, _cx: &mut Context<'_>, _ended: bool) -> Poll<()> {
        Poll::Pending
    }
}

impl Pipe for TcpStream {
    fn abort(&mut self) {
        reset_on_close(self, true);
    }

    fn set_broken_by_drop(&mut self, broken: bool) {
        reset_on_close(self, broken);
    }

    /// Wakes nobody. No system call: the runtime has been told.
    fn poll_broken(&mut self, _cx: &mut Context<'_>, ended: bool) -> Poll<()> {
        // Who closed after its last byte resets what comes afterwards; that byte may still be on its way to the other end.
        if !ended && self.try_io(Interest::ERROR, || Ok(())).is_ok() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// Has no way to break: a peer that reads to the end cannot tell an end from a break. Who uses one, as an API server does for its
/// `EgressSelector`, has TLS inside.
impl Pipe for UnixStream {}

impl Pipe for tokio::io::DuplexStream {}

impl<T: Pipe> Pipe for tokio_rustls::server::TlsStream<T> {
    fn abort(&mut self) {
        self.get_mut().0.abort();
    }

    fn set_broken_by_drop(&mut self, broken: bool) {
        self.get_mut().0.set_broken_by_drop(broken);
    }

    fn poll_broken(&mut self, cx: &mut Context<'_>, ended: bool) -> Poll<()> {
        self.get_mut().0.poll_broken(cx, ended)
    }
}

impl<P: Pipe + ?Sized> Pipe for Box<P> {
    fn abort(&mut self) {
        (**self).abort();
    }

    fn set_broken_by_drop(&mut self, broken: bool) {
        (**self).set_broken_by_drop(broken);
    }

    fn poll_prefetch(&mut self, cx: &mut Context<'_>) {
        (**self).poll_prefetch(cx);
    }

    fn poll_broken(&mut self, cx: &mut Context<'_>, ended: bool) -> Poll<()> {
        (**self).poll_broken(cx, ended)
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

/// As [`relay`], but it is an error if `a` says nothing after `first` for so long.
pub async fn relay_once_heard(
    a: &mut impl Pipe,
    b: &mut impl Pipe,
    first: Vec<u8>,
    within: Duration,
) -> (Passed, io::Result<()>) {
    both(a, b, first, Some(Box::pin(sleep(within)))).await
}

/// Relays until both directions have ended. On an error both connections are broken, as they are if they are dropped before
/// the end. `first` is what has been read of `a` already and goes to `b` before all else.
pub async fn relay(a: &mut impl Pipe, b: &mut impl Pipe, first: Vec<u8>) -> (Passed, io::Result<()>) {
    both(a, b, first, None).await
}

async fn both(
    a: &mut impl Pipe,
    b: &mut impl Pipe,
    first: Vec<u8>,
    mut unheard: Option<Pin<Box<Sleep>>>,
) -> (Passed, io::Result<()>) {
    let mut up = Half::new(first);
    let mut down = Half::new(Vec::new());
    let mut look = Look::default();
    a.set_broken_by_drop(true);
    b.set_broken_by_drop(true);
    let result = poll_fn(|cx| {
        let up_done = up.poll(cx, a, b)?;
        let down_done = down.poll(cx, b, a)?;
        if up_done.is_ready() && down_done.is_ready() {
            return Poll::Ready(Ok(()));
        }
        if up.read > 0 {
            unheard = None;
        }
        if unheard.as_mut().is_some_and(|late| late.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        look.again(cx, up.waits() || down.waits());
        if up.poll_broken(cx, a).is_ready() || down.poll_broken(cx, b).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Pending
    })
    .await;
    if result.is_ok() {
        a.set_broken_by_drop(false);
        b.set_broken_by_drop(false);
    } else {
        a.abort();
        b.abort();
    }
    (Passed { up: up.passed, down: down.passed }, result)
}

/// Wakes a relay now and then while a write waits. Made when the first one does, and kept until it finds that none does any more, so
/// waiting often costs no more than waiting once.
#[derive(Default)]
struct Look(Option<Pin<Box<Sleep>>>);

impl Look {
    fn again(&mut self, cx: &mut Context<'_>, waits: bool) {
        if !waits && self.0.is_none() {
            return;
        }
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep(LOOK)));
        while timer.as_mut().poll(cx).is_ready() {
            if !waits {
                self.0 = None;
                return;
            }
            timer.as_mut().reset(Instant::now() + LOOK);
        }
    }
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
    // Bytes from the reader, and to the writer.
    read: u64,
    passed: u64,
}

impl Half {
    fn new(first: Vec<u8>) -> Self {
        Self { buffer: first, start: 0, ended: false, done: false, unflushed: false, read: 0, passed: 0 }
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
            match self.fill(cx, reader) {
                Poll::Ready(result) => result?,
                Poll::Pending => return self.flush(cx, writer),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether the writer takes nothing, so that the reader is not asked.
    fn waits(&self) -> bool {
        self.start < self.buffer.len()
    }

    /// Whether the reader broke, where reading does not tell.
    fn poll_broken(&self, cx: &mut Context<'_>, reader: &mut impl Pipe) -> Poll<()> {
        if self.ended || self.waits() { reader.poll_broken(cx, self.ended) } else { Poll::Pending }
    }

    /// Flushes before waiting; never more than pending.
    fn flush(&mut self, cx: &mut Context<'_>, writer: &mut impl Pipe) -> Poll<io::Result<()>> {
        if self.unflushed {
            ready!(Pin::new(writer).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Pending
    }

    fn fill(&mut self, cx: &mut Context<'_>, reader: &mut impl Pipe) -> Poll<io::Result<()>> {
        let mut buffer = mem::take(&mut self.buffer);
        self.start = 0;
        if buffer.capacity() < SIZE {
            buffer = spare_buffer::take();
        }
        buffer.clear();
        let polled = poll_read_buf(Pin::new(reader), cx, &mut buffer);
        if let Poll::Ready(Ok(read @ 1..)) = polled {
            self.buffer = buffer;
            self.read += read as u64;
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

    /// What came before does not count, nor what the other end says.
    #[tokio::test(start_paused = true)]
    async fn who_says_no_more_is_not_waited_for() {
        const LIMIT: Duration = Duration::from_secs(30);
        for says_more in [false, true] {
            let (mut client, mut a) = duplex(64);
            let (mut b, mut server) = duplex(64);
            let began = Instant::now();
            let relayed = async {
                let (_, result) = relay_once_heard(&mut a, &mut b, b"first".to_vec(), LIMIT).await;
                (result.map_err(|error| error.kind()), began.elapsed())
            };
            let talk = async {
                server.write_all(b"answer").await.unwrap();
                if says_more {
                    client.write_all(b"more").await.unwrap();
                }
                sleep(2 * LIMIT).await;
                drop((client, server));
            };
            let (ended, ()) = tokio::join!(relayed, talk);
            let expected =
                if says_more { (Ok(()), 2 * LIMIT) } else { (Err(io::ErrorKind::TimedOut), LIMIT) };
            assert_eq!(ended.0, expected.0);
            assert!(ended.1 >= expected.1 && ended.1 < expected.1 + LOOK, "{:?}", ended.1);
        }
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
