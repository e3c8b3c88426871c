//! Listeners of the ways in: TCP, TCP with mutual TLS, and Unix sockets. Each connection is a task, and their number is bounded.

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tracing::{debug, warn};

use super::arrival::{Arrival, CLIENTS_MAX, Rooms};
use crate::{doorway::Source, ending::Ending, socket::tune_stream};

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Serves TCP clients until `ending` retires; then those that are there, once it is shut down for no longer than `drain`. `serve` calls
/// [`Arrival::enter`] once a client has said what it wants. One of a source that has too many which have not is closed at once.
pub async fn tcp<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    ending: Ending,
    drain: Duration,
    serve: impl Fn(TcpStream, String, Arrival) -> F + Send + Sync + 'static,
) {
    let one = move |client: TcpStream, peer: String, arrival: Arrival| {
        tune_stream(&client);
        let leave = arrival.leave();
        let source = peer.clone();
        let served = serve(client, peer, arrival);
        async move {
            tokio::select! {
                () = served => {}
                () = leave.cancelled() => debug!(peer = source, "gives its place to another source"),
            }
        }
    };
    accept(Counted { listener, rooms: Arc::default() }, ending, drain, one).await;
}

/// As [`tcp`], with TLS. `config` says whether client certificates are asked for; `serve` sees the session of a client that has a place.
pub async fn tls<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    config: Arc<ServerConfig>,
    ending: Ending,
    drain: Duration,
    serve: impl Fn(TlsStream<TcpStream>, String, Arrival) -> F + Send + Sync + 'static,
) {
    let serve = Arc::new(serve);
    let acceptor = TlsAcceptor::from(config);
    let one = move |client: TcpStream, peer: String, arrival: Arrival| {
        let (acceptor, serve) = (acceptor.clone(), serve.clone());
        async move {
            match timeout(HANDSHAKE, acceptor.accept(client)).await {
                Ok(Ok(client)) if arrival.enter() => serve(client, peer, arrival).await,
                Ok(Ok(_)) => debug!(peer, "too many clients of this source"),
                Ok(Err(error)) => debug!(peer, %error, "no TLS handshake"),
                Err(_) => debug!(peer, "no TLS handshake in time"),
            }
        }
    };
    tcp(listener, ending, drain, one).await;
}

/// As [`tcp`], over a Unix socket: whoever may open it may use it, and has no address to be counted by.
pub async fn unix<F: Future<Output = ()> + Send + 'static>(
    listener: UnixListener,
    ending: Ending,
    drain: Duration,
    serve: impl Fn(UnixStream, String) -> F + Send + Sync + 'static,
) {
    let one = move |client, peer, permit: OwnedSemaphorePermit| {
        let served = serve(client, peer);
        async move {
            served.await;
            drop(permit);
        }
    };
    accept(Limited { listener, clients: Arc::new(Semaphore::new(CLIENTS_MAX)) }, ending, drain, one).await;
}

/// What clients come in at.
trait Clients {
    type Client: Send;
    type Room: Send;
    type Address;
    type Place: Send;

    /// Waits until there is room for anybody; more wait in the kernel's queue.
    async fn room(&self) -> Option<Self::Room>;

    /// The next client, and where it comes from.
    async fn next(&self) -> io::Result<(Self::Client, Self::Address)>;

    /// Gives the room to that client, unless others like it have too much of it; and what it is called.
    fn admit(&self, room: Self::Room, address: Self::Address) -> (String, Option<Self::Place>);
}

struct Counted {
    listener: TcpListener,
    rooms: Arc<Rooms>,
}

impl Clients for Counted {
    type Client = TcpStream;
    type Room = OwnedSemaphorePermit;
    type Address = SocketAddr;
    type Place = Arrival;

    async fn room(&self) -> Option<OwnedSemaphorePermit> {
        self.rooms.arriving.room().await
    }

    async fn next(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.listener.accept().await
    }

    fn admit(&self, room: OwnedSemaphorePermit, address: SocketAddr) -> (String, Option<Arrival>) {
        let source = Source::from(address.ip());
        let place = self.rooms.arriving.admit(room, source);
        (address.to_string(), place.map(|place| Arrival::at(self.rooms.clone(), place, source)))
    }
}

struct Limited {
    listener: UnixListener,
    clients: Arc<Semaphore>,
}

impl Clients for Limited {
    type Client = UnixStream;
    type Room = OwnedSemaphorePermit;
    type Address = ();
    type Place = OwnedSemaphorePermit;

    async fn room(&self) -> Option<OwnedSemaphorePermit> {
        self.clients.clone().acquire_owned().await.ok()
    }

    async fn next(&self) -> io::Result<(UnixStream, ())> {
        self.listener.accept().await.map(|(client, _)| (client, ()))
    }

    fn admit(&self, room: OwnedSemaphorePermit, (): ()) -> (String, Option<OwnedSemaphorePermit>) {
        ("unix".to_owned(), Some(room))
    }
}

async fn accept<L: Clients, F: Future<Output = ()> + Send + 'static>(
    listener: L,
    ending: Ending,
    drain: Duration,
    serve: impl Fn(L::Client, String, L::Place) -> F,
) {
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = async { (listener.room().await, listener.next().await) } => accepted,
            () = ending.retired() => break,
        };
        match accepted {
            (Some(room), Ok((client, address))) => match listener.admit(room, address) {
                (peer, Some(place)) => drop(tasks.spawn(serve(client, peer, place))),
                (peer, None) => debug!(peer, "too many of this source have not said what they want"),
            },
            (None, _) => break,
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
