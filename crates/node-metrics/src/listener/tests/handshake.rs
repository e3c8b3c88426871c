//! Whom the listener of reports believes: handshakes on a socket of this machine, and one report over each that succeeds.

use std::net::SocketAddr;

use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};
use testkit::api_server::access::User;
use testkit::api_server::pki::{Authority, Identity};
use tls::listener::{Limits, TlsListener};
use tls::resolver::ServingCertificate;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use super::*;

const NAME: &str = "reports.test";

/// A listener of reports, for as long as this lives.
struct Site {
    address: SocketAddr,
    server: Authority,
    trusted: Arc<ClientAuthorities>,
    _serving: JoinSet<()>,
}

impl Site {
    async fn start() -> Self {
        Self::taking(1_000).await
    }

    /// One that takes so many reports a second.
    async fn taking(rate: u32) -> Self {
        let server = Authority::generate("servers").unwrap();
        let identity = server.server(&[NAME]).unwrap();
        let serving = ServingCertificate::new();
        serving.install(&identity.certificate_pem, &identity.key_pem).unwrap();
        let trusted = Arc::new(ClientAuthorities::default());
        let config = server_config(&serving, Arc::clone(&trusted)).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let listener = TlsListener::new(tcp, config, Limits::default());
        let reports = reports(rate, Arc::new(AtomicBool::new(true)));
        let reports = router(reports, Arc::clone(&trusted));
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, reports, CancellationToken::new()));
        Self { address, server, trusted, _serving: tasks }
    }

    fn trust(&self, authorities: &[&Authority]) {
        let read = |authority: &&Authority| Certificate::from_der(authority.certificate().to_vec()).unwrap();
        self.trusted.install(&authorities.iter().map(read).collect::<Vec<_>>()).unwrap();
    }

    fn client(
        &self,
        identity: Option<&Identity>,
        version: &'static SupportedProtocolVersion,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.server.certificate().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
        let config = config.with_root_certificates(roots);
        let mut config = match identity {
            Some(Identity { certificate, key, .. }) => {
                config.with_client_auth_cert(vec![certificate.clone()], key.clone_key()).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }

    /// The status of a report over a new connection; `None` if it could not be sent. With TLS 1.3 a client learns of its refusal after the
    /// handshake.
    async fn report(&self, client: &Arc<ClientConfig>) -> Option<StatusCode> {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let tls = TlsConnector::from(Arc::clone(client)).connect(NAME.try_into().unwrap(), tcp).await.ok()?;
        let shaken = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tls)).await;
        let (mut sender, connection) = shaken.ok()?;
        let mut driving = JoinSet::new();
        driving.spawn(async move { drop(connection.await) });
        let request = http::Request::post(format!("https://{NAME}{PATH}"))
            .header(header::CONTENT_TYPE, CONTENT_TYPE)
            .body(Full::new(bytes::Bytes::from(full("a", 0).encode_to_vec())))
            .unwrap();
        Some(sender.send_request(request).await.ok()?.status())
    }
}

/// One connection of a hub, over which it reports again and again.
struct Connection {
    sender: hyper::client::conn::http1::SendRequest<Full<bytes::Bytes>>,
    driving: JoinSet<()>,
    seq: u64,
}

impl Connection {
    async fn open(site: &Site, identity: &Identity) -> Self {
        let mut config = ClientConfig::clone(&site.client(Some(identity), &version::TLS13));
        config.alpn_protocols = vec![node_report::http::PROTOCOL.to_vec()];
        let tcp = TcpStream::connect(site.address).await.unwrap();
        let tls = TlsConnector::from(Arc::new(config)).connect(NAME.try_into().unwrap(), tcp).await.unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await.unwrap();
        let mut driving = JoinSet::new();
        driving.spawn(async move { drop(connection.await) });
        Self { sender, driving, seq: 0 }
    }

    async fn report(&mut self) -> StatusCode {
        self.seq += 1;
        self.post(full("a", self.seq).encode_to_vec()).await
    }

    async fn post(&mut self, body: Vec<u8>) -> StatusCode {
        let request = http::Request::post(PATH)
            .header(header::HOST, NAME)
            .header(header::CONTENT_TYPE, CONTENT_TYPE)
            .body(Full::new(bytes::Bytes::from(body)))
            .unwrap();
        self.sender.ready().await.unwrap();
        self.sender.send_request(request).await.unwrap().status()
    }
}

#[tokio::test]
async fn a_connection_stays_when_a_report_is_shed() {
    let ours = Authority::generate("ours").unwrap();
    let site = Site::taking(1).await;
    site.trust(&[&ours]);
    let mut connection = Connection::open(&site, &node(&ours)).await;
    assert_eq!(connection.report().await, StatusCode::OK);
    while connection.report().await == StatusCode::OK {}
    // More than is read at a time.
    for _ in 0..3 {
        assert_eq!(connection.post(vec![0; 200 << 10]).await, StatusCode::TOO_MANY_REQUESTS);
    }
}

#[tokio::test]
async fn connections_do_not_outlive_the_trust_in_their_authority() {
    let [ours, other] = ["ours", "other"].map(|name| Authority::generate(name).unwrap());
    let site = Site::start().await;
    site.trust(&[&ours, &other]);
    let mut of_ours = Connection::open(&site, &node(&ours)).await;
    let mut of_other = Connection::open(&site, &node(&other)).await;
    assert_eq!((of_ours.report().await, of_other.report().await), (StatusCode::OK, StatusCode::OK));
    site.trust(&[&ours]);
    assert_eq!((of_ours.report().await, of_other.report().await), (StatusCode::OK, StatusCode::UNAUTHORIZED));
    // It ends: the hub shows in its next handshake what it has then.
    assert!(of_other.driving.join_next().await.is_some());
    // What was verified is not looked at for each report; what becomes trusted again is.
    site.trust(&[&other]);
    site.trust(&[&ours]);
    assert_eq!((of_ours.report().await, of_ours.report().await), (StatusCode::OK, StatusCode::OK));
}

fn node(authority: &Authority) -> Identity {
    authority.client(&User::new("system:node:a", &["system:nodes"])).unwrap()
}

#[tokio::test]
async fn reports_come_over_tls_1_3_from_holders_of_a_certificate_that_is_trusted_now() {
    let [ours, other] = ["ours", "other"].map(|name| Authority::generate(name).unwrap());
    let site = Site::start().await;
    let modern = |identity: &Identity| site.client(Some(identity), &version::TLS13);
    let identity = node(&ours);
    let (of_ours, of_other) = (modern(&identity), modern(&node(&other)));
    assert_eq!(site.report(&of_ours).await, None, "nobody is trusted yet");

    site.trust(&[&ours]);
    assert_eq!(site.report(&of_ours).await, Some(StatusCode::OK));
    assert_eq!(site.report(&site.client(None, &version::TLS13)).await, None, "no certificate");
    assert_eq!(site.report(&of_other).await, None, "another authority");
    assert_eq!(site.report(&site.client(Some(&identity), &version::TLS12)).await, None, "TLS 1.2");
    assert_eq!(site.report(&modern(&ours.server(&["a"]).unwrap())).await, None, "a server's certificate");
    let person = ours.client(&User::new("alice", &["system:masters"])).unwrap();
    assert_eq!(site.report(&modern(&person)).await, Some(StatusCode::FORBIDDEN));

    // While an authority is followed by another both are trusted; then the first is not. The listener is the same.
    site.trust(&[&ours, &other]);
    assert_eq!(site.report(&of_ours).await, Some(StatusCode::OK));
    assert_eq!(site.report(&of_other).await, Some(StatusCode::OK));
    site.trust(&[&other]);
    assert_eq!(site.report(&of_other).await, Some(StatusCode::OK));
    // The same client: no session of before goes on past the check.
    assert_eq!(site.report(&of_ours).await, None, "it was trusted before");
    // An empty bundle is a mistake, and changes nothing.
    assert!(matches!(site.trusted.install(&[]), Err(authorities::AuthorityError::Missing)));
    assert_eq!(site.report(&of_other).await, Some(StatusCode::OK));
}
