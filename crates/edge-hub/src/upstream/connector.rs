//! Connections to one API server: TCP, TLS, and HTTP on top.

use std::{io, path::Path, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use axum::body::Body;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use socket2::{SockRef, TcpKeepalive};
use tls::pem_file::{self, PemFileError};
use tokio::{net::TcpStream, sync::Notify, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{Endpoint, Timing, counted::Counted};
use crate::metrics::LinkBytes;

/// Flow-control windows: large enough that a list of tens of megabytes is not held up by the distance, per stream and
/// for the connection as a whole, so that one slow stream cannot starve the others.
const STREAM_WINDOW: u32 = 512 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// Who is trusted upstream, and the certificate that the hub shows.
#[derive(Debug, Clone)]
pub struct TlsMaterial {
    /// Or why there is none.
    with_certificate: Result<Arc<ClientConfig>, Arc<str>>,
    without_certificate: Arc<ClientConfig>,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsMaterialError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] PemFileError),
    /// Certificate and key do not fit.
    #[error("the client certificate in {path} cannot be used with its key: {source}")]
    Unusable {
        /// Which file.
        path: String,
        /// Why.
        #[source]
        source: rustls::Error,
    },
}

impl TlsMaterial {
    /// Reads the authorities from `ca`, and the client certificate and key from two files, which may be the same one, as
    /// the kubelet's `kubelet-client-current.pem` is.
    pub fn read(ca: &Path, certificate: &Path, key: &Path) -> Result<Self, TlsMaterialError> {
        let builder = ClientConfig::builder().with_root_certificates(pem_file::roots(ca)?);
        let without_certificate = http2(builder.clone().with_no_client_auth());
        let with_certificate = builder
            .with_client_auth_cert(pem_file::certificates(certificate)?, pem_file::key(key)?)
            .map_err(|source| TlsMaterialError::Unusable {
                path: certificate.display().to_string(),
                source,
            })?;
        Ok(Self { with_certificate: Ok(http2(with_certificate)), without_certificate })
    }

    /// Reads the authorities from `ca`; there is no certificate to show, for that reason.
    pub fn without_certificate(ca: &Path, reason: &str) -> Result<Self, TlsMaterialError> {
        let builder = ClientConfig::builder().with_root_certificates(pem_file::roots(ca)?);
        let without_certificate = http2(builder.with_no_client_auth());
        Ok(Self { with_certificate: Err(reason.into()), without_certificate })
    }

    /// Trusts whoever answers and shows nothing: for what is public, and is checked by other means.
    pub fn unverified() -> Self {
        let config = ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(super::unverified::AnyServer::default()))
            .with_no_client_auth();
        Self { with_certificate: Err("no server was verified".into()), without_certificate: http2(config) }
    }
}

fn http2(mut config: ClientConfig) -> Arc<ClientConfig> {
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("no connection within {0:?}")]
    Deadline(Duration),
    #[error("{0}")]
    Tcp(#[source] io::Error),
    #[error("TLS: {0}")]
    Tls(#[source] io::Error),
    #[error("the server does not speak HTTP/2")]
    NotHttp2,
    #[error("HTTP: {0}")]
    Http(#[source] hyper::Error),
    #[error("{0}")]
    NoCertificate(Arc<str>),
}

/// Makes connections. The certificate may be replaced at any time and holds from the next connection on.
pub struct Connector {
    material: ArcSwap<TlsMaterial>,
    replaced: Notify,
    timing: Timing,
    link: Arc<LinkBytes>,
}

/// Whether a connection shows the hub's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Showing {
    Certificate,
    Nothing,
}

pub(super) type Http2 = (
    http2::SendRequest<Body>,
    http2::Connection<TokioIo<TlsStream<Counted<TcpStream>>>, Body, TokioExecutor>,
);

impl Connector {
    /// A connector that uses `material` until it is replaced, and counts bytes.
    pub fn new(material: TlsMaterial, timing: Timing, link: Arc<LinkBytes>) -> Self {
        Self { material: ArcSwap::from_pointee(material), replaced: Notify::new(), timing, link }
    }

    /// Uses other certificates from the next connection on; the link makes one at once.
    pub fn replace(&self, material: TlsMaterial) {
        self.material.store(Arc::new(material));
        self.replaced.notify_one();
    }

    /// Returns when certificates were replaced since the last call.
    pub(super) async fn replaced(&self) {
        self.replaced.notified().await;
    }

    /// Whether there is a certificate to show.
    pub(super) fn has_certificate(&self) -> bool {
        self.material.load().with_certificate.is_ok()
    }

    pub(super) fn timing(&self) -> Timing {
        self.timing
    }

    /// An HTTP/2 connection that notices a black hole by itself.
    pub(super) async fn http2(&self, endpoint: &Endpoint, showing: Showing) -> Result<Http2, ConnectError> {
        let connecting = async {
            let stream = self.tls(endpoint, showing, true).await?;
            if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                return Err(ConnectError::NotHttp2);
            }
            http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .keep_alive_interval(self.timing.probe_after)
                .keep_alive_timeout(self.timing.probe_timeout)
                .keep_alive_while_idle(true)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(ConnectError::Http)
        };
        timeout(self.timing.connect, connecting)
            .await
            .unwrap_or(Err(ConnectError::Deadline(self.timing.connect)))
    }

    /// An HTTP/1.1 connection, for requests that ask for another protocol.
    pub(super) async fn http1(
        &self,
        endpoint: &Endpoint,
        showing: Showing,
    ) -> Result<
        (http1::SendRequest<Body>, http1::Connection<TokioIo<TlsStream<Counted<TcpStream>>>, Body>),
        ConnectError,
    > {
        let connecting = async {
            let stream = self.tls(endpoint, showing, false).await?;
            http1::handshake(TokioIo::new(stream)).await.map_err(ConnectError::Http)
        };
        timeout(self.timing.connect, connecting)
            .await
            .unwrap_or(Err(ConnectError::Deadline(self.timing.connect)))
    }

    async fn tls(
        &self,
        endpoint: &Endpoint,
        showing: Showing,
        http2: bool,
    ) -> Result<TlsStream<Counted<TcpStream>>, ConnectError> {
        let material = self.material.load_full();
        let config = match showing {
            Showing::Certificate => match &material.with_certificate {
                Ok(config) => config,
                Err(reason) => return Err(ConnectError::NoCertificate(reason.clone())),
            },
            Showing::Nothing => &material.without_certificate,
        };
        let tcp = TcpStream::connect((endpoint.host(), endpoint.port())).await.map_err(ConnectError::Tcp)?;
        tcp.set_nodelay(true).map_err(ConnectError::Tcp)?;
        // What is sent and not acknowledged, and a path that is gone, end the connection even where no probe of HTTP/2 runs.
        let socket = SockRef::from(&tcp);
        let keepalive =
            TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5));
        socket.set_tcp_keepalive(&keepalive).map_err(ConnectError::Tcp)?;
        socket.set_tcp_user_timeout(Some(Duration::from_secs(20))).map_err(ConnectError::Tcp)?;
        let config = if http2 {
            config.clone()
        } else {
            let mut config = ClientConfig::clone(config);
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Arc::new(config)
        };
        let tcp = Counted::new(tcp, self.link.clone());
        TlsConnector::from(config).connect(endpoint.server_name(), tcp).await.map_err(ConnectError::Tls)
    }
}
