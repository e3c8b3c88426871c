//! HTTP/1.1 clients: CONNECT, requests with an absolute URI, and requests whose `Host` is a node.
//!
//! After the 200 to a CONNECT nothing is sent before the destination does. Other requests are sent on one by one, because a
//! client may use one connection to a proxy for many destinations.

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
use tokio::task::JoinSet;
use tracing::debug;

use super::Ingress;
use crate::{
    connector::Upstream,
    hop_by_hop::strip,
    protocol::{HEADER_REASON, OpenError},
    relay::{Pipe, relay},
    target::Target,
};

/// How long a request's head may take.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// The longest head of a request.
const HEAD_MAX: usize = 16 * 1024;

type Answer = Response<Either<Incoming, Full<Bytes>>>;

/// What clients of a listener may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// CONNECT and absolute URIs: to whom knows that this is a proxy, and who the listener knows.
    Proxy,
    /// Plain requests, whose `Host` is the name of a node and one of these ports: to whom takes this for the node. Nobody has
    /// said who the client is, so it gets no further than that.
    Host(BTreeSet<u16>),
}

/// Serves one client.
pub async fn serve_http<C: Pipe + 'static>(ingress: &Ingress, client: C, peer: &str, form: &Form) {
    // What a request leaves running: the other connection, or the bytes after an upgrade. All end with this client.
    let tasks = Mutex::new(JoinSet::new());
    let service = service_fn(|request: Request<Incoming>| {
        let tasks = &tasks;
        async move { Ok::<_, std::convert::Infallible>(answer::<C>(ingress, request, peer, form, tasks).await) }
    });
    let connection = server::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_MAX)
        .half_close(true)
        .serve_connection(TokioIo::new(client), service)
        .with_upgrades();
    // Boxed: after an upgrade only the bytes are left.
    if let Err(error) = Box::pin(connection).await {
        debug!(peer, %error, "client's connection ended");
    }
    let mut tasks = tasks.into_inner();
    while tasks.join_next().await.is_some() {}
}

async fn answer<C: Pipe + 'static>(
    ingress: &Ingress,
    request: Request<Incoming>,
    peer: &str,
    form: &Form,
    tasks: &Mutex<JoinSet<()>>,
) -> Answer {
    let connect = request.method() == Method::CONNECT;
    let Some(target) = target(&request, form) else {
        ingress.connector.stats().refused(OpenError::Malformed);
        return refusal(OpenError::Malformed);
    };
    if matches!(form, Form::Host(_)) && !ingress.is_node(&target.host) {
        ingress.refused(&target, peer, OpenError::Unknown);
        return refusal(OpenError::Unknown);
    }
    let upstream = match Box::pin(ingress.connector.connect(&ingress.request(target, peer))).await {
        Ok(upstream) => upstream,
        Err(error) => return refusal(error),
    };
    if connect {
        let upgrade = hyper::upgrade::on(request);
        spawn(tasks, pass::<C>(upgrade, upstream));
        return Response::new(Either::Right(Full::default()));
    }
    send_on::<C>(request, upstream, tasks).await.unwrap_or_else(|error| {
        debug!(peer, %error, "the destination gave no answer");
        refusal(OpenError::Unreachable)
    })
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
            let target = Target::parse(host.to_str().ok()?, usual).ok()?;
            ports.contains(&target.port).then_some(target)
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
    mut request: Request<Incoming>,
    upstream: Upstream,
    tasks: &Mutex<JoinSet<()>>,
) -> Result<Answer, hyper::Error> {
    let upgrade = request.headers().get(header::UPGRADE).cloned();
    let from_client = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
    strip(request.headers_mut());
    if let Some(upgrade) = &upgrade {
        restore_upgrade(request.headers_mut(), upgrade.clone());
    }
    to_origin_form(&mut request);
    let (mut send, connection) = client::handshake::<_, Incoming>(TokioIo::new(upstream)).await?;
    spawn(tasks, async move {
        if let Err(error) = connection.with_upgrades().await {
            debug!(%error, "the destination's connection ended");
        }
    });
    let mut response = send.send_request(request).await?;
    let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if let (true, Some(from_client)) = (switched, from_client) {
        let to_server = hyper::upgrade::on(&mut response);
        spawn(tasks, async move {
            if let Err(error) = pass_upgraded::<C>(from_client, to_server).await {
                debug!(%error, "an upgraded connection ended");
            }
        });
        let (parts, body) = response.into_parts();
        return Ok(Response::from_parts(parts, Either::Left(body)));
    }
    strip(response.headers_mut());
    let (parts, body) = response.into_parts();
    Ok(Response::from_parts(parts, Either::Left(body)))
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

fn refusal(error: OpenError) -> Answer {
    let mut response = Response::new(Either::Right(Full::from(format!("{error}\n"))));
    *response.status_mut() = error.status();
    let headers = response.headers_mut();
    headers.insert(HEADER_REASON, HeaderValue::from_static(error.reason()));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if error == OpenError::NoLink {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
