//! Connections over TLS and HTTP/2 that cost little: one for each simulated node, one for each watcher.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// How long a connection, or the head of an answer, may take: as the hub has it.
const DEADLINE: Duration = Duration::from_secs(5);

/// As client-go's HTTP/2 has them: a watch of large objects does not wait for its reader's permission.
const WINDOW: u32 = 4 << 20;

/// Who asks: its certificate, and whom it believes.
pub(super) fn config(
    authorities: &str,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(authority?)?;
    }
    let mut config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// How a connection is kept.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// A node's: small windows.
    Reporter {
        /// How often a silent leader is asked for a sign of life, and for how long.
        probe: Duration,
    },
    /// A watcher's: large windows.
    Reader,
}

/// One connection. Dropping it closes it.
pub(super) struct Link {
    sender: http2::SendRequest<Full<Bytes>>,
    server: String,
    driver: JoinSet<()>,
}

impl Link {
    /// Connects to `host:port`, which must have a certificate of that name.
    pub(super) async fn open(server: &str, name: &str, tls: &Arc<ClientConfig>, kind: Kind) -> Result<Self> {
        let name = ServerName::try_from(name.to_owned())?;
        timeout(DEADLINE, async {
            let tcp = TcpStream::connect(server).await?;
            tcp.set_nodelay(true)?;
            let tls = TlsConnector::from(tls.clone()).connect(name, tcp).await?;
            ensure!(tls.get_ref().1.alpn_protocol() == Some(b"h2"), "{server} speaks no HTTP/2");
            let mut builder = http2::Builder::new(TokioExecutor::new());
            match kind {
                Kind::Reporter { probe } => builder
                    .timer(TokioTimer::new())
                    .keep_alive_interval(probe)
                    .keep_alive_timeout(probe)
                    .keep_alive_while_idle(true),
                Kind::Reader => {
                    builder.initial_stream_window_size(WINDOW).initial_connection_window_size(4 * WINDOW)
                }
            };
            let (sender, connection) = builder.handshake(TokioIo::new(tls)).await?;
            let mut driver = JoinSet::new();
            driver.spawn(async move {
                // Its end is seen by whoever sends the next request.
                let _ = connection.await;
            });
            Ok(Self { sender, server: server.to_owned(), driver })
        })
        .await
        .context("no connection in time")?
    }

    /// Sends a request and gives the head of the answer.
    pub(super) async fn send(
        &mut self,
        request: http::request::Builder,
        path: &str,
        body: Bytes,
    ) -> Result<http::Response<Incoming>> {
        self.send_within(DEADLINE, request, path, body).await
    }

    /// The same of an answer whose making takes its time.
    pub(super) async fn send_within(
        &mut self,
        deadline: Duration,
        request: http::request::Builder,
        path: &str,
        body: Bytes,
    ) -> Result<http::Response<Incoming>> {
        let request = request.uri(format!("https://{}{path}", self.server)).body(Full::new(body))?;
        self.sender.ready().await?;
        Ok(timeout(deadline, self.sender.send_request(request)).await.context("no answer in time")??)
    }

    /// Returns when the other end is gone.
    pub(super) async fn ended(&mut self) {
        self.driver.join_next().await;
    }
}
