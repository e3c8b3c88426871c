//! HTTP/1.1 without TLS, as agents of the node speak it. Whose request is a watch is taken over from the HTTP library once the answer begins.
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
};

use axum::{Router, body::Body, extract::ConnectInfo, serve::Listener};
use bytes::{Buf, Bytes};
use futures::StreamExt as _;
use http::{HeaderValue, Method, Request, Response, Version, header, response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    task::{JoinError, JoinSet},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::debug;

use super::{
    HEAD, HEAD_SIZE, Peer,
    chunks::{ChunkStream, Chunks},
    lent::Lent,
    seats::{Seat, Seats, UnderWay},
    unread::{Answers, UNREAD},
};

/// The end of an answer in pieces.
const LAST: &[u8] = b"0\r\n\r\n";

/// How many bytes a client may say more than its request, which nobody answers: the connection ends with its watch. What is more is no mistake.
const MORE: usize = 64 << 10;

/// Answers all who connect, until the shutdown; then those who are connected have their answers, and watches end. `peer` says who somebody is.
pub async fn listen<L: Listener>(
    mut listener: L,
    router: Router,
    shutdown: CancellationToken,
    peer: impl Fn(&L::Io, &L::Addr) -> Peer,
) {
    let (mut connections, seats) = (JoinSet::new(), Seats::default());
    loop {
        tokio::select! {
            (io, address) = listener.accept() => {
                let Some(seat) = seats.take() else {
                    debug!("there are too many connections");
                    continue;
                };
                let (peer, router, shutdown) = (peer(&io, &address), router.clone(), shutdown.clone());
                connections.spawn(async move { serve(io, peer, router, seat, &shutdown).await });
            }
            Some(ended) = connections.join_next() => go_on(&mut connections, ended),
            () = shutdown.cancelled() => break,
        }
    }
    drop(listener);
    while let Some(ended) = connections.join_next().await {
        go_on(&mut connections, ended);
    }
}

/// Gives an answer that is to be gone on with a task of its own.
fn go_on<Io>(
    connections: &mut JoinSet<Option<TakenOver<Io>>>,
    ended: Result<Option<TakenOver<Io>>, JoinError>,
) where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    if let Ok(Some(taken)) = ended {
        connections.spawn(async move {
            taken.go_on().await;
            None
        });
    }
}

/// An answer that a connection goes on with by itself.
struct TakenOver<Io> {
    io: Io,
    head: response::Parts,
    chunks: ChunkStream,
    _under_way: UnderWay,
}

/// Answers what comes in over a connection until it ends, or one of its answers is to be gone on with, which takes less than this does: in a
/// task of its own.
async fn serve<Io>(
    io: Io,
    peer: Peer,
    router: Router,
    seat: Seat,
    shutdown: &CancellationToken,
) -> Option<TakenOver<Io>>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let lent = Lent::new(io);
    let (begun, answers) = (Begun::default(), Answers::default());
    {
        let service = service_fn(|request| {
            let answered = answer(router.clone(), peer.clone(), begun.clone(), answers.clone(), request);
            let under_way = seat.asks();
            async { Ok::<_, Infallible>(answered.await?.map(|body| under_way.until_sent(body))) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_SIZE);
        let served = async {
            let connection = builder.serve_connection(TokioIo::new(lent.clone()), service);
            let mut connection = pin!(connection.with_upgrades());
            let taken = taken_over(connection.as_mut(), &begun);
            if shutdown.run_until_cancelled(taken).await.is_none() {
                connection.as_mut().graceful_shutdown();
                taken_over(connection, &begun).await;
            }
        };
        tokio::select! {
            () = served => {}
            () = answers.unread() => {}
            () = seat.is_given_away() => {}
        }
    }
    let (head, chunks) = begun.lock().take()?;
    Some(TakenOver { io: lent.give_back()?, head, chunks, _under_way: seat.asks() })
}

/// Comes to pass when the connection has ended, or an answer of it has begun that it is to go on with by itself.
fn taken_over<C: Future>(mut connection: Pin<&mut C>, begun: &Begun) -> impl Future<Output = ()> {
    poll_fn(move |context| {
        // How it ends is its client's to see.
        let is_over = connection.as_mut().poll(context).is_ready();
        if is_over || begun.lock().is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
}

/// What a connection is taken over with.
type Begun = Arc<Mutex<Option<(response::Parts, ChunkStream)>>>;

async fn answer(
    router: Router,
    peer: Peer,
    begun: Begun,
    answers: Answers,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    // Before that version there are no pieces, and of a HEAD no body.
    let in_pieces = request.version() == Version::HTTP_11 && request.method() != Method::HEAD;
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(ConnectInfo(peer));
    let mut response = router.oneshot(request).await?;
    let Some(chunks) =
        response.extensions_mut().remove::<Chunks>().filter(|_| in_pieces).and_then(|chunks| chunks.take())
    else {
        return Ok(answers.follow(response));
    };
    *begun.lock() = Some((response.into_parts().0, chunks));
    pending().await
}

impl<Io: AsyncRead + AsyncWrite + Unpin> TakenOver<Io> {
    /// Sends it, until it ends or its client does not read it any more.
    async fn go_on(self) {
        let Self { io, head, chunks, _under_way } = self;
        // What becomes of it is its client's to see.
        let _ = send(io, head, chunks).await;
    }
}

async fn send(
    mut io: impl AsyncRead + AsyncWrite + Unpin,
    head: response::Parts,
    mut chunks: ChunkStream,
) -> io::Result<()> {
    in_time(io.write_all(&written(head))).await?;
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
            Some(Ok(chunk)) => in_time(io.write_all_buf(&mut piece(chunk))).await?,
            None => {
                in_time(io.write_all(LAST)).await?;
                return in_time(io.shutdown()).await;
            }
        }
    }
}

/// Writes, unless the client does not read it.
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
    use std::time::Duration;

    use futures::{Stream, stream};
    use tokio::{
        io::{DuplexStream, duplex},
        sync::mpsc,
    };

    use super::*;
    use crate::listen::{CallerProcess, Origin};

    const SOON: Duration = Duration::from_secs(10);

    /// Connections that a test makes.
    struct Cables(mpsc::UnboundedReceiver<DuplexStream>);

    impl Listener for Cables {
        type Io = DuplexStream;
        type Addr = ();

        async fn accept(&mut self) -> (DuplexStream, ()) {
            match self.0.recv().await {
                Some(cable) => (cable, ()),
                None => pending().await,
            }
        }

        fn local_addr(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// One end of a connection whose other end is served: `/watch`, or any watch, gives these pieces, `/list` the same by the library, anything else
    /// what was sent to it.
    fn connect(
        chunks: impl Stream<Item = Bytes> + Send + 'static,
        shutdown: &CancellationToken,
    ) -> (DuplexStream, JoinSet<()>) {
        let chunks = Chunks::new(chunks.map(Ok));
        let router = Router::new().fallback(async move |request: Request<Body>| {
            if request.uri().path() == "/list" {
                return Response::new(chunks.body());
            }
            if request.uri().path() != "/watch" && request.uri().query() != Some("watch=1") {
                return Response::new(request.into_body());
            }
            let mut response = Response::new(chunks.body());
            response.headers_mut().insert("x-of", HeaderValue::from_static("the hub"));
            response.extensions_mut().insert(chunks.clone());
            response
        });
        let ((near, far), (sender, cables)) = (duplex(1 << 16), mpsc::unbounded_channel());
        sender.send(far).unwrap();
        let mut tasks = JoinSet::new();
        let peer = |_: &_, (): &()| Peer::Local { uid: None, process: CallerProcess::of(Origin::Node) };
        let shutdown = shutdown.clone();
        tasks.spawn(async move {
            let _sender = sender;
            listen(Cables(cables), router, shutdown, peer).await;
        });
        (near, tasks)
    }

    /// What comes until so many bytes of `last` have.
    async fn until(io: &mut DuplexStream, last: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(last) {
            let byte = timeout(SOON, io.read_u8()).await.expect(&text).expect(&text);
            text.push(byte.into());
        }
        text
    }

    fn two() -> impl Stream<Item = Bytes> {
        stream::iter([Bytes::from("one\n"), Bytes::new(), Bytes::from("0123456789abcdef\n")])
    }

    #[tokio::test]
    async fn a_connection_answers_requests_and_goes_on_with_a_watch_by_itself() {
        let (mut io, _tasks) = connect(two(), &CancellationToken::new());
        io.write_all(b"POST /echo HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
        assert!(until(&mut io, "hi").await.starts_with("HTTP/1.1 200 OK\r\n"));
        io.write_all(b"GET /watch HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        let head = until(&mut io, "\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        for header in ["x-of: the hub", "transfer-encoding: chunked", "connection: close", "date: "] {
            assert!(head.contains(&format!("\r\n{header}")), "{header} in {head}");
        }
        let mut rest = String::new();
        timeout(SOON, io.read_to_string(&mut rest)).await.expect("it ends").unwrap();
        assert_eq!(rest, "4\r\none\n\r\n11\r\n0123456789abcdef\n\r\n0\r\n\r\n");
    }

    #[tokio::test]
    async fn who_speaks_http_1_0_is_sent_the_same_without_lengths() {
        let (mut io, _tasks) = connect(two(), &CancellationToken::new());
        io.write_all(b"GET /watch HTTP/1.0\r\n\r\n").await.unwrap();
        let head = until(&mut io, "\r\n\r\n").await;
        assert!(!head.contains("chunked"), "{head}");
        assert_eq!(until(&mut io, "ef\n").await, "one\n0123456789abcdef\n");
    }

    #[tokio::test]
    async fn the_head_of_a_watch_is_only_that() {
        let (mut io, _tasks) = connect(two(), &CancellationToken::new());
        io.write_all(b"HEAD /watch HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        until(&mut io, "\r\n\r\n").await;
        io.write_all(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
        assert!(until(&mut io, "hi").await.starts_with("HTTP/1.1 200 OK\r\n"));
    }

    /// A stream that says when it is dropped.
    fn endless() -> (impl Stream<Item = Bytes> + Send, mpsc::Receiver<()>) {
        let (alive, dropped) = mpsc::channel(1);
        let first = stream::once(async { Bytes::from("x") });
        let rest = stream::once(async move {
            let _alive = alive;
            pending().await
        });
        (first.chain(rest), dropped)
    }

    #[tokio::test]
    async fn a_client_that_closes_ends_its_watch_and_one_that_says_more_does_not() {
        let (chunks, mut dropped) = endless();
        let (mut io, _tasks) = connect(chunks, &CancellationToken::new());
        io.write_all(b"GET /watch HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        until(&mut io, "1\r\nx\r\n").await;
        drop(io);
        timeout(SOON, dropped.recv()).await.expect("its end was noticed");
        let (chunks, mut dropped) = endless();
        let (mut io, _tasks) = connect(chunks, &CancellationToken::new());
        io.write_all(b"GET /watch HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        until(&mut io, "1\r\nx\r\n").await;
        io.write_all(b"GET /other HTTP/1.1\r\n\r\n").await.unwrap();
        assert!(timeout(Duration::from_millis(100), dropped.recv()).await.is_err(), "it goes on");
        drop(io);
        timeout(SOON, dropped.recv()).await.expect("its end was noticed, whatever it said before");
    }

    #[tokio::test]
    async fn a_client_that_says_ever_more_is_cut() {
        let (chunks, mut dropped) = endless();
        let (mut io, _tasks) = connect(chunks, &CancellationToken::new());
        io.write_all(b"GET /watch HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        let said = async { while io.write_all(&[0; 512]).await.is_ok() {} };
        timeout(SOON, said).await.expect("it is not listened to for ever");
        timeout(SOON, dropped.recv()).await.expect("its watch ended");
    }

    #[tokio::test]
    async fn where_all_seats_are_taken_who_waits_makes_room_and_a_watch_does_not() {
        let (seats, mut tasks) = (Seats::new(2), JoinSet::new());
        let chunks = Chunks::new(endless().0.map(Ok));
        let router = Router::new().fallback(async move || {
            let mut response = Response::new(chunks.body());
            response.extensions_mut().insert(chunks.clone());
            response
        });
        let mut connect = || {
            let ((near, far), seat) = (duplex(1 << 16), seats.take().expect("there is room"));
            let peer = Peer::Local { uid: None, process: CallerProcess::of(Origin::Node) };
            let router = router.clone();
            tasks.spawn(async move {
                if let Some(taken) = serve(far, peer, router, seat, &CancellationToken::new()).await {
                    taken.go_on().await;
                }
            });
            near
        };
        let mut watching = connect();
        watching.write_all(b"GET /watch HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        until(&mut watching, "1\r\nx\r\n").await;
        let mut waiting = connect();
        for _ in 0..3 {
            let next = connect();
            timeout(SOON, waiting.read_to_end(&mut Vec::new())).await.expect("it makes room").unwrap();
            waiting = next;
        }
        assert!(timeout(Duration::from_millis(100), watching.read_u8()).await.is_err(), "it goes on");
    }

    #[tokio::test]
    async fn heads_are_bounded_and_bodies_are_not() {
        let (mut io, _tasks) = connect(two(), &CancellationToken::new());
        let body = vec![b'x'; 5 * HEAD_SIZE];
        let head = format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n", body.len());
        io.write_all(head.as_bytes()).await.unwrap();
        until(&mut io, "\r\n\r\n").await;
        let (mut near, mut far) = tokio::io::split(&mut io);
        let mut echoed = vec![0; body.len()];
        let (written, read) = tokio::join!(far.write_all(&body), near.read_exact(&mut echoed));
        written.and(read).unwrap();
        assert_eq!(echoed, body);
        for (length, status) in [(HEAD_SIZE / 2, "200"), (HEAD_SIZE, "431")] {
            let request = format!("GET / HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n", "x".repeat(length));
            // It may be refused before all is written.
            let _ = io.write_all(request.as_bytes()).await;
            let head = until(&mut io, "\r\n\r\n").await;
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{length}: {head}");
        }
    }

    #[tokio::test]
    async fn at_the_end_requests_are_answered_and_connections_end() {
        let shutdown = CancellationToken::new();
        let (mut idle, mut tasks) = connect(two(), &shutdown);
        idle.write_all(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nh").await.unwrap();
        tokio::task::yield_now().await;
        shutdown.cancel();
        idle.write_all(b"i").await.unwrap();
        assert!(until(&mut idle, "hi").await.starts_with("HTTP/1.1 200 OK\r\n"));
        timeout(SOON, tasks.join_next()).await.expect("it ends").unwrap().unwrap();
    }

    /// Pieces without end, and what says when they are dropped.
    fn ever_more() -> (impl Stream<Item = Bytes> + Send, mpsc::Receiver<()>) {
        let (alive, dropped) = mpsc::channel(1);
        let pieces = stream::repeat(Bytes::from_static(&[b'x'; 1024])).inspect(move |_| {
            let _ = &alive;
        });
        (pieces, dropped)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_whose_reader_has_stopped_is_let_go() {
        for request in [
            "GET /watch HTTP/1.1\r\nhost: h\r\n\r\n",
            "GET /api/v1/pods?watch=1 HTTP/1.0\r\n\r\n",
            "GET /list HTTP/1.1\r\nhost: h\r\n\r\n",
        ] {
            let (chunks, mut dropped) = ever_more();
            let (mut io, _tasks) = connect(chunks, &CancellationToken::new());
            io.write_all(request.as_bytes()).await.unwrap();
            until(&mut io, "\r\n\r\n").await;
            assert!(timeout(UNREAD / 2, dropped.recv()).await.is_err(), "{request}: it may be slow");
            timeout(UNREAD, dropped.recv()).await.expect(request);
            timeout(SOON, io.read_to_end(&mut Vec::new())).await.expect("the connection ends").unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_read_slowly_is_sent_to_its_end() {
        let piece = Bytes::from(vec![b'x'; 1 << 17]);
        let pieces = stream::iter([piece.clone(), piece]);
        let (mut io, _tasks) = connect(pieces, &CancellationToken::new());
        io.write_all(b"GET /list HTTP/1.0\r\n\r\n").await.unwrap();
        until(&mut io, "\r\n\r\n").await;
        let (mut length, mut buffer) = (0, vec![0; 60 << 10]);
        loop {
            tokio::time::sleep(UNREAD / 2).await;
            match io.read(&mut buffer).await.unwrap() {
                0 => break,
                read => length += read,
            }
        }
        assert_eq!(length, 2 << 17);
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_say_what_it_wants_is_not_waited_for() {
        for said in ["", "GET / HT", "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nhi"] {
            let (mut io, _tasks) = connect(two(), &CancellationToken::new());
            io.write_all(said.as_bytes()).await.unwrap();
            let mut rest = Vec::new();
            let mut ends = pin!(io.read_to_end(&mut rest));
            assert!(timeout(HEAD / 2, ends.as_mut()).await.is_err(), "{said:?}");
            timeout(HEAD, ends).await.expect(said).unwrap();
        }
    }
}
