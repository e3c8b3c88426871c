//! Connections to one API server: TCP, TLS, and HTTP on top.

use std::{io, path::Path, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use axum::body::Body;
use hyper::{
    client::conn::{http1, http2},
    rt::Executor,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use tls::pem_file::{self, PemFileError};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;

use super::{
    Endpoint, Timing,
    counted::{Counted, Heard, counted},
    dial::{BoxStream, Dial, Tcp},
    pace::{ANSWER, Asking, Pace},
    session::Errand,
};
use crate::metrics::LinkBytes;

/// How much of an answer may come before it is read: so much that a list of tens of megabytes is not held up by the distance.
const STREAM_WINDOW: u32 = 512 * 1024;

/// The same of what is handed on with a token: an answer that nobody reads makes the hub hold as much, until it is ended for that (`listen/unread.rs`),
/// and of one token there may be as many as [`crate::proxy`] says. At a distance of 100 ms it gives 1.3 MB/s.
const HANDED_ON_WINDOW: u32 = 128 * 1024;

/// The same of all answers over one connection together: so much that it never counts. With less than the windows of all streams that there may be
/// ([`super::lane`]), 45 MiB, a few answers that nobody reads take it up, and nothing comes over that connection any more.
const CONNECTION_WINDOW: u32 = 1 << 30;

/// How long a connection of another protocol may go without an acknowledgement, or with one that takes nothing: the other end of an
/// `exec` may be a container that does not read for a while, which an API server passes on, other than over HTTP/2.
const UPGRADED: Duration = Duration::from_secs(20);

/// A name that takes so long to be resolved is named where there is no connection in time.
const SLOW_NAME: Duration = Duration::from_secs(1);

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
            .with_custom_certificate_verifier(Arc::new(super::unverified::AnyServer))
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
    #[error("no connection within {0:?}, {1:.1?} of which it took to resolve the server's name")]
    SlowName(Duration, Duration),
    #[error("the server's name cannot be resolved: {0}")]
    Unresolved(#[source] io::Error),
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
    #[error("it was left because it answered with errors, and {0}")]
    Ill(String),
    #[error("the API server does not know this hub's certificate (401)")]
    Unknown,
}

/// Makes connections. The certificate may be replaced at any time and holds from the next connection on.
pub struct Connector {
    material: ArcSwap<TlsMaterial>,
    replaced: Notify,
    timing: Timing,
    link: Arc<LinkBytes>,
    asking: Arc<Asking>,
    dial: Arc<dyn Dial>,
}

/// Whether a connection shows the hub's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Showing {
    Certificate,
    Nothing,
}

/// A connection, and when it last heard something.
pub(super) struct Http2 {
    pub(super) sender: http2::SendRequest<Body>,
    pub(super) connection: http2::Connection<TokioIo<TlsStream<Counted<BoxStream>>>, Body, Until>,
    pub(super) heard: Arc<Heard>,
}

/// Runs what a connection consists of until it is given up, so that its streams end then: those of a connection that is only
/// dropped hyper leaves to their own end, which does not come if the server stands still.
#[derive(Clone)]
pub(super) struct Until(CancellationToken);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Until {
    fn execute(&self, future: F) {
        let given_up = self.0.clone();
        TokioExecutor::new().execute(given_up.run_until_cancelled_owned(future));
    }
}

impl Connector {
    /// A connector that uses `material` until it is replaced, and counts bytes.
    pub fn new(material: TlsMaterial, timing: Timing, link: Arc<LinkBytes>) -> Self {
        Self::over(Arc::new(Tcp), material, timing, link)
    }

    /// The same over connections that are made by `dial`.
    pub fn over(dial: Arc<dyn Dial>, material: TlsMaterial, timing: Timing, link: Arc<LinkBytes>) -> Self {
        let (material, asking) = (ArcSwap::from_pointee(material), Asking::new());
        Self { material, replaced: Notify::new(), timing, link, asking, dial }
    }

    /// Uses other certificates from the next connection on; the link makes one at once.
    pub fn replace(&self, material: TlsMaterial) {
        self.material.store(Arc::new(material));
        self.replaced.notify_one();
    }

    /// What shows the hub's certificate to its other servers; another one each time that it is replaced. `None` while there is none.
    pub fn client_certificate(&self) -> Option<Arc<dyn rustls::client::ResolvesClientCert>> {
        let material = self.material.load();
        Some(material.with_certificate.as_ref().ok()?.client_auth_cert_resolver.clone())
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

    /// Whether anybody asks for something over its connections: a silent one is asked for a sign of life sooner then.
    pub(super) fn asking(&self) -> &Arc<Asking> {
        &self.asking
    }

    /// An HTTP/2 connection that notices by itself when its path is gone, and in time when the server stands still. It ends, with
    /// all its streams, when it is given up.
    pub(super) async fn http2(
        &self,
        endpoint: &Endpoint,
        showing: Showing,
        errand: Errand,
        given_up: &CancellationToken,
    ) -> Result<Http2, ConnectError> {
        let heard = Heard::now();
        let stream = self.tls(endpoint, showing, true, &heard).await?;
        let pace = Pace { timing: self.timing, heard: heard.clone(), asking: self.asking.clone() };
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(ConnectError::NotHttp2);
        }
        let window = match (showing, errand) {
            (Showing::Nothing, Errand::HandedOn) => HANDED_ON_WINDOW,
            _ => STREAM_WINDOW,
        };
        let (sender, connection) = http2::Builder::new(Until(given_up.clone()))
            .timer(pace)
            .initial_stream_window_size(window)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(self.timing.ping_after_asked)
            .keep_alive_timeout(ANSWER)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(ConnectError::Http)?;
        Ok(Http2 { sender, connection, heard })
    }

    /// An HTTP/1.1 connection, for requests that ask for another protocol.
    pub(super) async fn http1(
        &self,
        endpoint: &Endpoint,
        showing: Showing,
    ) -> Result<
        (http1::SendRequest<Body>, http1::Connection<TokioIo<TlsStream<Counted<BoxStream>>>, Body>),
        ConnectError,
    > {
        let stream = self.tls(endpoint, showing, false, &Heard::now()).await?;
        http1::handshake(TokioIo::new(stream)).await.map_err(ConnectError::Http)
    }

    /// Name and TCP connection have their time, and what follows what is left of that, or three round trips if the server is far away.
    async fn tls(
        &self,
        endpoint: &Endpoint,
        showing: Showing,
        http2: bool,
        heard: &Arc<Heard>,
    ) -> Result<TlsStream<Counted<BoxStream>>, ConnectError> {
        let material = self.material.load_full();
        let config = match showing {
            Showing::Certificate => match &material.with_certificate {
                Ok(config) => config,
                Err(reason) => return Err(ConnectError::NoCertificate(reason.clone())),
            },
            Showing::Nothing => &material.without_certificate,
        };
        let connect = self.timing.connect;
        let began = Instant::now();
        let deadline = began + connect;
        let silent =
            |_| Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {connect:?}")));
        let addresses = timeout_at(deadline, self.dial.resolve(endpoint)).await.unwrap_or_else(silent);
        let addresses = addresses.map_err(ConnectError::Unresolved)?;
        let resolved = began.elapsed();
        let late = |_| {
            if resolved < SLOW_NAME {
                ConnectError::Deadline(connect)
            } else {
                ConnectError::SlowName(connect, resolved)
            }
        };
        let connected = |local, remote| {
            heard.path.connected(local, remote);
            if http2 { heard.path.patience(self.timing.path_timeout) } else { UPGRADED }
        };
        let dialling = self.dial.dial(endpoint, &addresses, &self.timing, &connected);
        let stream = timeout_at(deadline, dialling).await.map_err(late)?.map_err(ConnectError::Tcp)?;
        let began = Instant::now();
        let deadline = deadline.max(began + heard.path.patience(Duration::ZERO));
        let config = if http2 {
            config.clone()
        } else {
            let mut config = ClientConfig::clone(config);
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Arc::new(config)
        };
        let stream = counted(stream, self.link.clone(), heard.clone());
        let handshake = TlsConnector::from(config).connect(endpoint.server_name(), stream);
        let stream = timeout_at(deadline, handshake).await.map_err(late)?.map_err(ConnectError::Tls)?;
        heard.path.took(began.elapsed());
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use std::{future, net::SocketAddr};

    use futures::future::BoxFuture;
    use tokio::time::sleep;

    use super::*;
    use crate::upstream::Connected;

    /// What the resolver says, after so long; no connection is ever made.
    struct Nowhere(Duration, Result<(), &'static str>);

    impl Dial for Nowhere {
        fn resolve<'a>(&'a self, _: &'a Endpoint) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
            Box::pin(async move {
                sleep(self.0).await;
                self.1.map(|()| Vec::new()).map_err(io::Error::other)
            })
        }

        fn dial<'a>(
            &'a self,
            _: &'a Endpoint,
            _: &'a [SocketAddr],
            _: &'a Timing,
            _: Connected<'a>,
        ) -> BoxFuture<'a, io::Result<BoxStream>> {
            Box::pin(future::pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_is_not_resolved_and_a_connection_that_is_not_made_are_told_apart() {
        tls::install_provider();
        let endpoint: Endpoint = "https://api.example".parse().unwrap();
        for (seconds, said, expected) in [
            (0, Ok(()), "no connection within 4s"),
            (3, Ok(()), "no connection within 4s, 3.0s of which it took to resolve the server's name"),
            (60, Ok(()), "the server's name cannot be resolved: no answer within 4s"),
            (1, Err("no such name"), "the server's name cannot be resolved: no such name"),
        ] {
            let dial = Arc::new(Nowhere(Duration::from_secs(seconds), said));
            let link = Arc::new(LinkBytes::default());
            let connector = Connector::over(dial, TlsMaterial::unverified(), Timing::default(), link);
            let began = Instant::now();
            let connected = connector.tls(&endpoint, Showing::Nothing, true, &Heard::now()).await;
            assert_eq!(connected.err().unwrap().to_string(), expected);
            assert!(began.elapsed() < Duration::from_secs(5), "{expected}");
        }
    }
}
