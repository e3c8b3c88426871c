//! HTTP/1.1 clients: CONNECT, requests with an absolute URI, and requests whose `Host` is a node.
//!
//! After the 200 to a CONNECT nothing is sent before the destination does. Other requests are sent on one by one, because a
//! client may use one connection to a proxy for many destinations. The connection to the last of them is kept with the client's, so
//! who asks the same one again waits for no stream to be opened.

use std::{collections::BTreeSet, io, time::Duration};

use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{Either, Full};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http1 as client,
    server::conn::http1 as server,
    service::service_fn,
    upgrade::{OnUpgrade, Parts},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{timeout, timeout_at},
};
use tracing::debug;

use super::{Ingress, arrival::Arrival};
use crate::{
    connector::{self, Upstream},
    ending::Ending,
    hop_by_hop::strip,
    protocol::{HEADER_REASON, OpenError},
    relay::{Pipe, relay},
    target::Target,
};

/// How long the first head of a connection may take, from when that came: until then it holds one of the few places of those who have not said what they want.
const FIRST_HEAD_TIME: Duration = Duration::from_secs(15);

/// How long a connection that is kept may wait for the next one, that one's time included: whoever scrapes each minute keeps it.
const HEAD_TIME: Duration = Duration::from_secs(65);

/// How long a connection that is kept may take to be ready again after its last answer; it only has to be told that this was read.
const READY_TIME: Duration = Duration::from_millis(200);

/// The longest head of a request.
const HEAD_MAX: usize = 16 * 1024;

type Answer = Response<Either<Incoming, Full<Bytes>>>;

type Sender = client::SendRequest<Incoming>;

/// What requests of a client leave for as long as it is there.
#[derive(Default)]
struct Left {
    // Its first head is in.
    said: Notify,
    // The other connections, and the bytes after an upgrade.
    tasks: Mutex<JoinSet<()>>,
    // The connection to the last destination.
    kept: Mutex<Option<(Target, Sender)>>,
}

/// What clients of a listener may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// CONNECT and absolute URIs: to whom knows that this is a proxy, and who the listener knows.
    Proxy,
    /// Plain requests, whose `Host` is the name of a node and one of these ports: to whom takes this for the node. Nobody has
    /// said who the client is, so it gets no further than that.
    Host(BTreeSet<u16>),
}

/// Serves one client, until it leaves. It enters with its first head. Once `ending` retires it may finish its request, and bytes after an upgrade go on.
pub async fn serve_http<C: Pipe + 'static>(
    ingress: &Ingress,
    client: C,
    peer: &str,
    arrival: &Arrival,
    form: &Form,
    ending: &Ending,
) {
    let left = Left::default();
    let service = service_fn(|request: Request<Incoming>| {
        let left = &left;
        async move {
            left.said.notify_one();
            let answer = if arrival.enter() {
                answer::<C>(ingress, request, peer, arrival, form, left).await
            } else {
                ingress.refused(&wanted(&request), peer, arrival, OpenError::Crowded);
                last_refusal(OpenError::Crowded)
            };
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let connection = server::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_MAX)
        .half_close(true)
        .serve_connection(TokioIo::new(client), service)
        .with_upgrades();
    // Boxed: after an upgrade only the bytes are left.
    let mut connection = Box::pin(connection);
    let late = async {
        if timeout_at(arrival.deadline(FIRST_HEAD_TIME), left.said.notified()).await.is_ok() {
            std::future::pending::<()>().await;
        }
    };
    let whole = async {
        tokio::select! {
            ended = &mut connection => ended,
            () = ending.retired() => {
                connection.as_mut().graceful_shutdown();
                connection.as_mut().await
            }
        }
    };
    tokio::select! {
        ended = whole => if let Err(error) = ended {
            debug!(peer, %error, "client's connection ended");
        },
        () = late => debug!(peer, "no request in time"),
    }
    drop(connection);
    let Left { tasks, kept, .. } = left;
    drop(kept);
    let mut tasks = tasks.into_inner();
    while tasks.join_next().await.is_some() {}
}

async fn answer<C: Pipe + 'static>(
    ingress: &Ingress,
    request: Request<Incoming>,
    peer: &str,
    arrival: &Arrival,
    form: &Form,
    left: &Left,
) -> Answer {
    let Some(target) = target(&request, form) else {
        ingress.refused(&wanted(&request), peer, arrival, OpenError::Malformed);
        return refusal(OpenError::Malformed);
    };
    let refused = match form {
        Form::Host(ports) if !ports.contains(&target.port) => Some(OpenError::NotAllowed),
        Form::Host(_) if !ingress.is_node(&target.host) => Some(OpenError::Unknown),
        Form::Host(_) | Form::Proxy => None,
    };
    if let Some(error) = refused {
        ingress.refused(&target.to_string(), peer, arrival, error);
        return refusal(error);
    }
    if request.method() != Method::CONNECT {
        let wanted = ingress.request(target, peer, arrival);
        return send_on::<C>(ingress, request, wanted, peer, left).await.unwrap_or_else(refusal);
    }
    match Box::pin(ingress.connector.connect(&ingress.request(target, peer, arrival))).await {
        Ok(upstream) => {
            let upgrade = hyper::upgrade::on(request);
            spawn(&left.tasks, pass::<C>(upgrade, upstream));
            Response::new(Either::Right(Full::default()))
        }
        Err(error) => refusal(error),
    }
}

/// What a request that cannot be understood asked for, as far as it says. Paths, queries and names of users are left out: there may be tokens
/// and passwords in them.
fn wanted<B>(request: &Request<B>) -> String {
    let host = request.headers().get(header::HOST).map(|host| String::from_utf8_lossy(host.as_bytes()));
    let (method, host) = (request.method(), host.unwrap_or_default());
    let host = bare(&host);
    match request.uri().authority() {
        Some(authority) => format!("{method} {} of {host}", bare(authority.as_str())),
        None => format!("{method} of {host}"),
    }
}

/// An authority without what stands before its host.
fn bare(authority: &str) -> &str {
    // With more than an authority in it nobody can say what is which.
    if authority.contains(['/', '?', '#']) {
        return "?";
    }
    authority.rsplit('@').next().unwrap_or_default()
}

/// Leaves a task running with the client; those that have ended are forgotten.
fn spawn(tasks: &Mutex<JoinSet<()>>, task: impl Future<Output = ()> + Send + 'static) {
    let mut tasks = tasks.lock();
    while tasks.try_join_next().is_some() {}
    tasks.spawn(task);
}

/// Where a request is to go.
fn target(request: &Request<Incoming>, form: &Form) -> Option<Target> {
    let uri = request.uri();
    match form {
        Form::Proxy if request.method() == Method::CONNECT => {
            Target::parse(uri.authority()?.as_str(), None).ok()
        }
        Form::Proxy if uri.scheme_str() == Some("http") => {
            Target::parse(uri.authority()?.as_str(), Some(80)).ok()
        }
        Form::Proxy => None,
        Form::Host(ports) => {
            let origin_form = uri.authority().is_none() && request.method() != Method::CONNECT;
            let mut hosts = request.headers().get_all(header::HOST).iter();
            let (true, Some(host), None) = (origin_form, hosts.next(), hosts.next()) else { return None };
            // A client leaves out the port that is usual; where there is one only, it is that.
            let usual = if ports.len() == 1 { ports.first().copied() } else { Some(80) };
            Target::parse(host.to_str().ok()?, usual).ok()
        }
    }
}

/// The bytes after a CONNECT or another upgrade.
async fn pass<C: Pipe + 'static>(upgrade: OnUpgrade, mut upstream: Upstream) {
    match upgrade.await {
        Ok(upgraded) => {
            // There is no other type that it could be.
            let Ok(parts) = upgraded.downcast::<TokioIo<C>>() else { return };
            let (mut client, first) = split(parts);
            let (passed, result) = relay(&mut client, &mut upstream, first).await;
            debug!(up = passed.up, down = passed.down, broken = result.is_err(), "stream ended");
        }
        Err(error) => {
            debug!(%error, "the client left before its stream began");
            upstream.abort();
        }
    }
}

async fn send_on<C: Pipe + 'static>(
    ingress: &Ingress,
    mut request: Request<Incoming>,
    wanted: connector::Request,
    peer: &str,
    left: &Left,
) -> Result<Answer, OpenError> {
    let upgrade = request.headers().get(header::UPGRADE).cloned();
    let from_client = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
    strip(request.headers_mut());
    if let Some(upgrade) = &upgrade {
        restore_upgrade(request.headers_mut(), upgrade.clone());
    }
    to_origin_form(&mut request);
    let no_answer = |error: hyper::Error| {
        debug!(peer, %error, "the destination gave no answer");
        OpenError::Unreachable
    };
    let kept = left.kept.lock().take().filter(|(known, _)| *known == wanted.target);
    let (send, mut response) = match again(kept, request).await.map_err(no_answer)? {
        Either::Left(answered) => answered,
        Either::Right(request) => {
            let upstream = Box::pin(ingress.connector.connect(&wanted)).await?;
            let gives_way = upstream.gives_way();
            let made = client::handshake(TokioIo::new(upstream)).await;
            let (mut send, connection): (Sender, _) = made.map_err(no_answer)?;
            spawn(&left.tasks, async move {
                // For a client that reads nothing hyper does not look at the stream.
                tokio::select! {
                    ended = connection.with_upgrades() => if let Err(error) = ended {
                        debug!(%error, "the destination's connection ended");
                    },
                    () = gives_way => debug!("the destination's connection gives its place to another"),
                }
            });
            let response = send.send_request(request).await.map_err(no_answer)?;
            (send, response)
        }
    };
    let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if let (true, Some(from_client)) = (switched, from_client) {
        let to_server = hyper::upgrade::on(&mut response);
        spawn(&left.tasks, async move {
            if let Err(error) = pass_upgraded::<C>(from_client, to_server).await {
                debug!(%error, "an upgraded connection ended");
            }
        });
        let (parts, body) = response.into_parts();
        return Ok(Response::from_parts(parts, Either::Left(body)));
    }
    *left.kept.lock() = Some((wanted.target, send));
    strip(response.headers_mut());
    let (parts, body) = response.into_parts();
    Ok(Response::from_parts(parts, Either::Left(body)))
}

/// Sends a request over the connection that is kept. Gives it back if there is none, or if that ended before anything was sent.
async fn again(
    kept: Option<(Target, Sender)>,
    request: Request<Incoming>,
) -> hyper::Result<Either<(Sender, Response<Incoming>), Request<Incoming>>> {
    let Some((_, mut send)) = kept else { return Ok(Either::Right(request)) };
    if !matches!(timeout(READY_TIME, send.ready()).await, Ok(Ok(()))) {
        return Ok(Either::Right(request));
    }
    match send.try_send_request(request).await {
        Ok(response) => Ok(Either::Left((send, response))),
        Err(mut error) => error.take_message().map(Either::Right).ok_or_else(|| error.into_error()),
    }
}

async fn pass_upgraded<C: Pipe + 'static>(from_client: OnUpgrade, to_server: OnUpgrade) -> io::Result<()> {
    let (from_client, to_server) =
        futures::future::try_join(from_client, to_server).await.map_err(io::Error::other)?;
    let unknown = |_| io::Error::other("an unknown connection");
    let from_client = from_client.downcast::<TokioIo<C>>().map_err(unknown)?;
    let to_server = to_server.downcast::<TokioIo<Upstream>>().map_err(unknown)?;
    let ((mut client, up), (mut upstream, down)) = (split(from_client), split(to_server));
    if !down.is_empty() {
        tokio::io::AsyncWriteExt::write_all(&mut client, &down).await?;
    }
    relay(&mut client, &mut upstream, up).await.1
}

/// The connection, and what has been read of it already: a copy, because even an empty rest holds all of hyper's buffer.
fn split<C>(parts: Parts<TokioIo<C>>) -> (C, Vec<u8>) {
    (parts.io.into_inner(), parts.read_buf.to_vec())
}

fn restore_upgrade(headers: &mut http::HeaderMap, upgrade: HeaderValue) {
    headers.insert(header::UPGRADE, upgrade);
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
}

/// Servers expect the path alone, and the host in `Host` (RFC 9112, 3.2.2: the URI's wins).
fn to_origin_form(request: &mut Request<Incoming>) {
    if let Some(authority) = request.uri().authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(header::HOST, host);
    }
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
}

/// With which the connection ends, too.
fn last_refusal(error: OpenError) -> Answer {
    let mut response = refusal(error);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn refusal(error: OpenError) -> Answer {
    let mut response = Response::new(Either::Right(Full::from(format!("{error}\n"))));
    *response.status_mut() = error.status();
    let headers = response.headers_mut();
    headers.insert(HEADER_REASON, HeaderValue::from_static(error.reason()));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if matches!(error, OpenError::NoLink | OpenError::Crowded) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audit_learns_no_secrets() {
        for (method, uri, host, expected) in [
            ("GET", "/path?token=secret", "a1", "GET of a1"),
            ("GET", "/path?token=secret", "user:secret@a1:22", "GET of a1:22"),
            ("GET", "/", "a@secret@a1", "GET of a1"),
            ("GET", "/", "a1/path?token=secret", "GET of ?"),
            ("GET", "/", "user:sec/ret@a1", "GET of ?"),
            ("GET", "ftp://user:secret@a1/secret?token=secret", "x", "GET a1 of x"),
            ("CONNECT", "user:secret@a1:0", "x", "CONNECT a1:0 of x"),
        ] {
            let request =
                Request::builder().method(method).uri(uri).header(header::HOST, host).body(()).unwrap();
            assert_eq!(wanted(&request), expected);
        }
    }
}
