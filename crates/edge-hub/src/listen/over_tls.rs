//! HTTP over TLS, as pods and everyone else speak it: whoever reaches the node comes to this listener.
//!
//! A connection ends with the certificate that its client showed, and with it what goes over it, as nothing says later who that was.

use std::{convert::Infallible, future::pending, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo};
use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tls::listener::TlsListener;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::sleep,
};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::debug;

use super::{
    Peer,
    guests::Guest,
    http1::{self, Begun},
    read_on::ReadOn,
    seats::{Seat, Seats},
    unread::{Answers, Streams},
};
use crate::{
    authenticate::{certificate_ends, user_of},
    offline::documents::unix_seconds,
};

/// How often the clock is looked at, which may be set meanwhile.
const CLOCK: Duration = Duration::from_mins(1);

/// How many requests over one connection of HTTP/2 may be open, as an API server has it: what they are answered may have to be held for a while.
const STREAMS: u32 = 100;

/// How long a stranger that has outstayed may still read of an answer that is on its way.
const WRITTEN: Duration = Duration::from_millis(500);

/// Answers all who connect, until the shutdown; then those who are connected have their answers.
pub async fn listen(listener: TlsListener, router: Router, seats: Seats, shutdown: CancellationToken) {
    let begin = |io, address: SocketAddr| {
        let peer = Peer::over_tls(&io, address);
        let Some(seat) = seat(&seats, &peer) else {
            debug!(%address, "there are too many connections");
            return None;
        };
        let (spoken, router, shutdown) = (Spoken::over(&io), router.clone(), shutdown.clone());
        Some(connection(io, spoken, peer, seat, router, shutdown))
    };
    tokio::select! {
        () = listener.serve(shutdown.cancelled(), begin) => {}
        () = seats.give_memory_back() => {}
    }
}

/// A seat for a new connection: that of its certificate's user, if it has shown one.
fn seat(seats: &Seats, peer: &Peer) -> Option<Seat> {
    let seat = seats.take(peer.source())?;
    if let Peer::Remote { certificate: Some(certificate), .. } = peer
        && let Some(user) = user_of(certificate)
    {
        seat.is_of_user(&user.name);
    }
    Some(seat)
}

/// What is spoken over a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spoken {
    Http1,
    Http2,
}

impl Spoken {
    /// What was agreed on; HTTP/2 is spoken only where that was (RFC 9113, section 3.2).
    fn over(stream: &TlsStream<TcpStream>) -> Self {
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") { Self::Http2 } else { Self::Http1 }
    }
}

async fn connection<Io>(
    io: Io,
    spoken: Spoken,
    peer: Peer,
    seat: Seat,
    router: Router,
    shutdown: CancellationToken,
) where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let until = match &peer {
        Peer::Remote { certificate: Some(certificate), .. } => certificate_ends(certificate),
        _ => None,
    };
    let (guest, answers, begun) = (Arc::new(Guest::at(seat.clone())), Answers::default(), Begun::default());
    let answer = |request: Request<Incoming>| {
        let (router, guest, answers, begun) = (router.clone(), guest.clone(), answers.clone(), begun.clone());
        let (under_way, in_pieces) = (seat.asks(), http1::in_pieces(&request));
        let mut request = request.map(|body| match spoken {
            Spoken::Http1 => Body::new(body),
            Spoken::Http2 => Body::new(ReadOn::new(body)),
        });
        request.extensions_mut().insert(ConnectInfo(peer.clone()));
        request.extensions_mut().insert(seat.clone());
        async move {
            let _waiting = guest.waits();
            let response = router.oneshot(request).await.unwrap_or_else(|never: Infallible| match never {});
            let response = begun.or_give_back(response, in_pieces).await;
            answers.follow(response).map(|body| under_way.until_sent(body))
        }
    };
    let outstayed = CancellationToken::new();
    let leaves = async {
        tokio::select! {
            () = outstayed.cancelled() => {}
            () = shutdown.cancelled() => {}
        }
    };
    let over = async {
        tokio::select! {
            () = seat.is_given_away() => {}
            () = is_past(until) => {}
            () = answers.unread() => {}
            () = outstays(&guest, &outstayed) => {}
        }
    };
    // What the library needs is let go with it.
    let served = async {
        match spoken {
            Spoken::Http1 => {
                if let Some(taken) = Box::pin(http1::serve(io, &begun, answer, leaves)).await {
                    let _under_way = seat.watches();
                    taken.go_on().await;
                }
            }
            Spoken::Http2 => Box::pin(serve_http2(io, answer, leaves)).await,
        }
    };
    tokio::select! {
        () = served => {}
        () = over => {}
    }
}

/// Comes to pass when the connection has been a stranger's for too long, and a moment after it was told to leave.
async fn outstays(guest: &Guest, told: &CancellationToken) {
    guest.outstays().await;
    told.cancel();
    sleep(WRITTEN).await;
}

/// Answers what comes in over a connection of HTTP/2 until it ends; once `leaves` comes to pass, with the answers that are under way.
async fn serve_http2<Io, Answered>(
    io: Io,
    answer: impl Fn(Request<Incoming>) -> Answered,
    leaves: impl Future<Output = ()>,
) where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Answered: Future<Output = Response<Body>> + Send + 'static,
{
    let mut builder = http2::Builder::new(Streams);
    builder.timer(TokioTimer::new()).max_concurrent_streams(STREAMS);
    let service = service_fn(|request| {
        let answered = answer(request);
        async { Ok::<_, Infallible>(answered.await) }
    });
    let mut served = pin!(builder.serve_connection(TokioIo::new(io), service));
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = leaves => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection ended");
    }
}

/// Waits until the clock says so many seconds; for ever if there is no end.
async fn is_past(end: Option<u64>) {
    let Some(end) = end else { return pending().await };
    loop {
        let left = Duration::from_secs(end.saturating_sub(unix_seconds()));
        if left.is_zero() {
            return;
        }
        sleep(left.min(CLOCK)).await;
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use futures::{StreamExt as _, stream};
    use http::{StatusCode, header};
    use http_body_util::BodyExt as _;
    use hyper_util::rt::TokioExecutor;
    use rustls_pki_types::CertificateDer;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        sync::mpsc,
        task::JoinSet,
        time::{Instant, timeout},
    };

    use super::{
        super::{chunks::Chunks, seats::ALL, unread::UNREAD},
        *,
    };

    const REQUEST: &str = "GET / HTTP/1.1\r\nhost: h\r\n";

    /// More than a connection takes at once.
    const LARGE: usize = 1 << 18;

    /// A connection of HTTP/1.1, as [`connect_by`] makes it.
    fn connect(
        seats: &Seats,
        shutdown: &CancellationToken,
        certificate: Option<CertificateDer<'static>>,
    ) -> (DuplexStream, mpsc::Receiver<()>, JoinSet<()>) {
        connect_by(Spoken::Http1, seats, shutdown, certificate)
    }

    /// One end of a connection whose other end is served, and what says that an answer without end over it was dropped, as all are but that of `/`.
    /// Who shows anything is let in.
    fn connect_by(
        spoken: Spoken,
        seats: &Seats,
        shutdown: &CancellationToken,
        certificate: Option<CertificateDer<'static>>,
    ) -> (DuplexStream, mpsc::Receiver<()>, JoinSet<()>) {
        let (alive, dropped) = mpsc::channel(1);
        let router = Router::new().fallback(async move |request: Request<Body>| {
            let mut response = Response::new(Body::empty());
            if !request.headers().contains_key(header::AUTHORIZATION) {
                *response.status_mut() = StatusCode::UNAUTHORIZED;
                if request.uri().path() == "/large" {
                    *response.body_mut() = Body::from(vec![b'x'; LARGE]);
                }
                return response;
            }
            request.extensions().get::<Seat>().unwrap().is_of_user("u");
            if request.uri().path() != "/" {
                let pieces = stream::repeat(Bytes::from_static(&[b'x'; 1024])).inspect(move |_| {
                    let _ = &alive;
                });
                let chunks = Chunks::new(pieces.map(Ok));
                *response.body_mut() = chunks.body();
                if request.uri().query() == Some("watch=1") {
                    response.extensions_mut().insert(chunks);
                }
            }
            response
        });
        let (near, far) = duplex(1 << 16);
        let peer = Peer::Remote { address: ([10, 0, 0, 1], 1).into(), certificate };
        let seat = seat(seats, &peer).unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(connection(far, spoken, peer, seat, router, shutdown.clone()));
        (near, dropped, tasks)
    }

    #[tokio::test(start_paused = true)]
    async fn who_shows_no_credential_is_soon_cut_and_others_when_they_ask_nothing() {
        let (seats, shutdown) = (Seats::outward(ALL), CancellationToken::new());
        let good = format!("{REQUEST}authorization: Bearer x\r\n\r\n");
        let cases = [
            ("", 10),
            ("G", 10),
            ("GET / HTTP/1.1\r\n", 10),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 10),
            (&*format!("{REQUEST}\r\n"), 10),
            (&*good, 120),
        ];
        for (said, seconds) in cases {
            let spoken = if said.starts_with("PRI") { Spoken::Http2 } else { Spoken::Http1 };
            let (mut io, _, _tasks) = connect_by(spoken, &seats, &shutdown, None);
            let begun = Instant::now();
            io.write_all(said.as_bytes()).await.unwrap();
            let _ = timeout(Duration::from_mins(10), io.read_to_end(&mut Vec::new())).await.expect(said);
            assert_eq!(begun.elapsed().as_secs(), seconds, "{said:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_may_read_the_answer_that_is_on_its_way() {
        for (late, is_whole) in [(WRITTEN / 2, true), (WRITTEN * 2, false)] {
            let (mut io, _, _tasks) = connect(&Seats::outward(ALL), &CancellationToken::new(), None);
            sleep(Duration::from_secs(9)).await;
            io.write_all(REQUEST.replace("/ ", "/large ").as_bytes()).await.unwrap();
            io.write_all(b"\r\n").await.unwrap();
            let mut answer = vec![io.read_u8().await.unwrap()];
            sleep(Duration::from_secs(1) + late).await;
            let _ = io.read_to_end(&mut answer).await;
            assert_eq!(answer.len() > LARGE, is_whole, "{late:?}: {}", answer.len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_whose_reader_has_stopped_is_let_go() {
        for path in ["/api/v1/pods?watch=1", "/api/v1/pods", "/openapi/v2"] {
            let (mut io, mut dropped, _tasks) =
                connect(&Seats::outward(ALL), &CancellationToken::new(), None);
            let request = REQUEST.replace("GET /", &format!("GET {path}"));
            io.write_all(format!("{request}authorization: Bearer x\r\n\r\n").as_bytes()).await.unwrap();
            assert!(timeout(UNREAD / 2, dropped.recv()).await.is_err(), "{path}: it may be slow");
            timeout(UNREAD, dropped.recv()).await.expect(path);
        }
    }

    /// Some clients take a reset for a failure of the answer that came before it.
    #[tokio::test]
    async fn a_stream_that_was_answered_early_is_not_reset() {
        let (io, _dropped, _tasks) =
            connect_by(Spoken::Http2, &Seats::outward(ALL), &CancellationToken::new(), None);
        let (sender, connection) = h2::client::handshake(io).await.unwrap();
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let mut sender = sender.ready().await.unwrap();
        let request = Request::post("https://h/api/v1/namespaces/a/configmaps").body(()).unwrap();
        let (answer, mut body) = sender.send_request(request, false).unwrap();
        let mut answer = answer.await.unwrap();
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        assert!(answer.body_mut().data().await.is_none(), "it is there whole");
        for is_last in [false, true] {
            let reset = std::future::poll_fn(|context| body.poll_reset(context));
            let reset = timeout(Duration::from_millis(100), reset).await;
            assert!(reset.is_err(), "{reset:?}");
            body.send_data(Bytes::from_static(b"{}"), is_last).unwrap();
        }
    }

    /// The client's windows say that it does not read; the connection is as good as ever.
    #[tokio::test(start_paused = true)]
    async fn a_stream_of_which_nothing_is_read_ends_and_no_other() {
        let (io, _dropped, _tasks) =
            connect_by(Spoken::Http2, &Seats::outward(ALL), &CancellationToken::new(), None);
        let mut client = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        client.initial_stream_window_size(2000);
        let (mut sender, connection) = client.handshake::<_, Body>(TokioIo::new(io)).await.unwrap();
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let mut open = async || {
            let request = Request::get("https://h/api/v1/pods").header(header::AUTHORIZATION, "Bearer x");
            sender.ready().await.unwrap();
            sender.send_request(request.body(Body::empty()).unwrap()).await.unwrap().into_body()
        };
        let (mut unread, mut read) = (open().await, open().await);
        let mut length = 0;
        for quarters in 1..=12 {
            sleep(UNREAD / 4).await;
            while length < quarters * 1024 {
                let frame = timeout(UNREAD, read.frame()).await.expect("it comes").unwrap();
                length += frame.expect("it is slow").into_data().unwrap().len();
            }
        }
        let mut left = 0;
        while unread.frame().await.is_some_and(|frame| frame.is_ok()) {
            left += 1;
            assert!(left < 100, "it goes on");
        }
        assert!(driver.try_join_next().is_none(), "the connection goes on");
    }

    #[tokio::test]
    async fn a_watch_ends_with_the_certificate_that_it_was_opened_with() {
        let now = jiff::Timestamp::now();
        let authority =
            tls::issue::CertificateAuthority::generate("test", Duration::from_secs(3), now).unwrap();
        let certificate = CertificateDer::from(authority.certificate().der().to_vec());
        let (mut io, mut dropped, _tasks) =
            connect(&Seats::outward(ALL), &CancellationToken::new(), Some(certificate));
        let watch = REQUEST.replace("GET /", "GET /api/v1/pods?watch=1");
        io.write_all(format!("{watch}authorization: Bearer x\r\n\r\n").as_bytes()).await.unwrap();
        let read = async { while io.read(&mut [0; 1 << 12]).await.is_ok_and(|length| length > 0) {} };
        timeout(Duration::from_secs(20), read).await.expect("the connection ends");
        assert!(unix_seconds() >= u64::try_from(now.as_second() + 3).unwrap(), "it was good until then");
        timeout(Duration::from_secs(1), dropped.recv()).await.expect("the watch ends");
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_end_connections_end() {
        let shutdown = CancellationToken::new();
        let (mut io, _, mut tasks) = connect(&Seats::outward(ALL), &shutdown, None);
        io.write_all(format!("{REQUEST}authorization: Bearer x\r\n\r\n").as_bytes()).await.unwrap();
        io.read_u8().await.unwrap();
        shutdown.cancel();
        timeout(Duration::from_secs(1), tasks.join_next()).await.expect("it ends");
    }

    #[tokio::test]
    async fn of_one_user_those_that_ask_nothing_make_room_and_then_its_latest_watch() {
        let (seats, shutdown) = (Seats::outward(8), CancellationToken::new());
        let ask = async |path: &str| {
            let (mut io, dropped, tasks) = connect(&seats, &shutdown, None);
            let request = REQUEST.replace("GET /", &format!("GET {path}"));
            io.write_all(format!("{request}authorization: Bearer x\r\n\r\n").as_bytes()).await.unwrap();
            io.read_u8().await.unwrap();
            (io, dropped, tasks)
        };
        let is_over = async |tasks: &mut JoinSet<()>| {
            timeout(Duration::from_millis(100), tasks.join_next()).await.is_ok()
        };
        let watch = "/api/v1/pods?watch=1";
        let (mut first, mut idle, mut second) = (ask(watch).await, ask("/").await, ask(watch).await);
        assert!(is_over(&mut idle.2).await && !is_over(&mut second.2).await, "two are its share");
        let mut third = ask("/").await;
        assert!(is_over(&mut second.2).await, "it was the latest");
        assert!(!is_over(&mut first.2).await && !is_over(&mut third.2).await);
    }
}
