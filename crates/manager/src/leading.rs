//! What only the leading replica does: keeps indexes of pods and `ConfigMap`s, and runs the controllers, but for that of Gateways.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use daemon::ready::Liveness;
use kube::runtime::events::Reporter;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::config::Config;
use crate::controllers::gateway::{self, metrics::GatewayMetrics};
use crate::controllers::hub_access;
use crate::controllers::hub_identity::{self, metrics::HubIdentityMetrics};
use crate::controllers::node_places;
use crate::controllers::node_pool::{self, Context, Progress};
use crate::controllers::told_events::ToldEvents;
use crate::controllers::webhook_certificates::{self, CertificateMetrics};
use crate::leader::{self, Candidacy, Clock, LeadershipGuard};
use crate::nodes::Nodes;
use crate::pods::{self, ContainerNetworkPods};
use crate::pools::Pools;
use crate::watches::{self, ByName};

/// How often it is looked whether the pods must be watched; they need not be without a host-network pool.
const HOST_NETWORK_CHECK: Duration = Duration::from_secs(1);

/// After how long without a turn the controller of certificates is taken for dead; it takes one every five minutes.
const CERTIFICATES_SILENCE: Duration = Duration::from_mins(15);

/// The way to the NodePool controller's queue, for watches that run whether or not this replica leads. What they tell
/// before it leads is dropped: a new leader looks at every pool.
#[derive(Clone, Default)]
pub(crate) struct Keys {
    queue: Arc<OnceLock<mpsc::UnboundedSender<String>>>,
}

impl Keys {
    /// Asks for these pools to be reconciled.
    pub(crate) fn ask(&self, keys: BTreeSet<String>) {
        let Some(queue) = self.queue.get() else { return };
        for key in keys {
            // The receiver ends with the process only.
            let _ = queue.send(key);
        }
    }
}

/// What a leader is made of.
pub(crate) struct Leading {
    pub(crate) config: Config,
    pub(crate) client: Client,
    pub(crate) pools: Pools,
    pub(crate) nodes: Arc<Nodes>,
    /// Becomes true when `nodes` is whole.
    pub(crate) nodes_listed: watch::Receiver<bool>,
    pub(crate) keys: Keys,
    pub(crate) leadership: LeadershipGuard,
    pub(crate) liveness: Liveness,
    pub(crate) controller_metrics: node_pool::metrics::Metrics,
    pub(crate) certificate_metrics: CertificateMetrics,
    pub(crate) hub_metrics: HubIdentityMetrics,
}

impl Leading {
    /// What the Gateway controller is made of, if it is to run; it is led apart. `client` must not retry by itself.
    pub(crate) fn gateways(
        &self,
        client: Client,
        elections: leader::Metrics,
        gateway_metrics: GatewayMetrics,
    ) -> Option<gateway::Setup> {
        let settings = self.config.gateway_election.clone();
        self.config.gateways.gateways.then(|| gateway::Setup {
            client: self.client.clone(),
            candidacy: Candidacy { client, settings, clock: Clock::boot(), metrics: elections },
            identity: self.config.identity.clone(),
            pools: self.pools.clone(),
            nodes: Arc::clone(&self.nodes),
            nodes_listed: self.nodes_listed.clone(),
            metrics: self.controller_metrics.clone(),
            gateway_metrics,
            for_edge_pools: self.config.gateways.gateways_for_edge_pools,
        })
    }

    /// Waits until this replica leads, and leads until `end`.
    pub(crate) async fn run(self, end: CancellationToken) {
        let mut leadership = self.leadership.clone();
        let elected = tokio::select! {
            () = end.cancelled() => return,
            elected = leadership.elected() => elected,
        };
        if elected.is_ok() {
            info!("leading");
            self.lead(end).await;
        }
    }

    async fn lead(self, end: CancellationToken) {
        let Self {
            config,
            client,
            pools,
            nodes,
            nodes_listed: all_nodes,
            keys,
            leadership,
            liveness,
            controller_metrics,
            certificate_metrics,
            hub_metrics,
        } = self;
        let mut tasks = JoinSet::new();
        let heartbeat = liveness.register("certificates", CERTIFICATES_SILENCE);
        tasks.spawn(webhook_certificates::run(
            client.clone(),
            Arc::clone(&config.certificates),
            certificate_metrics,
            {
                let leadership = leadership.clone();
                move || leadership.check().is_ok()
            },
            move || heartbeat.beat(),
            end.clone(),
        ));

        let reporter =
            Reporter { controller: "isthmus-manager".into(), instance: Some(config.identity.clone()) };
        let events = ToldEvents::new(client.clone(), reporter.clone());
        let context = Arc::new(Context {
            client: client.clone(),
            pools: pools.clone(),
            nodes,
            pods: Arc::new(ContainerNetworkPods::default()),
            leader_configs: Arc::new(ByName::default()),
            events,
            reporter,
            metrics: controller_metrics,
            hub_namespace: config.hubs.hub_namespace.clone(),
            leadership,
            progress: Progress::default(),
        });
        serve_hubs(&context, &config, hub_metrics, &mut tasks, &end);
        let (sender, queue) = mpsc::unbounded_channel();
        // A process leads once in its life: losing the leadership ends it.
        let _ = keys.queue.set(sender);

        let (configs_listed, all_configs) = watch::channel(false);
        let places = node_places::Controller {
            client: client.clone(),
            leadership: context.leadership.clone(),
            nodes: Arc::clone(&context.nodes),
            nodes_listed: all_nodes.clone(),
            namespace: config.hubs.hub_namespace.clone(),
        };
        tasks.spawn(places.run(end.clone()));
        tasks.spawn(watches::keep(
            Api::namespaced(client.clone(), &config.hubs.hub_namespace),
            watcher::Config::default().labels(api::labels::CONFIG_MAP_NAME),
            Arc::clone(&context.leader_configs),
            {
                let keys = keys.clone();
                move |names| {
                    keys.ask(names.iter().filter_map(|name| node_pool::leader_config::pool(name)).collect());
                }
            },
            move || {
                configs_listed.send_replace(true);
            },
        ));
        tasks.spawn(watch_pods(client, Arc::clone(&context), keys.clone()));

        let listed = async {
            // The senders live in the tasks above, which end with this function only.
            for mut listed in [pools.ready(), all_nodes, all_configs] {
                let _ = listed.wait_for(|done| *done).await;
            }
        };
        tokio::select! {
            () = end.cancelled() => return,
            () = listed => {}
        }
        keys.ask(node_pool::all_keys(&context));
        node_pool::run(context, queue, end).await;
    }
}

/// The controllers of what hubs are given: certificates, and the right to read who leads their pools.
fn serve_hubs(
    context: &Context,
    config: &Config,
    metrics: HubIdentityMetrics,
    tasks: &mut JoinSet<()>,
    end: &CancellationToken,
) {
    if config.hubs.approve_hub_certificates {
        let controller = hub_identity::Controller {
            client: context.client.clone(),
            leadership: context.leadership.clone(),
            events: context.events.clone(),
            metrics,
            gateways: config.gateways.gateways,
        };
        tasks.spawn(controller.run(end.clone()));
    }
    if config.hubs.hub_access {
        let controller = hub_access::Controller {
            client: context.client.clone(),
            leadership: context.leadership.clone(),
            pools: context.pools.clone(),
            namespace: config.hubs.hub_namespace.clone(),
        };
        tasks.spawn(controller.run(end.clone()));
    }
}

/// Tells the keys of what changed.
pub(crate) fn asking(keys: &Keys) -> impl Fn(BTreeSet<String>) + Send + use<> {
    let keys = keys.clone();
    move |changed| keys.ask(changed)
}

/// Keeps the index of pods from the moment that some pool is in host-network mode: without one nobody asks it.
async fn watch_pods(client: Client, context: Arc<Context>, keys: Keys) {
    while !context.pools.any_host_network() {
        tokio::time::sleep(HOST_NETWORK_CHECK).await;
    }
    let config = watcher::Config::default().fields(pods::FIELD_SELECTOR);
    let (nodes, pods) = (Arc::clone(&context.nodes), Arc::clone(&context.pods));
    let pools_of = move |changed: BTreeSet<String>| {
        changed.iter().filter_map(|node| nodes.pool_of(node)).collect::<BTreeSet<_>>()
    };
    let changed = {
        let keys = keys.clone();
        move |nodes| keys.ask(pools_of(nodes))
    };
    let synced = {
        let context = Arc::clone(&context);
        move || {
            context.pods.note_listed();
            keys.ask(node_pool::all_keys(&context));
        }
    };
    watches::keep(Api::all(client), config, pods, changed, synced).await;
}
