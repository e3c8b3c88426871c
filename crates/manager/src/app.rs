//! The composition root of `isthmus-manager run`: configuration in, a running process out.
//!
//! Every replica keeps the indexes of pools and nodes and serves the webhook, probes and metrics; the one that leads runs the
//! controllers as well. Who runs that of Gateways is elected apart, and soon again, by replicas that know all it goes by. Each task belongs to a [`JoinSet`], and one that ends unasked ends the process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use daemon::metrics::Metrics;
use daemon::ready::{Handle, Liveness, Readiness};
use kube::runtime::watcher;
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use tls::listener::{Limits, TlsListener};
use tls::resolver::ServingCertificate;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::Config;
use crate::controllers::gateway::{self, metrics::GatewayMetrics};
use crate::controllers::hub_identity::metrics::HubIdentityMetrics;
use crate::controllers::webhook_certificates::{CertificateMetrics, ServingSecretWatch};
use crate::leader::{self, Clock, Election, LeadershipGuard};
use crate::leading::{Keys, Leading, asking};
use crate::metrics_server::KubernetesReviewer;
use crate::nodes::Nodes;
use crate::pools::Pools;
use crate::retire::retiring;
use crate::watches;
use crate::{controllers, metrics_server, node_metrics, webhook};

/// How long the webhook goes on serving after the process was asked to end: by then the API server has taken this
/// replica out of the Service and asks another.
const SERVE_ON: Duration = Duration::from_secs(4);

/// How long the controllers, and then the Lease, may take to end.
const HAND_OVER: Duration = Duration::from_secs(1);

/// How long requests that are under way may take when the webhook ends.
const LAST_REQUESTS: Duration = Duration::from_secs(5);

/// How often the process shows that its tasks are scheduled, and after how long a silence it is taken for dead.
const HEARTBEAT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));

/// Why the process could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither a service account nor a kubeconfig leads to a cluster.
    #[error("no cluster to work for: {0}")]
    Infer(#[from] kube::config::InferConfigError),
    /// The client cannot be made from what was found.
    #[error("cannot make a client: {0}")]
    Client(#[source] kube::Error),
    /// An address cannot be listened on.
    #[error("{flag}: cannot listen on {address}: {source}")]
    Bind {
        /// The flag that gives the address.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The certificate resolver cannot be built into a server.
    #[error("cannot serve TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The API of NodeMetric cannot be served.
    #[error("node metrics: {0}")]
    NodeMetrics(#[from] node_metrics::HostError),
    /// Leadership ended while it was needed; what was begun is left to the next leader.
    #[error(transparent)]
    Leadership(#[from] leader::Error),
    /// A part of the process ended that must not end.
    #[error("{0} ended unasked")]
    Ended(&'static str),
    /// A part of the process panicked.
    #[error("{what} died: {source}")]
    Died {
        /// The part.
        what: &'static str,
        /// How it died.
        #[source]
        source: JoinError,
    },
}

/// A process whose listeners are bound and whose tasks have not begun.
pub struct App {
    config: Config,
    client: Client,
    lease_client: Client,
    health: TcpListener,
    webhook: TcpListener,
    metrics: TcpListener,
    node_metrics: Option<node_metrics::Bound>,
    registry: Arc<Metrics>,
    figures: Figures,
}

/// What the parts of the process count, registered.
struct Figures {
    webhook: webhook::Metrics,
    controllers: controllers::node_pool::metrics::Metrics,
    certificates: CertificateMetrics,
    hubs: HubIdentityMetrics,
    gateways: GatewayMetrics,
    leader: leader::Metrics,
    gateway_leader: leader::Metrics,
}

impl Figures {
    fn register(registry: &mut Registry) -> Self {
        Self {
            webhook: webhook::Metrics::register(registry),
            controllers: controllers::node_pool::metrics::Metrics::register(registry),
            certificates: CertificateMetrics::register(registry),
            hubs: HubIdentityMetrics::register(registry),
            gateways: GatewayMetrics::register(registry),
            leader: leader::Metrics::register(registry),
            gateway_leader: leader::Metrics::register(registry.sub_registry_with_prefix("gateway")),
        }
    }
}

impl App {
    /// Finds the cluster and binds every listener, so that what is wrong with them is said at once.
    pub async fn build(config: Config) -> Result<Self, Error> {
        Self::build_for(config, kube::Config::infer().await.map_err(Error::Infer)?).await
    }

    /// As [`Self::build`], for a cluster that the caller found.
    pub async fn build_for(mut config: Config, cluster: kube::Config) -> Result<Self, Error> {
        let mut lease = cluster.clone();
        // A renewal that was retried inside the client would count from the wrong moment.
        lease.default_retry = false;
        let client = Client::try_from(cluster).map_err(Error::Client)?;
        let lease_client = Client::try_from(lease).map_err(Error::Client)?;
        let health = bind("--health-address", config.health_address).await?;
        let webhook = bind("--webhook-address", config.webhook_address).await?;
        let metrics = bind("--metrics-address", config.metrics_address).await?;
        let mut registry = Metrics::new();
        let figures = Figures::register(registry.registry());
        let node_metrics = match config.node_metrics.clone() {
            Some(served) => {
                let api = bind("--node-metric-address", served.address).await?;
                let reports = bind("--node-metric-report-address", served.report_address).await?;
                Some(node_metrics::Bound::new(served, (api, reports), registry.registry()))
            }
            None => None,
        };
        if let Some(deployment) = &config.deployment {
            let owner = leader::owner(client.clone(), &config.election.namespace, deployment).await;
            config.gateway_election.owner.clone_from(&owner);
            config.election.owner = owner;
        }
        let registry = Arc::new(registry);
        Ok(Self { config, client, lease_client, health, webhook, metrics, node_metrics, registry, figures })
    }

    /// What this process shows of itself at `/metrics`.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.registry)
    }

    /// Runs until `shutdown`, then hands the leadership over, serves on for a moment and ends.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let Self {
            config,
            client,
            lease_client,
            health,
            webhook,
            metrics: metrics_listener,
            node_metrics,
            registry,
            figures,
        } = self;
        let readiness = Readiness::new();
        let liveness = Liveness::new();
        let serving = ServingCertificate::new();
        let pools = Pools::new(client.clone());
        let keys = Keys::default();

        let webhook_state = webhook::State {
            pools: pools.clone(),
            nodes: Arc::new(client.clone()),
            metrics: figures.webhook,
        };
        let mut node_metrics = match node_metrics {
            Some(bound) => {
                let clients = (client.clone(), lease_client.clone());
                node_metrics::start(bound, clients, &serving, &readiness)?
            }
            None => node_metrics::Running::default(),
        };
        let (election, leadership) =
            Election::new(lease_client.clone(), config.election.clone(), Clock::boot(), figures.leader);
        let leadership = LeadershipGuard::from(leadership);

        let admin = daemon::admin::router(readiness.clone(), liveness.clone());
        let webhook = TlsListener::new(webhook, serving.server_config()?, Limits::default());
        let metrics_listener =
            TlsListener::new(metrics_listener, serving.server_config()?, Limits::default());
        let scrape = metrics_server::router(registry, KubernetesReviewer::new(client.clone()));
        let servers_end = CancellationToken::new();
        let mut servers = JoinSet::new();
        servers.spawn(serve("probes", health, admin, servers_end.clone()));
        let router = retiring(webhook::router(webhook_state), shutdown.clone());
        servers.spawn(serve("webhook", webhook, router, servers_end.clone()));
        servers.spawn(serve("metrics", metrics_listener, scrape, servers_end.clone()));

        let mut background = JoinSet::new();
        let pools_known = readiness.register("pools");
        background.spawn(follow_pools(pools.clone(), client.clone(), keys.clone(), pools_known));
        let (nodes, nodes_listed) = follow_nodes(&client, &keys, &mut background);
        let certificate = readiness.register("certificate");
        let secret = ServingSecretWatch::new(serving, certificate, figures.certificates.clone());
        background.spawn(secret.run(client.clone(), Arc::clone(&config.certificates), servers_end.clone()));
        background.spawn(heartbeat(liveness.clone()));

        let lease_end = CancellationToken::new();
        let mut candidacy = JoinSet::new();
        candidacy.spawn(election.run(lease_end.clone()));
        let controllers_end = CancellationToken::new();
        let mut controllers = JoinSet::new();
        let leading = Leading {
            config,
            client,
            pools,
            nodes,
            nodes_listed,
            keys,
            leadership,
            liveness,
            controller_metrics: figures.controllers,
            certificate_metrics: figures.certificates,
            hub_metrics: figures.hubs,
        };
        let mut gateways = JoinSet::new();
        if let Some(setup) = leading.gateways(lease_client, figures.gateway_leader, figures.gateways) {
            gateways.spawn(gateway::run(setup, controllers_end.clone()));
        }
        controllers.spawn(leading.run(controllers_end.clone()));

        tokio::select! {
            () = shutdown.cancelled() => info!("asked to end"),
            Some(ended) = servers.join_next() => return Err(unasked("a server", ended)),
            Some(ended) = background.join_next() => return Err(unasked("a watch", ended)),
            Some(ended) = node_metrics.tasks.join_next() => return Err(unasked("a part of node metrics", ended)),
            Some(ended) = controllers.join_next() => return Err(unasked("the controllers", ended)),
            Some(ended) = gateways.join_next() => return Err(unasked("the Gateway controller", ended)),
            Some(ended) = candidacy.join_next() => return Err(out_of_office(ended)),
        }
        let asked = Instant::now();
        // First the controllers, then the Lease, so that a standby leads at once; the webhook last. That of Gateways gives away its own.
        controllers_end.cancel();
        let ended = (finish(&mut controllers, HAND_OVER), finish(&mut gateways, 2 * HAND_OVER));
        tokio::join!(node_metrics.hand_over(), ended.0, ended.1);
        lease_end.cancel();
        finish(&mut candidacy, HAND_OVER).await;
        tokio::time::sleep(SERVE_ON.saturating_sub(asked.elapsed())).await;
        node_metrics.end().await;
        servers_end.cancel();
        finish(&mut servers, LAST_REQUESTS).await;
        info!("ended");
        Ok(())
    }
}

async fn bind(flag: &'static str, address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Bind { flag, address, source })
}

/// Serves until `end`, and then until what is under way is done.
async fn serve<L>(name: &'static str, listener: L, router: Router, end: CancellationToken)
where
    L: Listener,
    L::Addr: std::fmt::Debug,
{
    let served = axum::serve(listener, router).with_graceful_shutdown(end.cancelled_owned());
    if let Err(error) = served.await {
        warn!(name, %error, "server failed");
    }
}

/// Keeps the index of pools, and tells the leader's controller what changed in it.
async fn follow_pools(pools: Pools, client: Client, keys: Keys, ready: Handle) {
    let mut filled = pools.ready();
    let follow = pools.follow(client, |changed| keys.ask(changed));
    let announce = async {
        if filled.wait_for(|filled| *filled).await.is_ok() {
            ready.ready();
        }
        std::future::pending::<()>().await;
    };
    tokio::join!(follow, announce);
}

/// Keeps the index of nodes, tells the leader's controller what changed in it, and says when it is whole.
fn follow_nodes(
    client: &Client,
    keys: &Keys,
    background: &mut JoinSet<()>,
) -> (Arc<Nodes>, watch::Receiver<bool>) {
    let (nodes, (whole, listed)) = (Arc::new(Nodes::default()), watch::channel(false));
    let whole = move || {
        whole.send_replace(true);
    };
    let (api, config) = (Api::all(client.clone()), watcher::Config::default());
    background.spawn(watches::keep(api, config, Arc::clone(&nodes), asking(keys), whole));
    (nodes, listed)
}

/// Shows that tasks are scheduled.
async fn heartbeat(liveness: Liveness) {
    let (period, silence) = HEARTBEAT;
    let heartbeat = liveness.register("runtime", silence);
    loop {
        heartbeat.beat();
        tokio::time::sleep(period).await;
    }
}

/// Waits until all tasks have ended, for a while.
async fn finish<T: 'static>(tasks: &mut JoinSet<T>, within: Duration) {
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(within, all).await.is_err() {
        warn!(within = ?within, "not everything ended in time; it is cut off");
        tasks.abort_all();
    }
}

fn out_of_office(ended: Result<Result<(), leader::Error>, JoinError>) -> Error {
    match ended {
        Ok(Err(lost)) => lost.into(),
        ended => unasked("the election", ended.map(drop)),
    }
}

fn unasked(what: &'static str, ended: Result<(), JoinError>) -> Error {
    match ended {
        Ok(()) => Error::Ended(what),
        Err(source) => Error::Died { what, source },
    }
}
