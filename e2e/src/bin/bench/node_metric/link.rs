//! Connections over TLS that cost little: one for each simulated node by HTTP/1.1, one for each watcher by HTTP/2.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::header;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
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
    kind: Kind,
) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(authority?)?;
    }
    let provider = match kind {
        // As client-go.
        Kind::Reader => tls::shorter_keys_first(),
        Kind::Reporter => rustls::crypto::ring::default_provider(),
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![kind.protocol().to_vec()];
    Ok(Arc::new(config))
}

/// How a connection is kept.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// A node's, as the hub has it.
    Reporter,
    /// A watcher's: large windows.
    Reader,
}

impl Kind {
    fn protocol(self) -> &'static [u8] {
        match self {
            Self::Reporter => node_report::http::PROTOCOL,
            Self::Reader => b"h2",
        }
    }
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// One connection. Dropping it closes it.
pub(super) struct Link {
    sender: Sender,
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
            ensure!(
                tls.get_ref().1.alpn_protocol() == Some(kind.protocol()),
                "{server} speaks another protocol"
            );
            let mut driver = JoinSet::new();
            // Its end is seen by whoever sends the next request.
            let sender = match kind {
                Kind::Reporter => {
                    let (sender, connection) = http1::handshake(TokioIo::new(tls)).await?;
                    driver.spawn(async move { drop(connection.await) });
                    Sender::Http1(sender)
                }
                Kind::Reader => {
                    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                        .initial_stream_window_size(WINDOW)
                        .initial_connection_window_size(4 * WINDOW)
                        .handshake(TokioIo::new(tls))
                        .await?;
                    driver.spawn(async move { drop(connection.await) });
                    Sender::Http2(sender)
                }
            };
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
        let (server, body) = (&self.server, Full::new(body));
        let sent = async {
            match &mut self.sender {
                Sender::Http1(sender) => {
                    let request = request.uri(path).header(header::HOST, server).body(body)?;
                    sender.ready().await?;
                    anyhow::Ok(sender.send_request(request).await?)
                }
                Sender::Http2(sender) => {
                    let request = request.uri(format!("https://{server}{path}")).body(body)?;
                    sender.ready().await?;
                    Ok(sender.send_request(request).await?)
                }
            }
        };
        timeout(deadline, sent).await.context("no answer in time")?
    }

    /// Returns when the other end is gone.
    pub(super) async fn ended(&mut self) {
        self.driver.join_next().await;
    }
}
