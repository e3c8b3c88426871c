//! The composition root of `edge-hub run`: configuration in, a running hub out, and its end in order.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::{ArcSwap, ArcSwapOption};
use axum::Router;
use daemon::{metrics::Metrics, ready::Readiness};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{interval, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    Lifetimes,
    config::{Config, Filtering},
    listeners::{Bound, Network},
    secure,
    storage_key::{self, StorageKeyError},
};
use crate::{
    admin,
    alike::Alike,
    authenticate::tokens::Tokens,
    authorize::Authorizer,
    cloud_config,
    definitions::Definitions,
    filters::{self, Filters, PodAccess, Rules, View},
    hub::{Hub, SHOWN},
    identity::{IdentityError, IdentityMeters, Keeper},
    inspect,
    last_link::{self, LastLink},
    metrics::{HubCollector, Meters},
    node_metric::{self, NodeMetricConfig, NodeMetricMeters, Said},
    offline::{
        discover,
        documents::{Documents, unix_milliseconds},
        local_pods, node_tokens,
        tables::Tables,
    },
    own_writes::OwnWrites,
    proxy,
    reflector::Reflector,
    storage::Storage,
    subscriptions::Subscriptions,
    tasks::Tasks,
    tunnel_roles::{State, Tunnel, TunnelThread, Ways, WaysError},
    upstream::{Connector, Dial, Link, Tcp, Timing, Upstream},
};

/// The blob of allowances.
const ALLOWANCES: &str = "allowances";

/// The blob of tokens that the API server has refused.
const REFUSED: &str = "refused-tokens";

/// The blob of how long what is stored has waited for somebody to ask.
const UNASKED: &str = "unasked";

/// How often idle subscriptions are looked for, and what is new of allowances and filters stored.
const HOUSEKEEPING: Duration = Duration::from_secs(2);

/// How long open streams may take to end.
const LAST_REQUESTS: Duration = Duration::from_secs(3);

/// How long the cluster may take to be told that a gateway ends.
const LAST_WORD: Duration = Duration::from_secs(2);

/// How long streams through the tunnel may go on once the hub is to end.
pub(crate) const TUNNEL_DRAIN: Duration = Duration::from_secs(25);

/// Why the hub could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("{flag}: cannot listen on {address}: {source}")]
    Bind {
        /// The flags that give the address.
        flag: &'static str,
        /// The address.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// The store cannot be opened.
    #[error("--root-dir: {0}")]
    Store(#[from] object_store::OpenError),
    /// A folder or a key cannot be made or read.
    #[error("--root-dir: {path}: {source}")]
    Folder {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is no identity to start with.
    #[error("--identity: {0}")]
    Identity(#[from] IdentityError),
    /// The key that is given for the store.
    #[error("--storage-key-file: {0}")]
    StorageKey(#[from] StorageKeyError),
    /// The system gives no signals.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// The HTTPS listener cannot be made.
    #[error("--serving-cert-file, --serving-key-file, --ca-file: {0}")]
    Secure(#[from] secure::SecureError),
    /// A listener of the tunnel cannot be made.
    #[error(transparent)]
    Tunnel(#[from] WaysError),
}

/// A hub that is bound to its addresses and has read its store, and does nothing yet.
pub struct App {
    hub: Arc<Hub>,
    metrics: Metrics,
    link: Link,
    keeper: Keeper,
    storage: Storage,
    bound: Option<Bound>,
    view: View,
    pod_access: PodAccess,
    cloud: cloud_config::follow::Start,
    tunnel: Option<Tunnel>,
    node_metric: Option<(NodeMetricConfig, Arc<Connector>, NodeMetricMeters)>,
    shutdown: CancellationToken,
}

impl App {
    /// Binds and reads; fails early and changes nothing upstream.
    pub async fn build(config: Config, shutdown: CancellationToken) -> Result<Self, StartError> {
        Self::build_on(Network::Kernel, config, shutdown).await
    }

    /// The same on another network.
    pub async fn build_on(
        network: Network,
        config: Config,
        shutdown: CancellationToken,
    ) -> Result<Self, StartError> {
        let Config {
            endpoints,
            identity,
            authenticator,
            listeners,
            root,
            storage_key,
            sharing,
            lifetimes,
            cloud,
            mut filters,
            tunnel,
            node_metric,
        } = config;
        let unusable = |source| StartError::Folder { path: root.clone(), source };
        tls::private_file::folder(&root).map_err(unusable)?;
        let key = storage_key::open(&root, storage_key.as_deref())?;
        let identity = identity.open(&endpoints, &shutdown).await?;
        let (mut bound, dial): (_, Arc<dyn Dial>) = match network {
            Network::Kernel => (Some(Bound::bind(&listeners, &identity.authority()).await?), Arc::new(Tcp)),
            Network::Within(dial) => (None, dial),
        };
        let pod_access = send_pods(&mut filters, secure::pod_access(listeners.secure.as_ref())?);
        let (storage, restored) = Storage::open(&root.join("store"), key)?;
        inspect::remove_copies(&root);
        if let Some(bound) = &mut bound {
            bound.bind_socket(&listeners.socket, &storage)?;
        }
        info!(subscriptions = restored.len(), "read what was stored");
        let mut metrics = Metrics::new();
        let meters = Meters::register(metrics.registry());
        let identity_meters = IdentityMeters::register(metrics.registry());
        let material = identity.material()?;
        let connector = Arc::new(Connector::over(dial, material, Timing::default(), meters.link().clone()));
        let (link, upstream) = Link::new(endpoints.clone(), connector.clone());
        let serving = identity.serving()?;
        let node_metric = node_metric
            .map(|config| (config, connector.clone(), NodeMetricMeters::register(metrics.registry())));
        let keeper = Keeper::new(identity, endpoints, connector, upstream.clone(), identity_meters)?;
        let tunnel = match tunnel {
            None => None,
            Some(config) => {
                let thread = TunnelThread::start(&shutdown)?;
                let state = State::new(&config.node, thread.runtime().clone());
                let ways = Ways::bind(&config, thread.runtime()).await?;
                Some(Tunnel { config, thread, state, ways, serving, shown: keeper.shown() })
            }
        };
        let tasks = Tasks::new(shutdown.clone());
        let reflector = Reflector::new(upstream.clone(), storage.clone(), meters.clone(), &restored);
        let hub = Hub {
            tokens: restored_tokens(&upstream, &storage),
            unread_keys: ArcSwapOption::empty(),
            authorizer: restored_authorizer(&upstream, lifetimes, &storage, &meters),
            subscriptions: Subscriptions::new(
                reflector,
                tasks.clone(),
                &lifetimes,
                restored,
                storage.blob(UNASKED).as_deref(),
            ),
            alike: Alike::new(upstream.clone(), storage.clone()),
            definitions: Definitions::new(upstream.clone(), storage.clone()),
            documents: Documents::new(storage.clone(), tasks.clone()),
            tables: Tables::new(storage.clone()),
            upstream,
            last_link: LastLink::restored(storage.clone()),
            identity: keeper.report(),
            node_metric: Said::default(),
            authenticator,
            lifetimes,
            sharing: ArcSwap::from_pointee(sharing),
            configured_by: ArcSwap::default(),
            filters: restored_filters(filters.rules, filters.view.clone(), &storage),
            storage: storage.clone(),
            meters,
            tasks,
            tunnel: tunnel.as_ref().map(|tunnel| tunnel.state.clone()),
            own_writes: OwnWrites::default(),
            storing: Hub::storing(),
        };
        let hub = Arc::new(hub);
        metrics.registry().register_collector(Box::new(HubCollector::new(&hub)));
        Ok(Self {
            hub,
            metrics,
            link,
            keeper,
            storage,
            bound,
            view: filters.view,
            pod_access,
            cloud,
            tunnel,
            node_metric,
            shutdown,
        })
    }

    /// What answers its callers, who come with a [`crate::listen::Peer`] as `ConnectInfo`.
    pub fn router(&self) -> Router {
        proxy::router(self.hub.clone())
    }

    /// Runs until the shutdown, then ends in order: no new requests, streams ended, the store synced.
    pub async fn run(self) {
        let router = self.router();
        let Self {
            hub,
            metrics,
            link,
            keeper,
            storage,
            bound,
            view,
            pod_access,
            cloud,
            tunnel,
            node_metric,
            shutdown,
        } = self;
        let mut tasks = JoinSet::new();
        let pool = view.pool.as_deref().map(Into::into);
        let (pods_come_to, access) = watch::channel(pod_access);
        tasks.spawn(filters::follow::follow(hub.clone(), &view.node, pool, access, shutdown.clone()));
        // It ends after what has a last word for the API server.
        let unlink = CancellationToken::new();
        tasks.spawn(link.run(unlink.clone()));
        tasks.spawn(last_link::follow(hub.clone(), shutdown.clone()));
        tasks.spawn(keeper.run(shutdown.clone()));
        let readiness = Readiness::new();
        // Kept to the end: a handle that is dropped says that its part has stopped.
        let store_ready = readiness.register("store");
        store_ready.ready();
        let pooled = readiness.register("pooled-resources");
        let admin_router = admin::router(hub.clone(), readiness, Arc::new(metrics));
        if let Some(bound) = bound {
            bound.serve(&router, admin_router, pods_come_to, &view.node, &mut tasks, &shutdown);
        }
        let sharing = hub.sharing.load_full();
        for resource in sharing.pooled.iter().filter(|resource| sharing.keeps(resource)) {
            hub.subscriptions.open_pooled(resource);
        }
        tasks.spawn(cloud_config::follow::follow(hub.clone(), cloud, shutdown.clone()));
        if let Some((config, connector, meters)) = node_metric {
            let node = view.node.to_string();
            tasks.spawn(node_metric::keep(hub.clone(), config, node, connector, meters, shutdown.clone()));
        }
        tasks.spawn(local_pods::keep(hub.clone(), shutdown.clone()));
        tasks.spawn(discover::keep(hub.clone(), shutdown.clone()));
        tasks.spawn(admin::keep_ready(hub.clone(), pooled, shutdown.clone()));
        tasks.spawn(housekeeping(hub.clone(), storage.clone(), shutdown.clone()));
        tasks.spawn(hub.clone().learn_keys(shutdown.clone()));
        let mut tunnels = JoinSet::new();
        if let Some(tunnel) = tunnel {
            tunnels.spawn(tunnel.run(hub.clone(), shutdown.clone()));
        }
        shutdown.cancelled().await;
        store_ready.not_ready("stopping");
        if let Some(tunnel) = &hub.tunnel {
            tunnel.parted(LAST_WORD).await;
        }
        unlink.cancel();
        if timeout(LAST_REQUESTS, async { while tasks.join_next().await.is_some() {} }).await.is_err() {
            warn!("some streams did not end in time");
        }
        if timeout(TUNNEL_DRAIN, async { while tunnels.join_next().await.is_some() {} }).await.is_err() {
            warn!("some streams of the tunnel did not end in time");
        }
        hub.tasks.wait().await;
        hub.subscriptions.leave();
        store_memories(&hub, &storage);
        storage.keep_durable(shutdown).await;
    }
}

/// Sends pods to the hub, or says once which filters do nothing for want of an address, and what would give them one. Where the Node
/// has to say the address, `edge-hub status` tells.
fn send_pods(filters: &mut Filtering, access: PodAccess) -> PodAccess {
    filters.view.send_pods(&access, &[]);
    let idle: Vec<_> = filters.rules.idle(&filters.view).iter().map(ToString::to_string).collect();
    if let Some(reason) = filters.view.unreached.as_ref().filter(|_| !access.asks_node() && !idle.is_empty())
    {
        info!(filters = idle.join(","), %reason, "pods of this node are not sent to the hub");
    }
    access
}

fn restored_tokens(upstream: &Upstream, storage: &Storage) -> Tokens {
    let refused = storage.blob(REFUSED);
    Tokens::new(upstream.clone(), refused.as_deref(), node_tokens::newest(storage))
}

/// What an earlier run knew of who may read what.
fn restored_authorizer(
    upstream: &Upstream,
    lifetimes: Lifetimes,
    storage: &Storage,
    meters: &Meters,
) -> Authorizer {
    let allowances = storage.blob(ALLOWANCES);
    Authorizer::new(upstream.clone(), lifetimes, allowances.as_deref(), meters.clone())
}

/// The filters as an earlier run left them.
fn restored_filters(rules: Rules, view: View, storage: &Storage) -> Filters {
    let local_pods = Arc::new(local_pods::stored(storage));
    let view = View { turn: unix_milliseconds(), local_pods, ..view };
    Filters::new(rules, view, storage.blob(SHOWN).as_deref())
}

async fn housekeeping(hub: Arc<Hub>, storage: Storage, shutdown: CancellationToken) {
    let mut ticks = interval(HOUSEKEEPING);
    let durable = storage.clone().keep_durable(shutdown.clone());
    let keep = async {
        loop {
            ticks.tick().await;
            hub.subscriptions.sweep();
            hub.own_writes.forget_old();
            let (hub, storage) = (hub.clone(), storage.clone());
            // It waits for the disk, for which no thread of the runtime should.
            let _ = tokio::task::spawn_blocking(move || store_memories(&hub, &storage)).await;
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = durable => {}
        () = keep => {}
    }
}

fn store_memories(hub: &Hub, storage: &Storage) {
    storage.write_again();
    storage.keep_unreadable();
    let memories = [
        (ALLOWANCES, hub.authorizer.export()),
        (REFUSED, hub.tokens.export()),
        (UNASKED, hub.subscriptions.export()),
    ];
    for (name, memory) in memories {
        if let Some(memory) = memory {
            storage.keep_blob(name, &memory);
        }
    }
    hub.store_shown();
}
