//! TLS and faults of a server whose port is within the process.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::DuplexStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::faults::{Faults, Faulty, Reset};
use crate::memory::{Incoming, Port};

impl Reset for TlsStream<DuplexStream> {
    /// The peer sees an end without TLS's good-bye, which is an error as a reset is.
    fn reset(&self) {}
}

/// Accepts what comes in at a port, unless connections are refused; then they end at once.
pub(super) struct MemoryListener {
    incoming: Incoming,
    acceptor: TlsAcceptor,
    handshakes: JoinSet<io::Result<TlsStream<DuplexStream>>>,
    faults: Arc<Faults>,
}

impl MemoryListener {
    pub(super) fn new(port: &Port, config: ServerConfig, faults: Arc<Faults>) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self { incoming: port.listen(), acceptor, handshakes: JoinSet::new(), faults }
    }
}

impl axum::serve::Listener for MemoryListener {
    type Io = Faulty<TlsStream<DuplexStream>>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                connection = self.incoming.accept() => if !self.faults.refuses() {
                    self.handshakes.spawn(self.acceptor.accept(connection));
                },
                Some(done) = self.handshakes.join_next() => if let Ok(Ok(stream)) = done {
                    return (Faulty::new(stream, self.faults.clone()), Port::address());
                },
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(Port::address())
    }
}
