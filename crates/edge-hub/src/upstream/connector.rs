//! Connections to one API server: TCP, TLS, and HTTP on top.

use std::{fs, io, path::Path, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use axum::body::Body;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use socket2::{SockRef, TcpKeepalive};
use tokio::{net::TcpStream, time::timeout};
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
    with_certificate: Arc<ClientConfig>,
    without_certificate: Arc<ClientConfig>,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsMaterialError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Which one.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file holds no certificate, or none that can be used.
    #[error("{path} holds no {what} in PEM")]
    Missing {
        /// Which file.
        path: String,
        /// Of what.
        what: &'static str,
    },
    /// Certificate and key do not fit.
    #[error("the client certificate in {path} cannot be used with its key")]
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
        let name = |path: &Path| path.display().to_string();
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(certificates(ca)?);
        if added == 0 {
            return Err(TlsMaterialError::Missing { path: name(ca), what: "certificate" });
        }
        let chain = certificates(certificate)?;
        let key_der = PrivateKeyDer::from_pem_slice(&read(key)?)
            .map_err(|_| TlsMaterialError::Missing { path: name(key), what: "private key" })?;
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let mut without_certificate = builder.clone().with_no_client_auth();
        let mut with_certificate = builder
            .with_client_auth_cert(chain, key_der)
            .map_err(|source| TlsMaterialError::Unusable { path: name(certificate), source })?;
        for config in [&mut with_certificate, &mut without_certificate] {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        Ok(Self {
            with_certificate: Arc::new(with_certificate),
            without_certificate: Arc::new(without_certificate),
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsMaterialError> {
    fs::read(path).map_err(|source| TlsMaterialError::Read { path: path.display().to_string(), source })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsMaterialError> {
    let text = read(path)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&text).filter_map(Result::ok).collect();
    if chain.is_empty() {
        return Err(TlsMaterialError::Missing { path: path.display().to_string(), what: "certificate" });
    }
    Ok(chain)
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
}

/// Makes connections. The certificate may be replaced at any time and holds from the next connection on.
pub struct Connector {
    material: ArcSwap<TlsMaterial>,
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
        Self { material: ArcSwap::from_pointee(material), timing, link }
    }

    /// Uses other certificates from the next connection on.
    pub fn replace(&self, material: TlsMaterial) {
        self.material.store(Arc::new(material));
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
        let tcp = TcpStream::connect((endpoint.host(), endpoint.port())).await.map_err(ConnectError::Tcp)?;
        tcp.set_nodelay(true).map_err(ConnectError::Tcp)?;
        // What is sent and not acknowledged, and a path that is gone, end the connection even where no probe of HTTP/2 runs.
        let socket = SockRef::from(&tcp);
        let keepalive =
            TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5));
        socket.set_tcp_keepalive(&keepalive).map_err(ConnectError::Tcp)?;
        socket.set_tcp_user_timeout(Some(Duration::from_secs(20))).map_err(ConnectError::Tcp)?;
        let material = self.material.load();
        let config = match showing {
            Showing::Certificate => &material.with_certificate,
            Showing::Nothing => &material.without_certificate,
        };
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
