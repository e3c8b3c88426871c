//! TLS and faults of a server whose port is within the process.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::DuplexStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::faults::{Faults, Faulty, Reset};
use crate::memory::{Incoming, Port};

impl Reset for TlsStream<DuplexStream> {
    /// The peer sees an end without TLS's good-bye, which is an error as a reset is.
    fn reset(&self) {}
}

/// Accepts what comes in at a port, unless connections are refused; then they end at once. A cut also ends those that are in their handshake,
/// and those that have not been accepted.
pub(super) struct MemoryListener {
    incoming: Incoming,
    acceptor: TlsAcceptor,
    handshakes: JoinSet<(io::Result<TlsStream<DuplexStream>>, u64)>,
    faults: Arc<Faults>,
    refusals: watch::Receiver<bool>,
}

impl MemoryListener {
    pub(super) fn new(port: &Port, config: ServerConfig, faults: Arc<Faults>) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let refusals = faults.refusals();
        Self { incoming: port.listen(), acceptor, handshakes: JoinSet::new(), faults, refusals }
    }
}

impl axum::serve::Listener for MemoryListener {
    type Io = Faulty<TlsStream<DuplexStream>>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                // First, so that none that came before a cut, or between it and the healing, is accepted after both.
                biased;
                Ok(()) = self.refusals.changed() => self.incoming.refuse_waiting(),
                connection = self.incoming.accept() => if !self.faults.refuses() {
                    let (handshake, born) = (self.acceptor.accept(connection), self.faults.cuts());
                    self.handshakes.spawn(async move { (handshake.await, born) });
                },
                Some(done) = self.handshakes.join_next() => if let Ok((Ok(stream), born)) = done {
                    return (Faulty::new(stream, born, self.faults.clone()), Port::address());
                },
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(Port::address())
    }
}

#[cfg(test)]
mod tests {
    use rustls::{ClientConfig, RootCertStore};
    use rustls_pki_types::ServerName;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::task::yield_now;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::api_server::pki::Authority;
    use crate::api_server::{Cluster, FakeApiServer, ServerOptions, Tls};

    /// On one thread the listener runs only where this waits.
    #[tokio::test]
    async fn a_cut_ends_what_is_in_its_handshake_and_what_waits() {
        let authority = Authority::generate("test").unwrap();
        let (tls, port) = (Tls::of(&authority).unwrap(), Port::default());
        let server =
            FakeApiServer::serve_within(Cluster::default(), ServerOptions::default(), &tls, &port).unwrap();
        let accepted = port.connect().unwrap();
        yield_now().await;
        let mut waits = port.connect().unwrap();
        server.cut();
        server.heal();
        let mut byte = [0];
        assert_eq!(waits.read(&mut byte).await.unwrap(), 0, "it waited when the port was closed");

        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate().clone()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        let ask = async |connection: DuplexStream| {
            let name = ServerName::try_from("localhost").unwrap();
            let mut stream = connector.connect(name, connection).await?;
            stream.write_all(b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
            stream.read_u8().await
        };
        assert!(ask(accepted).await.is_err(), "its handshake was under way at the cut");
        assert_eq!(ask(port.connect().unwrap()).await.unwrap(), b'H');
    }
}
