//! The ends of a tunnel as processes of their own, so that each can stand in a network namespace of its own, and clients that
//! measure what passes through. `hack/bench tunnel` puts them together.
//!
//! `pki FOLDER CLOUD EDGE`, `gateway FOLDER LINKS PROXY`, `agent FOLDER GATEWAY`, `destination LISTEN`, and the clients
//! `stream TARGET SECONDS [PROXY]`, `connects TARGET NUMBER [PROXY]`, `scrapes TARGET NUMBER [PROXY]`,
//! `hold TARGET NUMBER read|stall [PROXY]`, `probe TARGET PROXY`. Each client prints one figure, `connects` two: the middle one, and the
//! one that a hundredth is slower than.

// A measurement that cannot be made ends.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{fs, net::IpAddr, path::Path, sync::Arc, time::Duration};

use rustls_pki_types::ServerName;
use testkit::api_server::{access::User, pki::Authority};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Builder,
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tunnel::{
    admission::ByView,
    agent::{Agent, ServerNames},
    connector::Connector,
    credentials::Credentials,
    destination::{Callers, Destination, Rule},
    ending::Ending,
    gateway::Gateway,
    identity::SubjectVerifier,
    ingress::{
        Ingress,
        http::{Form, serve_http},
        listen,
    },
    links::{plan::LinkKey, table::LinkTable},
    protocol::{Class, Limits},
    route::Direction,
    view::{Domain, GatewayState, Node, Place, View},
};

const NAME: &str = "gateway.tunnel.internal";
const GATEWAY: &str = "cloud-1";
const AGENT: &str = "edge-1";

/// What a scrape answers with: a kubelet's metrics, compressed.
const SCRAPE: usize = 20_000;

fn verifier() -> Arc<SubjectVerifier> {
    Arc::new(SubjectVerifier::new("nodes", "node:"))
}

/// One authority, a certificate for each end, and the addresses of both.
fn make_pki(folder: &Path, addresses: &[String]) {
    let authority = Authority::generate("ends").unwrap();
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("ca.crt"), authority.pem()).unwrap();
    for (node, address) in [GATEWAY, AGENT].into_iter().zip(addresses) {
        let leaf = authority.peer(&User::new(&format!("node:{node}"), &["nodes"]), &[NAME]).unwrap();
        fs::write(folder.join(format!("{node}.crt")), leaf.certificate_pem).unwrap();
        fs::write(folder.join(format!("{node}.key")), leaf.key_pem).unwrap();
        fs::write(folder.join(format!("{node}.address")), address).unwrap();
    }
}

struct End {
    connector: Arc<Connector>,
    table: Arc<LinkTable>,
    credentials: Arc<Credentials>,
    view: watch::Receiver<Arc<View>>,
    // Views come for as long as somebody could send one.
    _views: watch::Sender<Arc<View>>,
}

impl End {
    fn new(folder: &Path, me: &str) -> Self {
        let read = |name: String| fs::read_to_string(folder.join(name)).unwrap();
        let node = |name: &str, place| {
            let address: IpAddr = read(format!("{name}.address")).parse().unwrap();
            (name.to_owned(), Node { place, pool: None, addresses: vec![address] })
        };
        let gateway =
            GatewayState { exposed: true, endpoints: [GATEWAY.into()].into(), ..GatewayState::default() };
        let to = Destination::Nodes { domain: None };
        let world = View {
            nodes: [node(GATEWAY, Place::Cloud), node(AGENT, Place::Edge)].into(),
            gateways: [(Domain::Cloud, gateway)].into(),
            destinations: vec![Rule { to, ports: vec![1..=u16::MAX], from: Callers::All }],
            ..View::default()
        };
        let (views, table, credentials) =
            (watch::Sender::new(Arc::new(world)), Arc::<LinkTable>::default(), Credentials::new());
        credentials
            .install(&read(format!("{me}.crt")), &read(format!("{me}.key")), &read("ca.crt".into()))
            .unwrap();
        let connector =
            Connector::new(me, views.subscribe(), table.clone(), Arc::default(), Limits::default());
        Self { connector, table, credentials, view: views.subscribe(), _views: views }
    }
}

async fn gateway(folder: &Path, links: &str, proxy: &str) {
    let end = End::new(folder, GATEWAY);
    let serving = Gateway {
        connector: end.connector.clone(),
        table: end.table.clone(),
        credentials: end.credentials.clone(),
        verifier: verifier(),
        admission: Arc::new(ByView { me: GATEWAY.into() }),
        view: end.view.clone(),
        instance: "ends".into(),
    };
    let ingress = Ingress {
        connector: end.connector.clone(),
        class: Class::Interactive,
        name: "proxy",
        vouched: true,
        patience: Duration::ZERO,
    };
    let (links, proxy) = (TcpListener::bind(links).await.unwrap(), TcpListener::bind(proxy).await.unwrap());
    let never = Ending::at(CancellationToken::new());
    let ending = never.clone();
    let ways_in = listen::tcp(proxy, never.clone(), Duration::ZERO, move |client, peer, arrival| {
        let (ingress, ending) = (ingress.clone(), ending.clone());
        async move { serve_http(&ingress, client, &peer, &arrival, &Form::Proxy, &ending).await }
    });
    tokio::join!(serving.serve(links, never), ways_in);
}

async fn agent(folder: &Path, gateway: &str) {
    let end = End::new(folder, AGENT);
    let key = |class| LinkKey {
        gateway: GATEWAY.into(),
        direction: Direction::Reverse,
        class,
        address: gateway.to_owned(),
        generation: 1,
    };
    let desired = watch::Sender::new(Class::ALL.map(key).into());
    let dialling = Agent {
        connector: end.connector.clone(),
        table: end.table.clone(),
        credentials: end.credentials.clone(),
        verifier: verifier(),
        server_names: {
            let name = ServerName::try_from(NAME).unwrap();
            ServerNames { exposed: name.clone(), of_pool: name }
        },
        proxy: None,
        instance: "ends".into(),
        backoff: tunnel::backoff::Limits::default(),
    };
    dialling.run(desired.subscribe(), CancellationToken::new()).await;
}

/// Sends data without end to whoever says `f`, a scrape's answer each time somebody says `s`, and 100 bytes for anything else.
async fn destination(listen: &str) {
    let listener = TcpListener::bind(listen).await.unwrap();
    let mut clients = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        client.set_nodelay(true).unwrap();
        clients.spawn(async move {
            let block = vec![7; 64 * 1024];
            while let Ok(said) = client.read_u8().await {
                match said {
                    b'f' => while client.write_all(&block).await.is_ok() {},
                    b's' => drop(client.write_all(&block[..SCRAPE]).await),
                    _ => drop(client.write_all(&block[..100]).await),
                }
            }
        });
        while clients.try_join_next().is_some() {}
    }
}

/// Plainly, or by CONNECT.
async fn connect(target: &str, proxy: Option<&str>) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(proxy.unwrap_or(target)).await?;
    stream.set_nodelay(true)?;
    if proxy.is_some() {
        stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        if !head.starts_with(b"HTTP/1.1 200") {
            return Err(std::io::Error::other(String::from_utf8_lossy(&head).into_owned()));
        }
    }
    Ok(stream)
}

/// Connects and gets 100 bytes.
async fn touch(target: &str, proxy: Option<&str>) -> std::io::Result<()> {
    let mut stream = connect(target, proxy).await?;
    stream.write_all(b"x").await?;
    stream.read_exact(&mut [0; 100]).await.map(drop)
}

/// MB a second of one stream. The first tenth of the time is left out: TCP finds its speed.
async fn stream(target: &str, seconds: f64, proxy: Option<&str>) -> f64 {
    let mut stream = connect(target, proxy).await.unwrap();
    stream.write_all(b"f").await.unwrap();
    let mut buffer = vec![0; 256 * 1024];
    let warm = Instant::now() + Duration::from_secs_f64(seconds / 10.0);
    while Instant::now() < warm {
        assert!(stream.read(&mut buffer).await.unwrap() > 0, "ended early");
    }
    let (start, mut bytes) = (Instant::now(), 0);
    while start.elapsed().as_secs_f64() < seconds * 0.9 {
        let read = stream.read(&mut buffer).await.unwrap() as u64;
        assert!(read > 0, "ended early");
        bytes += read;
    }
    // A microsecond a byte: MB a second.
    Duration::from_micros(bytes).as_secs_f64() / start.elapsed().as_secs_f64()
}

/// The milliseconds than which so many of a hundred are not longer.
fn percentile(mut times: Vec<Duration>, percent: usize) -> f64 {
    times.sort();
    times[times.len() * percent / 100].as_secs_f64() * 1000.0
}

async fn connects(target: &str, number: usize, proxy: Option<&str>) -> [f64; 2] {
    let mut times = Vec::new();
    for _ in 0..number {
        let began = Instant::now();
        touch(target, proxy).await.unwrap();
        times.push(began.elapsed());
    }
    [50, 99].map(|percent| percentile(times.clone(), percent))
}

/// One after the other over one connection, as Prometheus does.
async fn scrapes(target: &str, number: usize, proxy: Option<&str>) -> f64 {
    let mut stream = connect(target, proxy).await.unwrap();
    let (mut times, mut buffer) = (Vec::new(), vec![0; SCRAPE]);
    for _ in 0..number {
        let began = Instant::now();
        stream.write_all(b"s").await.unwrap();
        stream.read_exact(&mut buffer).await.unwrap();
        times.push(began.elapsed());
        sleep(Duration::from_millis(50)).await;
    }
    percentile(times, 50)
}

/// Keeps streams open, that nobody reads or that nothing passes through, until somebody ends this.
async fn hold(target: &str, number: usize, stalled: bool, proxy: Option<&str>) {
    let mut streams = Vec::new();
    for _ in 0..number {
        let mut stream = connect(target, proxy).await.unwrap();
        if stalled {
            stream.write_all(b"f").await.unwrap();
        }
        streams.push(stream);
    }
    println!("ready");
    std::future::pending::<()>().await;
}

/// Seconds until something passes again.
async fn probe(target: &str, proxy: &str) -> f64 {
    let began = Instant::now();
    while !matches!(timeout(Duration::from_secs(1), touch(target, Some(proxy))).await, Ok(Ok(()))) {
        sleep(Duration::from_millis(50)).await;
    }
    began.elapsed().as_secs_f64()
}

fn main() {
    // As a hub has it.
    heap::keep_little();
    tls::install_provider();
    let words: Vec<String> = std::env::args().skip(1).collect();
    // A hub's tunnel has one thread.
    let mut runtime = match words.first().map(String::as_str) {
        Some("gateway" | "agent") => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    runtime.enable_all().build().unwrap().block_on(run(&words));
}

async fn run(words: &[String]) {
    let at = |place: usize| words.get(place).map(String::as_str);
    let word = |place| at(place).expect("fewer words than the command has");
    let number = |place| word(place).parse::<usize>().unwrap();
    match word(0) {
        "pki" => make_pki(Path::new(word(1)), &words[2..]),
        "gateway" => gateway(Path::new(word(1)), word(2), word(3)).await,
        "agent" => agent(Path::new(word(1)), word(2)).await,
        "destination" => destination(word(1)).await,
        "stream" => println!("{:.1}", stream(word(1), word(2).parse().unwrap(), at(3)).await),
        "connects" => {
            let [middle, slow] = connects(word(1), number(2), at(3)).await;
            println!("{middle:.3} {slow:.3}");
        }
        "scrapes" => println!("{:.1}", scrapes(word(1), number(2), at(3)).await),
        "hold" => hold(word(1), number(2), word(3) == "stall", at(4)).await,
        "probe" => println!("{:.2}", probe(word(1), word(2)).await),
        other => panic!("unknown command {other}"),
    }
}
