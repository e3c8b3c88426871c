//! An API server, a hub before it, and what tests ask of both.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use clap::Parser;
use edge_hub::{
    Args,
    run::{App, Config, StartError},
};
use http::{Request, header};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{
    api_server::{
        Cluster, FakeApiServer, Kind, ServerOptions, Tls,
        access::User,
        pki::{Authority, Identity},
    },
    client::{
        brief,
        connection::{Answer, Endpoint},
    },
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

pub(crate) const SERVICES: &str = "/api/v1/services";
pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/a/widgets";
/// Never kept: every request for it goes upstream.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
pub(crate) const JSON: &str = "application/json";
/// How long anything may take that is to happen.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Ports below those that the kernel gives to outgoing connections: a hub that restarts finds its own free.
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

pub(crate) fn port() -> u16 {
    let first = 12_000 + u16::try_from(std::process::id() % 19_000).unwrap();
    loop {
        let port = first + NEXT_PORT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// A hub, its API server and its folder.
pub(crate) struct Site {
    pub(crate) server: FakeApiServer,
    pub(crate) authority: Authority,
    folder: TempDir,
    arguments: Vec<String>,
    plain: SocketAddr,
    secure: SocketAddr,
    running: Running,
}

enum Running {
    No,
    Process(Child),
    Inside(JoinHandle<()>, CancellationToken),
}

impl Drop for Site {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The node's own name upstream.
pub(crate) fn node() -> User {
    User::new("system:node:n", &["system:nodes"])
}

pub(crate) fn widget_kind() -> Kind {
    Kind {
        group: "example.com".into(),
        version: "v1".into(),
        resource: "widgets".into(),
        kind: "Widget".into(),
        namespaced: true,
        typed: false,
        fields: vec!["spec.n".into()],
    }
}

impl Site {
    /// A server with TLS, and no hub yet.
    pub(crate) async fn new() -> Self {
        tls::install_provider();
        let authority = Authority::generate("test").unwrap();
        let tls = Some(Tls::of(&authority).unwrap());
        let options =
            ServerOptions { tls, fresh_timeout: Duration::from_millis(20), ..ServerOptions::default() };
        let server = FakeApiServer::serve(Cluster::default(), options).await.unwrap();
        server
            .cluster()
            .create("customresourcedefinitions.apiextensions.k8s.io", widget_kind().crd())
            .unwrap();
        let folder = TempDir::new().unwrap();
        let node = authority.client(&node()).unwrap();
        let serving = authority.server(&["127.0.0.1"]).unwrap();
        let files = [
            ("ca.crt", authority.pem().to_owned()),
            ("node.crt", node.certificate_pem),
            ("node.key", node.key_pem),
            ("hub.crt", serving.certificate_pem),
            ("hub.key", serving.key_pem),
        ];
        for (name, content) in files {
            fs::write(folder.path().join(name), content).unwrap();
        }
        let (plain, secure, admin) = (port(), port(), port());
        let file = |name: &str| folder.path().join(name).display().to_string();
        let uid = fs::metadata(folder.path()).unwrap().uid().to_string();
        let arguments = [
            ("--node-name", "n".to_owned()),
            ("--server-addr", server.url()),
            ("--ca-file", file("ca.crt")),
            ("--client-cert-file", file("node.crt")),
            ("--client-key-file", file("node.key")),
            ("--serving-cert-file", file("hub.crt")),
            ("--serving-key-file", file("hub.key")),
            ("--root-dir", file("root")),
            ("--proxy-port", plain.to_string()),
            ("--proxy-secure-port", secure.to_string()),
            ("--serve-port", admin.to_string()),
            ("--node-uids", uid),
        ];
        let arguments = arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (plain, secure) = (at(plain), at(secure));
        Self { server, authority, folder, arguments, plain, secure, running: Running::No }
    }

    /// A server and a hub that is connected to it.
    pub(crate) async fn started() -> Self {
        let mut site = Self::new().await;
        site.start();
        site.linked().await;
        site
    }

    /// Gives the hub other values of options: the last one of an option counts.
    pub(crate) fn set(&mut self, option: &str, value: &str) {
        let at = self.arguments.iter().position(|argument| argument == option);
        match at {
            Some(at) => value.clone_into(&mut self.arguments[at + 1]),
            None => self.arguments.extend([option.to_owned(), value.to_owned()]),
        }
    }

    /// Does not give the hub that option.
    pub(crate) fn unset(&mut self, option: &str) {
        let at = self.arguments.iter().position(|argument| argument == option).unwrap();
        self.arguments.drain(at..at + 2);
    }

    /// A file in the folder of the hub's files.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The hub's listener of probes and status.
    pub(crate) fn admin(&self) -> Endpoint {
        Endpoint::plain(SocketAddr::from((Ipv4Addr::LOCALHOST, self.serve_port())))
    }

    /// The port of that listener.
    pub(crate) fn serve_port(&self) -> u16 {
        let at = self.arguments.iter().position(|argument| argument == "--serve-port").unwrap();
        self.arguments[at + 1].parse().unwrap()
    }

    /// Sends a signal to the hub's process.
    pub(crate) fn signal(&self, name: &str) {
        let Running::Process(child) = &self.running else { panic!("no process") };
        let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Starts the hub as a process of its own.
    pub(crate) fn start(&mut self) {
        let log = File::options().create(true).append(true).open(self.log_file()).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_edge-hub"))
            .arg("run")
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.running = Running::Process(child);
    }

    /// Runs the hub within this process, its configuration changed.
    pub(crate) async fn start_inside(&mut self, change: impl FnOnce(&mut Config)) {
        let typed = ["edge-hub", "run"].into_iter().map(str::to_owned).chain(self.arguments.clone());
        let edge_hub::Command::Run(args) = Args::try_parse_from(typed).unwrap().command else {
            unreachable!()
        };
        let mut config = Config::try_from(*args).unwrap();
        change(&mut config);
        let shutdown = CancellationToken::new();
        let app = loop {
            match App::build(config.clone(), shutdown.clone()).await {
                Ok(app) => break app,
                // A thread of the one before that syncs the disk outlives it by a moment.
                Err(StartError::Store(object_store::OpenError::InUse { .. })) => {
                    sleep(Duration::from_millis(10)).await;
                }
                Err(error) => panic!("the hub does not start: {error}"),
            }
        };
        self.running = Running::Inside(tokio::spawn(app.run()), shutdown);
    }

    /// The same, connected: it asks five times a second whether watchers still may, and believes an answer for so long.
    pub(crate) async fn start_suspicious(&mut self, allowed: Duration) {
        self.start_inside(|config| {
            config.lifetimes.allowed = allowed;
            config.lifetimes.review = Duration::from_millis(200);
        })
        .await;
        self.linked().await;
    }

    /// Ends the hub as SIGTERM does.
    pub(crate) async fn stop(&mut self) {
        let Running::Inside(task, shutdown) = std::mem::replace(&mut self.running, Running::No) else {
            panic!("the hub does not run within this process")
        };
        shutdown.cancel();
        task.await.unwrap();
    }

    /// Ends the hub as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        match std::mem::replace(&mut self.running, Running::No) {
            Running::No => {}
            Running::Process(mut child) => {
                // It may have ended by itself; then there is nothing to kill.
                let _ = child.kill();
                child.wait().unwrap();
            }
            Running::Inside(task, shutdown) => {
                shutdown.cancel();
                task.abort();
            }
        }
    }

    /// What the process of the hub needs of memory, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        let Running::Process(child) = &self.running else { return 0 };
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub(crate) fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// The hub's HTTP listener.
    pub(crate) fn plain(&self) -> Endpoint {
        Endpoint::plain(self.plain)
    }

    /// A connection to that listener that has said nothing yet.
    pub(crate) async fn connected_plain(&self) -> tokio::net::TcpStream {
        tokio::net::TcpStream::connect(self.plain).await.unwrap()
    }

    /// The hub's HTTPS listener, with a client's certificate or without.
    pub(crate) fn secure(&self, identity: Option<Identity>) -> Endpoint {
        self.tls(self.secure, identity)
    }

    /// A connection to the HTTPS listener that has said nothing yet, and wants to speak the first of these protocols that both know.
    pub(crate) async fn connected(
        &self,
        protocols: &[&str],
    ) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
        let mut config = self.client_config(None);
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let tcp = tokio::net::TcpStream::connect(self.secure).await.unwrap();
        connector.connect("127.0.0.1".try_into().unwrap(), tcp).await.unwrap()
    }

    /// The names of the certificate that the HTTPS listener shows.
    pub(crate) async fn serves(&self) -> String {
        let tls = self.connected(&[]).await;
        let shown = tls.get_ref().1.peer_certificates().and_then(|chain| chain.first()).unwrap();
        tls::certificate::Certificate::from_der(shown.to_vec()).unwrap().dns_names().join(" ")
    }

    /// The API server itself, as the node.
    pub(crate) fn direct(&self) -> Endpoint {
        self.tls(self.server.address(), Some(self.authority.client(&node()).unwrap()))
    }

    fn tls(&self, address: SocketAddr, identity: Option<Identity>) -> Endpoint {
        Endpoint::tls(address, self.client_config(identity), "127.0.0.1".try_into().unwrap())
    }

    fn client_config(&self, identity: Option<Identity>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.certificate().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        match identity {
            None => config.with_no_client_auth(),
            Some(Identity { certificate, key, .. }) => {
                config.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        }
    }

    /// Waits until the hub has a link: until a request that it has to hand on is answered.
    pub(crate) async fn linked(&self) {
        self.until("the hub is connected", async || {
            matches!(get(&self.plain(), LEASES).await, Some((200, _)))
        })
        .await;
    }

    /// Waits until the hub has noticed that there is no link.
    pub(crate) async fn offline(&self) {
        self.until("the hub is offline", async || matches!(get(&self.plain(), LEASES).await, Some((503, _))))
            .await;
    }

    /// Kills the hub, starts it again as a process of its own, and waits until it answers.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        self.start();
        self.answers().await;
    }

    /// Waits until the hub answers requests.
    pub(crate) async fn answers(&self) {
        self.until("the hub answers", async || get(&self.plain(), SERVICES).await.is_some()).await;
    }

    /// Waits until the hub lists `path` at the server's version or later.
    pub(crate) async fn caught_up(&self, path: &str, names: &[&str]) {
        self.until("the hub has caught up", async || {
            let answer = get(&self.plain(), &format!("{path}?resourceVersion=0")).await;
            answer.is_some_and(|(status, list)| status == 200 && self::names(&list) == names)
        })
        .await;
    }

    pub(crate) async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        self.until_or(what, holds, async || String::new()).await;
    }

    /// Waits until something holds; if it does not, `why` is said.
    pub(crate) async fn until_or(
        &self,
        what: &str,
        holds: impl AsyncFn() -> bool,
        why: impl AsyncFn() -> String,
    ) {
        let deadline = Instant::now() + SOON;
        while !holds().await {
            assert!(Instant::now() < deadline, "not in time: {what}\n{}\n{}", why().await, self.last_log());
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// The end of the hub's log.
    pub(crate) fn last_log(&self) -> String {
        let log = fs::read_to_string(self.log_file()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Watches of `path` that are open upstream.
    pub(crate) fn upstream_watches(&self, path: &str) -> usize {
        self.server.log().totals(|record| record.path == path).open_watches
    }
}

/// A request of a component that names itself so.
pub(crate) fn of_component(component: &str, path: &str) -> http::request::Builder {
    Request::get(path).header(header::ACCEPT, JSON).header(header::USER_AGENT, format!("{component}/v1.36"))
}

/// A list as it sees it.
pub(crate) async fn list_of_component(endpoint: &Endpoint, component: &str, path: &str) -> Value {
    let mut answer = endpoint.ask(of_component(component, path), String::new()).await.unwrap();
    let body = answer.bytes().await.unwrap();
    assert_eq!(answer.status, 200, "{component} {path}: {}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).unwrap()
}

/// Two Services, of which `discardcloudservice` hides one.
pub(crate) async fn one_is_the_clouds(site: &Site) {
    let mut hidden = service("a", "hidden", 1);
    hidden["metadata"]["annotations"] = json!({ "svc.openyurt.io/discard": "true" });
    hidden["spec"]["type"] = "LoadBalancer".into();
    for service in [hidden, service("a", "shown", 1)] {
        site.server.cluster().create("services", service).unwrap();
    }
    site.caught_up(SERVICES, &["hidden", "shown"]).await;
}

/// The status and the body of an answer; nothing if there is none, or it breaks off.
pub(crate) async fn get(endpoint: &Endpoint, path: &str) -> Option<(u16, Value)> {
    let mut answer = endpoint.get(path, JSON).await.ok()?;
    let body = answer.bytes().await.ok()?;
    Some((answer.status.as_u16(), serde_json::from_slice(&body).unwrap_or_default()))
}

/// The names in a list.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

/// The version of a list.
pub(crate) fn version(list: &Value) -> u64 {
    list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// A Service whose JSON is the same after it was protobuf.
pub(crate) fn service(namespace: &str, name: &str, n: u64) -> Value {
    let label = if n.is_multiple_of(2) { "even" } else { "odd" };
    json!({
        "metadata": { "namespace": namespace, "name": name, "labels": { "n": label } },
        "spec": { "clusterIP": "10.0.0.1", "type": "ClusterIP", "selector": { "n": n.to_string() } },
        "status": { "loadBalancer": {} },
    })
}

pub(crate) fn widget(name: &str, n: u64) -> Value {
    let label = if n.is_multiple_of(2) { "even" } else { "odd" };
    json!({
        "metadata": { "namespace": "a", "name": name, "labels": { "n": label } },
        "spec": { "n": n },
    })
}

/// The lines of a watch, as they come.
pub(crate) struct Lines {
    answer: Answer,
    buffer: Vec<u8>,
}

impl Lines {
    /// Opens a watch that must be answered 200.
    pub(crate) async fn open(endpoint: &Endpoint, path: &str) -> Self {
        let answer = endpoint.get(path, JSON).await.unwrap();
        assert_eq!(answer.status, 200, "{path}");
        Self::of(answer)
    }

    /// The lines of an answer.
    pub(crate) fn of(answer: Answer) -> Self {
        Self { answer, buffer: Vec::new() }
    }

    /// The next event; nothing at the end of the stream, whether it is a good one or not.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            self.buffer.extend_from_slice(&self.answer.chunk().await.ok()??);
        }
    }

    /// The next event in short, which must come soon: `ADDED x@3`, `BOOKMARK @5 end`, `ERROR 410`, `end`.
    pub(crate) async fn brief(&mut self) -> String {
        let next = tokio::time::timeout(SOON, self.next()).await.expect("an event, or the end");
        next.map_or_else(|| "end".to_owned(), |event| brief(&event))
    }

    /// Whether nothing comes for so long.
    pub(crate) async fn is_silent(&mut self, during: Duration) -> bool {
        tokio::time::timeout(during, self.next()).await.is_err()
    }
}

/// How often what has a bound is measured at most. A busy machine may be slow now and then; what waits for too long is slow each time.
pub(crate) const ROUNDS: usize = 4;

/// Whether two of these are within the bound.
pub(crate) fn is_twice_within(bound: Duration, took: &[Duration]) -> bool {
    took.iter().filter(|took| **took <= bound).count() >= 2
}

/// Measures until two are within the bound.
pub(crate) async fn twice_within(bound: Duration, measure: impl AsyncFn() -> Duration) {
    let mut took = Vec::new();
    while took.len() < ROUNDS && !is_twice_within(bound, &took) {
        took.push(measure().await);
    }
    assert!(is_twice_within(bound, &took), "not twice within {bound:?}: {took:?}");
}

/// A hub with this configuration, not started yet, and the file that holds it.
pub(crate) async fn with_configuration(configuration: &str) -> (Site, PathBuf) {
    let mut site = Site::new().await;
    let file = site.log_file().with_extension("yaml");
    fs::write(&file, configuration).unwrap();
    site.set("--config", &file.display().to_string());
    (site, file)
}

/// Writes a file of the hub's anew as an editor does: it is never there in part.
pub(crate) fn edit(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

/// The same, started and with a link.
pub(crate) async fn configured(configuration: &str) -> (Site, PathBuf) {
    let (mut site, file) = with_configuration(configuration).await;
    site.start();
    site.linked().await;
    (site, file)
}
