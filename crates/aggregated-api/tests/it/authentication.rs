//! Who calls: which authority signed decides, tokens are asked for once, and all of it changes while connections last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aggregated_api::authenticate::{DelegatingAuthenticator, TokenReviewer, Trust, client_certificates};
use aggregated_api::authorize::{AccessReviewer, DelegatingAuthorizer};
use aggregated_api::{Attributes, Authenticator, Authorizer, Decision, Peer, User};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use futures::future::{BoxFuture, FutureExt, ready};
use kube_wire::request::RequestInfo;
use kube_wire::selector_requirements::SelectorRequirements;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tls::listener::TlsListener;
use tls::resolver::ServingCertificate;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::api::{Everybody, gadgets};

/// An authority of clients, or of anything else.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
pub(crate) struct Leaf {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    pem: (String, String),
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn sign(&self, name: &str, organizations: &[&str], usage: ExtendedKeyUsagePurpose) -> Leaf {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.replace(':', "-")]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        for organization in organizations {
            params.distinguished_name.push(DnType::OrganizationName, *organization);
        }
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Leaf {
            certificate: certificate.der().clone(),
            key: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            pem: (certificate.pem(), key.serialize_pem()),
        }
    }

    pub(crate) fn client(&self, name: &str, organizations: &[&str]) -> Leaf {
        self.sign(name, organizations, ExtendedKeyUsagePurpose::ClientAuth)
    }
}

/// Knows the token `good`, and counts.
#[derive(Default)]
struct Tokens(AtomicUsize);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl TokenReviewer for Tokens {
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<User>, BoxError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let found = match token {
            "good" => Ok(Some(User { name: "bearer".to_owned(), ..User::default() })),
            "down" => Err("nobody there".into()),
            _ => Ok(None),
        };
        ready(found).boxed()
    }
}

/// What stands in `extension-apiserver-authentication`.
pub(crate) fn config(clients: &Authority, proxies: &Authority, allowed: &[&str]) -> BTreeMap<String, String> {
    let data = [
        ("client-ca-file", clients.pem.clone()),
        ("requestheader-client-ca-file", proxies.pem.clone()),
        ("requestheader-allowed-names", json!(allowed).to_string()),
        ("requestheader-username-headers", r#"["X-Remote-User"]"#.to_owned()),
        ("requestheader-uid-headers", r#"["X-Remote-Uid"]"#.to_owned()),
        ("requestheader-group-headers", r#"["X-Remote-Group"]"#.to_owned()),
        ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#.to_owned()),
    ];
    data.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        (name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    let mut map = HeaderMap::new();
    for (name, value) in pairs.iter().map(pair) {
        map.append(name, value);
    }
    map
}

fn peer(leaf: Option<&Leaf>) -> Peer {
    Peer { address: None, certificates: leaf.map(|leaf| leaf.certificate.clone()).into_iter().collect() }
}

/// The name of whoever was found; `401`, or nothing.
async fn who(authenticator: &DelegatingAuthenticator, leaf: Option<&Leaf>, pairs: &[(&str, &str)]) -> String {
    match authenticator.authenticate(&peer(leaf), &headers(pairs)).await {
        Ok(Some(user)) => user.name,
        Ok(None) => "nobody".to_owned(),
        Err(_) => "401".to_owned(),
    }
}

pub(crate) const CLAIM: (&str, &str) = ("X-Remote-User", "claimed");

/// What is shown, what is claimed, and who that is.
type Case<'a> = (Option<&'a Leaf>, &'a [(&'a str, &'a str)], &'a str);

#[tokio::test]
async fn which_authority_signed_decides() {
    let (clients, proxies, strangers) =
        (Authority::new("clients"), Authority::new("proxies"), Authority::new("x"));
    let trust = Trust::new();
    let authenticator = DelegatingAuthenticator::new(trust.clone(), Arc::new(Tokens::default()));
    let alice = clients.client("alice", &["dev"]);
    let proxy = proxies.client("front-proxy-client", &["system:masters"]);
    let other = proxies.client("other", &[]);
    let stranger = strangers.client("alice", &["system:masters"]);
    let pretender = clients.client("front-proxy-client", &[]);
    assert_eq!(who(&authenticator, Some(&alice), &[]).await, "401", "nothing is trusted yet");
    trust.install(&config(&clients, &proxies, &["front-proxy-client"])).unwrap();
    let good = ("Authorization", "Bearer good");
    let cases: &[Case<'_>] = &[
        (None, &[], "nobody"),
        (None, &[CLAIM], "nobody"),
        (None, &[good], "bearer"),
        (None, &[("Authorization", "Bearer bad")], "401"),
        (None, &[("Authorization", "Bearer down")], "401"),
        (None, &[("Authorization", "Basic Zm9v")], "nobody"),
        (Some(&alice), &[], "alice"),
        (Some(&alice), &[CLAIM], "alice"),
        (Some(&pretender), &[CLAIM], "front-proxy-client"),
        (Some(&proxy), &[CLAIM], "claimed"),
        (Some(&proxy), &[("X-Remote-User", "élise@例え.jp")], "élise@例え.jp"),
        // The front proxy's own certificate makes nobody a user.
        (Some(&proxy), &[], "401"),
        (Some(&proxy), &[good], "bearer"),
        (Some(&other), &[CLAIM], "401"),
        (Some(&stranger), &[], "401"),
        (Some(&stranger), &[CLAIM], "401"),
        (Some(&stranger), &[good], "bearer"),
    ];
    for (leaf, pairs, expected) in cases {
        assert_eq!(who(&authenticator, *leaf, pairs).await, *expected, "{pairs:?}");
    }

    let told = [
        CLAIM,
        ("X-Remote-Uid", "7"),
        ("X-Remote-Group", "a"),
        ("X-Remote-Group", "Prüfer"),
        ("X-Remote-Extra-Example.com%2FScopes", "ß"),
        ("X-Remote-Extra-Example.com%2FScopes", "s2"),
    ];
    let mut headers = headers(&told);
    let user = authenticator.authenticate(&peer(Some(&proxy)), &headers).await.unwrap().unwrap();
    assert_eq!((user.uid.as_str(), user.groups), ("7", vec!["a".to_owned(), "Prüfer".to_owned()]));
    assert_eq!(user.extra["example.com/scopes"], ["ß", "s2"]);
    authenticator.strip(&mut headers);
    assert!(headers.is_empty(), "{headers:?}");
    let user = authenticator.authenticate(&peer(Some(&alice)), &HeaderMap::new()).await.unwrap().unwrap();
    assert_eq!(user.groups, ["dev"]);
}

#[tokio::test]
async fn authorities_change_while_connections_last() {
    let (old, new, proxies) = (Authority::new("old"), Authority::new("new"), Authority::new("proxies"));
    let trust = Trust::new();
    let authenticator = DelegatingAuthenticator::new(trust.clone(), Arc::new(Tokens::default()));
    let (before, after) = (old.client("alice", &[]), new.client("bob", &[]));
    trust.install(&config(&old, &proxies, &[])).unwrap();
    assert_eq!(who(&authenticator, Some(&before), &[]).await, "alice");
    let any = proxies.client("any name", &[]);
    assert_eq!(who(&authenticator, Some(&any), &[CLAIM]).await, "claimed", "no list allows all");
    let mut broken = config(&new, &proxies, &[]);
    broken.insert("requestheader-allowed-names".to_owned(), "[".to_owned());
    assert!(trust.install(&broken).is_err());
    assert_eq!(who(&authenticator, Some(&before), &[]).await, "alice", "all stays as it was");
    trust.install(&config(&new, &proxies, &[])).unwrap();
    assert_eq!(who(&authenticator, Some(&before), &[]).await, "401");
    assert_eq!(who(&authenticator, Some(&after), &[]).await, "bob");
}

#[tokio::test(start_paused = true)]
async fn answers_about_tokens_are_remembered_and_failures_are_not() {
    let tokens = Arc::new(Tokens::default());
    let authenticator = DelegatingAuthenticator::new(Trust::new(), tokens.clone());
    for _ in 0..3 {
        who(&authenticator, None, &[("Authorization", "Bearer good")]).await;
        who(&authenticator, None, &[("Authorization", "Bearer bad")]).await;
    }
    assert_eq!(tokens.0.load(Ordering::SeqCst), 2);
    for _ in 0..2 {
        who(&authenticator, None, &[("Authorization", "Bearer down")]).await;
    }
    assert_eq!(tokens.0.load(Ordering::SeqCst), 4);
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    who(&authenticator, None, &[("Authorization", "Bearer good")]).await;
    assert_eq!(tokens.0.load(Ordering::SeqCst), 5);
}

/// Allows reading, and counts.
#[derive(Default)]
struct Readers(AtomicUsize);

impl AccessReviewer for Readers {
    fn review<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Result<Decision, BoxError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let reads = attributes.request.verb == kube_wire::request::Verb::Get;
        ready(Ok(if reads { Decision::Allowed } else { Decision::Denied("reads only".to_owned()) })).boxed()
    }
}

#[tokio::test]
async fn verdicts_are_remembered_by_all_that_they_depend_on() {
    let readers = Arc::new(Readers::default());
    let authorizer = DelegatingAuthorizer::new(readers.clone());
    let ask = |name: &str, group: &str, method: Method, path: &str| {
        let user = User { name: name.to_owned(), groups: vec![group.to_owned()], ..User::default() };
        let request = RequestInfo::parse(&method, &path.parse().unwrap());
        let query = path.split_once('?').map_or("", |(_, query)| query);
        let selectors = SelectorRequirements::of(&request, query);
        Attributes { user, request, selectors }
    };
    let path = "/apis/g/v1/gadgets/a";
    for (attributes, allowed, asked) in [
        (ask("a", "g", Method::GET, path), true, 1),
        (ask("a", "g", Method::GET, path), true, 1),
        (ask("a", "g", Method::DELETE, path), false, 2),
        (ask("a", "g", Method::DELETE, path), false, 2),
        (ask("b", "g", Method::GET, path), true, 3),
        (ask("a", "h", Method::GET, path), true, 4),
        (ask("a", "g", Method::GET, "/apis/g/v1/gadgets/b"), true, 5),
        (ask("root", "system:masters", Method::DELETE, path), true, 5),
    ] {
        let verdict = authorizer.authorize(&attributes).await.unwrap();
        assert_eq!(
            (verdict == Decision::Allowed, readers.0.load(Ordering::SeqCst)),
            (allowed, asked),
            "{attributes:?}"
        );
    }
}

/// An API over TLS, which tells by header `x-seen` as whom a caller is taken, and which identity headers are left.
pub(crate) struct Served {
    address: std::net::SocketAddr,
    servers: Authority,
    tokens: Arc<Tokens>,
    pub(crate) trust: Arc<Trust>,
    _tasks: JoinSet<()>,
}

/// Stands where a standby hands requests on: shows what it is given.
struct Shown;

impl aggregated_api::Intercept for Shown {
    fn intercept(
        &self,
        _path: kube_wire::request::ResourcePath,
        user: User,
        request: axum::extract::Request,
    ) -> BoxFuture<'_, Result<axum::response::Response, axum::extract::Request>> {
        let identity = |name: &&HeaderName| name.as_str().starts_with("x-remote") || *name == "authorization";
        let left: Vec<_> = request.headers().keys().filter(identity).map(HeaderName::as_str).collect();
        let User { name, groups, .. } = user;
        let seen = format!("{name} of {} with {left:?}", groups.join(","));
        ready(Ok(axum::response::Response::builder()
            .header("x-seen", seen)
            .body(axum::body::Body::empty())
            .unwrap()))
        .boxed()
    }
}

impl Served {
    pub(crate) async fn start() -> Self {
        let servers = Authority::new("s");
        let (trust, tokens) = (Trust::new(), Arc::new(Tokens::default()));
        let authenticator = DelegatingAuthenticator::new(trust.clone(), tokens.clone());
        let api = aggregated_api::AggregatedApi::new()
            .resource(gadgets(), Arc::new(aggregated_api::MemoryStorage::new()))
            .authenticator(Arc::new(authenticator))
            .authorizer(Arc::new(Everybody))
            .intercept(Arc::new(Shown));
        let (address, tasks) = over_tls(api, &servers).await;
        Self { address, servers, tokens, trust, _tasks: tasks }
    }

    pub(crate) async fn connect(&self, leaf: Option<Leaf>) -> Connection {
        Connection(client(self.address, &self.servers, leaf).await)
    }
}

/// The API behind TLS, with a certificate of `servers`.
async fn over_tls(
    api: aggregated_api::AggregatedApi,
    servers: &Authority,
) -> (std::net::SocketAddr, JoinSet<()>) {
    let served = servers.sign("gadgets.test.svc", &[], ExtendedKeyUsagePurpose::ServerAuth);
    let serving = ServingCertificate::new();
    serving.install(&served.pem.0, &served.pem.1).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let config = client_certificates::server_config(&serving).unwrap();
    let listener = TlsListener::new(tcp, config, tls::listener::Limits::default());
    let mut tasks = JoinSet::new();
    let service = api.router().into_make_service_with_connect_info::<Peer>();
    tasks.spawn(async move { axum::serve(listener, service).await.unwrap() });
    (address, tasks)
}

/// Connects to it, with a client's certificate or without.
async fn client(
    address: std::net::SocketAddr,
    servers: &Authority,
    leaf: Option<Leaf>,
) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(tls::certificate::Certificate::from_pem(&servers.pem).unwrap().der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let config = match leaf {
        Some(leaf) => builder.with_client_auth_cert(vec![leaf.certificate], leaf.key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    let tcp = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("gadgets.test.svc").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
}

/// A connection that lasts.
pub(crate) struct Connection(tokio_rustls::client::TlsStream<TcpStream>);

impl Connection {
    /// The status, and as whom it was asked.
    pub(crate) async fn ask(&mut self, headers: &[(&str, &str)]) -> String {
        use std::fmt::Write as _;
        let mut request = format!("GET {}/a HTTP/1.1\r\nhost: x\r\n", crate::api::GADGETS);
        for (name, value) in headers {
            write!(request, "{name}: {value}\r\n").unwrap();
        }
        self.0.write_all(format!("{request}\r\n").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let head = loop {
            let byte = self.0.read_u8().await.unwrap();
            answer.push(byte);
            if answer.ends_with(b"\r\n\r\n") {
                break String::from_utf8(answer).unwrap();
            }
        };
        let value = |name: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim_start_matches(':').trim().to_owned())
        };
        let length: usize = value("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.unwrap();
        let status = head.split(' ').nth(1).unwrap();
        value("x-seen").map_or_else(|| status.to_owned(), |seen| format!("{status} {seen}"))
    }
}

#[tokio::test]
async fn front_proxies_come_and_go_on_connections_that_last() {
    let (clients, old, new) = (Authority::new("clients"), Authority::new("old"), Authority::new("new"));
    let served = Served::start().await;
    let mut before = served.connect(Some(old.client("front-proxy-client", &[]))).await;
    let mut after = served.connect(Some(new.client("front-proxy-client", &[]))).await;
    let mut renamed = served.connect(Some(new.client("another name", &[]))).await;
    let claims = [CLAIM, ("X-Remote-Group", "dev")];
    let believed = "200 claimed of dev,system:authenticated with []";
    assert_eq!(before.ask(&claims).await, "401", "nobody is trusted yet");

    let allowed = ["front-proxy-client"];
    served.trust.install(&config(&clients, &old, &allowed)).unwrap();
    assert_eq!(before.ask(&claims).await, believed);
    assert_eq!(after.ask(&claims).await, "401");

    // Both for a while, so that no request is refused.
    let mut both = config(&clients, &old, &allowed);
    both.insert("requestheader-client-ca-file".to_owned(), format!("{}{}", old.pem, new.pem));
    served.trust.install(&both).unwrap();
    assert_eq!(before.ask(&claims).await, believed);
    assert_eq!(after.ask(&claims).await, believed);
    assert_eq!(renamed.ask(&claims).await, "401", "its name is not allowed");

    served.trust.install(&config(&clients, &new, &allowed)).unwrap();
    assert_eq!(before.ask(&claims).await, "401");
    assert_eq!(after.ask(&claims).await, believed);

    served.trust.install(&config(&clients, &new, &["another name"])).unwrap();
    assert_eq!(after.ask(&claims).await, "401");
    assert_eq!(renamed.ask(&claims).await, believed);

    // An API server without front proxies, and then without any authority.
    let mut none = config(&clients, &new, &[]);
    none.remove("requestheader-client-ca-file");
    served.trust.install(&none).unwrap();
    assert_eq!(renamed.ask(&claims).await, "401");
    served.trust.install(&BTreeMap::new()).unwrap();
    assert_eq!(renamed.ask(&claims).await, "401");
    assert_eq!(served.tokens.0.load(Ordering::SeqCst), 0, "no token was shown");
}

#[tokio::test]
async fn what_strangers_claim_goes_no_further() {
    let (clients, proxies) = (Authority::new("clients"), Authority::new("proxies"));
    let served = Served::start().await;
    served.trust.install(&config(&clients, &proxies, &["front-proxy-client"])).unwrap();
    let claims = [
        CLAIM,
        ("x-remote-group", "system:masters"),
        ("X-REMOTE-UID", "0"),
        ("X-Remote-Extra-Scopes", "all"),
        ("X-Remote-Anything", "x"),
    ];
    let bearer = ("Authorization", "Bearer good");
    let with = |more: (&'static str, &'static str)| [&claims[..], &[more]].concat();
    let mut anonymous = served.connect(None).await;
    assert_eq!(anonymous.ask(&claims).await, "200 system:anonymous of system:unauthenticated with []");
    // Who comes straight is who their token says, once it is reviewed.
    assert_eq!(anonymous.ask(&with(bearer)).await, "200 bearer of system:authenticated with []");
    assert_eq!(anonymous.ask(&with(("Authorization", "Bearer bad"))).await, "401");
    assert_eq!(anonymous.ask(&with(("Authorization", "Bearer down"))).await, "401", "no review, no entry");
    assert_eq!(
        anonymous.ask(&with(("Authorization", "bearer  good"))).await,
        "200 bearer of system:authenticated with []"
    );
    assert_eq!(served.tokens.0.load(Ordering::SeqCst), 3, "good is remembered");
    // A user's certificate is no front proxy's, whatever its name; it counts before a token.
    let mut alice = served.connect(Some(clients.client("front-proxy-client", &["dev"]))).await;
    let alone = "200 front-proxy-client of dev,system:authenticated with []";
    assert_eq!(alice.ask(&claims).await, alone);
    assert_eq!(alice.ask(&with(bearer)).await, alone);
    // A front proxy that names nobody is nobody itself.
    let mut proxy = served.connect(Some(proxies.client("front-proxy-client", &["system:masters"]))).await;
    assert_eq!(proxy.ask(&[("X-Remote-User", ""), ("X-Remote-Group", "system:masters")]).await, "401");
    assert_eq!(
        proxy.ask(&claims).await,
        "200 claimed of system:masters,system:authenticated with []",
        "it is trusted with anybody's name"
    );
    // A certificate of nobody, and one that is not for clients.
    let mut stranger = served.connect(Some(Authority::new("x").client("alice", &["system:masters"]))).await;
    assert_eq!(stranger.ask(&claims).await, "401");
    assert_eq!(stranger.ask(&with(bearer)).await, "200 bearer of system:authenticated with []");
    let usage = ExtendedKeyUsagePurpose::ServerAuth;
    let mut connection = served.connect(Some(proxies.sign("front-proxy-client", &[], usage))).await;
    assert_eq!(connection.ask(&claims).await, "401");
}

#[tokio::test]
async fn certificates_arrive_over_tls() {
    let (servers, clients, proxies) =
        (Authority::new("s"), Authority::new("clients"), Authority::new("proxies"));
    let trust = Trust::new();
    trust.install(&config(&clients, &proxies, &["front-proxy-client"])).unwrap();
    let authenticator = DelegatingAuthenticator::new(trust, Arc::new(Tokens::default()));
    let api = aggregated_api::AggregatedApi::new()
        .resource(gadgets(), Arc::new(aggregated_api::MemoryStorage::new()))
        .authenticator(Arc::new(authenticator))
        .authorizer(Arc::new(Everybody));
    let (address, _tasks) = over_tls(api, &servers).await;
    let nobody = clients.client("nobody", &[]);
    for (leaf, headers, expected) in [
        (None, "", "200"),
        (Some(clients.client("alice", &[])), "", "200"),
        (Some(nobody), "", "403"),
        (Some(proxies.client("front-proxy-client", &[])), "x-remote-user: nobody\r\n", "403"),
        (Some(proxies.client("front-proxy-client", &[])), "x-remote-user: somebody\r\n", "200"),
        (Some(Authority::new("strangers").client("alice", &[])), "", "401"),
    ] {
        let mut stream = client(address, &servers, leaf).await;
        let request = format!("GET /apis HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The end of the connection may come without a farewell.
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{headers}: {answer}");
    }
}
