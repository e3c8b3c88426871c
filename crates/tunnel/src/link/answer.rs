//! The end of a link that answers: the HTTP/2 server. Each stream is a task of its own, and all end with the link.

use std::{future::Future, pin::pin, sync::Arc, task::Poll};

use bytes::Bytes;
use h2::{
    RecvStream,
    server::{Builder, Connection, SendResponse},
};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use tokio::task::JoinSet;

use super::{
    Carrier, LinkError, Peer, Terms, as_link, follow_window::Follower, hello, in_time, left_suspended,
    register, short_body, watch_liveness,
};
use crate::{
    ending::Ending,
    hello::{Hello, HelloError},
    links::table::Link,
    protocol::{FULL, HEADER_REASON, HELLO_PATH, OpenError},
    socket::{Metered, StreamGuard, Traffic, metered},
    stream::TunnelStream,
    window,
};

/// A stream that a peer asks for, not answered yet.
pub(crate) struct Asked {
    pub(crate) request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    traffic: Arc<Traffic>,
}

impl Asked {
    /// Counts the stream, and ends as soon as the peer is told of a window that is narrow enough.
    pub(crate) fn room(&self) -> impl Future<Output = StreamGuard> + Send + use<> {
        let traffic = self.traffic.clone();
        async move {
            let guard = traffic.open_stream();
            traffic.room().await;
            guard
        }
    }

    /// Grants the stream, for which there is room.
    pub(crate) fn grant(mut self, guard: StreamGuard) -> Result<TunnelStream, h2::Error> {
        let send = self.respond.send_response(Response::new(()), false)?;
        Ok(TunnelStream::new(send, self.request.into_body(), guard))
    }

    /// Refuses it.
    pub(crate) fn refuse(mut self, error: OpenError) {
        refuse(&mut self.respond, error.status(), error.reason());
    }

    /// Ends when it is not to be opened any more, and says whether it is to be refused: who asked sent something before it had the stream. Nobody of
    /// ours does, and a window for each would be held here that counts for nothing. Else the one who asked does not want it any more.
    pub(crate) async fn given_up(&mut self) -> bool {
        std::future::poll_fn(|cx| {
            // An error says that there is nothing left to give up.
            if self.respond.poll_reset(cx).is_ready() {
                return Poll::Ready(false);
            }
            match self.request.body_mut().poll_data(cx) {
                Poll::Ready(Some(Ok(_))) => Poll::Ready(true),
                Poll::Ready(_) | Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

fn refuse(respond: &mut SendResponse<Bytes>, status: StatusCode, reason: &'static str) {
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().insert(HEADER_REASON, HeaderValue::from_static(reason));
    // Who asked may be gone.
    let _ = respond.send_response(response, true);
}

fn builder(window: u32, streams: u32) -> Builder {
    let mut builder = as_link!(Builder::new(), window);
    builder.max_concurrent_streams(streams);
    builder
}

/// Runs the link until it ends; `handle` answers each stream. See [`super::ask::run`].
pub(crate) async fn run<F: Future<Output = ()> + Send + 'static>(
    io: impl Carrier,
    peer: Peer,
    terms: &Terms,
    ending: &Ending,
    registered: impl FnOnce(),
    handle: impl Fn(Asked) -> F,
) -> Result<(), LinkError> {
    let allowance = terms.allow(&peer)?;
    let traffic = Arc::new(Traffic::of(&allowance));
    let io = metered(io, traffic.clone());
    let limits = terms.limits;
    // A limit of HTTP/2 stays as the link begins, and what a link may hold grows: that one is kept where streams are asked for.
    let builder = builder(allowance.bytes(), limits.streams);
    let mut connection = in_time(limits.handshake, async { Ok(builder.handshake(io).await?) }).await?;
    let mut tasks = JoinSet::new();
    let theirs = in_time(limits.handshake, introduce(&mut connection, &mut tasks, &peer, terms)).await?;
    let registration = register(peer, &theirs, &traffic, None, terms);
    registered();
    let window = Follower::new(allowance);
    drive(&mut connection, &mut tasks, &registration.link, window, terms, ending, handle).await
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
        let io = metered(io, Arc::default());
        let mut connection: Connection<_, Bytes> = builder(window::LINK, 1).handshake(io).await?;
        if let Some(asked) = connection.accept().await {
            refuse(&mut asked?.1, StatusCode::FORBIDDEN, reason);
        }
        farewell(&mut connection, &mut JoinSet::new()).await;
        Ok(())
    })
    .await
}

/// Whether there are as many streams as may be now, with those that are not granted yet: whoever asks goes on to another link.
async fn is_full(streams: &mut JoinSet<()>, traffic: &Traffic) -> bool {
    let mut counted = || {
        while streams.try_join_next().is_some() {}
        streams.len()
    };
    if counted() < traffic.streams_max() {
        return false;
    }
    // One in whose place another comes has been told that it is over, and has not run since.
    tokio::task::yield_now().await;
    counted() >= traffic.streams_max()
}

async fn drive<T: Carrier, F: Future<Output = ()> + Send + 'static>(
    connection: &mut Connection<Metered<T>, Bytes>,
    tasks: &mut JoinSet<()>,
    link: &Arc<Link>,
    mut window: Follower,
    terms: &Terms,
    ending: &Ending,
    handle: impl Fn(Asked) -> F,
) -> Result<(), LinkError> {
    let traffic = &link.traffic;
    let liveness =
        watch_liveness(connection.ping_pong(), terms.limits.liveness, link.clone(), traffic.clone());
    let mut liveness = pin!(liveness);
    let mut overdue = pin!(ending.overdue(terms.limits.drain));
    let mut left = pin!(left_suspended(link, traffic, ending));
    let mut draining = false;
    loop {
        tokio::select! {
            asked = connection.accept() => match asked {
                Some(Ok((_, mut respond))) if link.is_suspended() => {
                    refuse(&mut respond, StatusCode::SERVICE_UNAVAILABLE, "draining");
                }
                Some(Ok((request, mut respond))) => {
                    if is_full(tasks, traffic).await {
                        refuse(&mut respond, StatusCode::SERVICE_UNAVAILABLE, FULL);
                    } else {
                        tasks.spawn(handle(Asked { request, respond, traffic: traffic.clone() }));
                    }
                }
                Some(Err(error)) => return Err(error.into()),
                None if draining => return Ok(()),
                None => return Err(LinkError::Closed),
            },
            error = &mut liveness => {
                if matches!(error, LinkError::Silent) { terms.stats.link_dead(); }
                return Err(error);
            }
            () = async { tokio::select! { () = ending.retired() => {}, () = &mut left => {} } }, if !draining => {
                draining = true;
                link.set_draining();
                connection.graceful_shutdown();
            }
            () = &mut overdue => return Err(LinkError::DrainTimeout),
            () = window.due(traffic) => {
                if let Some(size) = window.grow() {
                    connection.set_target_window_size(size);
                }
                window.follow(traffic, |size| connection.set_initial_window_size(size))?;
            }
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
        }
    }
}
