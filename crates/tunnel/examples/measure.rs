//! Measures a tunnel on this machine beside a plain TCP connection and a direct one with TLS: throughput of one stream, and the
//! time to open one and get 100 bytes, alone and beside 50 that nobody reads.
//!
//! `cargo run --release -p tunnel --example measure -- [MEBIBYTES]`. Both ends and the destination are in this process, so its
//! processor time is that of all of them.

// A measurement that cannot be made ends.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use rcgen::{CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::Instant,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::sync::CancellationToken;
use tunnel::{
    admission::ByView,
    agent::Agent,
    connector::{Connector, Request},
    credentials::Credentials,
    destination::{Destination, Rule},
    gateway::Gateway,
    identity::SubjectVerifier,
    links::{plan::LinkKey, table::LinkTable},
    protocol::{Class, Limits},
    route::Direction,
    target::{Host, Target},
    view::{Domain, GatewayState, Node, Place, View},
};

const NAME: &str = "gateway.tunnel.internal";

fn own_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").unwrap();
    socket.local_addr().unwrap().ip()
}

/// One authority, one certificate for all.
struct Pki {
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Self { ca: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    fn leaf(&self, node: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::OrganizationName, "isthmus:edge-hubs");
        params.distinguished_name.push(DnType::CommonName, format!("isthmus:edge-hub:{node}"));
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.ca).unwrap().pem(), key.serialize_pem())
    }

    fn direct(&self) -> (TlsConnector, TlsAcceptor) {
        let (chain, key) = self.leaf("direct");
        let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let server = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.pem().as_bytes()).unwrap()).unwrap();
        let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        (TlsConnector::from(Arc::new(client)), TlsAcceptor::from(Arc::new(server)))
    }
}

/// Sends data without end to whoever says `f`, and 100 bytes to whoever says anything else.
async fn serve(mut client: impl AsyncRead + AsyncWrite + Unpin) {
    let block = vec![7; 64 * 1024];
    match client.read_u8().await {
        Ok(b'f') => while client.write_all(&block).await.is_ok() {},
        Ok(_) => drop(client.write_all(&block[..100]).await),
        Err(_) => {}
    }
}

struct Hub {
    connector: Arc<Connector>,
    table: Arc<LinkTable>,
    credentials: Arc<Credentials>,
    view: watch::Receiver<Arc<View>>,
}

impl Hub {
    fn new(name: &str, view: &watch::Sender<Arc<View>>, pki: &Pki) -> Self {
        let (table, credentials, view) = (Arc::<LinkTable>::default(), Credentials::new(), view.subscribe());
        let (chain, key) = pki.leaf(name);
        credentials.install(&chain, &key, &pki.ca.pem()).unwrap();
        let connector = Connector::new(name, view.clone(), table.clone(), Arc::default(), Limits::default());
        Self { connector, table, credentials, view }
    }
}

async fn read(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), bytes: u64) -> f64 {
    stream.write_all(b"f").await.unwrap();
    let (mut left, mut buffer) = (bytes, vec![0; 256 * 1024]);
    let began = Instant::now();
    while left > 0 {
        let read = stream.read(&mut buffer).await.unwrap() as u64;
        assert!(read > 0, "ended early");
        left = left.saturating_sub(read);
    }
    Duration::from_micros(bytes).as_secs_f64() / began.elapsed().as_secs_f64()
}

/// Processor seconds of this process so far.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    // USER_HZ is 100 wherever Linux runs on what we build for.
    ticks / 100.0
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

fn spread(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |percent: usize| times[times.len() * percent / 100].as_secs_f64() * 1000.0;
    format!("p50 {:.2} ms, p99 {:.2} ms", at(50), at(99))
}

#[tokio::main]
async fn main() {
    tls::install_provider();
    let bytes = std::env::args().nth(1).map_or(1024, |text| text.parse().unwrap()) << 20;
    let (pki, address, mut tasks) = (Pki::new(), own_address(), JoinSet::new());
    let plain = TcpListener::bind((address, 0)).await.unwrap();
    let secure = TcpListener::bind((address, 0)).await.unwrap();
    let (plain_at, secure_at) = (plain.local_addr().unwrap(), secure.local_addr().unwrap());
    let (tls, acceptor) = pki.direct();
    tasks.spawn(async move {
        let mut clients = JoinSet::new();
        while let Ok((client, _)) = plain.accept().await {
            clients.spawn(serve(client));
        }
    });
    tasks.spawn(async move {
        let mut clients = JoinSet::new();
        while let Ok((client, _)) = secure.accept().await {
            let acceptor = acceptor.clone();
            clients.spawn(async move { serve(acceptor.accept(client).await.unwrap()).await });
        }
    });
    let name = ServerName::try_from(NAME).unwrap();
    println!("plain TCP: {:.0} MB/s", read(&mut TcpStream::connect(plain_at).await.unwrap(), bytes).await);
    let before = processor_seconds();
    let mut stream = tls.connect(name.clone(), TcpStream::connect(secure_at).await.unwrap()).await.unwrap();
    let rate = read(&mut stream, bytes).await;
    let gigabytes = Duration::from_nanos(bytes).as_secs_f64();
    println!("direct TLS: {rate:.0} MB/s, {:.2} CPU s/GB", (processor_seconds() - before) / gigabytes);
    drop(stream);
    println!("before the tunnel: {} MiB resident", resident_mib());
    let view = watch::Sender::new(Arc::new(world(address)));
    let (gateway, agent) = (Hub::new("c1", &view, &pki), Hub::new("a1", &view, &pki));
    let at = start(&mut tasks, &gateway, &agent).await;
    while gateway.table.snapshot().len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("idle at {at}: {} MiB resident", resident_mib());
    measure(&gateway, plain_at, bytes, gigabytes).await;
}

async fn measure(gateway: &Hub, plain_at: SocketAddr, bytes: u64, gigabytes: f64) {
    let open = async |class| {
        let target = Target { host: Host::Name("a1".into()), port: plain_at.port() };
        let (caller, request_id) = ("measure".into(), "measure".into());
        let request = Request { target, origin: None, caller, class, hops: 0, request_id };
        gateway.connector.connect(&request).await.unwrap()
    };
    let before = processor_seconds();
    let mut stream = open(Class::Bulk).await;
    let rate = read(&mut stream, bytes).await;
    println!("tunnel: {rate:.0} MB/s, {:.2} CPU s/GB", (processor_seconds() - before) / gigabytes);
    drop(stream);
    let times = async || {
        let mut times = Vec::new();
        for _ in 0..1000 {
            let began = Instant::now();
            let mut stream = open(Class::Interactive).await;
            stream.write_all(b"x").await.unwrap();
            stream.read_exact(&mut [0; 100]).await.unwrap();
            times.push(began.elapsed());
        }
        spread(times)
    };
    println!("connect and 100 bytes: {}", times().await);
    let mut stalled = Vec::new();
    for _ in 0..50 {
        let mut stream = open(Class::Interactive).await;
        stream.write_all(b"f").await.unwrap();
        stalled.push(stream);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("… beside 50 stalled streams: {}, {} MiB resident", times().await, resident_mib());
    drop(stalled);
    let mut idle = Vec::new();
    for _ in 0..1000 {
        idle.push(open(Class::Interactive).await);
    }
    println!("1,000 streams: {} MiB resident", resident_mib());
}

async fn start(tasks: &mut JoinSet<()>, gateway: &Hub, agent: &Hub) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = Gateway {
        connector: gateway.connector.clone(),
        table: gateway.table.clone(),
        credentials: gateway.credentials.clone(),
        verifier: Arc::new(SubjectVerifier::edge_hub()),
        admission: Arc::new(ByView { me: "c1".into() }),
        view: gateway.view.clone(),
        instance: "measure".into(),
    };
    tasks.spawn(serving.serve(listener, CancellationToken::new()));
    let key = |class| LinkKey {
        gateway: "c1".into(),
        direction: Direction::Reverse,
        class,
        address: address.to_string(),
        generation: 1,
    };
    let desired = watch::Sender::new(Class::ALL.map(key).into());
    let dialling = Agent {
        connector: agent.connector.clone(),
        table: agent.table.clone(),
        credentials: agent.credentials.clone(),
        verifier: Arc::new(SubjectVerifier::edge_hub()),
        server_name: ServerName::try_from(NAME).unwrap(),
        proxy: None,
        instance: "measure".into(),
        backoff: tunnel::backoff::Limits::default(),
    };
    let wanted = desired.subscribe();
    tasks.spawn(async move {
        // The links are wanted for as long as there is somebody to want them.
        let _desired = desired;
        dialling.run(wanted, CancellationToken::new()).await;
    });
    address
}

/// A cloud gateway and an edge node.
fn world(address: IpAddr) -> View {
    let node = |place| Node { place, pool: None, addresses: vec![address] };
    let gateway = GatewayState { exposed: true, endpoints: ["c1".into()].into() };
    View {
        nodes: [("c1".into(), node(Place::Cloud)), ("a1".into(), node(Place::Edge))].into(),
        gateways: [(Domain::Cloud, gateway)].into(),
        destinations: vec![Rule {
            to: Destination::Nodes { domain: None },
            ports: vec![1..=u16::MAX],
            from: vec![],
        }],
    }
}
