//! A cluster with a cloud gateway `c1` and a pool `a` of `a1`, its endpoint, and `a2`; and hubs of it within this process.

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, SocketAddr, UdpSocket},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use api::{annotations::TUNNEL_REPORT, names};
use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Parser;
use edge_hub::{
    Args,
    run::{App, Config},
};
use rustls::{ClientConfig, RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{
    api_server::{
        Cluster, FakeApiServer, Kind,
        access::User,
        pki::{Authority, Identity},
    },
    client::connection::Endpoint,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep},
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;

use super::super::site::{SOON, Site, get, port};

const GATEWAYS: &str = "gateways.raven.openyurt.io";
const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";

/// A cluster, its authorities and its kubelets.
pub(super) struct Tunnelled {
    site: Site,
    pub(super) kubelet_authority: Authority,
    /// Port of a kubelet, which is the same on all nodes: they have the same address.
    pub(super) kubelet: u16,
    /// Port of plain HTTP.
    pub(super) exporter: u16,
    pub(super) gateway: u16,
    pub(super) tls_way: u16,
    pub(super) http_way: u16,
    pub(super) clients: u16,
    /// The loopback proxy of the edge node.
    pub(super) loopback: u16,
    /// That of the ordinary node.
    pub(super) ordinary_loopback: u16,
    /// The internal address of all nodes.
    pub(super) address: IpAddr,
    /// Where the edge node accepts links of its pool.
    pub(super) pool: SocketAddr,
    /// How long certificates are good that are issued; if not said, for ever.
    pub(super) life: Option<Duration>,
    _tasks: JoinSet<()>,
}

/// A hub.
pub(super) struct TestHub {
    _folder: TempDir,
    arguments: Vec<String>,
    admin: u16,
    running: Option<(JoinHandle<()>, CancellationToken)>,
}

/// An address of this machine that is not loopback, which no tunnel goes to.
fn own_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Nothing is sent: this only chooses an address.
    socket.connect("192.0.2.1:9").expect("the tests need an address that is not loopback");
    socket.local_addr().unwrap().ip()
}

fn kind(group: &str, version: &str, resource: &str, kind: &str) -> Kind {
    Kind {
        group: group.into(),
        version: version.into(),
        resource: resource.into(),
        kind: kind.into(),
        namespaced: false,
        typed: false,
        fields: Vec::new(),
    }
}

/// Who trusts one authority and shows this, or nothing.
pub(super) fn client_config(authority: &Authority, identity: Option<Identity>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots);
    match identity {
        None => config.with_no_client_auth(),
        Some(Identity { certificate, key, .. }) => {
            config.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    }
}

/// Reads up to the end of a head, byte by byte.
pub(super) async fn read_head(client: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = client.read_u8().await else { break };
        head.push(byte);
    }
    String::from_utf8(head).unwrap()
}

/// Issues what is asked for, as manager and signer together do.
fn issue(cluster: &Cluster, authority: &Authority, life: Option<Duration>) {
    for (key, request) in cluster.list(REQUESTS).iter().filter(|(_, request)| request["status"].is_null()) {
        assert_eq!(request["spec"]["signerName"], names::GATEWAY_SIGNER);
        let text = BASE64_STANDARD.decode(request["spec"]["request"].as_str().unwrap()).unwrap();
        let text = str::from_utf8(&text).unwrap();
        let issued =
            life.map_or_else(|| authority.sign(text), |life| authority.sign_for(text, life)).unwrap();
        let status = json!({ "status": { "certificate": BASE64_STANDARD.encode(issued) } });
        cluster.merge_patch(REQUESTS, key, &status).unwrap();
    }
}

impl Tunnelled {
    pub(super) async fn new() -> Self {
        let site = Site::new().await;
        let kubelet_authority = Authority::generate("kubelets").unwrap();
        let mut tasks = JoinSet::new();
        let address = own_address();
        let kubelet = serve_kubelet(&kubelet_authority, address, &mut tasks).await;
        let exporter = serve_exporter(address, &mut tasks).await;
        let [gateway, tls_way, http_way, clients, loopback, ordinary_loopback] = [(); 6].map(|()| port());
        let made = Self {
            site,
            kubelet_authority,
            kubelet,
            exporter,
            gateway,
            tls_way,
            http_way,
            clients,
            loopback,
            ordinary_loopback,
            address,
            pool: SocketAddr::new(address, port()),
            life: None,
            _tasks: tasks,
        };
        made.fill(address);
        made
    }

    pub(super) fn server(&self) -> &FakeApiServer {
        &self.site.server
    }

    fn fill(&self, address: IpAddr) {
        let cluster = self.site.server.cluster();
        cluster.define(kind("raven.openyurt.io", "v1beta1", "gateways", "Gateway"));
        cluster.define(kind("apps.openyurt.io", "v1beta2", "nodepools", "NodePool"));
        cluster.define(kind(
            "certificates.k8s.io",
            "v1",
            "certificatesigningrequests",
            "CertificateSigningRequest",
        ));
        for (node, pool) in [("c1", None), ("a1", Some("a")), ("a2", Some("a"))] {
            let mut labels = BTreeMap::new();
            if let Some(pool) = pool {
                labels.insert("apps.openyurt.io/nodepool", pool);
                labels.insert("openyurt.io/is-edge-worker", "true");
            }
            self.join(node, &json!(labels));
        }
        let gateway = |name: &str, expose: &str, nodes: &[&str], addresses: Value| {
            let endpoint = json!({ "nodeName": nodes[0], "type": "proxy", "underNAT": expose.is_empty() });
            let nodes: Vec<Value> = nodes
                .iter()
                .map(|node| json!({ "nodeName": node, "privateIP": address, "subnets": [] }))
                .collect();
            let proxy = json!({
                "Replicas": 1,
                "proxyHTTPPort": self.exporter.to_string(),
                "proxyHTTPSPort": self.kubelet.to_string(),
            });
            let spec = json!({ "exposeType": expose, "proxyConfig": proxy, "endpoints": [endpoint] });
            let status = json!({ "nodes": nodes, "activeEndpoints": [endpoint], "addresses": addresses });
            cluster
                .create(GATEWAYS, json!({ "metadata": { "name": name }, "spec": spec, "status": status }))
                .unwrap();
        };
        let at = json!([{ "host": "127.0.0.1", "port": self.gateway, "nodeName": "c1" }]);
        gateway("cloud", "PublicIP", &["c1"], at);
        gateway("a", "", &["a1", "a2"], json!([]));
        let port = |scheme: &str, port: u16, target: u16| json!({ "name": format!("{scheme}-{port}"), "port": port, "targetPort": target, "protocol": "TCP" });
        let ports =
            json!([port("http", self.exporter, self.http_way), port("https", self.kubelet, self.tls_way)]);
        let metadata = json!({ "namespace": names::NAMESPACE, "name": names::PROXY_INTERNAL_SERVICE });
        cluster.create("services", json!({ "metadata": metadata, "spec": { "ports": ports } })).unwrap();
    }

    /// Makes a Node.
    fn join(&self, name: &str, labels: &Value) {
        self.join_at(name, labels, self.address);
    }

    fn join_at(&self, name: &str, labels: &Value, address: IpAddr) {
        let addresses = json!([{ "type": "InternalIP", "address": address }]);
        let metadata = json!({ "name": name, "labels": labels });
        let node = json!({ "metadata": metadata, "spec": {}, "status": { "addresses": addresses } });
        self.site.server.cluster().create("nodes", node).unwrap();
    }

    /// Makes another node the endpoint of a Gateway.
    pub(super) fn elect(&self, gateway: &str, node: &str) {
        let endpoint = json!([{ "nodeName": node, "type": "proxy", "underNAT": true }]);
        let status = json!({ "status": { "activeEndpoints": endpoint } });
        self.site.server.cluster().merge_patch(GATEWAYS, gateway, &status).unwrap();
    }

    /// Has the cloud's Gateway dialled at this host.
    pub(super) fn expose_at(&self, host: &str) {
        let addresses = json!([{ "host": host, "port": self.gateway, "nodeName": "c1" }]);
        let status = json!({ "status": { "addresses": addresses } });
        self.site.server.cluster().merge_patch(GATEWAYS, "cloud", &status).unwrap();
    }

    /// Takes everything from the cloud's Gateway: nobody is listed, and it is no longer exposed.
    pub(super) fn unlist(&self) {
        let nobody = json!({
            "spec": { "exposeType": "", "endpoints": [] },
            "status": { "activeEndpoints": [], "addresses": [] },
        });
        self.site.server.cluster().merge_patch(GATEWAYS, "cloud", &nobody).unwrap();
    }

    async fn hub(&self, node: &str, more: &[(&str, String)]) -> TestHub {
        let folder = TempDir::new().unwrap();
        let identity =
            self.authority().client(&User::new(&format!("system:node:{node}"), &["system:nodes"])).unwrap();
        for (name, content) in [
            ("ca.crt", self.authority().pem()),
            ("node.crt", &identity.certificate_pem),
            ("node.key", &identity.key_pem),
        ] {
            fs::write(folder.path().join(name), content).unwrap();
        }
        let file = |name: &str| folder.path().join(name).display().to_string();
        let uid = fs::metadata(folder.path()).unwrap().uid().to_string();
        let admin = port();
        let arguments = [
            ("--node-name", node.to_owned()),
            ("--server-addr", self.site.server.url()),
            ("--ca-file", file("ca.crt")),
            ("--client-cert-file", file("node.crt")),
            ("--client-key-file", file("node.key")),
            ("--root-dir", file("root")),
            ("--proxy-port", port().to_string()),
            ("--serve-port", admin.to_string()),
            ("--tunnel-proxy-uids", uid),
            // Everyone reaches this port of the cloud's nodes; other ports of nodes, and this one elsewhere, the cloud and the node's own pool.
            ("--tunnel-destinations", format!("nodes@cloud={}", self.kubelet)),
            // Whatever the environment says.
            ("--tunnel-http-proxy", String::new()),
            ("--tunnel-no-proxy", String::new()),
        ];
        // What is given takes the place of what is not.
        let others = arguments.iter().filter(|(name, _)| more.iter().all(|(given, _)| given != name));
        let arguments = others.chain(more).flat_map(|(name, value)| [(*name).to_owned(), value.clone()]);
        let arguments = arguments.chain(["--tunnel".to_owned()]).collect();
        let mut hub = TestHub { _folder: folder, arguments, admin, running: None };
        hub.start().await;
        hub
    }

    /// The authority of the cluster.
    pub(super) fn authority(&self) -> &Authority {
        &self.site.authority
    }

    pub(super) async fn cloud(&self) -> TestHub {
        let sockets = self.site.file("egress");
        fs::create_dir_all(&sockets).unwrap();
        let ca = self.site.file("ca.crt").display().to_string();
        let more = [
            ("--tunnel-address", format!("0.0.0.0:{}", self.gateway)),
            ("--tunnel-proxy-port", "0".to_owned()),
            ("--tunnel-clients-address", format!("127.0.0.1:{}", self.clients)),
            ("--tunnel-client-ca-file", ca),
            ("--tunnel-client-names", "kube-apiserver,prometheus".to_owned()),
            ("--tunnel-egress-socket", self.socket().display().to_string()),
        ];
        self.hub("c1", &more).await
    }

    /// Another node of the cloud, beside whose API server a gateway is listed, and not elected. With its socket.
    pub(super) async fn spare(&self) -> (TestHub, PathBuf) {
        self.join("c2", &json!({}));
        let endpoint = |node: &str| json!({ "nodeName": node, "type": "proxy", "underNAT": false });
        let node = |node: &str| json!({ "nodeName": node, "privateIP": self.address, "subnets": [] });
        let listed = json!({
            "spec": { "endpoints": [endpoint("c1"), endpoint("c2")] },
            "status": { "nodes": [node("c1"), node("c2")] },
        });
        self.site.server.cluster().merge_patch(GATEWAYS, "cloud", &listed).unwrap();
        let socket = self.site.file("spare").join("egress.sock");
        fs::create_dir_all(self.site.file("spare")).unwrap();
        let more = [
            // Gateways of one domain have one port; their nodes have one address here.
            ("--tunnel-address", format!("[::1]:{}", self.gateway)),
            ("--tunnel-proxy-port", "0".to_owned()),
            ("--tunnel-egress-socket", socket.display().to_string()),
        ];
        (self.hub("c2", &more).await, socket)
    }

    /// The Unix socket for an API server.
    pub(super) fn socket(&self) -> PathBuf {
        self.site.file("egress").join("egress.sock")
    }

    pub(super) async fn edge(&self) -> TestHub {
        self.of_pool("a1", self.loopback, &[]).await
    }

    /// The same, whose way out is an HTTP proxy.
    pub(super) async fn edge_behind(&self, proxy: SocketAddr) -> TestHub {
        let proxy = ("--tunnel-http-proxy", format!("http://{proxy}"));
        self.of_pool("a1", self.loopback, &[proxy]).await
    }

    /// The node of the pool that is no endpoint.
    pub(super) async fn ordinary(&self) -> TestHub {
        self.of_pool("a2", self.ordinary_loopback, &[]).await
    }

    /// An edge node of no pool, which no Gateway names.
    pub(super) async fn solo(&self) -> TestHub {
        self.join("s1", &json!({ "openyurt.io/is-edge-worker": "true" }));
        self.of_pool("s1", port(), &[]).await
    }

    /// The first node of an edge pool without a Gateway, with its loopback proxy. The other one, `p2`, has a kubelet and no hub; the hub is told where
    /// it is by [`Self::tell_pool`] alone.
    pub(super) async fn of_pool_without_gateway(&self) -> (TestHub, u16) {
        self.of_pool_without_gateway_with(&[]).await
    }

    /// The same with these options.
    pub(super) async fn of_pool_without_gateway_with(&self, more: &[(&str, String)]) -> (TestHub, u16) {
        let cluster = self.site.server.cluster();
        let pool = json!({ "metadata": { "name": "plain" }, "spec": { "type": "Edge" } });
        cluster.create("nodepools.apps.openyurt.io", pool).unwrap();
        let name = names::leader_hub_config_map("plain");
        let metadata = json!({ "namespace": names::NAMESPACE, "name": name });
        cluster.create("configmaps", json!({ "metadata": metadata, "data": {} })).unwrap();
        let labels = json!({ "apps.openyurt.io/nodepool": "plain" });
        self.join_at("p1", &labels, [192, 0, 2, 1].into());
        self.join("p2", &labels);
        let loopback = port();
        (self.of_pool("p1", loopback, more).await, loopback)
    }

    /// Tells the hubs of that pool which nodes it has, as the manager does.
    pub(super) fn tell_pool(&self, nodes: &str) {
        let key = format!("{}/{}", names::NAMESPACE, names::leader_hub_config_map("plain"));
        let nodes = json!({ "data": { (names::POOL_NODES): nodes } });
        self.site.server.cluster().merge_patch("configmaps", &key, &nodes).unwrap();
    }

    async fn of_pool(&self, node: &str, loopback: u16, more: &[(&str, String)]) -> TestHub {
        let ports =
            [("--tunnel-address", self.pool.to_string()), ("--tunnel-proxy-port", loopback.to_string())];
        self.hub(node, &[&ports[..], more].concat()).await
    }

    /// The certificate that a hub shows at `address` to who dials it as this node; nothing if it is refused at once.
    pub(super) async fn shown(&self, address: SocketAddr, node: &str, protocol: &str) -> Option<Vec<u8>> {
        let user = User::new(&format!("system:node:{node}"), &["system:nodes"]);
        let identity = self.authority().client(&user).unwrap();
        let mut config = client_config(self.authority(), Some(identity));
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let name = ServerName::try_from(names::GATEWAY_SERVER_NAME).unwrap();
        let stream = TcpStream::connect(address).await.ok()?;
        let session = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
        Some(session.get_ref().1.peer_certificates()?.first()?.to_vec())
    }

    pub(super) async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        self.until_async(what, async || holds()).await;
    }

    /// Waits, and issues certificates meanwhile.
    pub(super) async fn until_async(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let deadline = Instant::now() + SOON;
        while !holds().await {
            issue(self.site.server.cluster(), self.authority(), self.life);
            assert!(Instant::now() < deadline, "not in time: {what}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the gateway has the links of the agent, and the ways in are open.
    pub(super) async fn linked(&self, gateway: &TestHub) {
        self.until("links", || self.report().is_some_and(|(_, links)| links == ["a1"])).await;
        for way in [self.tls_way, self.http_way] {
            self.until_async("the way in is open", async || {
                let open = TcpStream::connect((self.address, way)).await.is_ok();
                if !open {
                    println!("not open yet: {}", gateway.status().await["problems"]);
                }
                open
            })
            .await;
        }
    }

    /// Who holds the report of the gateway, and the nodes in it.
    pub(super) fn report(&self) -> Option<(String, Vec<String>)> {
        let key = format!("{}/{}", names::NAMESPACE, names::gateway_lease("c1"));
        let object = self.site.server.cluster().get("configmaps", &key)?;
        let report: Value =
            serde_json::from_str(object["metadata"]["annotations"][TUNNEL_REPORT].as_str()?).unwrap();
        let links = report["links"].as_array()?.iter().map(|link| link["node"].as_str().unwrap().to_owned());
        Some((object["data"]["holderIdentity"].as_str()?.to_owned(), links.collect()))
    }

    /// Speaks TLS with the kubelet over this stream.
    pub(super) async fn ask_kubelet(
        &self,
        stream: impl AsyncReadExt + AsyncWriteExt + Unpin + Send,
    ) -> String {
        let prober = self.kubelet_authority.client(&User::new("prober", &[])).unwrap();
        let config = client_config(&self.kubelet_authority, Some(prober));
        let name = ServerName::try_from("a1").unwrap();
        let mut session = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let mut answer = String::new();
        session.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Comes in as a client with a certificate of this name.
    pub(super) async fn client(&self, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
        let identity = self.authority().client(&User::new(name, &[])).unwrap();
        self.dial_clients(client_config(self.authority(), Some(identity))).await
    }

    async fn dial_clients(&self, config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(("127.0.0.1", self.clients)).await?;
        let name = ServerName::try_from(names::GATEWAY_SERVER_NAME).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// Whether such a client is sent away by TLS itself. With TLS 1.3 it learns that after its own handshake.
    pub(super) async fn is_refused(&self, config: ClientConfig) -> bool {
        match self.dial_clients(config).await {
            Ok(mut session) => {
                let _ = session.write_all(b"CONNECT a:1 HTTP/1.1\r\n\r\n").await;
                session.read_u8().await.is_err()
            }
            Err(_) => true,
        }
    }
}

impl TestHub {
    pub(super) async fn start(&mut self) {
        let typed = ["edge-hub", "run"].into_iter().map(str::to_owned).chain(self.arguments.clone());
        let edge_hub::Command::Run(args) = Args::try_parse_from(typed).unwrap().command else {
            unreachable!()
        };
        let shutdown = CancellationToken::new();
        let app = App::build(Config::try_from(*args).unwrap(), shutdown.clone()).await.unwrap();
        self.running = Some((tokio::spawn(app.run()), shutdown));
    }

    /// Ends it as SIGTERM does.
    pub(super) async fn end(&mut self) {
        let (task, shutdown) = self.running.take().unwrap();
        shutdown.cancel();
        task.await.unwrap();
    }

    fn admin(&self) -> Endpoint {
        Endpoint::plain(SocketAddr::from(([127, 0, 0, 1], self.admin)))
    }

    /// What it says of the tunnel.
    pub(super) async fn status(&self) -> Value {
        get(&self.admin(), "/v1/status").await.map(|(_, status)| status["tunnel"].clone()).unwrap_or_default()
    }

    pub(super) async fn metrics(&self) -> String {
        let mut answer = self.admin().get("/metrics", "*/*").await.unwrap();
        String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap()
    }
}

impl Drop for TestHub {
    fn drop(&mut self) {
        if let Some((task, shutdown)) = self.running.take() {
            shutdown.cancel();
            task.abort();
        }
    }
}

/// A kubelet that demands a certificate of its own authority, and says whose it was.
async fn serve_kubelet(authority: &Authority, address: IpAddr, tasks: &mut JoinSet<()>) -> u16 {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
    let Identity { certificate, key, .. } = authority.server(&["a1"]).unwrap();
    let config = ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    serve(address, tasks, move |client| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut client) = acceptor.accept(client).await else { return };
            let leaf = client.get_ref().1.peer_certificates().unwrap()[0].clone();
            let user = edge_hub::authenticate::user_of(&leaf).unwrap();
            let _ = client.write_all(format!("you are {}", user.name).as_bytes()).await;
            let _ = client.shutdown().await;
        }
    })
    .await
}

async fn serve_exporter(address: IpAddr, tasks: &mut JoinSet<()>) -> u16 {
    serve(address, tasks, |mut client| async move {
        read_head(&mut client).await;
        let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    })
    .await
}

async fn serve<F: Future<Output = ()> + Send + 'static>(
    address: IpAddr,
    tasks: &mut JoinSet<()>,
    one: impl Fn(TcpStream) -> F + Send + 'static,
) -> u16 {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tasks.spawn(async move {
        let mut clients = JoinSet::new();
        loop {
            tokio::select! {
                Ok((client, _)) = listener.accept() => drop(clients.spawn(one(client))),
                // Those who have left are forgotten.
                Some(_) = clients.join_next() => {}
            }
        }
    });
    port
}
