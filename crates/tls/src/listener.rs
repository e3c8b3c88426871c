//! TLS for `axum::serve`: accepts connections and hands out those whose handshake is done.
//!
//! Handshakes run in tasks of their own, with a deadline and a bound on their number, so that a client that is slow or
//! silent delays nobody. Where there are as many as may be, the oldest of the address that has most gives way to who comes: whoever opens
//! connections and says nothing must not keep others out. No error ends the listener: a handshake that fails concerns that client only, and failures to
//! accept (no file descriptors left) are tried again after a pause. A client that is gone without a word (no power, no link) is noticed, and its
//! connection ends.

use std::{
    cmp::Reverse,
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use axum::serve::Listener;
use rustls::ServerConfig;
use socket2::SockRef;
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::{Instant, sleep_until, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tracing::{debug, warn};

use crate::socket;

/// Limits of a [`TlsListener`].
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a handshake may take.
    pub handshake: Duration,
    /// How many handshakes may be under way. For one more the oldest of the address that has most is broken off. Unless one address has
    /// more than a quarter, each has a second before that, and connections wait in the kernel's queue.
    pub concurrent_handshakes: usize,
    /// How long what was sent may go unacknowledged, or unread by a client that stands still, until the connection is broken; `None`: as
    /// long as the kernel tries, about a quarter of an hour, and for ever where the client's kernel says that it does not read.
    pub unacknowledged: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { handshake: Duration::from_secs(10), concurrent_handshakes: 512, unacknowledged: None }
    }
}

/// The first and the longest pause after a failure to accept.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// One address may have this part of the handshakes before it is the one that gives way at once.
const SHARE: usize = 4;

/// How long a handshake goes on undisturbed where no address has more than its share: many that are honest may come at once, as when a server
/// takes over.
const UNDISTURBED: Duration = Duration::from_secs(1);

/// What a handshake's task gives back.
type Handshake = (SocketAddr, Result<TlsStream<TcpStream>, HandshakeError>);

#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    #[error("not done in time")]
    Deadline,
    #[error(transparent)]
    Failed(io::Error),
}

/// A handshake that is under way.
struct Pending {
    task: AbortHandle,
    from: IpAddr,
    begun: Instant,
}

/// An `axum::serve::Listener` that terminates TLS.
pub struct TlsListener {
    tcp: TcpListener,
    config: Arc<ArcSwap<ServerConfig>>,
    limits: Limits,
    // Dropping the listener ends its handshakes.
    handshakes: JoinSet<Handshake>,
    /// Those that count, the oldest first.
    pending: Vec<Pending>,
    pause: Duration,
    paused_until: Option<Instant>,
}

impl TlsListener {
    /// Terminates TLS on `tcp` as `config` says.
    pub fn new(tcp: TcpListener, config: ServerConfig, limits: Limits) -> Self {
        Self::following(tcp, Arc::new(ArcSwap::from_pointee(config)), limits)
    }

    /// The same as `config` says when a connection comes.
    pub fn following(tcp: TcpListener, config: Arc<ArcSwap<ServerConfig>>, limits: Limits) -> Self {
        let (handshakes, pending) = (JoinSet::new(), Vec::new());
        Self { tcp, config, limits, handshakes, pending, pause: PAUSE.0, paused_until: None }
    }

    /// Serves each connection in a task of its own until `end`, then waits for those that there are; `connection` makes none of one that is not
    /// to be served.
    pub async fn serve<Served: Future<Output = ()> + Send + 'static>(
        mut self,
        end: impl Future<Output = ()>,
        connection: impl Fn(TlsStream<TcpStream>, SocketAddr) -> Option<Served>,
    ) {
        let (mut end, mut connections) = (pin!(end), JoinSet::new());
        loop {
            tokio::select! {
                (stream, address) = self.accept() => if let Some(served) = connection(stream, address) {
                    connections.spawn(served);
                },
                Some(_) = connections.join_next() => {}
                () = &mut end => break,
            }
        }
        drop(self);
        while connections.join_next().await.is_some() {}
    }

    fn begin(&mut self, connection: TcpStream, address: SocketAddr) {
        self.pause = PAUSE.0;
        self.tune(&connection);
        let handshake = TlsAcceptor::from(self.config.load_full()).accept(connection);
        let deadline = self.limits.handshake;
        let task = self.handshakes.spawn(async move {
            let result = match timeout(deadline, handshake).await {
                Ok(result) => result.map_err(HandshakeError::Failed),
                Err(_) => Err(HandshakeError::Deadline),
            };
            (address, result)
        });
        self.pending.push(Pending { task, from: socket::source(address.ip()), begun: Instant::now() });
    }

    /// Which handshake gives way to another one, and from when on; none while there is room.
    fn gives_way(&self) -> Option<(Instant, usize)> {
        let most = self.limits.concurrent_handshakes;
        if self.pending.len() < most {
            return None;
        }
        let mut sources = HashMap::new();
        for (place, pending) in self.pending.iter().enumerate() {
            sources.entry(pending.from).or_insert((0, Reverse(place))).0 += 1;
        }
        let (count, Reverse(place)) = sources.into_values().max()?;
        let begun = self.pending.get(place)?.begun;
        Some((if count > most / SHARE { begun } else { begun + UNDISTURBED }, place))
    }

    /// A handshake has ended.
    fn ended(&mut self, task: Id) {
        self.pending.retain(|pending| pending.task.id() != task);
    }

    /// Sends at once, and notices a client that vanished: nothing else would end its connection.
    fn tune(&self, connection: &TcpStream) {
        let connection = SockRef::from(connection);
        socket::tune(&connection);
        if let Some(limit) = self.limits.unacknowledged {
            socket::set([("TCP_USER_TIMEOUT", connection.set_tcp_user_timeout(Some(limit)))]);
        }
    }

    fn refused(&mut self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
        // The client went away before it was accepted; the next may be there already.
        if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
            return;
        }
        warn!(%error, pause = ?self.pause, "cannot accept connections");
        self.paused_until = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(PAUSE.1);
    }
}

fn finished(joined: Result<Handshake, JoinError>) -> Option<(TlsStream<TcpStream>, SocketAddr)> {
    match joined {
        Ok((address, Ok(stream))) => Some((stream, address)),
        // Probes of load balancers and port scans end here too, so it is no warning.
        Ok((address, Err(error))) => {
            debug!(%address, %error, "TLS handshake failed");
            None
        }
        Err(error) if error.is_cancelled() => {
            debug!("a TLS handshake gave way to another");
            None
        }
        Err(error) => {
            warn!(%error, "TLS handshake panicked");
            None
        }
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let gives_way = self.gives_way();
            let not_before = self.paused_until.max(gives_way.map(|(from, _)| from));
            let not_before = not_before.filter(|moment| *moment > Instant::now());
            // Every branch is cancel-safe; what is under way is kept in `self`.
            tokio::select! {
                Some(joined) = self.handshakes.join_next_with_id() => {
                    self.ended(joined.as_ref().map_or_else(JoinError::id, |(task, _)| *task));
                    if let Some(connection) = finished(joined.map(|(_, handshake)| handshake)) {
                        return connection;
                    }
                }
                () = sleep_until(not_before.unwrap_or_else(Instant::now)), if not_before.is_some() => {}
                accepted = self.tcp.accept(), if not_before.is_none() => match accepted {
                    Ok((connection, address)) => {
                        if let Some((_, place)) = gives_way {
                            self.pending.remove(place).task.abort();
                        }
                        self.begin(connection, address);
                    }
                    Err(error) => self.refused(&error),
                },
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolver::ServingCertificate;

    #[tokio::test]
    async fn clients_that_vanish_are_noticed() {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let config = ServingCertificate::new().server_config().unwrap();
        let mut listener = TlsListener::new(tcp, config, Limits::default());
        for limit in [None, Some(Duration::from_mins(1))] {
            listener.limits.unacknowledged = limit;
            let _client = TcpStream::connect(address).await.unwrap();
            let (accepted, client) = listener.tcp.accept().await.unwrap();
            let raw = SockRef::from(&accepted).try_clone().unwrap();
            listener.begin(accepted, client);
            assert!(raw.keepalive().unwrap() && raw.tcp_nodelay().unwrap());
            let asked = (
                raw.tcp_keepalive_time().unwrap(),
                raw.tcp_keepalive_interval().unwrap(),
                raw.tcp_keepalive_retries().unwrap(),
            );
            assert_eq!(asked, socket::KEEPALIVE);
            assert_eq!(raw.tcp_user_timeout().unwrap().filter(|limit| !limit.is_zero()), limit);
        }
    }
}
