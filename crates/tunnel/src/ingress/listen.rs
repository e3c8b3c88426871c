//! Listeners of the ways in: TCP, TCP with mutual TLS, and Unix sockets. Each connection is a task, and their number is bounded.

use std::{future::Future, io, sync::Arc, time::Duration};

use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::socket::tune_stream;

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How many clients of a listener may be connected; more wait in the kernel's queue.
pub const CLIENTS_MAX: usize = 4096;

/// Serves TCP clients until `shutdown`; then those that are there for no longer than `drain`.
pub async fn tcp<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    shutdown: CancellationToken,
    drain: Duration,
    serve: impl Fn(TcpStream, String) -> F + Send + Sync + 'static,
) {
    let serve = Arc::new(serve);
    let next = async || listener.accept().await.map(|(client, address)| (client, address.to_string()));
    let one = move |client: TcpStream, peer| {
        tune_stream(&client);
        serve(client, peer)
    };
    accept(next, shutdown, drain, one).await;
}

/// As [`tcp`], with TLS. `config` says whether client certificates are asked for; `serve` sees the session.
pub async fn tls<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    config: Arc<ServerConfig>,
    shutdown: CancellationToken,
    drain: Duration,
    serve: impl Fn(TlsStream<TcpStream>, String) -> F + Send + Sync + 'static,
) {
    let serve = Arc::new(serve);
    let acceptor = TlsAcceptor::from(config);
    let one = move |client: TcpStream, peer: String| {
        let (acceptor, serve) = (acceptor.clone(), serve.clone());
        async move {
            match timeout(HANDSHAKE, acceptor.accept(client)).await {
                Ok(Ok(client)) => serve(client, peer).await,
                Ok(Err(error)) => debug!(peer, %error, "no TLS handshake"),
                Err(_) => debug!(peer, "no TLS handshake in time"),
            }
        }
    };
    tcp(listener, shutdown, drain, one).await;
}

/// As [`tcp`], over a Unix socket: whoever may open it may use it.
pub async fn unix<F: Future<Output = ()> + Send + 'static>(
    listener: UnixListener,
    shutdown: CancellationToken,
    drain: Duration,
    serve: impl Fn(UnixStream, String) -> F + Send + Sync + 'static,
) {
    let next = async || listener.accept().await.map(|(client, _)| (client, "unix".to_owned()));
    accept(next, shutdown, drain, serve).await;
}

async fn accept<C, F: Future<Output = ()> + Send + 'static>(
    next: impl AsyncFn() -> io::Result<(C, String)>,
    shutdown: CancellationToken,
    drain: Duration,
    serve: impl Fn(C, String) -> F,
) {
    let clients = Arc::new(Semaphore::new(CLIENTS_MAX));
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = async {
                let permit = clients.clone().acquire_owned().await;
                (permit, next().await)
            } => accepted,
            () = shutdown.cancelled() => break,
        };
        match accepted {
            (Ok(permit), Ok((client, peer))) => {
                let served = serve(client, peer);
                tasks.spawn(async move {
                    served.await;
                    drop(permit);
                });
            }
            (Err(_), _) => break,
            (_, Err(error)) => {
                warn!(%error, "cannot accept clients");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        while tasks.try_join_next().is_some() {}
    }
    let _ = timeout(drain, async { while tasks.join_next().await.is_some() {} }).await;
}
