//! The end of a link that answers: the HTTP/2 server. Each stream is a task of its own, and all end with the link.

use std::{future::Future, pin::pin, sync::Arc};

use bytes::Bytes;
use h2::{
    RecvStream,
    server::{Builder, Connection, SendResponse},
};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Carrier, LinkError, Peer, Terms, hello, in_time, short_body, watch_liveness};
use crate::{
    hello::{Hello, HelloError},
    links::table::{Link, NewLink},
    protocol::{HEADER_REASON, HELLO_PATH, MAX_HEADER_LIST, OpenError},
    socket::{Metered, Traffic},
    stream::TunnelStream,
    window::{CONNECTION, stream_window},
};

/// A stream that a peer asks for, not answered yet.
pub(crate) struct Asked {
    pub(crate) request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    traffic: Arc<Traffic>,
}

impl Asked {
    /// Grants the stream.
    pub(crate) fn grant(mut self) -> Result<TunnelStream, h2::Error> {
        let guard = self.traffic.open_stream();
        let send = self.respond.send_response(Response::new(()), false)?;
        Ok(TunnelStream::new(send, self.request.into_body(), guard))
    }

    /// Refuses it.
    pub(crate) fn refuse(mut self, error: OpenError) {
        refuse(&mut self.respond, error.status(), error.reason());
    }

    /// Ends when the one who asked does not want the stream any more.
    pub(crate) async fn given_up(&mut self) {
        // An error says that there is nothing left to give up.
        let _ = std::future::poll_fn(|cx| self.respond.poll_reset(cx)).await;
    }
}

fn refuse(respond: &mut SendResponse<Bytes>, status: StatusCode, reason: &'static str) {
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().insert(HEADER_REASON, HeaderValue::from_static(reason));
    // Who asked may be gone.
    let _ = respond.send_response(response, true);
}

fn builder(streams: u32) -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_window_size(stream_window(0))
        .initial_connection_window_size(CONNECTION)
        .max_header_list_size(MAX_HEADER_LIST)
        .max_concurrent_streams(streams)
        .max_send_buffer_size(256 * 1024)
        // Peers are authenticated, and streams of tiny lines or many resets are what tunnels carry.
        .data_frame_budget(64 * 1024 * 1024)
        .max_local_error_reset_streams(None)
        .max_pending_accept_reset_streams(1000);
    builder
}

/// Runs the link until it ends; `handle` answers each stream. See [`super::ask::run`].
pub(crate) async fn run<F: Future<Output = ()> + Send + 'static>(
    io: impl Carrier,
    peer: Peer,
    terms: &Terms,
    drain: CancellationToken,
    registered: impl FnOnce(),
    handle: impl Fn(Asked) -> F,
) -> Result<(), LinkError> {
    let traffic = Arc::new(Traffic::default());
    let io = Metered::new(io, traffic.clone());
    let limits = terms.limits;
    let mut connection =
        in_time(limits.handshake, async { Ok(builder(limits.streams).handshake(io).await?) }).await?;
    let mut tasks = JoinSet::new();
    let theirs = in_time(limits.handshake, introduce(&mut connection, &mut tasks, &peer, terms)).await?;
    let Peer { node, domain, direction, class } = peer;
    let class = if direction == crate::route::Direction::Forward { theirs.class } else { class };
    let registration = terms.table.add(NewLink {
        peer: node,
        domain,
        direction,
        class,
        traffic: traffic.clone(),
        streams_max: limits.streams,
        asker: None,
        drain: drain.clone(),
    });
    terms.stats.link_registered();
    registered();
    drive(&mut connection, &mut tasks, &traffic, &registration.link, terms, &drain, handle).await
}

/// Answers the peer's introduction, which comes first; until then nothing else is answered.
async fn introduce<T: Carrier>(
    connection: &mut Connection<Metered<T>, Bytes>,
    tasks: &mut JoinSet<()>,
    peer: &Peer,
    terms: &Terms,
) -> Result<Hello, LinkError> {
    let (request, mut respond) = connection.accept().await.ok_or(LinkError::Closed)??;
    if request.method() != Method::POST || request.uri().path() != HELLO_PATH {
        refuse(&mut respond, StatusCode::BAD_REQUEST, "hello_first");
        return Err(HelloError::Malformed.into());
    }
    // The body comes only while the connection is polled.
    let mut body = pin!(short_body(request.into_body()));
    let body = loop {
        tokio::select! {
            body = &mut body => break body?,
            next = connection.accept() => match next {
                Some(early) => refuse(&mut early?.1, StatusCode::SERVICE_UNAVAILABLE, "hello_first"),
                None => return Err(LinkError::Closed),
            }
        }
    };
    match Hello::from_json(&body) {
        Ok(theirs) => {
            let mut send = respond.send_response(Response::new(()), false)?;
            send.send_data(hello(terms, peer.class).to_json().into(), true)?;
            Ok(theirs)
        }
        Err(error) => {
            let (status, reason) = match error {
                HelloError::Malformed => (StatusCode::BAD_REQUEST, "malformed"),
                HelloError::Protocol(_) => (StatusCode::UPGRADE_REQUIRED, "protocol"),
            };
            refuse(&mut respond, status, reason);
            farewell(connection, tasks).await;
            Err(error.into())
        }
    }
}

/// Lets the last answer out.
async fn farewell<T: Carrier>(connection: &mut Connection<Metered<T>, Bytes>, tasks: &mut JoinSet<()>) {
    connection.graceful_shutdown();
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        refuse(&mut respond, StatusCode::SERVICE_UNAVAILABLE, "draining");
    }
    tasks.abort_all();
}

/// Tells a peer that it is not wanted, in a way it can read.
pub(crate) async fn reject(io: impl Carrier, terms: &Terms, reason: &'static str) -> Result<(), LinkError> {
    in_time(terms.limits.handshake, async {
        let io = Metered::new(io, Arc::default());
        let mut connection: Connection<_, Bytes> = builder(1).handshake(io).await?;
        if let Some(asked) = connection.accept().await {
            refuse(&mut asked?.1, StatusCode::FORBIDDEN, reason);
        }
        farewell(&mut connection, &mut JoinSet::new()).await;
        Ok(())
    })
    .await
}

async fn drive<T: Carrier, F: Future<Output = ()> + Send + 'static>(
    connection: &mut Connection<Metered<T>, Bytes>,
    tasks: &mut JoinSet<()>,
    traffic: &Arc<Traffic>,
    link: &Arc<Link>,
    terms: &Terms,
    drain: &CancellationToken,
    handle: impl Fn(Asked) -> F,
) -> Result<(), LinkError> {
    let liveness =
        watch_liveness(connection.ping_pong(), terms.limits.liveness, link.clone(), traffic.clone());
    let mut liveness = pin!(liveness);
    let mut over = pin!(async {
        drain.cancelled().await;
        tokio::time::sleep(terms.limits.drain).await;
    });
    let mut draining = false;
    let mut window = stream_window(0);
    loop {
        tokio::select! {
            asked = connection.accept() => match asked {
                Some(Ok((request, respond))) => {
                    tasks.spawn(handle(Asked { request, respond, traffic: traffic.clone() }));
                }
                Some(Err(error)) => return Err(error.into()),
                None if draining => return Ok(()),
                None => return Err(LinkError::Closed),
            },
            error = &mut liveness => {
                if matches!(error, LinkError::Silent) { terms.stats.link_dead(); }
                return Err(error);
            }
            () = drain.cancelled(), if !draining => {
                draining = true;
                link.set_draining();
                connection.graceful_shutdown();
            }
            () = &mut over => return Err(LinkError::DrainTimeout),
            () = traffic.window_changed() => {}
            Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            () = tokio::time::sleep(std::time::Duration::from_millis(100)), if window != stream_window(traffic.streams()) => {}
        }
        let wanted = stream_window(traffic.streams());
        if wanted != window && connection.set_initial_window_size(wanted).is_ok() {
            window = wanted;
        }
    }
}
