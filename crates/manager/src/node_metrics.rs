//! Hosts the API of NodeMetric: two listeners, an election of its own, and what keeps the store in touch with the cluster.
//!
//! ```text
//!  every replica: serves discovery and health, follows the leader, hands requests on to it
//!  the leader:    reserves versions ─► promotes the store ─► announces itself ─► takes reports, answers by itself
//! ```
//! The election is not that of the controllers: it is faster, and to lose it does not end the process. What must outlive a leader (how
//! far versions were told) is in the ConfigMap by which nodes find it.

mod announcement;
mod args;
mod conditions;
mod hearing;
mod lead;
mod nodes;
mod orphans;
mod policies;
mod prepared;
pub mod retire;
mod standby;
pub mod top;
mod trust;
mod turn;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::time::Duration;

use aggregated_api::authenticate::{DelegatingAuthenticator, Trust, client_certificates, extension_config};
use aggregated_api::authorize::DelegatingAuthorizer;
use aggregated_api::{AggregatedApi, HealthNote, KubernetesReviews, Peer, VersionInfo};
use daemon::build_info::{BUILD, BuildInfo};
use daemon::ready::Readiness;
use kube::Client;
use node_metrics::admission::Admission;
use node_metrics::copy_stream;
use node_metrics::freshness::{Now, Rules};
use node_metrics::listener::{self, ClientAuthorities, Reports};
use node_metrics::metrics::Metrics;
use node_metrics::proxy::StandbyProxy;
use node_metrics::replica::{ReplicaAuthenticator, Replicas};
use node_metrics::storage::{NodeLoadStorage, NodeMetricStorage, NodeMetrics};
use node_metrics::store::{Coverage, Phase, Settings, Store};
use node_metrics::usage_metrics::UsageCollector;
use parking_lot::{Mutex, RwLock};
use prometheus_client::registry::Registry;
use tls::full_records::FullRecordsListener;
use tls::listener::{Limits, TlsListener};
use tls::resolver::ServingCertificate;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use self::args::{Config, ConfigError, NodeMetricArgs};
use self::trust::Identity;
use crate::leader::{self, Clock, LeadershipGuard};
use crate::watches;

/// How long a node may leave the answer to a report unacknowledged. It is short and always read, so a node that does not is gone; another
/// connection of it may have come long ago.
const UNACKNOWLEDGED: Duration = Duration::from_mins(1);

/// What cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The schema of NodeMetric makes no resource.
    #[error("the resource")]
    Resource(#[from] aggregated_api::MalformedResource),
    /// The certificate resolver cannot be built into a server.
    #[error("cannot serve TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// What runs, and what its parts share.
struct Host {
    config: Config,
    client: Client,
    lease_client: Client,
    source: Arc<NodeMetrics>,
    proxy: Arc<StandbyProxy>,
    replicas: Arc<Replicas>,
    identity: Arc<Identity>,
    guard: Arc<RwLock<Option<LeadershipGuard>>>,
    /// How many leaderships of this replica are over.
    led: watch::Sender<u64>,
    /// `host:port` of the listener of reports of whoever leads.
    reports_at: Arc<RwLock<Option<String>>>,
    /// At how many addresses nodes find replicas, as this leader announced last.
    replicas_announced: AtomicUsize,
    /// Nodes, and what they are to collect.
    known: nodes::Known,
    /// Whether it was tried to read what nodes are to collect, with whatever end.
    policies_tried: AtomicBool,
    /// Whether this replica would lead well; once it would it stands for election without regard to others.
    prepared: watch::Sender<bool>,
    /// How often in a row the leader said to this replica that it does not serve, so that there is nothing to copy.
    refusals: AtomicU32,
    /// How often a leader's stream ended that this replica followed.
    broken_off: watch::Sender<u64>,
    metrics: Metrics,
    leader_metrics: leader::Metrics,
}

/// The listeners, bound, and the store whose figures the process's registry shows.
pub(crate) struct Bound {
    config: Config,
    api: TcpListener,
    reports: TcpListener,
    source: Arc<NodeMetrics>,
    guard: Arc<RwLock<Option<LeadershipGuard>>>,
    metrics: Metrics,
    leader_metrics: leader::Metrics,
}

impl Bound {
    /// What will run on these listeners, by `config`.
    pub(crate) fn new(
        config: Config,
        (api, reports): (TcpListener, TcpListener),
        registry: &mut Registry,
    ) -> Self {
        let metrics = Metrics::register(registry);
        let registry = registry.sub_registry_with_prefix("node_metric");
        let leader_metrics = leader::Metrics::register(registry);
        let guard: Arc<RwLock<Option<LeadershipGuard>>> = Arc::default();
        let source = {
            let guard = Arc::clone(&guard);
            let settings = Settings { rules: Rules { grace: config.grace, ..Rules::default() } };
            let leading = move || guard.read().as_ref().is_some_and(|guard| guard.check().is_ok());
            NodeMetrics::new(Store::new(settings), config.api_version, clock(), leading)
        };
        let collector = UsageCollector::new(Arc::clone(&source), config.node_series);
        registry.register_collector(Box::new(collector));
        Self { config, api, reports, source, guard, metrics, leader_metrics }
    }
}

/// Everything that runs, until [`Running::end`]; by default nothing.
#[derive(Default)]
pub(crate) struct Running {
    /// Ends only unasked.
    pub(crate) tasks: JoinSet<()>,
    handed_over: JoinSet<()>,
    hand_over: CancellationToken,
    servers_end: CancellationToken,
}

impl Running {
    /// Gives the leadership away, and serves on as a standby.
    pub(crate) async fn hand_over(&mut self) {
        self.hand_over.cancel();
        let _ = tokio::time::timeout(Duration::from_secs(1), self.handed_over.join_next()).await;
    }

    /// Ends what is served.
    pub(crate) async fn end(&mut self) {
        self.servers_end.cancel();
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.tasks.abort_all();
    }
}

/// Starts everything on listeners that are bound.
pub(crate) fn start(
    bound: Bound,
    (client, lease_client): (Client, Client),
    serving: &Arc<ServingCertificate>,
    readiness: &Readiness,
) -> Result<Running, HostError> {
    let Bound { config, api, reports, source, guard, metrics, leader_metrics } = bound;
    let host = Arc::new(Host {
        proxy: StandbyProxy::new(Arc::clone(&source)),
        replicas: Replicas::new(config.server_name()),
        identity: Arc::default(),
        led: watch::Sender::new(0),
        reports_at: Arc::default(),
        replicas_announced: AtomicUsize::new(0),
        known: nodes::Known::default(),
        policies_tried: AtomicBool::new(false),
        prepared: watch::Sender::new(false),
        refusals: AtomicU32::new(0),
        broken_off: watch::Sender::new(0),
        source,
        guard,
        metrics,
        leader_metrics,
        config,
        client,
        lease_client,
    });

    let trust = Trust::new();
    let authorities = Arc::new(ClientAuthorities::default());
    let reviews = Arc::new(KubernetesReviews::new(host.client.clone()));
    let within = Arc::new(DelegatingAuthenticator::new(Arc::clone(&trust), Arc::clone(&reviews) as _));
    let version = host.config.api_version.rsplit('/').next().unwrap_or_default();
    let router = AggregatedApi::new()
        .resource(node_metrics::resource(version)?, Arc::new(NodeMetricStorage(Arc::clone(&host.source))))
        .resource(node_metrics::load_resource(version)?, Arc::new(NodeLoadStorage(Arc::clone(&host.source))))
        .authenticator(Arc::new(ReplicaAuthenticator::new(Arc::clone(&host.replicas), within)))
        .authorizer(Arc::new(DelegatingAuthorizer::new(reviews)))
        .intercept(Arc::clone(&host.proxy) as _)
        .version(version_info())
        .note("coverage", coverage(Arc::clone(&host.source)))
        .router();
    let router = copy_stream::router(Arc::clone(&host.source), Arc::clone(&host.replicas)).merge(router);
    let reports_at = Arc::clone(&host.reports_at);
    let taken = Arc::new(Reports {
        source: Arc::clone(&host.source),
        admission: Mutex::new(Admission::new(host.config.reports_per_second)),
        leader: Box::new(move || reports_at.read().clone()),
        metrics: host.metrics.clone(),
    });
    let taken = listener::router(taken, Arc::clone(&authorities));

    let servers_end = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let api = TlsListener::new(api, client_certificates::server_config(serving)?, Limits::default());
    let api = FullRecordsListener::new(api);
    let service = router.into_make_service_with_connect_info::<Peer>();
    let end = servers_end.clone();
    tasks.spawn(async move {
        let served = axum::serve(api, service).with_graceful_shutdown(end.cancelled_owned());
        log("the API of NodeMetric", served.await);
    });
    let tls = listener::server_config(serving, Arc::clone(&authorities))?;
    let limits = Limits { unacknowledged: Some(UNACKNOWLEDGED), ..Limits::default() };
    let reports = TlsListener::new(reports, tls, limits);
    tasks.spawn(listener::serve(reports, taken, servers_end.clone()));

    let known = readiness.register("node metrics' callers");
    known.not_ready("whom to trust is not known yet");
    tasks.spawn(extension_config::follow(host.client.clone(), trust, watches::backoff(), move || {
        known.ready();
    }));
    tasks.spawn(prepared::tell(Arc::clone(&host), readiness.register("node metrics' copy")));
    tasks.spawn(trust::follow_client_authorities(host.client.clone(), authorities));
    tasks.spawn(trust::follow_own_identity(Arc::clone(&host)));
    tasks.spawn(nodes::follow(Arc::clone(&host)));
    tasks.spawn(standby::follow(Arc::clone(&host)));
    tasks.spawn(tick(Arc::clone(&host)));
    tasks.spawn(conditions::keep(Arc::clone(&host)));
    tasks.spawn(orphans::clear(Arc::clone(&host)));
    let hand_over = CancellationToken::new();
    let mut handed_over = JoinSet::new();
    handed_over.spawn(lead::stand(host, hand_over.clone()));
    Ok(Running { tasks, handed_over, hand_over, servers_end })
}

/// Looks at silences, and shows how things are.
async fn tick(host: Arc<Host>) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        second.tick().await;
        host.source.change(|store, now| {
            // Asked when the time is known: whoever stood still between the two leads no more.
            if host.source.is_leading() {
                store.tick(now);
            }
        });
        host.source.release();
        host.source.read(|store| host.metrics.show(store));
    }
}

/// This build, as `/version` and `OpenAPI` tell it.
fn version_info() -> VersionInfo {
    let BuildInfo { version, commit } = BUILD;
    let mut parts = version.split('.').map(str::to_owned);
    let mut part = || parts.next().unwrap_or_default();
    let (major, minor) = (part(), part());
    VersionInfo { major, minor, git_version: format!("v{version}"), git_commit: commit.to_owned() }
}

/// How much of the cluster this replica knows, for `/readyz?verbose`. All replicas are ready, whatever it is.
fn coverage(source: Arc<NodeMetrics>) -> HealthNote {
    Arc::new(move || {
        source.read(|store| {
            let Coverage { live, covered, objects } = store.coverage();
            let phase = match store.phase() {
                Phase::Following => "follows",
                Phase::Warming { .. } => "leads and is not read yet",
                Phase::Serving => "leads",
            };
            format!(
                "{phase}, epoch {}, {covered} of {live} live nodes are in, {objects} objects",
                store.epoch()
            )
        })
    })
}

fn clock() -> impl Fn() -> Now + Send + Sync + 'static {
    // That of the Lease: a machine that was suspended has let nodes go unheard for as long.
    let clock = Clock::boot();
    let start = clock.now();
    move || Now { steady: clock.now().since(start), wall: jiff::Timestamp::now() }
}

fn log(name: &'static str, served: std::io::Result<()>) {
    if let Err(error) = served {
        warn!(name, %error, "server failed");
    }
}

/// A port of an address, with another host.
fn at(host: &str, address: SocketAddr) -> String {
    let port = address.port();
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_build_and_what_a_replica_knows_are_told() {
        let VersionInfo { major, minor, git_version, .. } = version_info();
        assert_eq!(git_version, format!("v{}", env!("CARGO_PKG_VERSION")));
        assert!(git_version.starts_with(&format!("v{major}.{minor}.")), "{git_version}");
        let source = NodeMetrics::new(Store::new(Settings::default()), "v", clock(), || true);
        let told = coverage(Arc::clone(&source));
        assert_eq!(told(), "follows, epoch 0, 0 of 0 live nodes are in, 0 objects");
        source.change(|store, now| {
            store.node_applied(now, node_metrics::store::NodeFacts::alive("n"));
            store.nodes_listed(now, &["n".into()].into());
            store.promote(now, 0);
        });
        let text = told();
        assert!(text.starts_with("leads and is not read yet, epoch ") && !text.contains("epoch 0"), "{text}");
        assert!(text.ends_with(", 0 of 1 live nodes are in, 1 objects"), "{text}");
    }
}
