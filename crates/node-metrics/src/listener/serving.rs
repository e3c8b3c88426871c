//! Connections of those who report. There are thousands, most of the time idle, so each is kept with as little memory as HTTP takes.

use std::pin::pin;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tls::listener::TlsListener;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::debug;

use super::Reporter;

/// How much of a report is read at a time, in bytes: more than most have, and what an idle connection holds on to.
const BUFFER: usize = 8 << 10;

/// Serves whoever connects with the router that [`super::router`] makes, until `end`; then those who are connected are answered what they have asked, and no more.
pub async fn serve(listener: TlsListener, router: Router, end: CancellationToken) {
    listener.serve(end.cancelled(), |io, _| Some(connection(io, router.clone(), end.clone()))).await;
}

async fn connection(io: TlsStream<TcpStream>, router: Router, end: CancellationToken) {
    let chain = io.get_ref().1.peer_certificates();
    let reporter = chain.map(Reporter::of_chain).unwrap_or_default();
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(reporter.clone()));
        router.clone().oneshot(request)
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(BUFFER);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
    let ended = if let Some(ended) = end.run_until_cancelled(connection.as_mut()).await {
        ended
    } else {
        connection.as_mut().graceful_shutdown();
        connection.await
    };
    if let Err(error) = ended {
        debug!(%error, "a connection for reports ended");
    }
}
