//! A fake kube-apiserver on loopback: one etcd-like revision, objects of any kind, lists and watches with an API server's
//! semantics and errors, and faults at a test's command.
//!
//! Several servers can share one [`Cluster`]. No object is validated or given defaults; nothing reconciles.

pub mod access;
mod answer;
mod body;
pub mod cluster;
mod discovery;
mod faults;
pub mod kind;
mod list;
pub mod log;
mod memory;
pub mod options;
mod path;
pub mod pki;
pub(crate) mod protobuf;
mod represent;
mod review;
pub mod status;
mod store;
mod watch;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::HeaderValue;
use axum::response::Response;
use axum::serve::IncomingStream;
use parking_lot::Mutex;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tls::listener::TlsListener;
use tokio::net::TcpListener;
use tokio::sync::watch as signal;
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;

use self::access::User;
use self::answer::{Question, answer};
pub use self::cluster::Cluster;
use self::faults::{Faults, FaultyListener};
pub use self::kind::Kind;
pub use self::log::{RequestLog, RequestRecord, Totals};
use self::memory::MemoryListener;
use self::pki::{Authority, Identity};
pub use self::status::Status;
use crate::memory::Port;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No port is to be had.
    #[error("listening on loopback")]
    Listen(#[source] std::io::Error),
    /// The certificates do not serve.
    #[error("certificates")]
    Tls(#[source] rustls::Error),
    /// The client authority does not serve.
    #[error("the clients' authority")]
    Clients(#[source] rustls::server::VerifierBuilderError),
}

/// TLS of a server.
#[derive(Debug, Clone)]
pub struct Tls {
    /// What it shows.
    pub identity: Identity,
    /// Whose clients' certificates it takes; clients may come without.
    pub clients: rustls_pki_types::CertificateDer<'static>,
}

impl Tls {
    /// Certificates of one authority for server and clients, valid for 127.0.0.1 and localhost.
    pub fn of(authority: &Authority) -> Result<Self, rcgen::Error> {
        let identity = authority.server(&["127.0.0.1", "localhost"])?;
        Ok(Self { identity, clients: authority.certificate().clone() })
    }

    fn config(&self) -> Result<ServerConfig, StartError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.clients.clone()).map_err(StartError::Tls)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(StartError::Clients)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(StartError::Tls)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![self.identity.certificate.clone()], self.identity.key.clone_key())
            .map_err(StartError::Tls)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// How a server is to be.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Plain HTTP without.
    pub tls: Option<Tls>,
    /// How long a request waits for a version that is not there yet; a real server's is 3 s.
    pub fresh_timeout: Duration,
    /// How often a watch that allows them gets bookmarks; a real server's is about a minute.
    pub bookmark_interval: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { tls: None, fresh_timeout: Duration::from_secs(3), bookmark_interval: Duration::from_mins(1) }
    }
}

/// What requests of one server share.
#[derive(Debug)]
struct Server {
    cluster: Cluster,
    options: ServerOptions,
    faults: Arc<Faults>,
    log: RequestLog,
    lag: Mutex<Option<u64>>,
    release: Mutex<Option<String>>,
    bookmarks: signal::Sender<u64>,
}

impl Server {
    fn new(cluster: Cluster, options: ServerOptions) -> Arc<Self> {
        let (faults, log, lag) = (Arc::default(), RequestLog::default(), Mutex::default());
        let (release, bookmarks) = (Mutex::default(), signal::channel(0).0);
        Arc::new(Self { cluster, options, faults, log, lag, release, bookmarks })
    }

    /// The version this server's watch cache is at.
    fn view(&self) -> u64 {
        let revision = self.cluster.revision();
        self.lag.lock().map_or(revision, |lag| lag.min(revision))
    }

    async fn wait_for(&self, rv: u64) -> status::Answer<()> {
        let mut changes = self.cluster.changes();
        let reached = async {
            while self.view() < rv {
                if changes.changed().await.is_err() {
                    break;
                }
            }
        };
        let in_time = tokio::time::timeout(self.options.fresh_timeout, reached).await;
        in_time.map_err(|_| Status::too_large_resource_version(rv, self.view()))
    }
}

/// A running server. It stops when this is dropped.
#[derive(Debug)]
pub struct FakeApiServer {
    server: Arc<Server>,
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl FakeApiServer {
    /// Starts a server of a new cluster, over plain HTTP.
    pub async fn start() -> Result<Self, StartError> {
        Self::serve(Cluster::default(), ServerOptions::default()).await
    }

    /// Starts a server of a cluster, which may have others.
    pub async fn serve(cluster: Cluster, options: ServerOptions) -> Result<Self, StartError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(StartError::Listen)?;
        let address = listener.local_addr().map_err(StartError::Listen)?;
        let config = options.tls.as_ref().map(Tls::config).transpose()?;
        let server = Server::new(cluster, options);
        let faults = server.faults.clone();
        let router = Router::new().fallback(handle).with_state(server.clone());
        let service = router.into_make_service_with_connect_info::<Peer>();
        let mut tasks = JoinSet::new();
        if let Some(config) = config {
            let listener = FaultyListener::tls(listener, config, faults).map_err(StartError::Listen)?;
            tasks.spawn(async move { _ = axum::serve(listener, service).await });
        } else {
            let listener = FaultyListener::plain(listener, faults).map_err(StartError::Listen)?;
            tasks.spawn(async move { _ = axum::serve(listener, service).await });
        }
        Ok(Self { server, address, _tasks: tasks })
    }

    /// The same at a port within the process, with TLS.
    pub fn serve_within(
        cluster: Cluster,
        options: ServerOptions,
        tls: &Tls,
        port: &Port,
    ) -> Result<Self, StartError> {
        let server = Server::new(cluster, options);
        let listener = MemoryListener::new(port, tls.config()?, server.faults.clone());
        let router = Router::new().fallback(handle).with_state(server.clone());
        let service = router.into_make_service_with_connect_info::<Peer>();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { _ = axum::serve(listener, service).await });
        Ok(Self { server, address: Port::address(), _tasks: tasks })
    }

    /// Another server of the same cluster, with the same options.
    pub async fn replica(&self) -> Result<Self, StartError> {
        Self::serve(self.server.cluster.clone(), self.server.options.clone()).await
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://…` or `https://…`, without a slash at the end.
    pub fn url(&self) -> String {
        let scheme = if self.server.options.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Its cluster: objects, users, history.
    pub fn cluster(&self) -> &Cluster {
        &self.server.cluster
    }

    /// Its requests.
    pub fn log(&self) -> &RequestLog {
        &self.server.log
    }

    /// How many connections it has accepted since it started.
    pub fn connections(&self) -> u64 {
        self.server.faults.accepted()
    }

    /// Resets every connection and refuses new ones until [`Self::heal`].
    pub fn cut(&self) {
        self.server.faults.cut();
    }

    /// Resets every connection; new ones are welcome.
    pub fn reset_connections(&self) {
        self.server.faults.reset();
    }

    /// Ends every fault of the network. A lag stays.
    pub fn heal(&self) {
        self.server.faults.heal();
    }

    /// Goes silent until [`Self::heal`]: connections are accepted, as a kernel does for a process that stands still, and none is read or written.
    pub fn black_hole(&self) {
        self.server.faults.black_hole();
    }

    /// Sends no more than so many bytes a second on each connection; `None` ends it.
    pub fn throttle(&self, bytes_per_second: Option<u64>) {
        self.server.faults.throttle(bytes_per_second);
    }

    /// Breaks the next answer off after so many bytes of its body. Calls add up.
    pub fn cut_after_bytes(&self, bytes: u64) {
        self.server.faults.cut_after("", bytes);
    }

    /// The same of the next answer to a request whose path or query contains `what`. The order of all calls is kept.
    pub fn cut_after_bytes_of(&self, what: &str, bytes: u64) {
        self.server.faults.cut_after(what, bytes);
    }

    /// Carries the next write to a path that begins so out, and resets every connection instead of answering it. Calls add up.
    pub fn lose_answer(&self, below: &str) {
        self.server.faults.lose_answer(below);
    }

    /// Answers the next request with this error. Calls add up.
    pub fn fail_next(&self, status: u16) {
        self.server.faults.fail_next(status);
    }

    /// Answers every request whose path begins so with this error until [`Self::heal`]: with `/` as a server does whose etcd is gone. Watches that are
    /// open stay so.
    pub fn fail(&self, below: &str, status: u16) {
        self.server.faults.fail(below, status);
    }

    /// Lets this server's watch cache stay at a version, as one that is cut off from etcd; `None` lets it catch up. Reads
    /// of the most recent version go past the cache, as a real server's do.
    pub fn lag(&self, rv: Option<u64>) {
        *self.server.lag.lock() = rv;
        self.server.cluster.signal();
    }

    /// Lets this server say that it is of another release, as `v1.37.0`.
    pub fn set_release(&self, name: &str) {
        *self.server.release.lock() = Some(name.to_owned());
    }

    /// Sends a bookmark on every watch that allows them, now.
    pub fn send_bookmarks(&self) {
        self.server.bookmarks.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// See [`Cluster::compact`].
    pub fn compact(&self, rv: u64) {
        self.server.cluster.compact(rv);
    }

    /// See [`Cluster::restore`].
    pub fn restore(&self, rv: u64) {
        self.server.cluster.restore(rv);
    }
}

/// Whose certificate a connection showed.
#[derive(Debug, Clone)]
struct Peer(Option<User>);

impl Connected<IncomingStream<'_, FaultyListener<TcpListener>>> for Peer {
    fn connect_info(_: IncomingStream<'_, FaultyListener<TcpListener>>) -> Self {
        Self(None)
    }
}

impl Connected<IncomingStream<'_, FaultyListener<TlsListener>>> for Peer {
    fn connect_info(stream: IncomingStream<'_, FaultyListener<TlsListener>>) -> Self {
        Self::of(&stream.io().inner)
    }
}

impl Connected<IncomingStream<'_, MemoryListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, MemoryListener>) -> Self {
        Self::of(&stream.io().inner)
    }
}

impl Peer {
    fn of<S>(stream: &TlsStream<S>) -> Self {
        let certificates = stream.get_ref().1.peer_certificates();
        Self(certificates.and_then(|chain| chain.first()).and_then(pki::user))
    }
}

async fn handle(
    State(server): State<Arc<Server>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 64 << 20).await.unwrap_or_default();
    let question = Question {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers,
        body,
        certificate: peer.0,
    };
    let mut response = answer(server, question).await;
    // Each answer of an API server has one; what stands before it is told by that.
    response
        .headers_mut()
        .insert("audit-id", HeaderValue::from_static("00000000-0000-4000-8000-000000000000"));
    response
}
