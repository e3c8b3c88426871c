//! The end of a link that asks for streams: the HTTP/2 client.

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use tokio::time::timeout;

use super::{
    Carrier, LinkError, Peer, Terms, as_link, follow_window::Follower, hello, in_time, left_suspended,
    register, short_body, wait_for_streams, watch_liveness,
};
use crate::{
    crowd::Seat,
    doorway::Source,
    ending::Ending,
    hello::{Hello, HelloError},
    links::table::Link,
    protocol::{
        Class, FULL, HEADER_CLASS, HEADER_HOPS, HEADER_REASON, HEADER_REQUEST_ID, HEADER_SOURCE, HELLO_PATH,
        OpenError,
    },
    socket::{Metered, Traffic, metered},
    stream::TunnelStream,
    target::Target,
};

type Io<T> = Metered<T>;

fn builder(window: u32, streams: u32) -> Builder {
    let mut builder = as_link!(Builder::new(), window);
    builder.enable_push(false).initial_max_send_streams(streams as usize);
    builder
}

/// Runs the link until it ends. `registered` is called once both ends have introduced themselves. It ends as
/// `ending` says.
pub(crate) async fn run(
    io: impl Carrier,
    peer: Peer,
    terms: &Terms,
    ending: &Ending,
    registered: impl FnOnce(),
) -> Result<(), LinkError> {
    let allowance = terms.allow(&peer)?;
    let traffic = Arc::new(Traffic::of(&allowance));
    let io = metered(io, traffic.clone());
    let limits = terms.limits;
    let builder = builder(allowance.bytes(), limits.streams);
    let (send, mut connection) =
        in_time(limits.handshake, async { Ok(builder.handshake::<_, Bytes>(io).await?) }).await?;
    let theirs = in_time(limits.handshake, introduce(&send, &mut connection, &peer, terms)).await?;
    let registration = register(peer, &theirs, &traffic, Some(send), terms);
    registered();
    let link = registration.link.clone();
    let window = Follower::new(allowance.clone());
    let ended = drive(&mut connection, &link, window, terms, ending).await;
    link.set_draining();
    // Who waits for room is told at once that there is no link, and asks another.
    traffic.make_room(usize::MAX);
    // With the last handle gone the connection says farewell.
    drop((registration, link));
    if ended.is_ok() {
        tokio::select! {
            () = leave(connection, &traffic, limits.handshake) => {}
            () = ending.overdue(limits.drain) => return Err(LinkError::DrainTimeout),
        }
    }
    ended
}

/// Ends once what streams that are over have left behind is sent: that waits for as long as its readers like. Or `silence` after the last
/// sign of life: a peer that lives sends PINGs.
async fn leave<T: Carrier>(connection: Connection<Io<T>>, traffic: &Traffic, silence: Duration) {
    let mut connection = pin!(connection);
    loop {
        let before = traffic.received();
        let ended = timeout(silence, &mut connection).await.is_ok();
        if ended || traffic.received() == before {
            return;
        }
    }
}

async fn introduce<T: Carrier>(
    send: &SendRequest<Bytes>,
    connection: &mut Connection<Io<T>>,
    peer: &Peer,
    terms: &Terms,
) -> Result<Hello, LinkError> {
    let exchange = async {
        let mut send = send.clone().ready().await?;
        let uri = Uri::builder().scheme("https").authority("tunnel").path_and_query(HELLO_PATH).build();
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.map_err(|_| HelloError::Malformed)?;
        let (response, mut body) = send.send_request(request, false)?;
        body.send_data(hello(terms, peer.class).to_json().into(), true)?;
        let response = response.await?;
        if response.status() != StatusCode::OK {
            let reason = response.headers().get(HEADER_REASON).and_then(|reason| reason.to_str().ok());
            let reason: String = reason.unwrap_or(response.status().as_str()).chars().take(80).collect();
            return Err(LinkError::Refused(reason));
        }
        Ok(Hello::from_json(&short_body(response.into_body()).await?)?)
    };
    tokio::select! {
        theirs = exchange => theirs,
        ended = connection => { ended?; Err(LinkError::Closed) }
    }
}

async fn drive<T: Carrier>(
    connection: &mut Connection<Io<T>>,
    link: &Arc<Link>,
    mut window: Follower,
    terms: &Terms,
    ending: &Ending,
) -> Result<(), LinkError> {
    let traffic = &link.traffic;
    let liveness =
        watch_liveness(connection.ping_pong(), terms.limits.liveness, link.clone(), traffic.clone());
    let mut liveness = pin!(liveness);
    let mut drained = pin!(async {
        ending.retired().await;
        link.set_draining();
        tokio::select! {
            () = wait_for_streams(traffic) => Ok(()),
            () = ending.overdue(terms.limits.drain) => Err(LinkError::DrainTimeout),
        }
    });
    let mut left = pin!(left_suspended(link, traffic, ending));
    loop {
        tokio::select! {
            ended = &mut *connection => { ended?; return Err(LinkError::Closed) }
            error = &mut liveness => {
                if matches!(error, LinkError::Silent) { terms.stats.link_dead(); }
                return Err(error);
            }
            result = &mut drained => return result,
            () = &mut left => return Ok(()),
            () = window.due(traffic) => {
                if let Some(size) = window.grow() {
                    connection.set_target_window_size(size);
                }
                window.follow(traffic, |size| connection.set_initial_window_size(size))?;
            }
        }
    }
}

/// What a stream is opened with.
#[derive(Debug, Clone)]
pub(crate) struct Opening<'a> {
    pub(crate) target: &'a Target,
    pub(crate) class: Class,
    pub(crate) hops: u8,
    /// Where the client is, if nobody vouches for it.
    pub(crate) source: Option<Source>,
    pub(crate) request_id: &'a str,
}

/// Opens a stream, which holds that place. On an error nothing of it was ever sent on to the destination.
pub(crate) async fn open(
    link: &Arc<Link>,
    opening: &Opening<'_>,
    place: Option<Seat>,
) -> Result<TunnelStream, OpenError> {
    // Counted before it is looked; a link that ends is marked before it looks whether any is counted. So one of the two sees the other.
    let guard = link.traffic.open_stream_at(place);
    if link.is_closed_to_new() || !guard.has_place() {
        return Err(OpenError::NoLink);
    }
    link.traffic.room().await;
    let asker = link.asker().ok_or(OpenError::NoLink)?;
    let request = connect_request(opening).ok_or(OpenError::Malformed)?;
    let no_link = |error: h2::Error| {
        if error.is_go_away() {
            link.set_draining();
        }
        OpenError::NoLink
    };
    let mut asker = asker.ready().await.map_err(no_link)?;
    let (response, send) = asker.send_request(request, false).map_err(no_link)?;
    drop(asker);
    let response = response.await.map_err(no_link)?;
    if response.status() != StatusCode::OK {
        let reason = response.headers().get(HEADER_REASON).map(HeaderValue::as_bytes);
        if reason == Some(FULL.as_bytes()) {
            link.set_full(&guard);
        }
        return Err(OpenError::from_answer(response.status(), reason));
    }
    Ok(TunnelStream::new(send, response.into_body(), guard))
}

fn connect_request(opening: &Opening<'_>) -> Option<Request<()>> {
    let mut request = Request::new(());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = Uri::builder().authority(opening.target.to_string()).build().ok()?;
    let headers = request.headers_mut();
    headers.insert(HEADER_CLASS, HeaderValue::from_static(opening.class.name()));
    headers.insert(HEADER_HOPS, HeaderValue::from(u16::from(opening.hops)));
    if let Some(source) = opening.source {
        headers.insert(HEADER_SOURCE, HeaderValue::from_str(&source.to_string()).ok()?);
    }
    headers.insert(HEADER_REQUEST_ID, HeaderValue::from_str(opening.request_id).ok()?);
    Some(request)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, copy, duplex, split},
        task::JoinSet,
        time::sleep,
    };

    use super::*;

    const SIZE: usize = 400_000;

    /// Over a thin line what a stream has left behind takes longer than a peer may be silent.
    #[tokio::test(start_paused = true)]
    async fn what_is_left_to_send_is_sent_while_the_peer_lives() {
        let ((near, line_near), (line_far, far)) = (duplex(1024), duplex(1024));
        let ((mut up, mut to_near), (mut down, mut to_far)) = (split(line_near), split(line_far));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut chunk = [0; 1024];
            while let Ok(read @ 1..) = up.read(&mut chunk).await {
                sleep(Duration::from_millis(100)).await;
                let _ = to_far.write_all(&chunk[..read]).await;
            }
            let _ = to_far.shutdown().await;
        });
        tasks.spawn(async move {
            let _ = copy(&mut down, &mut to_near).await;
        });
        let mut reader = JoinSet::new();
        reader.spawn(async move {
            let mut connection = h2::server::handshake(far).await.unwrap();
            let (request, mut respond) = connection.accept().await.unwrap().unwrap();
            let _: h2::SendStream<Bytes> = respond.send_response(http::Response::new(()), true).unwrap();
            tasks.spawn(async move { while connection.accept().await.is_some() {} });
            let (mut body, mut got) = (request.into_body(), 0);
            while let Some(chunk) = body.data().await {
                let chunk = chunk.unwrap();
                got += chunk.len();
                body.flow_control().release_capacity(chunk.len()).unwrap();
            }
            got
        });
        let traffic = Arc::<Traffic>::default();
        let shaken = Builder::new().handshake::<_, Bytes>(metered(near, traffic.clone())).await;
        let (mut send, mut connection) = shaken.unwrap();
        let (response, mut body) = send.send_request(Request::new(()), false).unwrap();
        body.send_data(vec![7; SIZE].into(), true).unwrap();
        tokio::select! {
            response = response => drop(response.unwrap()),
            _ = &mut connection => panic!("it ended"),
        }
        drop((send, body));
        leave(connection, &traffic, Duration::from_secs(10)).await;
        assert_eq!(reader.join_next().await.unwrap().unwrap(), SIZE);
    }
}
