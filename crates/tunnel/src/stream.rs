//! A stream of a link as bytes: what is read gives its sender room again, once more is asked for; what is written waits for room.
//!
//! `END_STREAM` is the end of one direction, as FIN is; `RST_STREAM` ends both, as RST does.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::{protocol::MAX_FRAME, relay::Pipe, socket::StreamGuard};

/// Frames shorter than this are put together while they wait: each that waits in HTTP/2 costs it more than its bytes, and keeps the 8 KiB that it was read
/// with.
const SHORT: usize = 4096;

/// How many bytes of short frames make a chunk.
const CHUNK: usize = 16 * 1024;

/// A stream that was answered with 200.
#[derive(Debug)]
pub struct TunnelStream {
    send: SendStream<Bytes>,
    receive: RecvStream,
    chunk: Bytes,
    // How much of it the reader has: until it asks for more that is not passed on, and held still.
    taken: usize,
    // What came while nobody took it: no more than the stream's window, as its sender gets no room for it.
    waiting: VecDeque<Bytes>,
    short: BytesMut,
    // How the peer's direction ended, as far as that was seen before all before it was taken.
    end: Option<io::Result<()>>,
    ended: bool,
    // Of a stream that may have to give its place to another.
    leave: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    guard: StreamGuard,
}

impl TunnelStream {
    pub(crate) fn new(send: SendStream<Bytes>, mut receive: RecvStream, mut guard: StreamGuard) -> Self {
        guard.begin(receive.flow_control().clone());
        Self {
            send,
            receive,
            chunk: Bytes::new(),
            taken: 0,
            waiting: VecDeque::new(),
            short: BytesMut::new(),
            end: None,
            ended: false,
            leave: guard.leave().map(|leave| Box::pin(leave.clone().cancelled_owned())),
            guard,
        }
    }
}

impl TunnelStream {
    /// Is cancelled when it has to end for another.
    pub(crate) fn leave(&self) -> Option<CancellationToken> {
        self.guard.leave().cloned()
    }

    /// Whether it has to end for another. Both ends see it as a reset.
    fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(leave) = &mut self.leave else { return Poll::Pending };
        ready!(leave.as_mut().poll(cx));
        self.leave = None;
        self.send.send_reset(Reason::CANCEL);
        self.waiting.clear();
        self.short.clear();
        self.end = Some(Err(io::ErrorKind::ConnectionReset.into()));
        Poll::Ready(())
    }

    fn keep(&mut self, chunk: Bytes) {
        if chunk.len() < SHORT {
            self.short.extend_from_slice(&chunk);
            if self.short.len() < CHUNK {
                return;
            }
        }
        if !self.short.is_empty() {
            let short = self.short.split().freeze();
            self.waiting.push_back(short);
        }
        if chunk.len() >= SHORT {
            self.waiting.push_back(chunk);
        }
    }

    /// The next bytes, `None` at the end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if let Some(chunk) = self.waiting.pop_front() {
            return Poll::Ready(Ok(Some(chunk)));
        }
        if !self.short.is_empty() {
            return Poll::Ready(Ok(Some(self.short.split().freeze())));
        }
        match self.end.take() {
            Some(Ok(())) => {
                self.end = Some(Ok(()));
                return Poll::Ready(Ok(None));
            }
            Some(Err(error)) => return Poll::Ready(Err(error)),
            None => {}
        }
        Poll::Ready(ready!(self.receive.poll_data(cx)).transpose().map_err(broken))
    }
}

fn broken(error: h2::Error) -> io::Error {
    if error.is_io()
        && let Some(error) = error.into_io()
    {
        return error;
    }
    io::ErrorKind::ConnectionReset.into()
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if self.poll_leave(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let taken = std::mem::take(&mut self.taken);
        if taken > 0 {
            self.receive.flow_control().release_capacity(taken).map_err(broken)?;
        }
        while self.chunk.is_empty() {
            match ready!(self.poll_chunk(cx))? {
                Some(chunk) => self.chunk = chunk,
                None => return Poll::Ready(Ok(())),
            }
        }
        let read = self.chunk.len().min(buf.remaining());
        buf.put_slice(&self.chunk[..read]);
        self.chunk.advance(read);
        self.taken = read;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            // HTTP/2 counts empty frames as an attack.
            return Poll::Ready(Ok(0));
        }
        let wanted = buf.len().min(MAX_FRAME as usize);
        self.send.reserve_capacity(wanted);
        while self.send.capacity() == 0 {
            match ready!(self.send.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(broken(error))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        let written = self.send.capacity().min(wanted);
        self.send.send_data(Bytes::copy_from_slice(&buf[..written]), false).map_err(broken)?;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.ended {
            self.ended = true;
            self.send.send_data(Bytes::new(), true).map_err(broken)?;
        }
        Poll::Ready(Ok(()))
    }
}

impl Pipe for TunnelStream {
    fn abort(&mut self) {
        self.send.send_reset(Reason::CANCEL);
    }

    fn poll_prefetch(&mut self, cx: &mut Context<'_>) {
        while self.end.is_none() {
            match self.receive.poll_data(cx) {
                Poll::Ready(Some(Ok(chunk))) => self.keep(chunk),
                Poll::Ready(Some(Err(error))) => self.end = Some(Err(broken(error))),
                Poll::Ready(None) => self.end = Some(Ok(())),
                Poll::Pending => return,
            }
        }
    }

    fn poll_broken(&mut self, cx: &mut Context<'_>, _ended: bool) -> Poll<()> {
        if self.poll_leave(cx).is_ready() || matches!(self.end, Some(Err(_))) {
            return Poll::Ready(());
        }
        match self.send.poll_reset(cx) {
            Poll::Ready(Ok(_)) => Poll::Ready(()),
            // The connection is gone. Another error says that the stream is closed in order.
            Poll::Ready(Err(error)) if error.is_io() => Poll::Ready(()),
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use http::{Request, Response};
    use tokio::{io::duplex, task::JoinSet, time::timeout};

    use super::*;
    use crate::{relay::relay, socket::Traffic};

    /// A relay reads more at once than its client may take: that is held as well, and is not the sender's to send again.
    #[tokio::test(start_paused = true)]
    async fn what_is_read_and_not_passed_on_gives_its_sender_no_room() {
        const WINDOW: u32 = 200_000;
        let ((near, far), mut tasks) = (duplex(1 << 20), JoinSet::new());
        let taken = Arc::<AtomicUsize>::default();
        let count = taken.clone();
        tasks.spawn(async move {
            let mut server = h2::server::handshake(far).await.unwrap();
            let (_, mut respond) = server.accept().await.unwrap().unwrap();
            let mut stream: SendStream<Bytes> = respond.send_response(Response::new(()), false).unwrap();
            let send = async {
                loop {
                    stream.reserve_capacity(10_000);
                    while stream.capacity() == 0 {
                        let _ = poll_fn(|cx| stream.poll_capacity(cx)).await.unwrap().unwrap();
                    }
                    let granted = stream.capacity();
                    count.fetch_add(granted, Ordering::Relaxed);
                    stream.send_data(vec![7; granted].into(), false).unwrap();
                }
            };
            tokio::select! {
                () = send => {}
                () = async { while server.accept().await.is_some() {} } => {}
            }
        });
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(2 * WINDOW);
        let (mut send, connection) = builder.handshake::<_, Bytes>(near).await.unwrap();
        tasks.spawn(async move { drop(connection.await) });
        let (response, body) = send.send_request(Request::new(()), false).unwrap();
        let receive = response.await.unwrap().into_body();
        let mut stream = TunnelStream::new(body, receive, Arc::<Traffic>::default().open_stream());
        let (mut client, _unread) = duplex(1000);
        let relayed = relay(&mut stream, &mut client, Vec::new());
        assert!(timeout(Duration::from_mins(1), relayed).await.is_err());
        assert_eq!(taken.load(Ordering::Relaxed), WINDOW as usize);
    }
}
