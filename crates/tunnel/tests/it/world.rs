//! Gateways, agents and destinations of a test, all in this process, over real sockets.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use rustls_pki_types::ServerName;
use testkit::api_server::{
    access::User,
    pki::{Authority, Identity},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tunnel::{
    admission::ByView,
    agent::{Agent, ServerNames},
    backoff,
    connector::{Connector, Request, Upstream},
    credentials::Credentials,
    destination::{Callers, Destination, Rule},
    ending::Ending,
    gateway::Gateway,
    identity::SubjectVerifier,
    ingress::Ingress,
    links::{plan::LinkKey, table::LinkTable},
    protocol::{Class, Limits, OpenError},
    route::Direction,
    stats::Stats,
    target::Target,
    view::{Domain, GatewayState, Node, Place, View},
};

/// The name in certificates of exposed gateways.
pub(crate) const GATEWAY_NAME: &str = "gateway.tunnel.internal";

/// That in those of `a1` and `a2`, which stand for their pool.
pub(crate) const POOL_NAME: &str = "gateway.pool.tunnel.internal";

/// An address of this machine that is not loopback, which no tunnel goes to.
pub(crate) fn own_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Nothing is sent: this only chooses an address.
    socket.connect("192.0.2.1:9").expect("the tests need an address that is not loopback");
    socket.local_addr().unwrap().ip()
}

/// A new authority.
pub(crate) fn authority() -> Authority {
    Authority::generate("test authority").unwrap()
}

/// The certificate of a hub, as a gateway or not.
pub(crate) fn leaf(authority: &Authority, node: &str, gateway: bool) -> Identity {
    let user = User::new(&format!("isthmus:edge-hub:{node}"), &["isthmus:edge-hubs"]);
    let name = if node.starts_with('a') { POOL_NAME } else { GATEWAY_NAME };
    if gateway { authority.peer(&user, &[name]) } else { authority.client(&user) }.unwrap()
}

/// A new certificate for a hub; which one it is.
pub(crate) fn install(authority: &Authority, credentials: &Credentials, node: &str, gateway: bool) -> u64 {
    let leaf = leaf(authority, node, gateway);
    credentials.install(&leaf.certificate_pem, &leaf.key_pem, authority.pem()).unwrap()
}

/// Two cloud gateways, a pool whose node `a1` is its endpoint, and a solo node; everything on nodes is allowed.
pub(crate) fn view() -> View {
    let address = own_address();
    let nodes = [
        ("c1", Place::Cloud, None),
        ("c2", Place::Cloud, None),
        ("a1", Place::Edge, Some("a")),
        ("a2", Place::Edge, Some("a")),
        ("solo", Place::Edge, None),
    ];
    let nodes = nodes.map(|(name, place, pool): (_, _, Option<&str>)| {
        (name.to_owned(), Node { place, pool: pool.map(str::to_owned), addresses: vec![address] })
    });
    let gateway = |exposed, nodes: &[&str]| GatewayState {
        exposed,
        endpoints: nodes.iter().map(|&node| node.to_owned()).collect(),
        ..GatewayState::default()
    };
    let gateways =
        [(Domain::Cloud, gateway(true, &["c1", "c2"])), (Domain::Pool("a".into()), gateway(false, &["a1"]))];
    let rule =
        Rule { to: Destination::Nodes { domain: None }, ports: vec![1024..=u16::MAX], from: Callers::All };
    View { nodes: nodes.into(), gateways: gateways.into(), destinations: vec![rule], ..View::default() }
}

/// How long anything may take that is waited for: tests run beside others, on a machine that has other work.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// Limits of use, but for PINGs, which come more often. Peers that are alive are not taken for dead because the machine is busy.
pub(crate) fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.liveness.interval = Duration::from_millis(500);
    limits.liveness.deadline = SOON;
    limits.liveness.deadline_behind_data = SOON;
    limits
}

/// The same for tests of peers that fall silent, which is noticed after two seconds. A machine that is busy may take others for dead, too:
/// what is counted is counted at least.
pub(crate) fn quick_to_notice() -> Limits {
    let mut limits = limits();
    limits.liveness.deadline = Duration::from_millis(1500);
    limits.liveness.deadline_behind_data = limits.liveness.deadline;
    limits
}

/// One node: whatever it is.
pub(crate) struct Hub {
    pub(crate) name: String,
    pub(crate) connector: Arc<Connector>,
    pub(crate) table: Arc<LinkTable>,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) desired: watch::Sender<BTreeSet<LinkKey>>,
    pub(crate) shutdown: CancellationToken,
    view: watch::Receiver<Arc<View>>,
    tasks: JoinSet<()>,
}

impl Hub {
    pub(crate) async fn connect(&self, target: &str) -> Result<Upstream, OpenError> {
        self.connector.connect(&request(target)).await
    }

    pub(crate) fn ingress(&self) -> Ingress {
        Ingress {
            connector: self.connector.clone(),
            class: Class::Interactive,
            name: "test",
            vouched: true,
            patience: Duration::ZERO,
        }
    }

    /// Accepts links.
    pub(crate) async fn listen(&mut self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let gateway = Gateway {
            connector: self.connector.clone(),
            table: self.table.clone(),
            credentials: self.credentials.clone(),
            verifier: Arc::new(SubjectVerifier::new("isthmus:edge-hubs", "isthmus:edge-hub:")),
            admission: Arc::new(ByView { me: self.name.clone() }),
            view: self.view.clone(),
            instance: "test".into(),
        };
        self.tasks.spawn(gateway.serve(listener, Ending::at(self.shutdown.clone())));
        address
    }

    /// Dials what it is told to.
    pub(crate) fn dial(&mut self) {
        let agent = self.agent();
        self.tasks.spawn(agent.run(self.desired.subscribe(), self.shutdown.clone()));
    }

    pub(crate) fn agent(&self) -> Agent {
        Agent {
            connector: self.connector.clone(),
            table: self.table.clone(),
            credentials: self.credentials.clone(),
            verifier: Arc::new(SubjectVerifier::new("isthmus:edge-hubs", "isthmus:edge-hub:")),
            server_names: ServerNames {
                exposed: ServerName::try_from(GATEWAY_NAME).unwrap(),
                of_pool: ServerName::try_from(POOL_NAME).unwrap(),
            },
            proxy: None,
            instance: "test".into(),
            backoff: backoff::Limits {
                first: Duration::from_millis(50),
                longest: Duration::from_millis(500),
                ..backoff::Limits::default()
            },
        }
    }

    pub(crate) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Wants the same links as before, with the certificate of that generation.
    pub(crate) fn renew_links(&self, generation: u64) {
        self.desired.send_modify(|links| {
            *links = std::mem::take(links).into_iter().map(|link| LinkKey { generation, ..link }).collect();
        });
    }

    pub(crate) async fn links(&self, expected: usize) {
        eventually(&format!("{expected} links of {}", self.name), || self.table.snapshot().len() == expected)
            .await;
    }
}

/// What a client of a node asks for.
pub(crate) fn request(target: &str) -> Request {
    Request {
        target: Target::parse(target, None).unwrap(),
        origin: None,
        caller: "test".into(),
        class: Class::Interactive,
        hops: 0,
        unvouched: None,
        used: Arc::default(),
        patience: Duration::ZERO,
        request_id: "test".into(),
    }
}

pub(crate) struct World {
    pub(crate) authority: Authority,
    pub(crate) view: watch::Sender<Arc<View>>,
    pub(crate) limits: Limits,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(view(), limits())
    }

    pub(crate) fn with(view: View, limits: Limits) -> Self {
        tls::install_provider();
        Self { authority: authority(), view: watch::Sender::new(Arc::new(view)), limits }
    }

    pub(crate) fn hub(&self, name: &str, gateway: bool) -> Hub {
        self.hub_that_sees(self.view.subscribe(), name, gateway)
    }

    /// One whose picture of the cluster is its own.
    pub(crate) fn hub_that_sees(&self, view: watch::Receiver<Arc<View>>, name: &str, gateway: bool) -> Hub {
        let (table, stats, credentials) =
            (Arc::<LinkTable>::default(), Arc::<Stats>::default(), Credentials::new());
        install(&self.authority, &credentials, name, gateway);
        let connector = Connector::new(name, view.clone(), table.clone(), stats.clone(), self.limits);
        Hub {
            name: name.to_owned(),
            connector,
            table,
            credentials,
            stats,
            desired: watch::Sender::new(BTreeSet::new()),
            shutdown: CancellationToken::new(),
            view,
            tasks: JoinSet::new(),
        }
    }

    /// A gateway `c1` and an agent `a1` that are linked both ways, for both classes.
    pub(crate) async fn pair(&self) -> (Hub, Hub) {
        let mut gateway = self.hub("c1", true);
        let address = gateway.listen().await;
        let mut agent = self.hub("a1", false);
        agent.desired.send_replace(links("c1", address, agent.credentials.generation()));
        agent.dial();
        gateway.links(4).await;
        agent.links(4).await;
        (gateway, agent)
    }
}

/// Links of both directions and classes.
pub(crate) fn links(gateway: &str, address: SocketAddr, generation: u64) -> BTreeSet<LinkKey> {
    let mut links = BTreeSet::new();
    for direction in [Direction::Reverse, Direction::Forward] {
        for class in Class::ALL {
            let (gateway, address) = (gateway.to_owned(), address.to_string());
            links.insert(LinkKey { gateway, direction, class, address, generation });
        }
    }
    links
}

/// Those for one direction and class.
pub(crate) fn only(links: BTreeSet<LinkKey>, direction: Direction, class: Class) -> BTreeSet<LinkKey> {
    links.into_iter().filter(|key| key.direction == direction && key.class == class).collect()
}

pub(crate) async fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !is() {
        assert!(Instant::now() < until, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A destination; each client is a task of its own. Gives the port.
pub(crate) async fn destination<F: Future<Output = ()> + Send + 'static>(
    tasks: &mut JoinSet<()>,
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> u16 {
    let listener = TcpListener::bind((own_address(), 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tasks.spawn(async move {
        let mut clients = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            clients.spawn(serve(client));
        }
    });
    port
}

/// A destination that sends back what it gets, and ends when the client does.
pub(crate) async fn echo(tasks: &mut JoinSet<()>) -> u16 {
    destination(tasks, |mut client| async move {
        let (mut from, mut to) = client.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
        let _ = to.shutdown().await;
    })
    .await
}

/// One question and its answer.
pub(crate) async fn ask(
    stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin),
    question: &[u8],
) -> std::io::Result<Vec<u8>> {
    stream.write_all(question).await?;
    let mut answer = vec![0; question.len()];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

/// Counters by reason.
pub(crate) fn refused(hub: &Hub) -> BTreeMap<&'static str, u64> {
    hub.stats.snapshot().refused.into_iter().filter(|(_, count)| *count > 0).collect()
}
