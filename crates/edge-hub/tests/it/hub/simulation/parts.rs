//! The parts that are put together: certificates that all histories share, API servers at ports within the process, and a hub between
//! them and its own port.

use std::{
    fs::{self, File, TryLockError},
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use clap::Parser;
use edge_hub::{
    Args,
    listen::{
        CallerProcess, Origin, Peer, plain,
        seats::{self, Seats},
    },
    run::{App, Config, Network},
    upstream::{BoxStream, Connected, Dial, Endpoint, Timing},
};
use futures::future::BoxFuture;
use tempfile::TempDir;
use testkit::{
    api_server::{Cluster, FakeApiServer, ServerOptions, Tls, pki::Authority},
    memory::Port,
};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use super::{super::site::node, rights::REVIEWED};

/// The ports of the two API servers, as their addresses have them.
const FIRST: u16 = 1;

/// Certificates, and the hub's configuration as it is typed.
pub(super) struct Certificates {
    tls: Tls,
    config: Config,
    _folder: TempDir,
}

impl Certificates {
    /// Those of all histories of this process: making keys takes longer than a history.
    pub(super) fn shared() -> &'static Self {
        static SHARED: OnceLock<Certificates> = OnceLock::new();
        SHARED.get_or_init(|| {
            tls::install_provider();
            let authority = Authority::generate("test").unwrap();
            let tls = Tls::of(&authority).unwrap();
            let node = authority.client(&node()).unwrap();
            let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let file = |name: &str| folder.path().join(name).display().to_string();
            let files = [
                ("ca.crt", authority.pem().to_owned()),
                ("node.crt", node.certificate_pem),
                ("node.key", node.key_pem),
            ];
            for (name, content) in files {
                fs::write(folder.path().join(name), content).unwrap();
            }
            let servers = format!("https://127.0.0.1:{FIRST},https://127.0.0.1:{}", FIRST + 1);
            let typed = [
                ("--node-name", "n".to_owned()),
                ("--server-addr", servers),
                ("--ca-file", file("ca.crt")),
                ("--client-cert-file", file("node.crt")),
                ("--client-key-file", file("node.key")),
                ("--root-dir", file("root")),
                ("--node-uids", "0".to_owned()),
            ];
            let typed = typed.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
            let typed = ["edge-hub", "run"].into_iter().map(str::to_owned).chain(typed);
            let edge_hub::Command::Run(args) = Args::try_parse_from(typed).unwrap().command else {
                unreachable!()
            };
            let config = Config::try_from(*args).unwrap();
            Self { tls, config, _folder: folder }
        })
    }
}

/// A folder in memory, where there is such a place: histories are about what is written, not about how long a disk takes.
pub(super) fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory).unwrap() } else { TempDir::new().unwrap() }
}

/// Two servers of one cluster.
pub(super) struct Servers {
    pub(super) all: [FakeApiServer; 2],
    ports: [Port; 2],
}

impl Servers {
    pub(super) fn start(cluster: &Cluster) -> Self {
        let ports = [Port::default(), Port::default()];
        let tls = &Certificates::shared().tls;
        let all = ports.each_ref().map(|port| {
            FakeApiServer::serve_within(cluster.clone(), ServerOptions::default(), tls, port).unwrap()
        });
        Self { all, ports }
    }
}

/// The cables from the hub to the servers.
struct Cables([Port; 2]);

impl Dial for Cables {
    fn dial<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        _: &'a [SocketAddr],
        _: &'a Timing,
        _: Connected<'a>,
    ) -> BoxFuture<'a, io::Result<BoxStream>> {
        Box::pin(async move {
            let stream: BoxStream = Box::pin(self.0[usize::from(endpoint.port() - FIRST)].connect()?);
            Ok(stream)
        })
    }
}

/// A hub that runs.
pub(super) struct Hub {
    /// Of its store.
    lock: PathBuf,
    running: JoinHandle<()>,
    serving: JoinSet<()>,
    shutdown: CancellationToken,
}

impl Hub {
    /// Starts a hub with its store under `root`; callers come in at `port`.
    pub(super) async fn start(root: &Path, servers: &Servers, port: &Port) -> Self {
        let shutdown = CancellationToken::new();
        let cables = Arc::new(Cables(servers.ports.clone()));
        let mut config = Config { root: root.to_owned(), ..Certificates::shared().config.clone() };
        (config.lifetimes.allowed, config.lifetimes.review) = (REVIEWED, REVIEWED);
        let app = App::build_on(Network::Within(cables), config, shutdown.clone()).await;
        let app = app.unwrap_or_else(|error| panic!("the hub does not start: {error}"));
        let router = app.router();
        let process = CallerProcess::of(Origin::Node);
        let peer = move |_: &_, _: &_| Peer::Local { uid: Some(0), process: process.clone() };
        let mut serving = JoinSet::new();
        serving.spawn(plain::listen(port.listen(), router, Seats::local(seats::ALL), shutdown.clone(), peer));
        Self { lock: root.join("store/lock"), running: tokio::spawn(app.run()), serving, shutdown }
    }

    /// Ends it as `kill -9` does: connections break, and nothing more is written.
    pub(super) async fn kill(mut self) {
        self.running.abort();
        self.serving.abort_all();
        // What it does beside that ends with it, as tasks cannot be told to by an abort.
        self.shutdown.cancel();
        let _ = self.running.await;
        while self.serving.join_next().await.is_some() {}
        // A thread that is at the disk cannot be ended, as one of a process is. While there is one the store is locked.
        let lock = File::open(self.lock).unwrap();
        while matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
            sleep(Duration::from_millis(1)).await;
        }
    }
}
