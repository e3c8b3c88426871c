//! HTTP/1.1 without TLS, as agents of the node speak it.

use std::{convert::Infallible, pin::pin};

use axum::{Router, body::Body, extract::ConnectInfo, serve::Listener};
use http::Request;
use hyper::body::Incoming;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::debug;

use super::{
    Peer,
    http1::{self, Begun, TakenOver},
    seats::{Seat, Seats, UnderWay},
    unread::Answers,
};

/// Answers all who connect and find a seat, until the shutdown; then those who are connected have their answers, and watches end. `peer` says who
/// somebody is.
pub async fn listen<L: Listener>(
    mut listener: L,
    router: Router,
    seats: Seats,
    shutdown: CancellationToken,
    peer: impl Fn(&L::Io, &L::Addr) -> Peer,
) {
    let (mut connections, mut memory) = (JoinSet::new(), pin!(seats.give_memory_back()));
    loop {
        tokio::select! {
            (io, address) = listener.accept() => {
                let peer = peer(&io, &address);
                let Some(seat) = seats.take(peer.source()) else {
                    debug!("there are too many connections");
                    continue;
                };
                let (router, shutdown) = (router.clone(), shutdown.clone());
                connections.spawn(async move { serve(io, peer, router, seat, &shutdown).await });
            }
            Some(ended) = connections.join_next() => go_on(&mut connections, ended),
            () = memory.as_mut() => {}
            () = shutdown.cancelled() => break,
        }
    }
    drop(listener);
    while let Some(ended) = connections.join_next().await {
        go_on(&mut connections, ended);
    }
}

/// Gives an answer that is to be gone on with a task of its own.
fn go_on<Io>(connections: &mut JoinSet<Option<Watched<Io>>>, ended: Result<Option<Watched<Io>>, JoinError>)
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    if let Ok(Some(watched)) = ended {
        connections.spawn(async move {
            watched.go_on().await;
            None
        });
    }
}

/// An answer that a connection goes on with by itself, as one that is asked something.
struct Watched<Io>(TakenOver<Io>, Seat, UnderWay);

impl<Io: AsyncRead + AsyncWrite + Unpin> Watched<Io> {
    /// Sends it, until it ends or another has the seat.
    async fn go_on(self) {
        let Self(taken, seat, _under_way) = self;
        tokio::select! {
            () = taken.go_on() => {}
            () = seat.is_given_away() => {}
        }
    }
}

/// Answers what comes in over a connection until it ends, or one of its answers is to be gone on with, which takes less than this does: in a
/// task of its own.
async fn serve<Io>(
    io: Io,
    peer: Peer,
    router: Router,
    seat: Seat,
    shutdown: &CancellationToken,
) -> Option<Watched<Io>>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (begun, answers) = (Begun::default(), Answers::default());
    let answer = |request: Request<Incoming>| {
        let (router, begun, answers) = (router.clone(), begun.clone(), answers.clone());
        let (under_way, in_pieces) = (seat.asks(), http1::in_pieces(&request));
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer.clone()));
        request.extensions_mut().insert(seat.clone());
        async move {
            let response = router.oneshot(request).await.unwrap_or_else(|never: Infallible| match never {});
            let response = begun.or_give_back(response, in_pieces).await;
            answers.follow(response).map(|body| under_way.until_sent(body))
        }
    };
    let taken = tokio::select! {
        taken = http1::serve(io, &begun, answer, shutdown.cancelled()) => taken?,
        () = answers.unread() => return None,
        () = seat.is_given_away() => return None,
    };
    let under_way = seat.watches();
    Some(Watched(taken, seat, under_way))
}

#[cfg(test)]
mod tests {
    use std::{future::pending, io, pin::pin, time::Duration};

    use axum::body::Bytes;
    use futures::{Stream, StreamExt as _, stream};
    use http::{HeaderValue, Response};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        sync::mpsc,
        time::timeout,
    };

    use super::*;
    use crate::listen::{CallerProcess, HEAD, HEAD_SIZE, Origin, chunks::Chunks, seats::ALL, unread::UNREAD};

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
            listen(Cables(cables), router, Seats::local(ALL), shutdown, peer).await;
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
    async fn a_user_with_as_many_watches_as_there_may_be_keeps_neither_others_out_nor_the_node() {
        let router = Router::new().fallback(async move |request: Request<Body>| {
            let seat = request.extensions().get::<Seat>().unwrap();
            match request.uri().path() {
                "/node" => seat.is_of_node(),
                path => seat.is_of_user(path),
            }
            if request.uri().query() != Some("watch=1") {
                return Response::new(Body::empty());
            }
            let chunks = Chunks::new(stream::pending().map(Ok));
            let mut response = Response::new(chunks.body());
            response.extensions_mut().insert(chunks);
            response
        });
        let ((sender, cables), mut tasks) = (mpsc::unbounded_channel(), JoinSet::new());
        let peer = |_: &_, (): &()| Peer::Local { uid: Some(0), process: CallerProcess::of(Origin::Node) };
        tasks.spawn(listen(Cables(cables), router, Seats::local(8), CancellationToken::new(), peer));
        let ask = async |io: &mut DuplexStream, path: &str| {
            io.write_all(format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n").as_bytes()).await.unwrap();
            until(io, "\r\n\r\n").await;
        };
        let connect = async |path: &str| {
            let (mut near, far) = duplex(1 << 16);
            sender.send(far).unwrap();
            ask(&mut near, path).await;
            near
        };
        let mut node = connect("/node").await;
        let mut others = Vec::new();
        for user in ["/a?watch=1", "/b?watch=1", "/c?watch=1", "/d?watch=1"] {
            for _ in 0..8 {
                others.push(connect(user).await);
            }
        }
        ask(&mut node, "/node").await;
        ask(&mut connect("/node").await, "/node").await;
        connect("/e").await;
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
