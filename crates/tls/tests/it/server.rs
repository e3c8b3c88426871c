//! A server of one word, and clients for it.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, routing::get};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tls::{
    issue::CertificateAuthority,
    listener::{Limits, TlsListener},
    resolver::ServingCertificate,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsConnector;

pub(crate) const NAME: &str = "webhook.example";
const DAY: Duration = Duration::from_hours(24);

/// Stops when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) serving: Arc<ServingCertificate>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start(limits: Limits) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let serving = ServingCertificate::new();
        let listener = TlsListener::new(tcp, serving.server_config().unwrap(), limits);
        let router = Router::new().route("/", get(|| async { "hello" }));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, serving, _tasks: tasks }
    }

    pub(crate) fn install(&self, ca: &CertificateAuthority) {
        let leaf = ca.issue(&[NAME.to_owned()], 30 * DAY, jiff::Timestamp::now()).unwrap();
        self.serving.install(&leaf.certificate.to_pem(), leaf.key.expose()).unwrap();
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// From `127.0.0.<host>`: each is another address.
    pub(crate) async fn connect_from(&self, host: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, host], 0).into()).unwrap();
        socket.connect(self.address).await.unwrap()
    }
}

pub(crate) fn authority() -> CertificateAuthority {
    CertificateAuthority::generate("test", 300 * DAY, jiff::Timestamp::now()).unwrap()
}

/// A client that trusts these authorities, verifies as everyone does, and speaks `alpn`.
pub(crate) struct Client(TlsConnector);

impl Client {
    pub(crate) fn new(trusted: &[&CertificateAuthority], alpn: &str) -> Self {
        let mut roots = RootCertStore::empty();
        for authority in trusted {
            roots.add(authority.certificate().der().clone()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        // Every connection is a whole handshake.
        config.resumption = rustls::client::Resumption::disabled();
        Self(TlsConnector::from(Arc::new(config)))
    }

    /// The protocol agreed on.
    pub(crate) async fn handshake(&self, server: &Server) -> io::Result<Vec<u8>> {
        let stream = self.0.connect(ServerName::try_from(NAME).unwrap(), server.connect().await).await?;
        Ok(stream.get_ref().1.alpn_protocol().unwrap_or_default().to_vec())
    }

    pub(crate) async fn get(&self, server: &Server) -> io::Result<String> {
        self.get_over(server.connect().await).await
    }

    pub(crate) async fn get_over(&self, tcp: TcpStream) -> io::Result<String> {
        let mut stream = self.0.connect(ServerName::try_from(NAME).unwrap(), tcp).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }
}
