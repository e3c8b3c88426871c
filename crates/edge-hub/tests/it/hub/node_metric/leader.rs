//! A server that takes reports, as ADR 0016 has it, and answers otherwise at command.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use node_report::{Answer, Message, Policy, Report, Verdict, View, http as wire};
use parking_lot::Mutex;
use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier, version::TLS13};
use serde_json::{Value, json};
use testkit::api_server::pki::Authority;
use tokio::{net::TcpListener, sync::watch};
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

const NAME: &str = "node-metrics.test";

/// What the next report is answered.
pub(crate) enum Say {
    Status(u16),
    RetryAfter(u64),
    /// 421, with that leader.
    Leader(String),
}

#[derive(Default)]
struct State {
    epoch: u64,
    say: VecDeque<Say>,
    policy: Option<Policy>,
    reports: Vec<Report>,
    view: View,
    callers: Vec<String>,
}

/// The server.
pub(crate) struct Leader {
    address: SocketAddr,
    authority: Arc<Authority>,
    /// Certificate and trust; connections wait until they are set.
    config: watch::Sender<Option<Arc<ServerConfig>>>,
    state: Arc<Mutex<State>>,
    stopped: watch::Sender<bool>,
}

impl Leader {
    /// Listens; answers nobody before it knows whom to trust.
    pub(crate) async fn start(name: &'static str) -> Self {
        tls::install_provider();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (config, configs) = watch::channel(None);
        let (stopped, stops) = watch::channel(false);
        let state = Arc::new(Mutex::new(State { epoch: 1, ..State::default() }));
        let authority = Arc::new(Authority::generate(name).unwrap());
        tokio::spawn(accept(listener, configs, stops, state.clone(), name));
        Self { address, authority, config, state, stopped }
    }

    /// Serves nodes whose certificates are `authority`'s.
    pub(crate) fn trust(&self, authority: &Authority) {
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        let identity = self.authority.server(&[NAME]).unwrap();
        let mut config = ServerConfig::builder_with_protocol_versions(&[&TLS13])
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![identity.certificate], identity.key)
            .unwrap();
        config.alpn_protocols = vec![wire::PROTOCOL.to_vec()];
        self.config.send_replace(Some(Arc::new(config)));
    }

    /// Serves with the certificate and the trust of `other`, as a replica of it in a later epoch.
    pub(crate) fn serve_as(&self, other: &Self, epoch: u64) {
        let config = other.config.borrow().clone();
        self.config.send_replace(config);
        self.state.lock().epoch = epoch;
    }

    /// Ends every connection and takes no more.
    pub(crate) fn stop(&self) {
        self.stopped.send_replace(true);
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The ConfigMap's data when this one leads. The name shows that it is not the address that is verified.
    pub(crate) fn config(&self, epoch: u64) -> Value {
        json!({ "ca.crt": self.authority.pem(), "server-name": NAME, "servers": self.address.to_string(), "epoch": epoch.to_string(),
            "leader": format!("replica at {}", self.address) })
    }

    /// Answers the next report so.
    pub(crate) fn say(&self, say: Say) {
        self.state.lock().say.push_back(say);
    }

    /// Has nodes measure by this policy, which is told with the answer to whoever does not know it.
    pub(crate) fn set_policy(&self, policy: Policy) {
        self.state.lock().policy = Some(policy);
    }

    /// All reports that came in.
    pub(crate) fn reports(&self) -> Vec<Report> {
        self.state.lock().reports.clone()
    }

    pub(crate) fn view(&self) -> View {
        self.state.lock().view.clone()
    }

    /// Who connected, each time.
    pub(crate) fn callers(&self) -> Vec<String> {
        self.state.lock().callers.clone()
    }
}

async fn accept(
    listener: TcpListener,
    mut configs: watch::Receiver<Option<Arc<ServerConfig>>>,
    mut stops: watch::Receiver<bool>,
    state: Arc<Mutex<State>>,
    name: &'static str,
) {
    let serving = async {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let Ok(config) = configs.wait_for(Option::is_some).await.map(|config| config.clone().unwrap())
            else {
                return;
            };
            let state = state.clone();
            connections.spawn(async move {
                let Ok(tls) = TlsAcceptor::from(config).accept(tcp).await else { return };
                let certificate = tls.get_ref().1.peer_certificates().unwrap()[0].clone();
                let (_, parsed) = X509Certificate::from_der(&certificate).unwrap();
                let caller = parsed.subject().iter_common_name().next().unwrap().as_str().unwrap().to_owned();
                state.lock().callers.push(caller);
                let service = service_fn(move |request| answer(state.clone(), name, request));
                let _ = http1::Builder::new().serve_connection(TokioIo::new(tls), service).await;
            });
        }
    };
    tokio::select! {
        () = serving => {}
        _ = stops.wait_for(|stopped| *stopped) => {}
    }
}

async fn answer(
    state: Arc<Mutex<State>>,
    name: &'static str,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    assert_eq!((request.method().as_str(), request.uri().path()), ("POST", wire::PATH));
    assert_eq!(request.headers()["content-type"], wire::CONTENT_TYPE);
    let report = Report::decode(request.into_body().collect().await?.to_bytes()).unwrap();
    assert_eq!(report.check(), Ok(()));
    let mut state = state.lock();
    state.reports.push(report.clone());
    let policy_hash = state.policy.as_ref().map(Policy::hash);
    let policy = state.policy.clone().filter(|_| report.policy_hash != policy_hash);
    let reply = Response::builder();
    let (reply, body) = match state.say.pop_front() {
        Some(Say::Status(status)) => (reply.status(status), Vec::new()),
        Some(Say::RetryAfter(seconds)) => (reply.status(429).header("retry-after", seconds), Vec::new()),
        Some(Say::Leader(leader)) => (reply.status(421).header(wire::LEADER_HEADER, leader), Vec::new()),
        None => {
            let epoch = state.epoch;
            match (state.view.take(epoch, report), state.view.held) {
                (verdict @ (Verdict::Take | Verdict::Drop), Some(held)) => {
                    let answer = Answer {
                        epoch,
                        leader: name.to_owned(),
                        incarnation: held.incarnation,
                        acked_seq: held.seq,
                        dropped: verdict == Verdict::Drop,
                        policy_hash,
                        policy,
                        ..Answer::default()
                    };
                    (reply.status(200), answer.encode_to_vec())
                }
                (Verdict::Superseded, _) => (reply.status(421), Vec::new()),
                _ => (reply.status(409), Vec::new()),
            }
        }
    };
    Ok(reply.body(Full::new(Bytes::from(body))).unwrap())
}
