//! Keeps the view of the filters as the cluster has it: the Services' annotations, the node's pool and the pool's nodes.
//! In: the hub's own subscriptions, which are stored, so that after a start without a link the last known view holds.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use kube_wire::{
    object::Object,
    resource::{GroupVersionResource, ObjectKey},
};
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Duration, Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use watch_cache::{Cursor, Delivery, Scope, Selects, Step};

use super::{FilterName, PodAccess, Topology, internal_addresses};
use crate::{
    hub::Hub,
    reflector::WITHDRAWN,
    subscriptions::{Key, Owner, Progress, Subscription},
};

/// How many objects are looked at under one lock.
const BUDGET: usize = 256;

/// How long it may take to learn who is in the pool that the node came to.
const KNOWN: Duration = Duration::from_secs(5);

/// Keeps the view until `shutdown`. The pool is that of `pool` if it is given, and that of the node's label otherwise.
///
/// What is held is read at once, before the link can change it: a Service that lost its topology while the hub was not there had one
/// until then.
pub fn follow(
    hub: Arc<Hub>,
    node: &str,
    pool: Option<Box<str>>,
    access: watch::Receiver<PodAccess>,
    shutdown: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let mut following = Following::new(hub, node, pool, access);
    following.read();
    async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = following.run() => {}
        }
    }
}

struct Following {
    hub: Arc<Hub>,
    configured: bool,
    access: watch::Receiver<PodAccess>,
    internal: Vec<IpAddr>,
    pool: Option<Box<str>>,
    /// When the node came into the pool.
    came: Instant,
    topology: BTreeMap<ObjectKey, Topology>,
    pool_nodes: Option<BTreeSet<Box<str>>>,
    services: Source,
    own_node: Source,
    node_pool: Source,
}

impl Following {
    fn new(hub: Arc<Hub>, node: &str, pool: Option<Box<str>>, access: watch::Receiver<PodAccess>) -> Self {
        let own_node = named(&GroupVersionResource::new("", "v1", "nodes"), "", node);
        Self {
            hub,
            configured: pool.is_some(),
            services: Source::none(),
            own_node: Source {
                key: (pool.is_none() || access.borrow().asks_node()).then_some(own_node),
                ..Source::none()
            },
            access,
            internal: Vec::new(),
            node_pool: pool_source(pool.as_deref()),
            pool,
            came: Instant::now(),
            topology: BTreeMap::new(),
            pool_nodes: None,
        }
    }

    async fn run(mut self) {
        let mut link = self.hub.upstream.state();
        let mut revision = self.hub.filters.revision();
        let (mut has_settled, mut is_known) = (false, false);
        loop {
            revision.borrow_and_update();
            self.read();
            let now = Instant::now();
            let access = self.access.borrow_and_update().clone();
            // Until it is known who else is in the pool that the node came to, it is shown as in the one that it left, for a while: clients would be sent
            // to all endpoints meanwhile.
            let knows_pool = !has_settled || self.node_pool.is_known(now) || self.came.elapsed() >= KNOWN;
            self.hub.filters.change_view(|view| {
                view.send_pods(&access, &self.internal);
                if knows_pool {
                    view.pool = self.pool.as_deref().map(Arc::from);
                    if view.pool_nodes.as_deref() != self.pool_nodes.as_ref() {
                        view.pool_nodes = self.pool_nodes.clone().map(Arc::new);
                    }
                }
                if *view.topology != self.topology {
                    view.topology = Arc::new(self.topology.clone());
                }
            });
            let sources = [&self.services, &self.own_node, &self.node_pool];
            is_known |= sources.iter().all(|source| source.is_known(now));
            let lasts = sources.into_iter().filter_map(Source::lasts_from).filter(|from| *from > now).min();
            // While there is no link, what is held is as good as it gets.
            let has_services = self.services.key.is_none() || self.services.has_read();
            let is_settled = is_known || has_services && !self.hub.upstream.is_up();
            has_settled |= is_settled;
            self.hub.filters.settle(is_settled);
            tokio::select! {
                () = sleep_until(self.came + KNOWN), if !knows_pool => {}
                () = sleep_until(lasts.unwrap_or(now)), if lasts.is_some() => {}
                () = self.services.changed() => {}
                () = self.own_node.changed() => {}
                () = self.node_pool.changed() => {}
                _ = link.changed() => {}
                _ = revision.changed() => {}
                // Its sender goes where there is no such listener.
                Ok(()) = self.access.changed() => {}
            }
        }
    }

    /// Reads Services for the filter alone that looks at them.
    fn choose_services(&mut self) {
        let wanted = self.hub.filters.has(FilterName::ServiceTopology);
        match self.services.key.take() {
            None if wanted => {
                self.services = Source::new(Key::pooled(&GroupVersionResource::new("", "v1", "services")));
            }
            Some(key) if !wanted => {
                self.services = Source::none();
                self.hub.subscriptions.close_own(&key);
            }
            key => self.services.key = key,
        }
    }

    fn read(&mut self) {
        self.choose_services();
        let topology = &mut self.topology;
        self.services.read(&self.hub, |told| match told {
            Told::Reset => topology.values_mut().for_each(|wanted| *wanted = Topology::Former),
            Told::Put(service) => match Topology::of(service) {
                Some(wanted) => drop(topology.insert(service.key().clone(), wanted)),
                None => {
                    topology.entry(service.key().clone()).and_modify(|wanted| *wanted = Topology::Former);
                }
            },
            Told::Gone(service) => drop(topology.remove(service.key())),
        });
        let mut pool = self.pool.clone();
        let internal = &mut self.internal;
        self.own_node.read(&self.hub, |told| match told {
            Told::Put(node) => {
                let label = node.label(api::labels::NODE_POOL);
                pool = label.filter(|label| !label.is_empty()).map(|label| label.as_ref().into());
                *internal = internal_addresses(node);
            }
            // A node that is gone from the cache for a moment keeps its pool and its addresses.
            Told::Reset | Told::Gone(_) => {}
        });
        if !self.configured && pool != self.pool {
            if let Some(old) = self.node_pool.key.take() {
                self.hub.subscriptions.close_own(&old);
            }
            self.node_pool = pool_source(pool.as_deref());
            self.came = Instant::now();
            self.pool = pool;
            self.pool_nodes = None;
        }
        let pool_nodes = &mut self.pool_nodes;
        self.node_pool.read_one(&self.hub, |pool| *pool_nodes = pool.map(members));
    }
}

/// The key of one object by its name.
pub(crate) fn named(resource: &GroupVersionResource, namespace: &str, name: &str) -> Key {
    Key {
        owner: Owner::Node,
        resource: resource.clone(),
        namespace: namespace.into(),
        labels: Box::default(),
        fields: format!("metadata.name={name}").into(),
    }
}

fn pool_key(pool: &str) -> Key {
    named(&GroupVersionResource::new("apps.openyurt.io", "v1beta2", "nodepools"), "", pool)
}

/// Where what converts NodePools is down the API server fails for as long.
fn pool_source(pool: Option<&str>) -> Source {
    Source { key: pool.map(pool_key), fails: true, ..Source::none() }
}

fn members(pool: &Object) -> BTreeSet<Box<str>> {
    let pool: Value = serde_json::from_slice(pool.body()).unwrap_or_default();
    pool["status"]["nodes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(Into::into)
        .collect()
}

/// What a source tells.
pub(crate) enum Told<'a> {
    /// Everything will be told anew.
    Reset,
    /// An object is so.
    Put(&'a Object),
    /// An object is gone.
    Gone(&'a Object),
}

/// A subscription of the hub's own, read in place.
pub(crate) struct Source {
    /// What it is about; `None`: nothing.
    pub(crate) key: Option<Key>,
    /// Whether any refusal may last, and not only those that say so.
    fails: bool,
    reader: Option<Reader>,
}

struct Reader {
    subscription: Arc<Subscription>,
    changes: watch::Receiver<u64>,
    progress: watch::Receiver<Progress>,
    cursor: Option<Cursor<All>>,
    /// Since when the API server has refused it for a reason that may last.
    refused: Option<Instant>,
}

impl Source {
    /// A source that tells nothing.
    pub(crate) fn none() -> Self {
        Self { key: None, fails: false, reader: None }
    }

    /// A source that is opened when it is first read.
    pub(crate) fn new(key: Key) -> Self {
        Self { key: Some(key), ..Self::none() }
    }

    /// Tells what is new since the last call.
    pub(crate) fn read(&mut self, hub: &Hub, mut tell: impl FnMut(Told<'_>)) {
        let Some(key) = &self.key else { return };
        if self.reader.as_ref().is_some_and(|reader| reader.subscription.closed().is_cancelled()) {
            self.reader = None;
        }
        if self.reader.is_none() {
            let opened = hub.subscriptions.open_own(key);
            self.reader = opened.map(|subscription| Reader {
                changes: subscription.changes(),
                progress: subscription.progress(),
                subscription,
                cursor: None,
                refused: None,
            });
        }
        let Some(reader) = &mut self.reader else { return };
        // Before the cache is looked at: a change after that wakes us again.
        reader.changes.borrow_and_update();
        let may_last = {
            let progress = reader.progress.borrow_and_update();
            progress.is_gone() || progress.is_unauthorized() || self.fails && progress.is_refused()
        };
        reader.refused = reader.refused.filter(|_| may_last).or_else(|| may_last.then(Instant::now));
        loop {
            let Reader { subscription, cursor, .. } = reader;
            if cursor.is_none() {
                let Ok(new) = subscription.read(|cache| cache.watch_initial(None, false, false, All)) else {
                    return;
                };
                *cursor = Some(new);
                tell(Told::Reset);
            }
            let Some(current) = cursor else { return };
            match subscription.read(|cache| current.next(cache, BUDGET)) {
                Step::Events(deliveries) => {
                    for delivery in &deliveries {
                        match delivery {
                            Delivery::Added(object) | Delivery::Modified(object) if is_meant(key, object) => {
                                tell(Told::Put(object));
                            }
                            Delivery::Deleted(object) if is_meant(key, object) => tell(Told::Gone(object)),
                            _ => {}
                        }
                    }
                }
                Step::Idle => return,
                Step::Expired { .. } => *cursor = None,
            }
        }
    }

    /// The same of a source of one object: tells it when it is new or has changed, and `None` when it is gone, or not there when all is read anew.
    pub(crate) fn read_one(&mut self, hub: &Hub, mut tell: impl FnMut(Option<&Object>)) {
        let mut is_missing = false;
        self.read(hub, |told| {
            is_missing = matches!(told, Told::Reset);
            match told {
                Told::Reset => {}
                Told::Put(object) => tell(Some(object)),
                Told::Gone(_) => tell(None),
            }
        });
        if is_missing && self.has_read() {
            tell(None);
        }
    }

    /// Returns when there may be something new.
    pub(crate) async fn changed(&mut self) {
        let Some(Reader { subscription, changes, progress, .. }) = &mut self.reader else {
            return std::future::pending().await;
        };
        let closed = subscription.closed().clone();
        tokio::select! {
            _ = changes.changed() => {}
            _ = progress.changed() => {}
            // At the end of the hub it is closed for good: whoever asks again at once must let others see the end, too.
            () = closed.cancelled() => tokio::task::yield_now().await,
        }
    }

    /// Whether it was read, or there is nothing to read, or the API server has refused it for long enough: one that has just started knows neither all
    /// rights nor all resources, and one that has too much to do says so.
    fn is_known(&self, now: Instant) -> bool {
        self.key.is_none() || self.has_read() || self.lasts_from().is_some_and(|from| from <= now)
    }

    /// From when on a refusal will have lasted.
    fn lasts_from(&self) -> Option<Instant> {
        Some(self.reader.as_ref()?.refused? + WITHDRAWN)
    }

    /// Why the API server does not give it, if it does not.
    pub(crate) fn refusal(&self) -> Option<String> {
        match &*self.reader.as_ref()?.progress.borrow() {
            Progress::Refused(status) => Some(status.message.clone()),
            Progress::Syncing | Progress::Watching | Progress::Interrupted => None,
        }
    }

    /// Whether it was read whole.
    pub(crate) fn has_read(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.cursor.is_some())
    }
}

/// Whether a source is about this object: a wider subscription that is open answers for a narrower one.
fn is_meant(key: &Key, object: &Object) -> bool {
    let name = key.fields.strip_prefix("metadata.name=");
    let object = object.key();
    name.is_none_or(|name| name == object.name())
        && (key.namespace.is_empty() || *key.namespace == *object.namespace())
}

/// Everything of a subscription: what it holds is what was asked for.
struct All;

impl Selects for All {
    fn scope(&self) -> &Scope {
        &Scope::Cluster
    }

    fn selects(&self, _: &Object) -> bool {
        true
    }

    fn is_everything(&self) -> bool {
        true
    }
}
