//! One connection to a server that takes reports: TLS 1.3 with the hub's client certificate, HTTP/1.1, one request at a time. Nothing of HTTP/2
//! is of use here, and of thousands of nodes it costs the leader twice the memory for each.

use std::{sync::Arc, time::Duration};

use axum::http::{Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use node_report::{Answer, Message, http as wire};
use rustls::{ClientConfig, client::ResolvesClientCert, version::TLS13};
use tokio::{net::TcpStream, task::JoinSet, time::timeout};
use tokio_rustls::TlsConnector;
use tracing::debug;

use super::{Server, place::Place};

/// How long a connection may take to come about, TLS included; and how long an answer may take. That another leads now is told by the cluster; this
/// is for links that died without a word, at the next report at the latest.
const DEADLINE: Duration = Duration::from_secs(5);

/// How large an answer may be, in bytes.
const LIMIT: usize = 64 << 10;

/// Why there is no connection, or no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("no answer within {DEADLINE:?}")]
    Deadline,
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the server does not take reports by HTTP/1.1: it may be of an earlier version")]
    OtherProtocol,
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("the answer cannot be read: {0}")]
    Unreadable(Box<dyn std::error::Error + Send + Sync>),
}

/// What the server said.
#[derive(Debug)]
pub(super) enum Reply {
    /// 200.
    Answer(Box<Answer>),
    /// 409.
    NeedFull,
    /// 421, with the leader if it is known.
    NotLeader(Option<Server>),
    /// 429 or 503: wait so long, if it says how long.
    Shed(Option<Duration>),
    /// Anything else; what it says for people.
    Refused(StatusCode, String),
}

/// A connection. Dropping it closes it.
pub(super) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    authority: String,
    driver: JoinSet<()>,
}

impl Connection {
    /// Connects to `server`, whose certificate must have the place's name and authority.
    pub(super) async fn open(
        server: &Server,
        place: &Place,
        certificate: Arc<dyn ResolvesClientCert>,
    ) -> Result<Self, ConnectError> {
        timeout(DEADLINE, Self::handshake(server, place, certificate))
            .await
            .unwrap_or(Err(ConnectError::Deadline))
    }

    async fn handshake(
        server: &Server,
        place: &Place,
        certificate: Arc<dyn ResolvesClientCert>,
    ) -> Result<Self, ConnectError> {
        let mut config = ClientConfig::builder_with_protocol_versions(&[&TLS13])
            .with_root_certificates(place.roots.clone())
            .with_client_cert_resolver(certificate);
        config.alpn_protocols = vec![wire::PROTOCOL.to_vec()];
        let tcp = TcpStream::connect((server.host(), server.port())).await?;
        tunnel::socket::tune_link(&tcp);
        let tls = TlsConnector::from(Arc::new(config)).connect(place.name.clone(), tcp).await?;
        if tls.get_ref().1.alpn_protocol() != Some(wire::PROTOCOL) {
            return Err(ConnectError::OtherProtocol);
        }
        let (sender, connection) = http1::handshake(TokioIo::new(tls)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "the connection for reports ended");
            }
        });
        Ok(Self { sender, authority: server.to_string(), driver })
    }

    /// Returns when the server or the network has ended it.
    pub(super) async fn ended(&mut self) {
        self.driver.join_next().await;
    }

    /// Sends one report. After an error the connection is of no use.
    pub(super) async fn post(&mut self, report: Vec<u8>) -> Result<Reply, ConnectError> {
        timeout(DEADLINE, self.exchange(report)).await.unwrap_or(Err(ConnectError::Deadline))
    }

    async fn exchange(&mut self, report: Vec<u8>) -> Result<Reply, ConnectError> {
        let unreadable = |error: Box<dyn std::error::Error + Send + Sync>| ConnectError::Unreadable(error);
        let request = Request::post(wire::PATH)
            .header(header::HOST, &self.authority)
            .header(header::CONTENT_TYPE, wire::CONTENT_TYPE)
            .header(header::USER_AGENT, crate::upstream::USER_AGENT)
            .body(Full::new(Bytes::from(report)))
            .map_err(|error| unreadable(error.into()))?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, LIMIT).collect().await.map_err(unreadable)?.to_bytes();
        let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
        Ok(match parts.status {
            StatusCode::OK => {
                Reply::Answer(Box::new(Answer::decode(body).map_err(|error| unreadable(error.into()))?))
            }
            StatusCode::CONFLICT => Reply::NeedFull,
            StatusCode::MISDIRECTED_REQUEST => {
                Reply::NotLeader(text(wire::LEADER_HEADER).and_then(|leader| leader.parse().ok()))
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let seconds = text(header::RETRY_AFTER.as_str()).and_then(|seconds| seconds.parse().ok());
                Reply::Shed(seconds.map(Duration::from_secs))
            }
            status => {
                let said: String =
                    String::from_utf8_lossy(&body).chars().filter(|c| !c.is_control()).take(200).collect();
                Reply::Refused(status, said)
            }
        })
    }
}
