//! HTTP for tests: one connection a request, so that what a fault does to one concerns no other, unless they are to be kept.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::kept::{Connection, Kept};
use crate::memory::Port;

/// Why there is no answer, or no more of it.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// Nobody listens, or TLS failed.
    #[error("connecting to {to}, for {} ms", took.as_millis())]
    Connect {
        /// Where.
        to: SocketAddr,
        /// How long it went well.
        took: Duration,
        /// What the system or TLS says.
        source: io::Error,
    },
    /// The connection broke before the answer's head.
    #[error("asking")]
    Ask(#[source] hyper::Error),
    /// The connection broke within the body.
    #[error("reading the answer")]
    Read(#[source] hyper::Error),
    /// The request is none.
    #[error("the request")]
    Request(#[source] http::Error),
}

/// Where requests go, and as whom.
#[derive(Clone)]
pub struct Endpoint {
    address: SocketAddr,
    port: Option<Port>,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    token: Option<String>,
    kept: Option<Kept>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.address)
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Endpoint {
    /// Plain HTTP.
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, port: None, tls: None, token: None, kept: None }
    }

    /// Plain HTTP at a port within the process.
    pub fn within(port: Port) -> Self {
        Self { port: Some(port), ..Self::plain(Port::address()) }
    }

    /// HTTPS; `config` says whom to trust and what certificate to show.
    pub fn tls(address: SocketAddr, config: ClientConfig, name: ServerName<'static>) -> Self {
        Self { tls: Some((Arc::new(config), name)), ..Self::plain(address) }
    }

    /// The same with a bearer token.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// The same over connections that are kept, each for one request after another, and closed with the last clone of this. A request to which
    /// a kept one breaks before an answer comes is sent once more over the next: only for reads.
    #[must_use]
    pub fn keeping(mut self) -> Self {
        self.kept = Some(Kept::default());
        self
    }

    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        if let Some(port) = &self.port {
            return Ok(Box::new(port.connect()?));
        }
        let tcp = TcpStream::connect(self.address).await?;
        Ok(match &self.tls {
            None => Box::new(tcp),
            Some((config, name)) => {
                Box::new(TlsConnector::from(config.clone()).connect(name.clone(), tcp).await?)
            }
        })
    }

    /// Asks, and gives the answer once its head is there.
    pub async fn ask(
        &self,
        request: http::request::Builder,
        body: impl Into<Bytes>,
    ) -> Result<Answer, ConnectionError> {
        let mut request = request.header("host", self.address.to_string());
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body.into())).map_err(ConnectionError::Request)?;
        if let Some(kept) = &self.kept {
            while let Some(connection) = kept.take().await {
                // Closed by the server while this was on its way.
                if let Ok(answer) = self.send(connection, request.clone()).await {
                    return Ok(answer);
                }
            }
        }
        let begun = Instant::now();
        let failed = |source| ConnectionError::Connect { to: self.address, took: begun.elapsed(), source };
        let stream = self.connect().await.map_err(failed)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(ConnectionError::Ask)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { _ = connection.await });
        self.send(Connection { sender, _tasks: tasks }, request).await
    }

    async fn send(
        &self,
        mut connection: Connection,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, ConnectionError> {
        let answer = connection.sender.send_request(request).await.map_err(ConnectionError::Ask)?;
        let (head, body) = answer.into_parts();
        let (status, headers, kept) = (head.status, head.headers, self.kept.clone());
        Ok(Answer { status, headers, body, connection: Some(connection), kept })
    }

    /// Asks for `path` with its query.
    pub async fn get(&self, path: &str, accept: &str) -> Result<Answer, ConnectionError> {
        self.ask(Request::get(path).header("accept", accept), Bytes::new()).await
    }
}

/// An answer whose body is yet to be read. Its connection ends with it, or goes on to the next request once the body has been read.
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: Incoming,
    connection: Option<Connection>,
    kept: Option<Kept>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

impl Answer {
    /// The next piece of the body; nothing at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ConnectionError> {
        loop {
            match self.body.frame().await {
                None => {
                    if let Some(kept) = &self.kept
                        && let Some(connection) = self.connection.take()
                    {
                        kept.put(connection);
                    }
                    return Ok(None);
                }
                Some(Err(error)) => return Err(ConnectionError::Read(error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// The rest of the body.
    pub async fn bytes(&mut self) -> Result<Bytes, ConnectionError> {
        let mut all = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(all.into())
    }
}
