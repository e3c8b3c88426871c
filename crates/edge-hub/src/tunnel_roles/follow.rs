//! Keeps the plan as the cluster has it, from the hub's own subscriptions. They are stored: after a start without a link the last
//! known picture holds. An edge node reads Gateways, its own Node, its own pool and which nodes that has; a gateway all Nodes and NodePools
//! besides.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::{
    names::{POOL_NODES, leader_hub_config_map},
    pool_nodes,
};
use kube_wire::resource::{GroupVersionResource, ObjectKey};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    State, TunnelConfig,
    objects::{Gateway, NodeFacts, is_edge_pool, service_ports},
    plan::{Given, Known, Role, plan},
};
use crate::{
    cloud_config::follow::{config_map, data},
    filters::follow::{Source, Told, named},
    hub::Hub,
    subscriptions::Key,
};

/// How long changes are gathered: Nodes write their status one after the other.
const GATHER: Duration = Duration::from_millis(50);

fn gateways() -> Key {
    Key::pooled(&GroupVersionResource::new("raven.openyurt.io", "v1beta1", "gateways"))
}

fn nodes() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "nodes")
}

fn pools() -> GroupVersionResource {
    GroupVersionResource::new("apps.openyurt.io", "v1beta2", "nodepools")
}

fn services() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "services")
}

/// Keeps the plan until `shutdown`.
pub(super) async fn follow(
    hub: Arc<Hub>,
    state: Arc<State>,
    config: Arc<TunnelConfig>,
    shutdown: CancellationToken,
) {
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = Following::new(hub, state, config).run() => {}
    }
}

struct Following {
    hub: Arc<Hub>,
    state: Arc<State>,
    config: Arc<TunnelConfig>,
    known: Known,
    unreadable: BTreeMap<String, String>,
    gateways: Source,
    own: Source,
    own_pool: Source,
    pool_nodes: Source,
    nodes: Source,
    pools: Source,
    service: Source,
    /// When this node ceased to be a gateway, if it still reads what one does.
    parted: Option<Instant>,
}

impl Following {
    fn new(hub: Arc<Hub>, state: Arc<State>, config: Arc<TunnelConfig>) -> Self {
        Self {
            hub,
            gateways: Source::new(gateways()),
            own: Source::new(named(&nodes(), "", &state.me)),
            own_pool: Source::none(),
            pool_nodes: Source::none(),
            nodes: Source::none(),
            pools: Source::none(),
            service: Source::none(),
            state,
            config,
            known: Known::default(),
            unreadable: BTreeMap::new(),
            parted: None,
        }
    }

    async fn run(mut self) {
        loop {
            self.read();
            self.tell_problems();
            // Without Gateways nothing is known; what was known before holds.
            if self.gateways.has_read() {
                let given = Given {
                    me: &self.state.me,
                    listen_port: self.config.listen.port(),
                    destinations: &self.config.destinations,
                    ways_in: self.config.ways_in,
                };
                let plan = plan(&given, &self.known);
                let role = plan.role;
                self.state.follow(plan);
                if self.widen(role == Role::Gateway) {
                    continue;
                }
            }
            let drained = self.drains();
            tokio::select! {
                () = self.gateways.changed() => {}
                () = self.own.changed() => {}
                () = self.own_pool.changed() => {}
                () = self.pool_nodes.changed() => {}
                () = self.nodes.changed() => {}
                () = self.pools.changed() => {}
                () = self.service.changed() => {}
                () = sleep_until(drained.unwrap_or_else(Instant::now)), if drained.is_some() => {}
            }
            sleep(GATHER).await;
        }
    }

    fn read(&mut self) {
        let (known, hub, unreadable) = (&mut self.known, &self.hub, &mut self.unreadable);
        self.gateways.read(hub, |told| match told {
            Told::Reset => {
                known.gateways.clear();
                unreadable.clear();
            }
            Told::Put(object) => {
                let name = object.key().name().to_owned();
                match Gateway::read(object) {
                    Ok(gateway) => {
                        unreadable.remove(&name);
                        known.gateways.insert(name, gateway);
                    }
                    // What was read of it before holds.
                    Err(error) => drop(unreadable.insert(name, error)),
                }
            }
            Told::Gone(object) => {
                known.gateways.remove(object.key().name());
                unreadable.remove(object.key().name());
            }
        });
        self.own.read(hub, |told| match told {
            Told::Put(node) => {
                let mut facts = NodeFacts::read(node);
                // One that was registered anew has no addresses until its cloud provider has looked; this machine has those of before.
                if facts.addresses.is_empty()
                    && let Some(before) = &known.own
                {
                    facts.addresses.clone_from(&before.addresses);
                }
                known.own = Some(facts);
            }
            // A node that is gone from the cache for a moment stays what it is.
            Told::Reset | Told::Gone(_) => {}
        });
        // Filters and configuration may go by another pool than the label's.
        let theirs = hub.filters.view().pool.clone();
        let pool = known.own.as_ref().and_then(|own| own.pool.as_deref());
        // The own pool alone; on a gateway all are read below.
        let wanted = pool.filter(|_| self.pools.key.is_none());
        turn(hub, &mut self.own_pool, wanted, theirs.as_deref(), |pool| named(&pools(), "", pool));
        let key = |pool: &str| config_map(&leader_hub_config_map(pool));
        if turn(hub, &mut self.pool_nodes, pool, theirs.as_deref(), key) {
            known.pool_nodes.clear();
        }
        let of_pool = &mut known.pool_nodes;
        self.pool_nodes.read(hub, |told| match told {
            Told::Reset | Told::Gone(_) => of_pool.clear(),
            Told::Put(config) => {
                *of_pool = data(config)(POOL_NODES).map(|text| pool_nodes::read(&text)).unwrap_or_default();
            }
        });
        let edge_pools = &mut known.edge_pools;
        for source in [&mut self.own_pool, &mut self.pools] {
            source.read(hub, |told| match told {
                Told::Reset => edge_pools.clear(),
                Told::Put(pool) => drop(edge_pools.insert(name(pool.key()), is_edge_pool(pool))),
                Told::Gone(pool) => drop(edge_pools.remove(pool.key().name())),
            });
        }
        known.knows_pools =
            if self.pools.key.is_some() { self.pools.has_read() } else { self.own_pool.has_read() };
        let nodes = &mut known.nodes;
        self.nodes.read(hub, |told| match told {
            Told::Reset => nodes.clear(),
            Told::Put(node) => drop(nodes.insert(name(node.key()), NodeFacts::read(node))),
            Told::Gone(node) => drop(nodes.remove(node.key().name())),
        });
        let ports = &mut known.ports;
        let state = &self.state;
        self.service.read_one(hub, |service| match service {
            Some(service) => match service_ports(&services(), service) {
                Ok(read) => {
                    *ports = read;
                    state.problem("internal Service", None);
                }
                Err(error) => state.problem("internal Service", Some(error)),
            },
            None => ports.clear(),
        });
    }

    /// Opens or closes what only gateways read; says whether the plan must be made anew for that.
    ///
    /// Who is no gateway any more reads on for as long as a drain lasts: only from there it knows some of the nodes whose streams it still
    /// carries, and one that is not known may ask for nothing new.
    fn widen(&mut self, gateway: bool) -> bool {
        if gateway {
            self.parted = None;
            if self.nodes.key.is_some() {
                return false;
            }
            let service = named(&services(), api::names::NAMESPACE, api::names::PROXY_INTERNAL_SERVICE);
            self.nodes = Source::new(Key::pooled(&nodes()));
            self.pools = Source::new(Key::pooled(&pools()));
            self.service = Source::new(service);
            return true;
        }
        if self.nodes.key.is_none() || self.drains().is_some_and(|end| Instant::now() < end) {
            return false;
        }
        if self.parted.is_none() {
            self.parted = Some(Instant::now());
            return false;
        }
        self.parted = None;
        // The Services themselves are shared with everyone on the node: only what was opened for the gateway is closed.
        for source in [&mut self.nodes, &mut self.pools] {
            if let Some(key) = source.key.take() {
                self.hub.subscriptions.close_own(&key);
            }
            *source = Source::none();
        }
        self.service = Source::none();
        self.known.nodes.clear();
        self.known.ports.clear();
        true
    }

    /// Until when a node that is no gateway any more reads what one does.
    fn drains(&self) -> Option<Instant> {
        self.parted.map(|parted| parted + self.state.connector.limits().drain)
    }

    fn tell_problems(&self) {
        let refused = |source: &Source, what: &str| {
            source.refusal().map(|reason| format!("{what} cannot be read: {reason}"))
        };
        self.state.problem("Gateways", refused(&self.gateways, "Gateways"));
        let hint = "Nodes (chart value edgeHub.gatewayNodes), so that nodes in no Gateway are not known,";
        self.state.problem("Nodes", refused(&self.nodes, hint));
        let unreadable: Vec<String> =
            self.unreadable.iter().map(|(name, error)| format!("{name} is malformed: {error}")).collect();
        self.state.problem("malformed Gateways", (!unreadable.is_empty()).then(|| unreadable.join("; ")));
    }
}

/// Has a source read what `key` makes of this pool, and says whether it read another one. That one is closed, unless it is of the pool by which filters and
/// configuration go: they read the same of that, and close it when they leave it.
fn turn(
    hub: &Hub,
    source: &mut Source,
    pool: Option<&str>,
    theirs: Option<&str>,
    key: impl Fn(&str) -> Key,
) -> bool {
    let wanted = pool.map(&key);
    if source.key == wanted {
        return false;
    }
    let theirs = theirs.map(key);
    if let Some(old) = source.key.take().filter(|old| theirs.as_ref() != Some(old)) {
        hub.subscriptions.close_own(&old);
    }
    *source = wanted.map_or_else(Source::none, Source::new);
    true
}

fn name(key: &ObjectKey) -> String {
    key.name().to_owned()
}
