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
use tracing::{debug, warn};

use crate::{ending::Ending, socket::tune_stream};

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How many clients of a listener may be connected; more wait in the kernel's queue.
pub const CLIENTS_MAX: usize = 4096;

/// Serves TCP clients until `ending` retires; then those that are there, once it is shut down for no longer than `drain`.
pub async fn tcp<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    ending: Ending,
    drain: Duration,
    serve: impl Fn(TcpStream, String) -> F + Send + Sync + 'static,
) {
    let one = move |client: TcpStream, peer| {
        tune_stream(&client);
        serve(client, peer)
    };
    accept(listener, ending, drain, one).await;
}

/// As [`tcp`], with TLS. `config` says whether client certificates are asked for; `serve` sees the session.
pub async fn tls<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    config: Arc<ServerConfig>,
    ending: Ending,
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
    tcp(listener, ending, drain, one).await;
}

/// As [`tcp`], over a Unix socket: whoever may open it may use it.
pub async fn unix<F: Future<Output = ()> + Send + 'static>(
    listener: UnixListener,
    ending: Ending,
    drain: Duration,
    serve: impl Fn(UnixStream, String) -> F + Send + Sync + 'static,
) {
    accept(listener, ending, drain, serve).await;
}

/// What clients come in at.
trait Clients {
    type Client: Send;

    /// The next client, and where it comes from.
    fn next(&self) -> impl Future<Output = io::Result<(Self::Client, String)>> + Send;
}

impl Clients for TcpListener {
    type Client = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, String)> {
        self.accept().await.map(|(client, address)| (client, address.to_string()))
    }
}

impl Clients for UnixListener {
    type Client = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, String)> {
        self.accept().await.map(|(client, _)| (client, "unix".to_owned()))
    }
}

async fn accept<L: Clients, F: Future<Output = ()> + Send + 'static>(
    listener: L,
    ending: Ending,
    drain: Duration,
    serve: impl Fn(L::Client, String) -> F,
) {
    let clients = Arc::new(Semaphore::new(CLIENTS_MAX));
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = async {
                let permit = clients.clone().acquire_owned().await;
                (permit, listener.next().await)
            } => accepted,
            () = ending.retired() => break,
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
    // Whoever comes now is told at once that nobody is here.
    drop(listener);
    tokio::select! {
        () = async { while tasks.join_next().await.is_some() {} } => {}
        () = ending.overdue(drain) => {}
    }
}
