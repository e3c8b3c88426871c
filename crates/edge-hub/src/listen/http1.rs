//! A connection of HTTP/1.1, whatever is below it. Whose request is a watch is taken over from the HTTP library once the answer begins.
//!
//! An informer has a connection for each of its watches, which tell something now and then for half an hour. The library keeps buffers of 16 KiB
//! for each, and its state machine is as much work for an event as all that the hub does for it. What is left of HTTP when the head of the answer
//! is out is little: a length before each piece, and the end (RFC 9112, section 7.1). The connection ends with its watch.

use std::{
    convert::Infallible,
    future::{pending, poll_fn},
    io::{self, Write as _},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use axum::body::Body;
use bytes::{Buf, Bytes};
use futures::StreamExt as _;
use http::{HeaderValue, Method, Request, Response, Version, header, response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

use super::{
    HEAD, HEAD_SIZE,
    chunks::{ChunkStream, Chunks},
    lent::Lent,
    unread::{PIECE, UNREAD},
};

/// The end of an answer in pieces.
const LAST: &[u8] = b"0\r\n\r\n";

/// How many bytes a client may say more than its request, which nobody answers: the connection ends with its watch. What is more is no mistake.
const MORE: usize = 64 << 10;

/// How long a connection that is over is read on, until its client closes it. A request may have been answered before it was there whole, and a
/// connection that is closed with something unread is reset, which takes the answer from its client. Go's server waits half a second.
const LINGER: Duration = Duration::from_secs(2);

/// An answer that a connection goes on with by itself.
pub(super) struct TakenOver<Io> {
    io: Io,
    head: response::Parts,
    chunks: ChunkStream,
}

/// What a connection is taken over with, as soon as there is such an answer.
#[derive(Clone, Default)]
pub(super) struct Begun(Arc<Mutex<Option<(response::Parts, ChunkStream)>>>);

impl Begun {
    /// Gives the answer back if the library is to send it, and nothing any more if the connection is to go on with it.
    pub(super) async fn or_give_back(&self, mut response: Response<Body>, in_pieces: bool) -> Response<Body> {
        let chunks = response.extensions_mut().remove::<Chunks>();
        let Some(chunks) = chunks.filter(|_| in_pieces).and_then(|chunks| chunks.take()) else {
            return response;
        };
        *self.0.lock() = Some((response.into_parts().0, chunks));
        pending().await
    }
}

/// Whether the answer may be sent in pieces: before that version there are none, and of a HEAD there is no body.
pub(super) fn in_pieces<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_11 && request.method() != Method::HEAD
}

/// Answers what comes in over a connection until it ends, or one of its answers is to be gone on with, which takes less than this does: in a
/// task of its own, or with this dropped. Once `leaves` comes to pass it ends with the answers that are under way.
pub(super) async fn serve<Io, Answered>(
    io: Io,
    begun: &Begun,
    answer: impl Fn(Request<Incoming>) -> Answered,
    leaves: impl Future<Output = ()>,
) -> Option<TakenOver<Io>>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Answered: Future<Output = Response<Body>>,
{
    let lent = Lent::new(io);
    let is_left = {
        let service = service_fn(|request| {
            let answered = answer(request);
            async { Ok::<_, Infallible>(answered.await) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_SIZE);
        let connection = builder.serve_connection(TokioIo::new(lent.clone()), service);
        let mut connection = pin!(connection.with_upgrades());
        let is_left = tokio::select! {
            biased;
            () = taken_over(connection.as_mut(), begun) => false,
            () = leaves => true,
        };
        if is_left {
            connection.as_mut().graceful_shutdown();
            taken_over(connection, begun).await;
        }
        is_left
    };
    let answer = begun.0.lock().take();
    let io = lent.give_back()?;
    let Some((head, chunks)) = answer else {
        if !is_left {
            // How it ends is its client's to see.
            let _ = timeout(LINGER, read_on(io)).await;
        }
        return None;
    };
    Some(TakenOver { io, head, chunks })
}

/// Says that nothing more is written, and takes what comes until the client has closed, too.
async fn read_on(mut io: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    io.shutdown().await?;
    let mut buffer = vec![0; 16 << 10];
    while io.read(&mut buffer).await? > 0 {}
    Ok(())
}

/// Comes to pass when the connection has ended, or an answer of it has begun that it is to go on with by itself.
fn taken_over<C: Future>(mut connection: Pin<&mut C>, begun: &Begun) -> impl Future<Output = ()> {
    poll_fn(move |context| {
        // How it ends is its client's to see.
        let is_over = connection.as_mut().poll(context).is_ready();
        if is_over || begun.0.lock().is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
}

impl<Io: AsyncRead + AsyncWrite + Unpin> TakenOver<Io> {
    /// Sends it, until it ends or its client does not read it any more.
    pub(super) async fn go_on(self) {
        let Self { io, head, chunks } = self;
        // What becomes of it is its client's to see.
        let _ = send(io, head, chunks).await;
    }
}

async fn send(
    mut io: impl AsyncRead + AsyncWrite + Unpin,
    head: response::Parts,
    mut chunks: ChunkStream,
) -> io::Result<()> {
    write(&mut io, &mut Bytes::from(written(head))).await?;
    let mut more = 0;
    loop {
        let chunk = tokio::select! {
            biased;
            chunk = chunks.next() => chunk,
            said = hear(&mut io) => {
                let said = said?;
                more += said;
                if said == 0 || more > MORE {
                    return Ok(());
                }
                continue;
            }
        };
        match chunk {
            Some(Ok(chunk)) if chunk.is_empty() => {}
            Some(Ok(chunk)) => write(&mut io, &mut piece(chunk)).await?,
            None => {
                write(&mut io, &mut Bytes::from_static(LAST)).await?;
                return in_time(io.shutdown()).await;
            }
        }
    }
}

/// Writes, and what is below the connection does: TLS keeps what the network does not take yet.
async fn write(io: &mut (impl AsyncWrite + Unpin), bytes: &mut impl Buf) -> io::Result<()> {
    // As a rule all of it is one piece. What is longer may take the longer: a client is to read so much in that time.
    while bytes.remaining() > PIECE {
        in_time(io.write_all_buf(&mut (&mut *bytes).take(PIECE))).await?;
    }
    in_time(async {
        io.write_all_buf(bytes).await?;
        io.flush().await
    })
    .await
}

/// Goes on, unless the client does not read.
async fn in_time(written: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    timeout(UNREAD, written).await?
}

/// Waits for what the client sends, which is nothing to it, and says how many bytes: none, if it has closed.
async fn hear(io: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
    io.read(&mut [0; 64]).await
}

/// One piece of an answer, with its length before it. There is none without bytes: it would be the end of all.
fn piece(chunk: Bytes) -> impl Buf {
    let mut length = io::Cursor::new([0; 2 * size_of::<usize>() + 2]);
    // There is room for the digits of any length.
    let _ = write!(length, "{:x}\r\n", chunk.len());
    let written = usize::try_from(length.position()).unwrap_or_default();
    length.set_position(0);
    Buf::take(length, written).chain(chunk).chain(&b"\r\n"[..])
}

/// The head of an answer in pieces, after which the connection ends.
fn written(mut head: response::Parts) -> Vec<u8> {
    let headers = &mut head.headers;
    headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    if let Ok(now) = HeaderValue::from_str(&httpdate::fmt_http_date(std::time::SystemTime::now())) {
        headers.insert(header::DATE, now);
    }
    let mut text = format!("HTTP/1.1 {}\r\n", head.status).into_bytes();
    for (name, value) in headers.iter() {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(b"\r\n");
    text
}

#[cfg(test)]
mod tests {
    use tokio::{io::duplex, time::sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_not_lost_to_who_has_not_said_all_of_the_request() {
        let (near, far) = duplex(4096);
        let begun = Begun::default();
        let refuse = async |_| Response::builder().status(401).body(Body::from("who?")).unwrap();
        let served = serve(near, &begun, refuse, pending());
        let asked = async {
            let (mut from, mut to) = tokio::io::split(far);
            let length = 8 << 20;
            let head = format!("POST / HTTP/1.1\r\nHost: hub\r\nContent-Length: {length}\r\n\r\n");
            to.write_all(head.as_bytes()).await?;
            // As slowly as it comes over a network; and only then it reads.
            for _ in 0..length / (8 << 10) {
                to.write_all(&[b'x'; 8 << 10]).await?;
            }
            let mut answer = String::new();
            from.read_to_string(&mut answer).await?;
            drop((from, to));
            io::Result::Ok(answer)
        };
        let (taken, answer) = tokio::join!(served, asked);
        assert!(taken.is_none());
        let answer = answer.unwrap();
        assert!(answer.starts_with("HTTP/1.1 401") && answer.ends_with("who?"), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_over_is_not_read_for_ever() {
        let (near, mut far) = duplex(4096);
        let begun = Begun::default();
        let refuse = async |_| Response::builder().status(401).body(Body::empty()).unwrap();
        let since = tokio::time::Instant::now();
        let served = serve(near, &begun, refuse, pending());
        let asked = async {
            far.write_all(b"POST / HTTP/1.1\r\nHost: hub\r\nContent-Length: 9999999\r\n\r\n").await.unwrap();
            while far.write_all(&[b'x'; 64]).await.is_ok() && since.elapsed() < LINGER * 3 {
                sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::join!(served, asked);
        assert!(since.elapsed() < LINGER * 2, "{:?}", since.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_slowly_gets_all_of_a_long_chunk_and_who_stands_still_does_not() {
        for (pause, is_sent) in [(UNREAD / 2, true), (UNREAD * 2, false)] {
            let (mut near, mut far) = duplex(1024);
            let reading = tokio::spawn(async move {
                let mut part = vec![0; PIECE];
                while far.read_exact(&mut part).await.is_ok() {
                    sleep(pause).await;
                }
            });
            let mut chunk = piece(Bytes::from(vec![b'x'; 10 * PIECE]));
            assert_eq!(write(&mut near, &mut chunk).await.is_ok(), is_sent, "{pause:?}");
            drop(near);
            reading.await.unwrap();
        }
    }
}
